"""Late pushes, corrected: staleness-aware async-SGD (Zhang et al., IJCAI 2016) and DC-ASGD (Zheng et al., ICML 2017)."""
from study import line, median, note, table

TITLE = "Where late pushes do harm, owners that correct them do less"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 8 nodes, one epoch; half of each step is a random time; virtual time; medians of 5 seeds"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 8 nodes with 32 samples a step each, `--sync async`, no momentum, one epoch. Virtual time: half of each step is a random time with an exponential distribution. "
           "`--stale-lr` divides a push by how many pushes each other node has made since the pull, if that is more than 1. Loss: the mean of the last 30 steps. Medians of five seeds.")
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
WAYS = {"async": ("--sync", "async"), "--stale-lr": ("--sync", "async", "--stale-lr"), "--delay-compensation 0.5": ("--sync", "async", "--delay-compensation", 0.5),
        "--delay-compensation 2": ("--sync", "async", "--delay-compensation", 2), "bsp": ("--sync", "bsp")}
NAMES = {"async": "async", "--stale-lr": "async, late pushes scaled down", "--delay-compensation 0.5": "async, delay compensation 0.5", "--delay-compensation 2": "async, delay compensation 2", "bsp": "bsp"}
MOST = 0.7      # nats that the picture shows
UNTRAINED = 2.3  # nats, about ln 10, which is what a net that knows nothing has
SEEDS = (1, 2, 3, 4, 5)
LAST = 30


def run(lab):
    rates = (0.8,) if lab.quick else RATES
    ways = tuple(WAYS)[:3] if lab.quick else WAYS
    seeds = SEEDS[:3] if lab.quick else SEEDS
    base = ("--nodes", 8, "--batch", 32, "--epochs", 1, "--momentum", 0, "--delays", "exponential", *(("--hidden", "64,32") if lab.quick else ()))
    done = lab.train_all({(way, rate, seed): (*base, "--lr", rate, "--seed", seed, *WAYS[way]) for way in ways for rate in rates for seed in seeds})
    found = []
    for way in ways:
        for rate in rates:
            results = [done[way, rate, seed] for seed in seeds]
            found.append({"way": way, "rate": rate, "loss": median([last(result["losses"]) for result in results]), "accuracy": median([result["accuracy"] for result in results])})
    return found


def last(losses):
    """The mean loss of the last steps."""
    steps = losses[-LAST:]
    return None if None in steps else round(sum(steps) / len(steps), 4)


def page(lab, found):
    at = {(row["way"], row["rate"]): row["loss"] for row in found}
    rates = list(dict.fromkeys(row["rate"] for row in found))
    ways = list(dict.fromkeys(row["way"] for row in found))
    lines = [f"data using 1:{2 + i} {line(i)} title '{NAMES[way]}'" for i, way in enumerate(ways)]
    lab.plot(notes(at, rates, ways) + f"set xrange [0.05:0.85]\nset yrange [0.43:{MOST}]\nset xlabel 'learning rate (of a step of all nodes)'\nset ylabel 'training loss (nats), last 30 steps'\nplot " + ", \\\n     ".join(lines) + "\n",
             ["rate", *ways], [(rate, *(at[way, rate] for way in ways)) for rate in rates], legend=3)
    shown = table(["", *map(str, rates)], [[way, *(untrained(at[way, rate]) for rate in rates)] for way in ways])
    return "Each point is a training.\n\n" + shown


def untrained(loss):
    return loss if loss is None or loss < UNTRAINED else f"{loss} (untrained)"


def notes(at, rates, ways):
    """Why lines end."""
    texts = ""
    for i, way in enumerate(ways):
        shown = [rate for rate in rates if at[way, rate] is not None and at[way, rate] <= MOST]
        lost = next((rate for rate in rates if at[way, rate] is None or at[way, rate] >= UNTRAINED), None)
        higher = [(rate, at[way, rate]) for rate in rates if at[way, rate] is not None and MOST < at[way, rate] < UNTRAINED]
        if lost and shown:
            is_lowest = all(at[other, shown[-1]] is None or at[other, shown[-1]] >= at[way, shown[-1]] for other in ways)
            texts += note(f"{NAMES[way].removeprefix('async, ')}: diverges from {lost} on", shown[-1] + (-0.07 if is_lowest else 0), f"{at[way, shown[-1]] + (-0.024 if is_lowest else 0.013):.4f}", "left" if is_lowest else "center")
        for rate, loss in higher:
            texts += note(f"{NAMES[way]}: {loss:.2f} at {rate} ", f"{rate - 0.1:.2f}", f"{MOST - 0.01 * (i + 1):.3f}", "right")
    return texts
