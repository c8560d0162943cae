"""Hemingway (Pan et al., 2017) with Ernest (Venkataraman et al., NSDI 2016) for a Lasso by scheduled coordinates (STRADS): from the first iterations, which schedule and how many coordinates at a time take the fewest rounds to a target."""
import statistics

from forecast import forecast
from prediction import SEEN, step_time
from study import COLOURS, median, table

TITLE = "Fifty iterations of a Lasso name a schedule that is near the best; of slow ones they predict too many rounds"
PROGRAMS = ("scheduled_lasso",)
CONTEXT = "Lasso, 2 ranks; a point is a size of sets, 1 to 16 coordinates, whose rounds were predicted from 50 iterations; medians of 3 seeds, bars: least to most"
ASSUMES = ("The example `scheduled_lasso`, 1,000 samples and 500 features, with many weights that are not 0 (`--l1 0.01`); other settings are those of the study `scheduling`. An iteration is 60 updates of coordinates, whatever the size of sets, and 50 of them are seen. "
           "The target is 2 % above the optimum, which 120,000 scheduled updates have found. The objective above the optimum goes on from the last one, over the square root of iterations (as in the study `forecast`, half-life 12). "
           "Rounds are iterations times 60, by the updates of a round. For the largest sets, of which nothing is seen, both are Ernest's x + y log(size) + z size without a negative number, fitted to the smaller sizes. "
           "A run whose objective grows has diverged, and nothing is predicted of it, nor of larger sets of its schedule. Iterations of 60 updates, the target and the half-life were chosen with seeds 1, 101 and 102; the study has seeds 11 to 13. "
           "Nothing here depends on time: a round is an exchange of all ranks, and their number does not change the objective, so no number of ranks is named.")
WAYS = {"strads": "scheduled, by priorities", "uniform": "scheduled, without priorities", "random": "by chance"}
SIZES = (1, 2, 4, 8, 16)  # the last one is predicted without having been seen
UPDATES = 60              # of an iteration
HALF = 12                 # iterations after which one counts half
TARGET = 0.02             # of the optimum, above it
LAST = 10000              # iterations: no prediction goes further


def run(lab):
    seeds, sizes = ((1,), (1, 2, 4, 8)) if lab.quick else ((11, 12, 13), SIZES)
    shape = ("--l1", 0.01, *(("--samples", 300, "--features", 150, "--groups", 3, "--group-features", 36) if lab.quick else ()))
    length = 12000 if lab.quick else 60000
    optima = {seed: result["objectives"][-1] for seed, result in lab.run_all("scheduled_lasso", {seed: ("--seed", seed, *shape, "--updates", 2 * length) for seed in seeds}).items()}
    done = lab.run_all("scheduled_lasso", {(way, size, seed): ("--seed", seed, *shape, "--schedule", way, "--parallel", size, "--updates", length, "--target", (1 + TARGET) * optima[seed])
                                           for way in WAYS for size in sizes for seed in seeds}, statuses=(0, 1))  # 1: it has diverged
    found = []
    for way in WAYS:
        predicted = [predicted_rounds({size: done[way, size, seed] for size in sizes[:-1]}, sizes[-1], optima[seed]) for seed in seeds]
        for size in sizes:
            rounds = {"predicted": [of_seed[size] for of_seed in predicted], "measured": [measured_rounds(done[way, size, seed], optima[seed]) for seed in seeds]}
            found.append({"way": way, "size": size, "was_seen": size != sizes[-1], **{what: {"median": median(of_seeds), "all": of_seeds} for what, of_seeds in rounds.items()}})
    return found


def measured_rounds(result, optimum):
    """After how many rounds the objective is near enough; None: never."""
    return next((number for number, objective in enumerate(result["objectives"]) if objective is not None and objective <= (1 + TARGET) * optimum), None)


def seen_iterations(result, optimum):
    """How far the objective is above the optimum after each of the first SEEN iterations, and the updates of a round. None: it grows in them."""
    gaps, first = [], result["objectives"][0]
    for number, (objective, updates) in enumerate(zip(result["objectives"], result["updates"])):
        if objective is None or objective > first:
            return None
        if updates >= UPDATES * (len(gaps) + 1):
            gaps.append(objective - optimum)
        if len(gaps) == SEEN:
            return gaps, updates / number
    return gaps, result["updates"][-1] / (len(result["updates"]) - 1)  # it was near enough before


def iterations_to(target, gaps):
    """The iteration that comes so near to the optimum, predicted if it was not seen. None: not among the first LAST."""
    reached = next((i for i, gap in enumerate(gaps, 1) if gap <= target), None)
    if reached or len(gaps) < SEEN:
        return reached or len(gaps) + 1
    predicted = forecast(gaps, "from the last, over roots", HALF)
    return next((len(gaps) + ahead for ahead in range(1, LAST) if predicted(ahead) <= target), None)


def predicted_rounds(runs, unseen, optimum):
    """By size of sets: rounds to the target, from what was seen of the runs; None: never. `runs`: by size; `unseen`: a size of which there is no run."""
    seen = {size: seen_iterations(result, optimum) for size, result in runs.items()}
    iterations = {size: iterations_to(TARGET * optimum, found[0]) if found else None for size, found in seen.items()}
    rounds = {size: count * UPDATES / seen[size][1] if count else None for size, count in iterations.items()}
    rounds[unseen] = None if None in iterations.values() else step_time(iterations)(unseen) * UPDATES / step_time({size: found[1] for size, found in seen.items()})(unseen)
    return rounds


def page(lab, found):
    def fewest(what):
        return min(found, key=lambda row: row[what]["median"] or float("inf"))

    def cell(rounds):
        return "never" if rounds["median"] is None else f"{rounds['median']:.0f} [{', '.join('never' if one is None else f'{one:.0f}' for one in rounds['all'])}]"

    def name(row):
        return f"{WAYS[row['way']]}, {row['size']} at a time"

    shown = [row for row in found if None not in (*row["predicted"]["all"], *row["measured"]["all"])]
    rows = [(row["way"], row["measured"]["median"], min(row["measured"]["all"]), max(row["measured"]["all"]), row["predicted"]["median"], min(row["predicted"]["all"]), max(row["predicted"]["all"]), 0 if row["was_seen"] else 1) for row in shown]
    points = [f"data using (strcol(1) eq '{way}' ? $2 : NaN):5:3:4:6:7 with xyerrorbars lw 1.5 pt {5 + 2 * i} lc rgb '{COLOURS[i]}' title '{text}'" for i, (way, text) in enumerate(WAYS.items())]
    points += ["data using ($8 == 1 ? $2 : NaN):5 with points pt 6 ps 2.5 lc rgb 'black' title 'size of which no run was seen'", "x with lines dt 3 lc rgb 'black' title 'predicted = measured'"]
    lab.plot("set logscale xy\nset xrange [300:30000]\nset yrange [300:30000]\nset xlabel 'measured rounds to 2 % above the optimum (exchanges)'\nset ylabel 'predicted from 50 iterations (exchanges)'\nset key inside left top Left reverse\nplot " + ", \\\n     ".join(points) + "\n",
             ["way", "measured", "least", "most", "predicted", "least", "most", "unseen"], rows)
    errors = {was_seen: [abs(one / real - 1) for row in found if row["was_seen"] == was_seen for one, real in zip(row["predicted"]["all"], row["measured"]["all"]) if None not in (one, real)] for was_seen in (True, False)}
    off = "; ".join(f"{'of sizes that were seen' if was_seen else 'of the largest size'} {100 * statistics.median(of_kind):.0f} % (median), {100 * max(of_kind):.0f} % (most)" for was_seen, of_kind in errors.items() if of_kind)
    chosen, fastest = fewest("predicted"), fewest("measured")
    return (f"Predicted to take the fewest rounds: {name(chosen)}, which took {cell(chosen['measured'])}. The fewest took {name(fastest)}: {cell(fastest['measured'])}. Predictions are off by: {off}.\n\n"
            "Bars, and brackets: each seed; points, and first numbers: medians. Circles are sizes of which nothing was seen.\n\n"
            + table(["coordinates at a time", "seen", "rounds, predicted", "rounds, measured"], [[name(row), "yes" if row["was_seen"] else "no", cell(row["predicted"]), cell(row["measured"])] for row in found]))
