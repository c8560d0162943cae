"""Steps that do not wait for stragglers: backup workers, which drop what is late, and gradient coding, which computes everything more than once; over three kinds of delays, in virtual time and on real nodes."""
import re

from study import line, median, style, table

TITLE = "If nodes stall now and then, backup workers and gradient coding keep nearly all steps short; coding drops no gradient and pays twice the computing"
CONTEXT = "Perceptron (16 hidden), 8 nodes; 1: a batch of a node; full marks: virtual time, hollow: real nodes (1 is 40 ms)"
ASSUMES = ("Fashion-MNIST, a perceptron with 16 hidden units, 8 nodes with 4 samples a step each, learning rate 0.1, no momentum, 480 steps. Virtual time: a node computes a batch in one unit of time, and exchanges take none. "
           "`exponential`: half of that is a random time with an exponential distribution. `slow:4`: the last node always takes 4 times as long. `stalls:0.002:8`: of all steps of all nodes one in 500 takes 8 times as long. "
           "With `coded:1` a node computes two batches, which takes twice as long, whatever delays it. A node that is late ends its step before it goes on from the newest version: it is not stopped. "
           "Step times are from the end of a step to the end of the next one, all seeds together. A step of `backup:1` has the gradients of 7 nodes, scaled by 8 / 7; with `backup:1,50` also the eighth, if it comes within 0.05 units. Losses are the means of the last 50 steps. Medians of three seeds. "
           "Real nodes: processes of one machine with two cores, CPU device, 240 steps (480 with stalls), one seed, one training at a time. `--step-ms 40` makes a unit 40 ms, in which a node mostly waits, and the grace is 2 ms. A step's time is from its first loss on any node to that of the next one.")
SYNCS = {"bsp": "all wait for all", "backup:1": "the last of 8 is dropped", "backup:1,50": "if it comes 0.05 units later", "backup:2": "the last 2 of 8 are dropped", "coded:1": "pairs compute the same"}
UNIT_MS = 40  # of real nodes
DELAYS = {"exponential": "random steps", "slow:4": "one node 4 times as slow", "stalls:0.002:8": "1 step of 500 takes 8 times as long"}
NODES = 8
SPANS = ("p50", "p99", "real_p50", "real_p99")
POINTS = 30
WINDOW = 50


def run(lab):
    seeds = (1, 2, 3)  # in a quick run, too: in 480 steps two stalls that meet are more than one step of 100
    done = lab.train_all({(delays, sync, seed): ("--nodes", NODES, "--hidden", 16, "--batch", 4, "--epochs", 1, "--limit", 15360, "--lr", 0.1, "--momentum", 0, "--seed", seed, "--sync", sync, "--delays", delays)
                          for delays in DELAYS for sync in SYNCS for seed in seeds})
    on_nodes = {(delays, sync): real_steps(lab, delays, sync) for delays in DELAYS for sync in SYNCS}
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
            found.append({"delays": delays, "sync": sync, "p50": round(quantile(steps, 0.5), 3), "p99": round(quantile(steps, 0.99), 3), "real_p50": on_nodes[delays, sync][0], "real_p99": on_nodes[delays, sync][1], "mean": round(sum(steps) / len(steps), 3), "time": round(end / 1e9, 1),
                          "batches": round(sum(report["computed_batches"] for report in reports) / in_all, 2), "pushes": round(sum(report["pushes"] for report in reports) / in_all, 2),
                          "dropped": round(sum(report["dropped_pushes"] for report in reports) / sum(report["pushes"] for report in reports), 4),
                          "loss": median([curve[-1] for curve in curves]), "loss_at_the_end": median([mean(done[key]["losses"], len(ends[key])) for key in keys]),
                          "accuracy": median([done[key]["accuracy"] for key in keys]),
                          "curve": [(round(end * (i + 1) / POINTS / 1e9, 3), median([curve[i] for curve in curves])) for i in range(POINTS)]})
    return found


def real_steps(lab, delays, sync):
    """Median and 99th percentile of the steps of real nodes, in units."""
    limit = 640 if lab.quick else 15360 if delays.startswith("stalls") else 7680  # stalls are rare
    of_nodes = sync.replace(",50", f",{UNIT_MS * 50 // 1000}")
    (result,) = lab.train_all({delays: ("--nodes", NODES, "--hidden", 16, "--batch", 4, "--epochs", 1, "--limit", limit, "--lr", 0.1, "--momentum", 0, "--sync", of_nodes, "--delays", delays, "--step-ms", UNIT_MS)}, serial=False).values()
    nodes = result["node_reports"]
    begins = [min(node["began_ns"] + node["step_times_ns"][step] for node in nodes if node["losses"][step] is not None) for step in range(result["steps"])]
    steps = sorted((after - before) / 1e6 / UNIT_MS for before, after in zip(begins, begins[1:]))
    return round(quantile(steps, 0.5), 2), round(quantile(steps, 0.99), 2)


def hollow(number):
    """The style of real nodes."""
    return re.sub(r"pt \d+", "pt 6", style(number))


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
        columns += ["delays", *(f"{sync}_{what}" for sync in SYNCS for what in SPANS)] if number == 0 else []
    for i, row in enumerate(rows):
        delays = list(DELAYS)[i] if i < len(DELAYS) else None
        row += [i + 1 if delays else None, *(at[delays, sync][what] if delays else None for sync in SYNCS for what in SPANS)]
        for of in DELAYS:
            row += [at[of, "bsp"]["curve"][i][0], *(at[of, sync]["curve"][i][1] for sync in SYNCS)]
    columns += [f"{of}_{what}" for of in DELAYS for what in ("time", *SYNCS)]
    middle = (len(SYNCS) - 1) / 2
    spans = [f"data using ($1+{0.17 * (i - middle):.2f}):{2 + 4 * i}:{2 + 4 * i}:{3 + 4 * i} with yerrorbars {style(i)} title '{sync}: {SYNCS[sync]}'" for i, sync in enumerate(SYNCS)]
    spans += [f"data using ($1+{0.17 * (i - middle) + 0.07:.2f}):{4 + 4 * i}:{4 + 4 * i}:{5 + 4 * i} with yerrorbars {hollow(i)} notitle" for i in range(len(SYNCS))]
    ticks = ", ".join(f"'{delays}' {i + 1}" for i, delays in enumerate(DELAYS))
    panels = [f"set title 'a step: median (mark) to 99th percentile' offset 0,-0.7 font ',12'\nset xrange [0.5:{len(DELAYS) + 0.5}]\nset yrange [0:9]\nset xtics ({ticks})\nset ylabel 'time of a step (units)'\nplot " + ", \\\n     ".join(spans) + "\n"]
    for number, (delays, said) in enumerate(DELAYS.items()):
        first = 2 + 4 * len(SYNCS) + number * (1 + len(SYNCS))
        lines = [f"data using {first}:{first + 1 + i} {line(i, 5)} title '{sync}'" for i, sync in enumerate(SYNCS)]
        panels.append(f"unset key\nset title '{delays}: {said}' offset 0,-0.7 font ',12'\nset xrange [0:{at[delays, 'bsp']['time']}]\nset xtics auto\nset xlabel 'virtual time (units)' offset 0,0.5\nset logscale y\nset yrange [0.35:2]\nset ytics (0.35, 0.5, 0.7, 1, 1.5, 2)\n"
                      "set ylabel 'training loss (nats), 50 steps'\nplot " + ", \\\n     ".join(lines) + "\n")
    lab.plot("".join(panels), columns, rows, panels="2,2", legend=3)
    cells = [[row["delays"], row["sync"], row["p50"], row["p99"], f"{row['p99'] / row['p50']:.2f}", row["real_p50"], row["real_p99"], f"{row['real_p99'] / row['real_p50']:.2f}", row["batches"], row["pushes"], f"{100 * row['dropped']:.1f} %", row["loss"], row["loss_at_the_end"], f"{100 * row['accuracy']:.1f} %"] for row in found]
    return ("The loss *then* is that at the time at which the fastest way has done all of its steps; *at the end* is that after 480 steps.\n\n"
            + table(["`--delays`", "`--sync`", "median", "p99", "p99 / median", "real median", "real p99", "p99 / median", "batches a step", "pushes a step", "dropped", "loss then", "at the end", "accuracy"], cells))
