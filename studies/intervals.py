"""Local SGD (Stich, ICLR 2019) and DiLoCo (Douillard et al., 2023): what is lost if nodes average their weights seldom."""
from study import line, median, note, table

TITLE = "Nodes that average after X steps send an Xth of the bytes, and lose little"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 4 nodes, two epochs; virtual time; medians of 3 seeds"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 4 nodes with 64 samples a step each, learning rate 0.05, momentum 0.9, two epochs. Bytes are the floats of pushes and pulls, of all nodes. "
           "Medians of three seeds.")
INTERVALS = (1, 2, 4, 8, 16, 32, 64)
OUTER = {"average": (), "nesterov:0.7,0.9": ("--outer", "nesterov"), "nesterov:1,0.5": ("--outer", "nesterov:1,0.5")}
NODES = 4
NAMES = {"average": "average", "nesterov:0.7,0.9": "outer Nesterov, rate 0.7, momentum 0.9", "nesterov:1,0.5": "outer Nesterov, rate 1, momentum 0.5"}
MOST = 0.6  # nats that the picture shows


def run(lab):
    intervals = (1, 8) if lab.quick else INTERVALS
    base = ("--nodes", NODES, *lab.length)
    settings = {(name, steps, seed): (*base, "--sync", f"every:{steps}", "--seed", seed, *outer) for name, outer in OUTER.items() for steps in intervals for seed in lab.seeds}
    settings.update({("bsp", 1, seed): (*base, "--seed", seed) for seed in lab.seeds})
    done = lab.train_all(settings)
    found = []
    for name, steps in dict.fromkeys((name, steps) for name, steps, _ in settings):
        results = [done[name, steps, seed] for seed in lab.seeds]
        parameters = sum(layer["parameters"] for layer in results[0]["layers"])
        exchanges = -(-results[0]["steps"] // steps)
        found.append({"way": name, "steps": steps, "bytes": 2 * 4 * parameters * exchanges * NODES, "accuracy": median([result["accuracy"] for result in results]),
                      "test_loss": median([result["test_loss"] for result in results])})
    return found


def page(lab, found):
    ways = [way for way in dict.fromkeys(row["way"] for row in found) if way != "bsp"]
    intervals = sorted({row["steps"] for row in found})
    at = {(row["way"], row["steps"]): row for row in found}
    rows = [(round(at[ways[0], steps]["bytes"] / 1e6, 3), *(at[way, steps]["test_loss"] for way in ways), at["bsp", 1]["test_loss"]) for steps in intervals]
    points = [f"data using 1:{2 + i} {line(i)} title '{NAMES[way]}'" for i, way in enumerate(ways)]
    bsp = at["bsp", 1]
    points.append(f"{bsp['test_loss']} with lines lw 1.5 dt (2,5) lc rgb 'black' title 'bsp: gradients after each step ({bsp['bytes'] / 1e6:.0f} MB)'")
    outside = {way: [(steps, at[way, steps]["test_loss"]) for steps in intervals if at[way, steps]["test_loss"] > MOST] for way in ways}
    notes = "".join(note(f"{NAMES[way]}: off the scale,\\n{min(loss for _, loss in losses):.1f} and more at intervals up to {max(steps for steps, _ in losses)}", "graph 0.98", f"first {0.98 * MOST}", "right")
                    for way, losses in outside.items() if losses)
    ticks = ", ".join(f"'{steps}' {at[ways[0], steps]['bytes'] / 1e6:.2f}" for steps in intervals)
    lab.plot(notes + f"set logscale x\nset logscale x2\nset xrange [20:2400]\nset x2range [20:2400]\nset xtics nomirror (20, 50, 100, 200, 500, 1000, 2000)\nset x2tics ({ticks})\n"
             f"set tmargin 6\nset x2label 'interval: nodes exchange after so many steps'\nset yrange [0.35:{MOST}]\nset xlabel 'MB sent and received, all nodes'\nset ylabel 'test loss (nats) after the training'\nplot " + ", \\\n     ".join(points) + "\n", ["mb", *ways, "bsp"], rows, legend=2)
    shown = table(["what owners do with the mean change", "every", "MB", "test loss", "accuracy"],
                  [[row["way"], row["steps"], round(row["bytes"] / 1e6, 1), row["test_loss"] and round(row["test_loss"], 4), f"{100 * row['accuracy']:.2f} %"] for row in found])
    return "Each point is a training: from right to left nodes exchange less often. The dotted line is training in which all nodes exchange gradients after each step. Outer momentum does harm here if nodes average often: a part of a line above the picture has not learned.\n\n" + shown
