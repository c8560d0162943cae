"""Compressed pushes: rounding, and top-k and random-k with error feedback (Stich et al., "Sparsified SGD with memory", NeurIPS 2018; Richtarik et al., "EF21", NeurIPS 2021)."""
from study import line, median, table

TITLE = "The largest hundredth of a gradient teaches as much, if the rest is kept for later"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 4 nodes in one process; each line is a training of two epochs; medians of 3 seeds"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 4 nodes with 64 samples a step each, through a store with `--sync bsp`, learning rate 0.1, no momentum, two epochs. Bytes are those of pushes alone; weights come back "
           "as float32. Training loss: the mean of 40 steps. EF21 draws the gradient's norm; here it is the loss. Medians of three seeds.")
CODECS = ("fp32", "bf16", "fp16", "int8", "top:0.01", "top:0.001", "random:0.01")
LOSSY = ("top:0.01", "random:0.01")  # also without error feedback
WINDOW = 40
NAMES = {"fp32": "all, fp32", "bf16": "all, bf16", "fp16": "all, fp16", "int8": "all, int8", "top:0.01": "largest 1 %, rest kept", "top:0.001": "largest 0.1 %, rest kept",
         "random:0.01": "random 1 %, rest kept", "top:0.01, others lost": "largest 1 %, rest dropped", "random:0.01, others lost": "random 1 %, rest dropped"}


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


def hidden(found, number):
    """Which line before this one it hides: one of as many bytes whose losses are the same but for a hundredth."""
    row = found[number]
    for other in found[:number]:
        if abs(row["bytes"] / other["bytes"] - 1) < 0.01 and all(None not in pair and abs(pair[0] / pair[1] - 1) < 0.01 for pair in zip(row["curve"], other["curve"])):
            return f" (lies on {other['codec']})"
    return ""


def page(lab, found):
    rows = [tuple(value for row in found for value in (round(row["bytes"] * WINDOW * (i + 1) / 1e6, 4), row["curve"][i])) for i in range(len(found[0]["curve"]))]
    names = [name for row in found for name in (f"mb_{row['codec']}", row["codec"])]
    lines = [f"data using {2 * i + 1}:{2 * i + 2} {line(i, 3)} title '{NAMES[row['codec']]}{hidden(found, i)}'" for i, row in enumerate(found)]
    lab.plot("set logscale xy\nset yrange [0.35:2.8]\nset ytics (0.35, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 2.5)\nset xlabel 'MB that a node has pushed'\nset ylabel 'training loss (nats), mean of 40 steps'\nplot " + ", \\\n     ".join(lines) + "\n", names, rows, legend=3)
    dense = found[0]
    shown = table(["codec", "KB a push of all", "of fp32", "loss at the end", "accuracy"],
                  [[row["codec"], round(row["bytes"] / 1e3, 1), f"{100 * row['bytes'] / dense['bytes']:.1f} %", row["loss"], f"{100 * row['accuracy']:.2f} %"] for row in found])
    return "Each line is a training, from its first bytes to its last. Others lost: what a push leaves out is not kept for later.\n\n" + shown
