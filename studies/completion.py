"""SSP (Ho et al., NIPS 2013) and Bösen (Wei et al., SoCC 2015) show matrix completion under bounded staleness: what it loses in a batch, and gains in a second."""
import math

from study import median, note, style, table

TITLE = "Matrix completion learns as much from a batch if ranks do not wait, and more in a second"
PROGRAMS = ("matrix_completion",)
CONTEXT = "Matrix completion, 4 ranks, each of which sleeps a random time in every batch; CPU device, real time; medians of 5 seeds"
ASSUMES = ("The example `matrix_completion`: 60,000 ratings (a tenth of them to test) by 1,000 users of 500 items, with 4 factors; 4 ranks learn from 1,000 ratings in a batch, learning rate 0.03. RMSE: of the ratings to test, each with the rows "
           "that its rank reads after an epoch (15 batches); the noise is 0.1. All ranks are threads of one process on a machine with two cores, CPU device: so that they do not wait for a core, each one sleeps in every batch, "
           "for a random time that is exponentially distributed, 20 ms on average. Seconds are real ones, in which ranks mostly sleep: they show what waiting for each other costs, and say nothing about a network's or a GPU's speed. They vary by "
           "machine and by run. A rank sleeps as long with every clock. Between two epochs the way to the target is a line. Medians of five seeds; clocks take turns.")
CLOCKS = ("bsp", "ssp:1", "ssp:2", "ssp:8", "async")
TARGET = 0.12  # RMSE
NAMES = {"bsp": "bsp: all wait", "ssp:1": "ssp:1: at most 1 batch ahead", "ssp:2": "ssp:2: at most 2 batches ahead", "ssp:8": "ssp:8: at most 8 batches ahead", "async": "async: nobody waits"}
RANKS, BATCH, DELAY_MS = 4, 1000, 20


def run(lab):
    clocks, seeds, epochs, ranks, batch = (("bsp", "ssp:2"), (1,), 4, 4, 3000) if lab.quick else (CLOCKS, (1, 2, 3, 4, 5), 20, RANKS, BATCH)
    settings = {(clock, seed): ("--ranks", ranks, "--threads", 8, "--batch", batch, "--epochs", epochs, "--seed", seed, "--clock", clock, "--delay-ms", DELAY_MS) for seed in seeds for clock in clocks}
    done = lab.run_all("matrix_completion", settings, at_a_time=1)  # time is measured
    batches = -(-60000 // (ranks * batch))
    found = []
    for clock in clocks:
        runs = [done[clock, seed] for seed in seeds]
        curve = [(batches * (epoch + 1), median([run["epochs"]["seconds"][epoch] for run in runs]), median([run["epochs"]["test_rmse"][epoch] for run in runs])) for epoch in range(epochs)]
        reached = [epochs_to(TARGET, run["epochs"]["test_rmse"]) for run in runs]
        found.append({"clock": clock, "curve": curve, "seconds": [run["epochs"]["seconds"][-1] for run in runs], "rmse": median([run["test_rmse"] for run in runs]),
                      "batches_to_target": median([None if epoch is None else round(batches * (epoch + 1)) for epoch in reached]),
                      "seconds_to_target": [None if epoch is None else round(between(run["epochs"]["seconds"], epoch), 3) for epoch, run in zip(reached, runs)]})
    return found


def epochs_to(target, values):
    """Where the values reach the target, counted from 0; between two of them there is a line. None: nowhere."""
    for epoch, (one, other) in enumerate(zip(values, values[1:])):
        if other <= target:
            return epoch + (one - target) / (one - other)
    return None


def between(values, at):
    """A value at a place between two of them."""
    left = int(at)
    return values[left] if at == left else values[left] + (at - left) * (values[left + 1] - values[left])


def page(lab, found):
    times = [[one for one in row["seconds_to_target"] if one is not None] or [float("nan")] for row in found]
    columns = ["batches", *(f"rmse_{row['clock']}" for row in found), *(f"{what}_{row['clock']}" for row in found for what in ("seconds", "least", "most"))]
    speeds = [cell for row, of_row in zip(found, times) for cell in (median(row["seconds_to_target"]), min(of_row), max(of_row))]
    rows = [(found[0]["curve"][i][0], *(row["curve"][i][2] for row in found), *(speeds if i == 0 else [None] * len(speeds))) for i in range(len(found[0]["curve"]))]
    curves = [f"data using 1:{2 + i} with lines lw 2 dt 1 lc rgb '#8a8a8a' notitle" for i in range(len(found))]
    curves += [f"data using 1:{2 + i} every {len(found)}::{i} with points {style(i)} notitle" for i in range(len(found))]  # marks of others are not on each other: lines are
    first = 2 + len(found)
    bars = [f"data every ::0::0 using ({i}):{first + 3 * i}:{first + 3 * i + 1}:{first + 3 * i + 2} with yerrorbars {style(i).replace('dt', 'ps 1.4 dt')} title '{NAMES[row['clock']]}'" for i, row in enumerate(found)]
    dots = [f"'-' using ({i} + 0.18):1 with points pt 1 ps 0.7 lc rgb '#8a8a8a' notitle" for i in range(len(found))]
    ends = [row["rmse"] for row in found]
    apart = max(ends) / min(ends) - 1
    most = max((one for row in found for one in row["seconds_to_target"] if one is not None), default=1)
    never = "".join(note("never\\nreaches it", i, "graph 0.1", "center") for i, row in enumerate(found) if median(row["seconds_to_target"]) is None)
    names = ", ".join(f"'{row['clock']}' {i}" for i, row in enumerate(found))
    lab.plot(note(f"all {len(found)} within {math.ceil(1000 * apart) / 10} %\\nat the end", "graph 0.95", "graph 0.25", "right")
             + "set logscale y\nset yrange [0.09:1.2]\nset ytics (0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1)\nset ylabel 'test RMSE (noise 0.1)'\nset xlabel 'batches of each rank'\nplot " + ", \\\n     ".join(curves)
             + f"\nunset label\n{never}unset logscale y\nset yrange [0:{1.1 * most:.1f}]\nset ytics auto\nset xrange [-0.6:{len(found) - 0.4}]\nset xtics ({names})\nset xlabel 'clock: how far ranks wait for each other'\nset ylabel 'seconds to an RMSE of {TARGET}'\nplot "
             + ", \\\n     ".join([*bars, *dots]) + "\n" + "".join("\n".join(map(str, of_row)) + "\ne\n" for of_row in times), columns, rows, panels="1,2", legend=3)
    base = found[0]["seconds_to_target"]
    shown = table(["`--clock`", f"batches to {TARGET}", f"seconds to {TARGET}", "least, most", "of bsp's (median of the seeds' ratios)", "RMSE at the end"],
                  [[row["clock"], row["batches_to_target"], rounded(median(row["seconds_to_target"])), spread(row["seconds_to_target"]), ratio(row["seconds_to_target"], base), round(row["rmse"], 4)] for row in found])
    return "Left: the error over the batches of each rank. Right: how long it takes to the target; a bar is from the least to the most of the seeds, a mark their median, and a cross one of them.\n\n" + shown


def rounded(seconds):
    return None if seconds is None else round(seconds, 1)


def spread(times):
    return None if None in times else f"{min(times):.1f}, {max(times):.1f}"


def ratio(times, base):
    """The median over seeds of one time by the other of the same seed."""
    return None if None in (*times, *base) else f"{100 * median([one / other for one, other in zip(times, base)]):.0f} %"
