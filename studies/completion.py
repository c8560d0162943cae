"""SSP (Ho et al., NIPS 2013) and Bösen (Wei et al., SoCC 2015) show matrix completion under bounded staleness: what it loses in a batch, and gains in a second."""
from study import line, median, table

TITLE = "Matrix completion learns as much from a batch if ranks do not wait, and more in a second"
PROGRAMS = ("matrix_completion",)
ASSUMES = ("The example `matrix_completion`: 60,000 ratings (a tenth of them to test) by 1,000 users of 500 items, with 4 factors; 4 ranks learn from 1,000 ratings in a batch, learning rate 0.03. RMSE: of the ratings to test, each with the rows "
           "that its rank reads after an epoch (15 batches); the noise is 0.1. All ranks are threads of one process on a machine with two cores, CPU device: so that they do not wait for a core, each one sleeps in every batch, "
           "for a random time that is exponentially distributed, 20 ms on average. Seconds are real ones, in which ranks mostly sleep: they show what waiting for each other costs, and say nothing about a network's or a GPU's speed. They vary by "
           "machine and by run. A rank sleeps as long with every clock. Between two epochs the way to the target is a line. Medians of five seeds; clocks take turns.")
CLOCKS = ("bsp", "ssp:1", "ssp:2", "ssp:8", "async")
TARGET = 0.12  # RMSE
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
    columns = [f"{what}_{row['clock']}" for row in found for what in ("batches", "seconds", "rmse")]
    rows = [tuple(value for row in found for value in row["curve"][i]) for i in range(len(found[0]["curve"]))]
    plots = [", \\\n     ".join(f"data using {3 * i + column}:{3 * i + 3} {line(i, 3)} title '{row['clock']}'" for i, row in enumerate(found)) for column in (1, 2)]
    lab.plot("set multiplot layout 1,2\nset key inside right top\nset logscale y\nset yrange [0.09:1.2]\nset ytics (0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1)\nset ylabel 'RMSE of the ratings to test (a rating has 1)'\nset xlabel 'batches of each rank'\nplot "
             + plots[0] + "\nset xlabel 'time (s)'\nplot " + plots[1] + "\nunset multiplot\n", columns, rows)
    base = found[0]["seconds_to_target"]
    shown = table(["`--clock`", f"batches to {TARGET}", f"seconds to {TARGET}", "least, most", "of bsp's", "RMSE at the end"],
                  [[row["clock"], row["batches_to_target"], rounded(median(row["seconds_to_target"])), spread(row["seconds_to_target"]), ratio(row["seconds_to_target"], base), round(row["rmse"], 4)] for row in found])
    return "Left: over the batches of each rank. Right: the same over time, in which ranks sleep at random.\n\n" + shown


def rounded(seconds):
    return None if seconds is None else round(seconds, 1)


def spread(times):
    return None if None in times else f"{min(times):.1f}, {max(times):.1f}"


def ratio(times, base):
    """The median over seeds of one time by the other of the same seed."""
    return None if None in (*times, *base) else f"{100 * median([one / other for one, other in zip(times, base)]):.0f} %"
