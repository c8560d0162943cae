"""Local SGD (Stich, ICLR 2019) and DiLoCo (Douillard et al., 2023): what is lost if nodes average their weights seldom."""
from study import line, median, table

TITLE = "Nodes that average after X steps send an Xth of the bytes, and lose little"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 4 nodes with 64 samples a step each, learning rate 0.05, momentum 0.9, two epochs. Bytes are the floats of pushes and pulls, of all nodes. "
           "Medians of three seeds.")
INTERVALS = (1, 2, 4, 8, 16, 32, 64)
OUTER = {"average": (), "nesterov:0.7,0.9": ("--outer", "nesterov"), "nesterov:1,0.5": ("--outer", "nesterov:1,0.5")}
NODES = 4


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
    points = [f"data using 1:{2 + i} {line(i)} title '{way}'" for i, way in enumerate(ways)]
    points.append(f"data using 1:{2 + len(ways)} with lines lw 1 dt 3 lc rgb 'black' title 'bsp'")
    lab.plot("set logscale x\nset yrange [0.35:0.6]\nset xlabel 'MB sent and received, all nodes'\nset ylabel 'test loss (nats) after the training'\nplot " + ", \\\n     ".join(points) + "\n", ["mb", *ways, "bsp"], rows)
    shown = table(["what owners do with the mean change", "every", "MB", "test loss", "accuracy"],
                  [[row["way"], row["steps"], round(row["bytes"] / 1e6, 1), row["test_loss"] and round(row["test_loss"], 4), f"{100 * row['accuracy']:.2f} %"] for row in found])
    return "Each point is a training: from right to left nodes exchange less often. The dotted line is training in which all nodes exchange gradients after each step. Outer momentum does harm here if nodes average often: a part of a line above the picture has not learned.\n\n" + shown
