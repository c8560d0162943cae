"""Compressed pushes: rounding, and top-k and random-k with error feedback (Stich et al., "Sparsified SGD with memory", NeurIPS 2018; Richtarik et al., "EF21", NeurIPS 2021)."""
from study import line, median, table

TITLE = "A hundredth of a gradient teaches as much, if the rest is kept for later"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 4 nodes with 64 samples a step each, through a store with `--sync bsp`, learning rate 0.1, no momentum, two epochs. Bytes are those of pushes alone; weights come back "
           "as float32. Training loss: the mean of 40 steps. EF21 draws the gradient's norm; here it is the loss. Medians of three seeds.")
CODECS = ("fp32", "bf16", "fp16", "int8", "top:0.01", "top:0.001", "random:0.01")
LOSSY = ("top:0.01", "random:0.01")  # also without error feedback
WINDOW = 40


def run(lab):
    codecs = ("fp32", "bf16", "int8", "top:0.01", "random:0.01") if lab.quick else CODECS
    ways = {codec: ("--codec", codec) for codec in codecs}
    ways.update({f"{codec}, others lost": ("--codec", codec, "--no-error-feedback") for codec in LOSSY})
    base = ("--nodes", 4, *lab.length, "--lr", 0.1, "--momentum", 0, "--in-process", "--sync", "bsp")
    done = lab.train_all({(way, seed): (*base, "--seed", seed, *options) for way, options in ways.items() for seed in lab.seeds}, serial=False)
    found = []
    for way in ways:
        results = [done[way, seed] for seed in lab.seeds]
        curves = [means(result["losses"]) for result in results]
        found.append({"codec": way, "bytes": sum(layer["pushed_bytes"] for layer in results[0]["layers"]) / results[0]["steps"] / 4, "loss": median([curve[-1] for curve in curves]),
                      "accuracy": median([result["accuracy"] for result in results]), "curve": [median([curve[i] for curve in curves]) for i in range(len(curves[0]))]})
    return found


def means(losses):
    """The mean loss of each WINDOW steps."""
    parts = [losses[i:i + WINDOW] for i in range(0, len(losses) - WINDOW + 1, WINDOW)]
    return [None if None in part else round(sum(part) / len(part), 4) for part in parts]


def page(lab, found):
    rows = [tuple(value for row in found for value in (round(row["bytes"] * WINDOW * (i + 1) / 1e6, 4), row["curve"][i])) for i in range(len(found[0]["curve"]))]
    names = [name for row in found for name in (f"mb_{row['codec']}", row["codec"])]
    lines = [f"data using {2 * i + 1}:{2 * i + 2} {line(i, 3)} title '{row['codec']}'" for i, row in enumerate(found)]
    lab.plot("set logscale x\nset yrange [0.3:1.4]\nset xlabel 'MB that a node has pushed'\nset ylabel 'training loss (nats)'\nplot " + ", \\\n     ".join(lines) + "\n", names, rows)
    dense = found[0]
    shown = table(["codec", "KB a push of all", "of fp32", "loss at the end", "accuracy"],
                  [[row["codec"], round(row["bytes"] / 1e3, 1), f"{100 * row['bytes'] / dense['bytes']:.1f} %", row["loss"], f"{100 * row['accuracy']:.2f} %"] for row in found])
    return "Each line is a training, from its first bytes to its last. Others lost: what a push leaves out is not kept for later.\n\n" + shown
