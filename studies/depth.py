"""Dai et al., "Toward understanding the impact of staleness in distributed machine learning" (ICLR 2019): the deeper the net, the more staleness costs; momentum makes it worse."""
from study import median, steps_to, table

TITLE = "Staleness costs deep nets more than shallow ones, and momentum most"
ASSUMES = ("Fashion-MNIST, hidden layers of 64, batches of 32, two epochs. All weights are exactly so many steps old (`--sync pipeline:D`): Dai et al. draw delays at random, from 0 to a bound. "
           "The learning rate is 0.02, or 0.002 with a momentum of 0.9: both go as far along a constant gradient. "
           "A training has reached the target when the mean loss of its last 50 steps, which saw new samples, is 0.6. Medians of three seeds.")
TARGET = 0.6
DEPTHS = (1, 2, 4, 6)
LAGS = (0, 4, 8, 16)
OPTIMIZERS = {"SGD": (0.02, 0), "momentum": (0.002, 0.9)}


def run(lab):
    depths, lags = ((1, 3), (0, 8)) if lab.quick else (DEPTHS, LAGS)
    length = ("--epochs", 1, "--limit", 32000) if lab.quick else lab.length
    settings = {}
    for name, (rate, momentum) in OPTIMIZERS.items():
        for depth in depths:
            for lag in lags:
                for seed in lab.seeds:
                    sync = ("--sync", f"pipeline:{lag}") if lag else ()
                    settings[name, depth, lag, seed] = ("--nodes", 1, "--batch", 32, *length, "--lr", rate, "--momentum", momentum,
                                                        "--hidden", ",".join(["64"] * depth), "--seed", seed, *sync)
    done = lab.train_all(settings)
    found = []
    for name in OPTIMIZERS:
        for depth in depths:
            steps = {lag: median([steps_to(done[name, depth, lag, seed]["losses"], TARGET) for seed in lab.seeds]) for lag in lags}
            found.append({"optimizer": name, "hidden_layers": depth, "steps": steps,
                          "times": {lag: None if steps[lag] is None or steps[0] is None else round(steps[lag] / steps[0], 2) for lag in lags}})
    return found


def page(lab, found):
    rows = [(lag, *(row["times"][lag] for row in found)) for lag in found[0]["times"]]
    lines = [f"data using 1:{2 + i} with linespoints lw 2 dt {1 if row['optimizer'] == 'SGD' else 2} pt {5 + row['hidden_layers']} lc rgb "
             f"'{'#4477aa' if row['optimizer'] == 'SGD' else '#cc6677'}' title '{row['optimizer']}, {row['hidden_layers']} hidden'" for i, row in enumerate(found)]
    lab.plot("set xlabel 'staleness (steps)'\nset ylabel 'steps to the target (1: without staleness)'\nset yrange [0:*]\nplot " + ", \\\n     ".join(lines) + "\n",
             ["staleness", *(f"{row['optimizer']}_{row['hidden_layers']}" for row in found)], rows)
    head = ["optimizer", "hidden layers", *(f"staleness {lag}" for lag in found[0]["times"])]
    shown = table(head, [[row["optimizer"], row["hidden_layers"], *(steps if row["times"][lag] is None else f"{steps} ({row['times'][lag]} ×)" for lag, steps in row["steps"].items())] for row in found])
    return ("Each line is a net and an optimizer: how many times as many steps it needs to the same loss, if weights are older. A line that ends has not reached the target in two epochs.\n\n" + shown)
