"""Steps that do not wait for stragglers: backup workers, which drop what is late, and gradient coding, which computes everything more than once; over three kinds of delays, in virtual time."""
from study import line, median, style, table

TITLE = "If nodes stall now and then, backup workers and gradient coding keep nearly all steps short; coding drops no gradient and pays twice the computing"
CONTEXT = "Fashion-MNIST, perceptron (16 hidden), 8 nodes with 4 samples; virtual time: a node computes a batch in 1, if nothing delays it"
ASSUMES = ("Fashion-MNIST, a perceptron with 16 hidden units, 8 nodes with 4 samples a step each, learning rate 0.1, no momentum, 480 steps. Virtual time: a node computes a batch in one unit of time, and exchanges take none. "
           "`exponential`: half of that is a random time with an exponential distribution. `slow:4`: the last node always takes 4 times as long. `stalls:0.002:8`: of all steps of all nodes one in 500 takes 8 times as long. "
           "With `coded:1` a node computes two batches, which takes twice as long, whatever delays it. A node that is late ends its step before it goes on from the newest version: it is not stopped. "
           "Step times are from the end of a step to the end of the next one, all seeds together. A step of `backup:B` has the gradients of 8 - B nodes, scaled by 8 / (8 - B). Losses are the means of the last 50 steps. Medians of three seeds.")
SYNCS = {"bsp": "all wait for all", "backup:1": "the last 1 of 8 is dropped", "backup:2": "the last 2 of 8 are dropped", "coded:1": "pairs compute the same, the first counts"}
DELAYS = {"exponential": "random steps", "slow:4": "one node 4 times as slow", "stalls:0.002:8": "1 step of 500 takes 8 times as long"}
NODES = 8
POINTS = 30
WINDOW = 50


def run(lab):
    seeds = (1, 2, 3)  # in a quick run, too: in 480 steps two stalls that meet are more than one step of 100
    done = lab.train_all({(delays, sync, seed): ("--nodes", NODES, "--hidden", 16, "--batch", 4, "--epochs", 1, "--limit", 15360, "--lr", 0.1, "--momentum", 0, "--seed", seed, "--sync", sync, "--delays", delays)
                          for delays in DELAYS for sync in SYNCS for seed in seeds})
    found = []
    for delays in DELAYS:
        ends = {key: result["node_reports"][0]["step_times_ns"] for key, result in done.items() if key[0] == delays}
        end = min(times[-1] for times in ends.values())  # all are compared up to here
        for sync in SYNCS:
            keys = [(delays, sync, seed) for seed in seeds]
            steps = sorted(round((time - before) / 1e9, 6) for key in keys for before, time in zip([0, *ends[key]], ends[key]))
            reports = [done[key]["node_reports"][0] for key in keys]
            in_all = sum(len(ends[key]) for key in keys)
            curves = [[mean(done[key]["losses"], sum(time <= end * point / POINTS for time in ends[key])) for point in range(1, POINTS + 1)] for key in keys]
            found.append({"delays": delays, "sync": sync, "p50": round(quantile(steps, 0.5), 3), "p99": round(quantile(steps, 0.99), 3), "mean": round(sum(steps) / len(steps), 3), "time": round(end / 1e9, 1),
                          "batches": round(sum(report["computed_batches"] for report in reports) / in_all, 2), "pushes": round(sum(report["pushes"] for report in reports) / in_all, 2),
                          "dropped": round(sum(report["dropped_pushes"] for report in reports) / sum(report["pushes"] for report in reports), 4),
                          "loss": median([curve[-1] for curve in curves]), "loss_at_the_end": median([mean(done[key]["losses"], len(ends[key])) for key in keys]),
                          "accuracy": median([done[key]["accuracy"] for key in keys]),
                          "curve": [(round(end * (i + 1) / POINTS / 1e9, 3), median([curve[i] for curve in curves])) for i in range(POINTS)]})
    return found


def quantile(ordered, share):
    """The least value that so many are not above."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def mean(losses, steps):
    """Of the last steps before so many."""
    last = losses[max(0, steps - WINDOW):steps]
    return None if not last or None in last else round(sum(last) / len(last), 4)


def page(lab, found):
    at = {(row["delays"], row["sync"]): row for row in found}
    columns, rows = [], [[] for _ in range(POINTS)]
    for number, delays in enumerate(DELAYS):
        columns += ["delays", *(f"{sync}_{what}" for sync in SYNCS for what in ("p50", "p99"))] if number == 0 else []
    for i, row in enumerate(rows):
        delays = list(DELAYS)[i] if i < len(DELAYS) else None
        row += [i + 1 if delays else None, *(at[delays, sync][what] if delays else None for sync in SYNCS for what in ("p50", "p99"))]
        for of in DELAYS:
            row += [at[of, "bsp"]["curve"][i][0], *(at[of, sync]["curve"][i][1] for sync in SYNCS)]
    columns += [f"{of}_{what}" for of in DELAYS for what in ("time", *SYNCS)]
    spans = [f"data using ($1+{0.16 * (i - 1.5):.2f}):{2 + 2 * i}:{2 + 2 * i}:{3 + 2 * i} with yerrorbars {style(i)} title '{sync}: {SYNCS[sync]}'" for i, sync in enumerate(SYNCS)]
    ticks = ", ".join(f"'{delays}' {i + 1}" for i, delays in enumerate(DELAYS))
    panels = [f"set title 'a step: median (mark) to 99th percentile' offset 0,-0.7 font ',12'\nset xrange [0.5:{len(DELAYS) + 0.5}]\nset yrange [0:9]\nset xtics ({ticks})\nset ylabel 'time of a step (units)'\nplot " + ", \\\n     ".join(spans) + "\n"]
    for number, (delays, said) in enumerate(DELAYS.items()):
        first = 2 + 2 * len(SYNCS) + number * (1 + len(SYNCS))
        lines = [f"data using {first}:{first + 1 + i} {line(i, 5)} title '{sync}'" for i, sync in enumerate(SYNCS)]
        panels.append(f"unset key\nset title '{delays}: {said}' offset 0,-0.7 font ',12'\nset xrange [0:{at[delays, 'bsp']['time']}]\nset xtics auto\nset xlabel 'virtual time (units)' offset 0,0.5\nset logscale y\nset yrange [0.35:2]\nset ytics (0.35, 0.5, 0.7, 1, 1.5, 2)\n"
                      "set ylabel 'training loss (nats), 50 steps'\nplot " + ", \\\n     ".join(lines) + "\n")
    lab.plot("".join(panels), columns, rows, panels="2,2", legend=2)
    cells = [[row["delays"], row["sync"], row["p50"], row["p99"], f"{row['p99'] / row['p50']:.2f}", row["batches"], row["pushes"], f"{100 * row['dropped']:.1f} %", row["loss"], row["loss_at_the_end"], f"{100 * row['accuracy']:.1f} %"] for row in found]
    return ("The loss *then* is that at the time at which the fastest way has done all of its steps; *at the end* is that after 480 steps.\n\n"
            + table(["`--delays`", "`--sync`", "median", "p99", "p99 / median", "batches a step", "pushes a step", "dropped", "loss then", "at the end", "accuracy"], cells))
