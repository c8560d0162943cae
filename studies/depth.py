"""Dai et al., "Toward understanding the impact of staleness in distributed machine learning" (ICLR 2019): the deeper the net, the more staleness costs; momentum makes it worse."""
from study import COLOURS, DASHES, median, note, steps_to, table

TITLE = "Staleness costs deep nets more than shallow ones, and momentum most"
CONTEXT = "Fashion-MNIST, perceptron with hidden layers of 64, one node whose weights are so many steps old; virtual time; medians of 3 seeds"
ASSUMES = ("Fashion-MNIST, hidden layers of 64, batches of 32, two epochs. All weights are exactly so many steps old (`--sync pipeline:D`): Dai et al. draw delays at random, from 0 to a bound. "
           "The learning rate is 0.02, or 0.002 with a momentum of 0.9: both go as far along a constant gradient. "
           "A training has reached the target when the mean loss of its last 50 steps, which saw new samples, is 0.6. Medians of three seeds.")
TARGET = 0.6
DEPTHS = (1, 2, 4, 6)
LAGS = (0, 4, 8, 16)
MARKS = {1: (7, 6), 2: (5, 4), 3: (9, 8), 4: (9, 8), 6: (13, 12)}  # by hidden layers: with SGD, and with momentum
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
    depths = list(dict.fromkeys(row["hidden_layers"] for row in found))
    lines, notes = [], ""
    for i, row in enumerate(found):
        momentum = row["optimizer"] != "SGD"
        look = f"lw 2 dt {DASHES[1 if momentum else 0]} pt {MARKS[row['hidden_layers']][momentum]} ps 1.3 lc rgb '{COLOURS[(1, 3, 2, 0)[depths.index(row['hidden_layers'])]]}'"
        layers = f"{row['optimizer']}, {row['hidden_layers']} hidden layer{'s' if row['hidden_layers'] > 1 else ''}"
        lines.append(f"data using ($1 > 0 ? $1 + {0.09 * (i - 3.5):.2f} : 0):{2 + i} with linespoints {look} title '{layers}'")
        reached = [(int(lag), times) for lag, times in row["times"].items() if times is not None]
        if len(reached) < len(row["times"]) and reached:
            lag, times = reached[-1]
            notes += note(f"{layers}:\\ntarget never reached at {list(row['times'])[len(reached)]}", lag + 0.4, 1.45 * times, "right")
    lab.plot(notes + "set xlabel 'staleness (steps)'\nset ylabel 'steps to a loss of 0.6, as a multiple of no staleness'\nset logscale y 2\nset yrange [0.9:16]\nset xrange [-0.5:17]\nset xtics ("
             + ", ".join(str(lag) for lag in found[0]["times"]) + ")\nplot " + ", \\\n     ".join(lines) + "\n",
             ["staleness", *(f"{row['optimizer']}_{row['hidden_layers']}" for row in found)], rows, legend=4)
    head = ["optimizer", "hidden layers", *(f"staleness {lag}" for lag in found[0]["times"])]
    shown = table(head, [[row["optimizer"], row["hidden_layers"], *(steps if row["times"][lag] is None else f"{steps} ({row['times'][lag]} ×)" for lag, steps in row["steps"].items())] for row in found])
    return ("Each line is a net and an optimizer: how many times as many steps it needs to the same loss, if weights are older. A line that ends has not reached the target in two epochs.\n\n" + shown)
