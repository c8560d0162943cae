"""Who gains from not waiting: bulk-synchronous training, bounded staleness, none at all, and local steps, at equal times in which some steps take long."""
from study import line, table

TITLE = "If some steps take long, those who do not wait for each other learn more in the same time"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 8 nodes with 32 samples a step each, learning rate 0.1, no momentum. Virtual time: a step takes half a unit, and a random time with an exponential "
           "distribution whose mean is half a unit. Exchanges take no time. So this shows what waiting costs, and what staleness does, and nothing about bytes on a wire.")
SYNCS = ("bsp", "ssp:1", "ssp:4", "async", "pipeline:1", "every:8", "downpour:8,8")
POINTS = 40
WINDOW = 25


def run(lab):
    settings = {sync: ("--nodes", 8, "--batch", 32, *lab.length, "--lr", 0.1, "--momentum", 0, "--sync", sync, "--delays", "exponential") for sync in (SYNCS[:4] if lab.quick else SYNCS)}
    done = lab.train_all(settings)
    end = min(result["node_reports"][0]["step_times_ns"][-1] for result in done.values())  # all are compared up to here
    found = []
    for sync in done:
        losses, times = done[sync]["losses"], done[sync]["node_reports"][0]["step_times_ns"]
        report = done[sync]["node_reports"][0]
        pulls = sum(report["staleness"])
        steps = sum(time <= end for time in times)
        found.append({"sync": sync, "steps": steps, "time": round(end / 1e9, 1),
                      "loss": mean(losses, steps), "staleness": round(report["staleness_sum"] / pulls, 2) if pulls else 0, "most": report["staleness_max"],
                      "curve": [(round(end * point / POINTS / 1e9, 3), mean(losses, sum(time <= end * point / POINTS for time in times))) for point in range(1, POINTS + 1)]})
    return found


def mean(losses, steps):
    """Of the last steps before so many."""
    last = losses[max(0, steps - WINDOW):steps]
    return None if not last or None in last else round(sum(last) / len(last), 4)


def page(lab, found):
    rows = [(found[0]["curve"][i][0], *(row["curve"][i][1] for row in found)) for i in range(POINTS)]
    lines = [f"data using 1:{2 + i} {line(i, 4)} title '{row['sync']}'" for i, row in enumerate(found)]
    lab.plot("set xlabel 'virtual time (mean steps of a node)'\nset ylabel 'training loss (nats), mean of 25 steps'\nset logscale y\nset yrange [0.35:1.5]\nset ytics (0.35, 0.4, 0.5, 0.6, 0.8, 1, 1.5)\nplot " + ", \\\n     ".join(lines) + "\n", ["time", *(row["sync"] for row in found)], rows)
    best = min(found, key=lambda row: (row["loss"] is None, row["loss"]))
    shown = table(["`--sync`", "steps of all nodes", "loss", "mean staleness", "most"], [[row["sync"], row["steps"], row["loss"], row["staleness"], row["most"]] for row in found])
    return (f"In the time {found[0]['time']}, in which the fastest has done all of its steps, `bsp` does {found[0]['steps']} steps. The least loss then is that of `{best['sync']}`.\n\n" + shown)
