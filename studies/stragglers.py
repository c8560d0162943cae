"""Who gains from not waiting: bulk-synchronous training, bounded staleness, none at all, and local steps, at equal times in which some steps take long."""
import math

from study import line, median, note, table

TITLE = "If some steps take long, those who do not wait for each other learn more in the same time"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 8 nodes alike; half of every step is a random time; virtual time; medians of 5 seeds"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 8 nodes with 32 samples a step each, learning rate 0.1, no momentum. Virtual time: each step of each node takes half a unit, and a random time with an exponential "
           "distribution whose mean is half a unit. Exchanges take no time. So this shows what waiting costs, and what staleness does, and nothing about bytes on a wire. Losses are the means of a node's last 50 steps. Medians of five seeds.")
SYNCS = {"bsp": "all wait in each step", "ssp:1": "at most 1 step ahead", "ssp:4": "at most 4 steps ahead", "async": "nobody waits", "pipeline:1": "weights 1 step old",
         "every:8": "average after 8 steps", "downpour:8,8": "exchange after 8 steps, no waiting"}
POINTS = 40
WINDOW = 50


def run(lab):
    seeds = (1,) if lab.quick else (1, 2, 3, 4, 5)
    syncs = tuple(SYNCS)[:4] if lab.quick else tuple(SYNCS)
    done = lab.train_all({(sync, seed): ("--nodes", 8, "--batch", 32, *lab.length, "--lr", 0.1, "--momentum", 0, "--seed", seed, "--sync", sync, "--delays", "exponential") for sync in syncs for seed in seeds})
    end = min(result["node_reports"][0]["step_times_ns"][-1] for result in done.values())  # all are compared up to here
    found = []
    for sync in syncs:
        runs = [done[sync, seed] for seed in seeds]
        reports = [result["node_reports"][0] for result in runs]
        steps = [sum(time <= end for time in report["step_times_ns"]) for report in reports]
        curves = [[mean(result["losses"], sum(time <= end * point / POINTS for time in report["step_times_ns"])) for point in range(1, POINTS + 1)] for result, report in zip(runs, reports)]
        found.append({"sync": sync, "steps": median(steps), "time": round(end / 1e9, 1), "loss": median([curve[-1] for curve in curves]), "all_losses": [curve[-1] for curve in curves],
                      "staleness": median([round(report["staleness_sum"] / sum(report["staleness"]), 2) if sum(report["staleness"]) else 0 for report in reports]),
                      "most": max(report["staleness_max"] for report in reports),
                      "curve": [(round(end * (i + 1) / POINTS / 1e9, 3), median([curve[i] for curve in curves])) for i in range(POINTS)]})
    return found


def mean(losses, steps):
    """Of the last steps before so many."""
    last = losses[max(0, steps - WINDOW):steps]
    return None if not last or None in last else round(sum(last) / len(last), 4)


def page(lab, found):
    rows = [(found[0]["curve"][i][0], *(row["curve"][i][1] for row in found)) for i in range(POINTS)]
    lines = [f"data using 1:{2 + i} {line(i, 4)} title '{row['sync']}: {SYNCS[row['sync']]}'" for i, row in enumerate(found)]
    lab.plot("set xlabel 'virtual time (mean steps)'\nset ylabel 'training loss (nats), mean of 50 steps'\nset logscale y\nset yrange [0.35:1.5]\nset ytics (0.35, 0.4, 0.5, 0.6, 0.8, 1, 1.5)\n"
             + at_the_ends(found) + "plot " + ", \\\n     ".join(lines) + "\n", ["time", *(row["sync"] for row in found)], rows, legend=4)
    best = min(found, key=lambda row: (row["loss"] is None, row["loss"]))
    shown = table(["`--sync`", "steps of all nodes", "loss", "least, most", "mean staleness", "most"],
                  [[row["sync"], row["steps"], row["loss"], f"{min(row['all_losses'])}, {max(row['all_losses'])}", row["staleness"], row["most"]] for row in found])
    return (f"In the time {found[0]['time']}, in which the fastest has done all of its steps, `bsp` does {found[0]['steps']} steps. The least loss then is that of `{best['sync']}`.\n\n" + shown)


def at_the_ends(found):
    """The names of lines to the right of their ends, a line of text apart from each other."""
    ended = sorted((row for row in found if row["loss"]), key=lambda row: row["loss"])
    places = []
    for row in ended:
        places.append(max(row["loss"], 1.065 * places[-1]) if places else row["loss"])
    nearer = math.exp(sum(math.log(row["loss"] / place) for row, place in zip(ended, places)) / len(ended)) if ended else 1
    return f"set rmargin 14\nset xrange [0:{found[0]['time']}]\n" + "".join(note(row["sync"], f"{1.015 * found[0]['time']:.1f}", f"{nearer * place:.4f}") for row, place in zip(ended, places))
