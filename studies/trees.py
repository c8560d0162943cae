"""Weights that nodes pass on by trees, as SplitStream's (Castro et al., SOSP 2003) pass on streams: what their age costs."""
from study import line, median, table

TITLE = "Weights that nodes pass on cost what their mean staleness costs, not their greatest"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 16 nodes with 16 samples a step each, learning rate 0.05 without momentum, two epochs. Every node owns a 16th of each layer. "
           "With `tree:D` a node has some of the weights a step late and others D steps; with `pipeline:D` all are D steps old. Medians of three seeds.")
NODES = 16
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
    points = [f"data using 1:{2 + i} {line(i)} title '{way}'" for i, way in enumerate(ways)]
    lab.plot("set datafile missing 'nan'\nset xlabel 'mean staleness (steps)'\nset ylabel 'test loss (nats) after the training'\nset yrange [0.4:*]\nplot " + ", \\\n     ".join(points) + "\n",
             ["mean_staleness", *ways], rows)
    shown = table(["way", "copies that an owner sends", "mean staleness", "most", "test loss", "accuracy"],
                  [[f"{row['way']}:{row['depth']}", row["copies"], round(row["mean_staleness"], 2), row["staleness"], row["test_loss"] and round(row["test_loss"], 3), f"{100 * row['accuracy']:.1f} %"] for row in found])
    return "Each point is a training. To the right of the line of trees owners send their weights to fewer nodes, which pass them on, and so weights are older. Trees lie near the line of pipelines, or below it, though some of their weights are up to twice as old as the mean.\n\n" + shown
