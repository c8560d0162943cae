"""Bösen (Wei et al., "Managed communication and consistency for fast data-parallel iterative analytics", SoCC 2015): of equal bytes, the largest changes carry the most."""
from study import line, median, note, table

TITLE = "Of equally many bytes, the largest changes teach most"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 4 nodes in one process, one epoch; what is not sent is kept; medians of 3 seeds"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 4 nodes with 64 samples a step each, learning rate 0.1, no momentum, one epoch. A node sends so many bytes in a step, and keeps the other changes; "
           "the last step sends all that is left. `random`: any changes. `oldest`: floats take turns. Medians of three seeds.")
BUDGETS = ("10K", "20K", "50K", "100K", "200K")
ORDERS = ("largest", "random", "oldest")
LAST = 20
NAMES = {"largest": "largest changes first", "random": "random changes", "oldest": "oldest changes first"}
MOST = 2  # nats that the picture shows


def run(lab):
    budgets = ("20K",) if lab.quick else BUDGETS
    base = ("--nodes", 4, "--epochs", 1, *(("--limit", 15360) if lab.quick else ()), "--lr", 0.1, "--momentum", 0, "--in-process", "--scheme", "ps:even")
    settings = {(order, budget, seed): (*base, "--budget", budget, "--budget-order", order, "--seed", seed) for order in ORDERS for budget in budgets for seed in lab.seeds}
    settings.update({("all", "", seed): (*base, "--seed", seed) for seed in lab.seeds})
    done = lab.train_all(settings, serial=False)
    found = []
    for order, budget in dict.fromkeys((order, budget) for order, budget, _ in settings):
        results = [done[order, budget, seed] for seed in lab.seeds]
        sent = sum(layer[what] for layer in results[0]["layers"] for what in ("pushed_bytes", "published_bytes"))
        found.append({"order": order, "budget": budget, "bytes": sent / results[0]["steps"] / 4, "loss": median([before_the_last(result["losses"]) for result in results])})
    return found


def before_the_last(losses):
    """The mean loss of the last steps."""
    last = losses[-LAST:]
    return None if None in last else round(sum(last) / len(last), 4)


def page(lab, found):
    at = {(row["order"], row["budget"]): row for row in found}
    budgets = [budget for order, budget in at if order == ORDERS[0]]
    rows = [(round(at[ORDERS[0], budget]["bytes"] / 1e3, 2), *(at[order, budget]["loss"] for order in ORDERS), at["all", ""]["loss"]) for budget in budgets]
    lines = [f"data using 1:{2 + i} {line(i)} title '{NAMES[order]}'" for i, order in enumerate(ORDERS)]
    lines.append(f"{at['all', '']['loss']} with lines lw 1.5 dt (2,5) lc rgb 'black' title 'all changes ({at['all', '']['bytes'] / 1e3:.0f} KB)'")
    outside = [(order, [at[order, budget] for budget in reversed(budgets) if at[order, budget]["loss"] > MOST]) for order in ORDERS]
    notes = "".join(note(f"{order}: off the scale, " + ", ".join(f"{row['loss']:.1f} at {row['bytes'] / 1e3:.0f} KB" for row in of_order), f"{1.8 * of_order[0]['bytes'] / 1e3:.1f}", 0.95 * MOST) for order, of_order in outside if of_order)
    lab.plot(notes + f"set logscale x\nset xrange [9.5:300]\nset xtics (10, 20, 50, 100, 200, 300)\nset yrange [0:{MOST}]\nset xlabel 'KB that a node sends in a step (the rest waits)'\nset ylabel 'training loss (nats), last 20 steps'\nplot " + ", \\\n     ".join(lines) + "\n", ["kb", *ORDERS, "all"], rows, legend=2)
    shown = table(["first", "budget", "KB a step", "loss"], [[row["order"], row["budget"] or "none", round(row["bytes"] / 1e3, 1), row["loss"]] for row in found])
    return "Each point is a training, and each line an order in which changes are sent. The dotted line sends all changes in each step. A line that leaves the picture has lost what it had learned.\n\n" + shown
