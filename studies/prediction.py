"""Hemingway (Pan et al., 2017) and Ernest (Venkataraman et al., NSDI 2016): from the first iterations of a training, how it goes on; and from a few nodes, how it goes on more."""
import itertools
import math
import statistics

from stragglers import SYNCS
from study import COLOURS, median, note, table

TITLE = "Fifty iterations say how a training goes on, and a few nodes say which way is the fastest on more"
CONTEXT = "Fashion-MNIST, perceptron (128 and 64 hidden), 1 to 16 nodes; virtual time; medians of 3 seeds, bars: least to most; numbers: nodes"
ASSUMES = ("Fashion-MNIST, the demo's net (128 and 64 hidden), 16 samples a step and node, learning rate 0.05 without momentum, four epochs; virtual time, in which half of each step is a random time with an exponential distribution. "
           "An iteration is 2048 samples of all nodes together, and its loss the mean over them. The loss after i iterations is taken to be a + b / i^c, whose numbers are fitted to what was seen (Hemingway fits more features by lasso). "
           "A step's time is taken to be x + y log(nodes) + z nodes, with no negative number (Ernest's model, for as many samples a node). The largest number of nodes is predicted from the smaller ones alone: its loss is that of a line over log(nodes). "
           "Medians of three seeds.")
NODES = (1, 2, 4, 8, 16)  # the last one is predicted without having been seen
WAYS = ("bsp", "async", "every:8")
BATCH = 16
SEEN, AHEAD = 50, 10  # iterations
SKIPPED = 4           # the first iterations, in which a loss falls in another way
TARGET = 0.42


def iterations(result, nodes, samples):
    """The losses of a training by iteration, and when each one ended."""
    steps = samples // (nodes * BATCH)
    losses, times = result["losses"], result["node_reports"][0]["step_times_ns"]
    ends = range(steps, len(losses) + 1, steps)
    return [sum(losses[end - steps:end]) / steps for end in ends], [times[end - 1] / 1e9 for end in ends]


def least_squares(rows, values):
    """The numbers x for which the sum of squares of rows * x - values is least; None: there are many."""
    size = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(size)] + [sum(row[i] * value for row, value in zip(rows, values))] for i in range(size)]
    for i in range(size):  # Gauss and Jordan, with the largest pivot
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        if abs(matrix[i][i]) < 1e-12:
            return None
        for j in range(size):
            if j != i:
                factor = matrix[j][i] / matrix[i][i]
                matrix[j] = [one - factor * other for one, other in zip(matrix[j], matrix[i])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


def squares(rows, values, found):
    return sum((sum(one * other for one, other in zip(row, found)) - value) ** 2 for row, value in zip(rows, values))


def curve(losses):
    """A function that predicts the loss of any iteration, counted from 1, from those of the first ones."""
    seen = range(SKIPPED + 1, len(losses) + 1)
    fits = []
    for power in (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3):
        rows = [(1, i ** -power) for i in seen]
        found = least_squares(rows, losses[SKIPPED:])
        fits.append((squares(rows, losses[SKIPPED:], found), *found, power))
    _, end, height, power = min(fits)
    return lambda i: end + height * i ** -power


def step_time(by_nodes):
    """A function that predicts a step's time on any number of nodes, from those on a few: of all subsets of the terms, the one without a negative number that fits best."""
    terms = (lambda nodes: 1, math.log, lambda nodes: nodes)
    fits = []
    for count in (1, 2, 3):
        for chosen in itertools.combinations(terms, count):
            rows = [[term(nodes) for term in chosen] for nodes in by_nodes]
            found = least_squares(rows, list(by_nodes.values()))
            if found and min(found) >= 0:
                fits.append((squares(rows, by_nodes.values(), found), count, chosen, found))
    _, _, chosen, found = min(fits, key=lambda fit: fit[:2])
    return lambda nodes: sum(number * term(nodes) for number, term in zip(found, chosen))


def when(loss, target, last):
    """The first iteration whose loss is at most `target`; None: it is not among the first `last`."""
    return next((i for i in range(1, last + 1) if loss(i) <= target), None)


def reached(losses, target, window=5):
    """The first iteration with which the mean of the last ones is at most `target`."""
    return next((i for i in range(window, len(losses) + 1) if sum(losses[i - window:i]) / window <= target), None)


def errors_ahead(losses):
    """How far predictions are off, relatively: of each of the next iterations, of their mean, and of their mean if it is taken to be that of the last ten."""
    single, together, unchanged = [], [], []
    for seen in range(SEEN, len(losses) - AHEAD + 1, 3):
        predicted, real = curve(losses[:seen]), losses[seen:seen + AHEAD]
        ahead = [predicted(seen + i) for i in range(1, AHEAD + 1)]
        single += [abs(one / other - 1) for one, other in zip(ahead, real)]
        together.append(abs(sum(ahead) / sum(real) - 1))
        unchanged.append(abs(sum(losses[seen - AHEAD:seen]) / sum(real) - 1))
    return single, together, unchanged


def most(errors):
    """What nine of ten errors do not exceed."""
    return statistics.quantiles(errors, n=10)[-1]


def predicted_runs(runs):
    """By nodes: a function that predicts the loss, and the time of an iteration. `runs`: by nodes, losses and times. The last number of nodes is not looked at."""
    *seen, unseen = runs
    curves = {nodes: curve(runs[nodes][0][:SEEN]) for nodes in seen}
    of_step = step_time({nodes: runs[nodes][1][SEEN - 1] * nodes / SEEN for nodes in seen})
    several = [nodes for nodes in seen if nodes > 1] or seen  # one node waits for nobody

    def of_unseen(i):
        rows = [(1, math.log(nodes)) for nodes in several]
        start, slope = least_squares(rows, [curves[nodes](i) for nodes in several]) if len(several) > 1 else (curves[several[0]](i), 0)
        return start + slope * math.log(unseen)

    found = {nodes: (curves[nodes], runs[nodes][1][SEEN - 1] / SEEN) for nodes in seen}
    found[unseen] = (of_unseen, of_step(unseen) / unseen)
    return found


def run(lab):
    nodes, ways, samples, length = ((2, 4, 8), ("bsp", "every:8"), 256, ("--epochs", 1, "--limit", 30720)) if lab.quick else (NODES, WAYS, 2048, ("--epochs", 4))
    target = 0.7 if lab.quick else TARGET
    settings = {(way, count, seed): ("--nodes", count, "--batch", BATCH, *length, "--lr", 0.05, "--momentum", 0, "--seed", seed, "--sync", way, "--delays", "exponential")
                for way in ways for count in nodes for seed in lab.seeds}
    done = {key: iterations(result, key[1], samples) for key, result in lab.train_all(settings).items()}
    found = []
    for way in ways:
        by_seed = {seed: predicted_runs({count: done[way, count, seed] for count in nodes}) for seed in lab.seeds}
        for count in nodes:
            errors = [errors_ahead(done[way, count, seed][0]) for seed in lab.seeds]
            times = {"predicted": [], "measured": []}
            for seed in lab.seeds:
                losses, ends = done[way, count, seed]
                loss, of_iteration = by_seed[seed][count]
                first, real = when(loss, target, 10 * len(losses)), reached(losses, target)
                times["predicted"].append(None if first is None else first * of_iteration)
                times["measured"].append(None if real is None else ends[real - 1])
            single, together, unchanged = ([error for of_seed in errors for error in of_seed[kind]] for kind in range(3))
            found.append({"way": way, "nodes": count, "was_seen": count != nodes[-1], "single": {"median": statistics.median(single), "most": most(single)},
                          "together": {"median": statistics.median(together), "most": most(together)}, "unchanged": {"median": statistics.median(unchanged), "most": most(unchanged)},
                          **{what: {"median": median(of_seeds), "all": of_seeds} for what, of_seeds in times.items()}})
    return found


def page(lab, found):
    def percent(value):
        return f"{100 * value:.1f} %"

    shown = [row for row in found if None not in (row["predicted"]["median"], row["measured"]["median"], *row["predicted"]["all"], *row["measured"]["all"])]
    rows = [(row["way"], row["measured"]["median"], min(row["measured"]["all"]), max(row["measured"]["all"]), row["predicted"]["median"], min(row["predicted"]["all"]), max(row["predicted"]["all"]),
             0 if row["was_seen"] else 1) for row in shown]
    ways = list(dict.fromkeys(row["way"] for row in shown))
    points = [f"data using (strcol(1) eq '{way}' ? $2 : NaN):5:3:4:6:7 with xyerrorbars lw 1.5 pt {(7, 4, 9)[i]} ps 1.3 lc rgb '{COLOURS[i]}' title '{way}: {SYNCS[way]}'" for i, way in enumerate(ways)]
    unseen = max(row["nodes"] for row in found)
    points.append(f"data using ($8 == 1 ? $2 : NaN):5 with points pt 6 ps 3 lw 1.5 lc rgb 'black' title '{unseen} nodes, predicted from {min(row['nodes'] for row in found)} to {max(row['nodes'] for row in found if row['was_seen'])}'")
    points.append("x with lines lw 1.5 dt (2,5) lc rgb 'black' title 'predicted = measured'")
    chosen, fastest = (min(shown, key=lambda row: row[what]["median"]) for what in ("predicted", "measured"))
    lab.plot(numbers(shown) + (note(f"  {fastest['way']} on {fastest['nodes']} nodes: the fastest,\\n  as was predicted", 1.3 * fastest["measured"]["median"], fastest["predicted"]["median"]) if chosen is fastest else "")
             + "set logscale xy\nset xrange [300:4000]\nset yrange [250:4000]\nset xtics (300, 500, 1000, 2000, 3000)\nset ytics (300, 500, 1000, 2000, 3000)\n"
             f"set xlabel 'measured time to a training loss of {TARGET} (mean steps)'\nset ylabel 'the time predicted from 50 iterations (mean steps)'\nplot " + ", \\\n     ".join(points) + "\n",
             ["way", "measured", "least", "most", "predicted", "least", "most", "unseen"], rows, legend=3)
    ahead = table(["way", "nodes", "an iteration: median", "nine of ten", "mean of ten: median", "nine of ten", "if nothing changed"],
                  [[row["way"], row["nodes"], percent(row["single"]["median"]), percent(row["single"]["most"]), percent(row["together"]["median"]), percent(row["together"]["most"]), percent(row["unchanged"]["most"])] for row in found])
    target = table(["way", "nodes", "seen", "predicted", "measured"], [[row["way"], row["nodes"], "yes" if row["was_seen"] else "no",
                                                                       *(None if row[what]["median"] is None else round(row[what]["median"]) for what in ("predicted", "measured"))] for row in found])
    return (f"Each point is a way to train on so many nodes. Up is what the first {SEEN} iterations have predicted for the time to the target loss, to the right what it took; circles are numbers of nodes of which nothing was seen. Bars are the least and the most of the seeds.\n\n"
            f"Predicted to be the fastest: {chosen['way']} on {chosen['nodes']} nodes, which took {chosen['measured']['median']:.0f} steps of time. The fastest was {fastest['way']} on {fastest['nodes']} nodes, with {fastest['measured']['median']:.0f}.\n\n{target}\n\n"
            f"How far the predictions of the next {AHEAD} iterations are off, whenever {SEEN} or more were seen. The last column says by how much the mean of ten is off if it is taken to be that of the last ten seen.\n\n{ahead}")


def numbers(shown):
    """The nodes of each point, beside it; of points that lie on each other, once."""
    texts, places = "", {}
    for row in shown:
        places.setdefault((row["nodes"], round(row["measured"]["median"]), round(row["predicted"]["median"])), []).append(row["way"])
    ways = list(dict.fromkeys(row["way"] for row in shown))
    for (nodes, measured, predicted), of_place in places.items():
        below, far = ways.index(of_place[0]) == 0, 1 if nodes < shown[-1]["nodes"] else 2  # beyond the circle
        if len(of_place) > 1:
            texts += note(f"{nodes} (all {len(of_place)} ways)", measured, f"{0.86 * predicted:.0f}", "center")
        else:
            texts += note(str(nodes), f"{measured * (1.035 if below else 1 / 1.035) ** far:.0f}", f"{predicted * (1 / 1.07 if below else 1.07) ** far:.0f}", "left" if below else "right")
    return texts
