"""Weights that nodes pass on by trees, as SplitStream's (Castro et al., SOSP 2003) pass on streams: what their age costs."""
from study import line, median, note, style, table

TITLE = "Weights that nodes pass on cost what their mean staleness costs, not their greatest"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 16 nodes, two epochs; virtual time; medians of 3 seeds; numbers: age of the oldest weights (steps)"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 16 nodes with 16 samples a step each, learning rate 0.05 without momentum, two epochs. Every node owns a 16th of each layer. "
           "With `tree:D` a node has some of the weights a step late and others D steps; with `pipeline:D` all are D steps old. Medians of three seeds.")
NODES = 16
NAMES = {"tree": "passed on in a tree", "pipeline": "all D steps old"}
WAYS = {"tree": (1, 2, 3, 4, 15), "pipeline": (1, 2, 3, 4, 6, 8)}


def copies(depth):
    """How often an owner sends its weights in a step: the fewest children with which all nodes have a place in so many levels."""
    children = 1
    while sum(children ** level for level in range(depth + 1)) < NODES:
        children += 1
    return children


def run(lab):
    ways = {"tree": (1, 15), "pipeline": (8,)} if lab.quick else WAYS
    settings = {(way, depth, seed): ("--nodes", NODES, "--batch", 16, "--lr", 0.05, "--momentum", 0, *lab.length, "--seed", seed, "--sync", f"{way}:{depth}")
                for way, depths in ways.items() for depth in depths for seed in lab.seeds}
    done = lab.train_all(settings)
    found = []
    for way, depth in dict.fromkeys((way, depth) for way, depth, _ in settings):
        results = [done[way, depth, seed] for seed in lab.seeds]
        node = results[0]["node_reports"][0]
        found.append({"way": way, "depth": depth, "copies": copies(depth) if way == "tree" else NODES - 1, "staleness": results[0]["staleness"],
                      "mean_staleness": node["staleness_sum"] / sum(node["staleness"]), "test_loss": median([result["test_loss"] for result in results]),
                      "accuracy": median([result["accuracy"] for result in results])})
    return found


def page(lab, found):
    ways = list(dict.fromkeys(row["way"] for row in found))
    by_staleness = sorted(found, key=lambda row: row["mean_staleness"])
    rows = [(round(row["mean_staleness"], 3), *(row["test_loss"] if row["way"] == way else None for way in ways)) for row in by_staleness]
    points = [f"data using 1:{2 + i} with {'points' if way == 'tree' else 'linespoints'} {style(i)} ps 1.4 title '{NAMES[way]}'" for i, way in enumerate(ways)]
    trees = [row for row in by_staleness if row["way"] == "tree"]
    points += [f"'-' using 1:2 with lines lw {1.5 if dotted else 2} dt {'(2,6)' if dotted else 1} lc rgb 'black' notitle" for dotted in (False, True)]
    parts = [trees[:-1], trees[-2:]]
    inline = "".join("".join(f"{row['mean_staleness']:.3f} {row['test_loss']:.4f}\n" for row in part) + "e\n" for part in parts)
    notes = "".join(note(f"{row['depth']} (chain)" if row["copies"] == 1 else str(row["depth"]), f"{row['mean_staleness'] + 0.05:.3f}", f"{row['test_loss'] - 0.011:.4f}") if row["way"] == "tree" else
                    note(str(row["depth"]), f"{row['mean_staleness'] - 0.05:.3f}", f"{row['test_loss'] + 0.011:.4f}", "right") for row in found)
    lab.plot(notes + "set datafile missing 'nan'\nset key inside left top\nset xlabel 'mean staleness (steps)'\nset ylabel 'test loss (nats) after the training'\nset xrange [0.5:8.5]\nset yrange [0.4:0.7]\nplot " + ", \\\n     ".join(points) + "\n" + inline,
             ["mean_staleness", *ways], rows)
    shown = table(["way", "copies that an owner sends", "mean staleness", "most", "test loss", "accuracy"],
                  [[f"{row['way']}:{row['depth']}", row["copies"], round(row["mean_staleness"], 2), row["staleness"], row["test_loss"] and round(row["test_loss"], 3), f"{100 * row['accuracy']:.1f} %"] for row in found])
    return "Each point is a training. To the right of the line of trees owners send their weights to fewer nodes, which pass them on, and so weights are older. Trees lie near the line of pipelines, or below it, though some of their weights are up to twice as old as the mean.\n\n" + shown
