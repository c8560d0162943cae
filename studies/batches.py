"""Large batches (Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour", 2017): a rate that grows with the batch, and a warm-up."""
from study import median, note, style, table

TITLE = "Eight times the batch learns as well with eight times the rate, if the rate rises slowly at first"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 64 samples a step and node, ten epochs; virtual time; medians of 3 seeds, bars: least to most"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 64 samples a step on each node, momentum 0.9, ten epochs. Eight nodes do an eighth of the steps of one. The warm-up lasts one epoch (117 steps): `--warmup` multiplies "
           "gradients, so momentum keeps what earlier steps had added at their rates, without the paper's momentum correction. No weight decay, no later decay of the rate, and no batch norm: the paper has all three. Bars and "
           "brackets: the least and the most of three seeds; lines and first numbers: medians.")
RATES = (0.01, 0.02, 0.04)
NODES = 8
WAYS = {"1 x the batch": (1, 1, False), "8 x, same rate": (NODES, 1, False), "8 x, 8 x the rate": (NODES, NODES, False), "8 x, 8 x the rate, warm-up": (NODES, NODES, True)}  # nodes, times the rate, warm-up
NAMES = dict(zip(WAYS, ("one node", "8 nodes, same rate", "8 nodes, 8 x rate", "8 nodes, 8 x rate, warm-up")))
LEAST = 80  # per cent that the picture shows


def run(lab):
    rates = (0.02,) if lab.quick else RATES
    length, epoch = (("--epochs", 2, "--limit", 15360), 30) if lab.quick else (("--epochs", 10), 117)
    settings = {(way, rate, seed): ("--nodes", nodes, *length, "--lr", times * rate, "--warmup", epoch if warms_up else 0, "--seed", seed)
                for way, (nodes, times, warms_up) in WAYS.items() for rate in rates for seed in lab.seeds}
    done = lab.train_all(settings)
    found = []
    for way, rate in dict.fromkeys((way, rate) for way, rate, _ in settings):
        results = [done[way, rate, seed] for seed in lab.seeds]
        accuracies = [result["accuracy"] for result in results]
        found.append({"way": way, "rate": rate, "steps": results[0]["steps"], "accuracy": median(accuracies), "least": min(accuracies), "most": max(accuracies),
                      "test_loss": median([result["test_loss"] for result in results])})
    return found


def page(lab, found):
    at = {(row["way"], row["rate"]): row for row in found}
    rates = sorted({row["rate"] for row in found})
    rows = [(rate, *(round(100 * at[way, rate][what], 2) for way in WAYS for what in ("accuracy", "least", "most"))) for rate in rates]
    columns = [f"{NAMES[way]}: {what}" for way in WAYS for what in ("median", "least", "most")]
    lines = [f"data using ($1*{1 + 0.02 * i}):{2 + 3 * i}:{3 + 3 * i}:{4 + 3 * i} with yerrorlines {style(i)} title '{NAMES[way]}'" for i, way in enumerate(WAYS)]
    outside = [row for row in found if 100 * row["accuracy"] < LEAST]
    notes = "".join(note(f"{NAMES[row['way']]}: diverges, {100 * row['accuracy']:.0f} % at {row['rate']}", 0.95 * row["rate"], LEAST + 0.4 * (i + 1), "right") for i, row in enumerate(outside))
    lab.plot(notes + f"set logscale x\nset xrange [{0.8 * rates[0]}:{1.3 * rates[-1]}]\nset xtics ({', '.join(map(str, rates))})\nset yrange [{LEAST}:90]\nset xlabel 'learning rate of one node (without the factor 8)'\nset ylabel 'test accuracy (%)'\n"
             "plot " + ", \\\n     ".join(lines) + "\n", ["rate", *columns], rows, legend=2)
    shown = table(["way", *(f"rate {rate}" for rate in rates)],
                  [[NAMES[way], *(f"{100 * at[way, rate]['accuracy']:.2f} % [{100 * at[way, rate]['least']:.2f}, {100 * at[way, rate]['most']:.2f}]" for rate in rates)] for way in WAYS])
    return "Each point is the accuracy after the training; a way below the picture has not learned. Rates are those of one node with one batch.\n\n" + shown
