"""Hemingway (Pan et al., 2017): from the first iterations of a training, how it goes on, for a Lasso, matrix completion and sparse regression."""
import math
import statistics

from prediction import AHEAD, SEEN, least_squares, most
from study import line, table

TITLE = "Fifty iterations say how smooth trainings go on, and less of one that changes a few coordinates at a time"
PROGRAMS = ("matrix_completion", "scheduled_lasso", "sparse_regression")
ASSUMES = ("Three examples. `matrix_completion`: the RMSE of the ratings to test after each of 150 epochs, learning rate 0.002. `sparse_regression`: the objective of each of 200 steps, learning rate 100. `scheduled_lasso`: the mean objective of each ten rounds. "
           "Both objectives are those above the optimum, which a long run has found: without it, predictions would be far nearer than 10 %, and say nothing. They end where a 1,000th of the optimum (the Lasso) or 0.00002 (sparse regression) are left. "
           "A prediction is a line or a parabola through the logarithms of the last losses that were seen; of which of these, and of how many losses, the runs of seed 1 have chosen for each workload. Errors are those of seeds 2 to 6, of which nothing was chosen.")
FORMS = tuple((window, degree) for degree in (1, 2) for window in (6, 10, 20, 30))
LASSO_LEFT, SPARSE_LEFT = 1e-3, 2e-5


def run(lab):
    seeds = (1, 2) if lab.quick else (1, 2, 3, 4, 5, 6)
    steps, small = (75, ("--ranks", 1, "--samples", 1000)) if lab.quick else (200, ())
    sparse = lab.run_all("sparse_regression", {(seed, length): ("--seed", seed, "--lr", 100, "--steps", length, *small) for seed in seeds for length in (steps, 4 * steps)})
    curves = {"sparse regression": {seed: above(sparse[seed, steps]["objectives"], sparse[seed, 4 * steps]["objectives"][-1], SPARSE_LEFT) for seed in seeds}}
    if not lab.quick:
        completed = lab.run_all("matrix_completion", {seed: ("--seed", seed, "--lr", 0.002, "--epochs", 150, "--blocks", 1, "--threads", 8) for seed in seeds})
        curves["matrix completion"] = {seed: completed[seed]["epochs"]["test_rmse"] for seed in seeds}
        ways = {"strads": ("--updates", 20000), "optimum": ("--schedule", "random", "--parallel", 1, "--updates", 40000)}
        lasso = lab.run_all("scheduled_lasso", {(seed, way): ("--seed", seed, *arguments) for seed in seeds for way, arguments in ways.items()})
        curves["Lasso"] = {}
        for seed in seeds:
            objectives, optimum = lasso[seed, "strads"]["objectives"], lasso[seed, "optimum"]["objectives"][-1]
            of_tens = [sum(objectives[i:i + 10]) / 10 for i in range(0, len(objectives) - 9, 10)]
            curves["Lasso"][seed] = above(of_tens, optimum, LASSO_LEFT * optimum)
    return [{"workload": name, **judged(list(of_seeds.values()))} for name, of_seeds in curves.items()]


def above(objectives, optimum, left):
    """How far objectives are above the optimum, until so much is left."""
    gaps = [objective - optimum for objective in objectives]
    return gaps[:next((i for i, gap in enumerate(gaps) if gap <= left), len(gaps))]


def forecast(losses, window, degree):
    """A function that predicts the loss so many iterations later: the logarithm of the loss is a polynomial that is fitted to the last ones."""
    seen = losses[-window:]
    found = least_squares([tuple((i - len(seen) + 1) ** power for power in range(degree + 1)) for i in range(len(seen))], [math.log(loss) for loss in seen])
    return lambda ahead: math.exp(sum(number * ahead ** power for power, number in enumerate(found)))


def errors(losses, form):
    """By iterations ahead: how far predictions are off, relatively, whenever SEEN or more were seen. `form`: None: as if nothing changed."""
    found = {ahead: [] for ahead in range(1, AHEAD + 1)}
    for seen in range(SEEN, len(losses) - AHEAD + 1):
        predicted = forecast(losses[:seen], *form) if form else lambda ahead: losses[seen - 1]
        for ahead, of_ahead in found.items():
            of_ahead.append(abs(predicted(ahead) / losses[seen + ahead - 1] - 1))
    return found


def judged(curves):
    """Which form the first curve chooses, and how far its predictions of the others are off."""
    first, *held_back = curves
    form = min(FORMS, key=lambda one: most(sum(errors(first, one).values(), [])))
    found, unchanged = ([errors(curve, which) for curve in held_back] for which in (form, None))
    all_errors = [error for of_curve in found for of_ahead in of_curve.values() for error in of_ahead]
    return {"form": form, "iterations": [len(curve) for curve in curves], "median": statistics.median(all_errors), "most": most(all_errors), "within_tenth": sum(error <= 0.1 for error in all_errors) / len(all_errors),
            "unchanged_most": most([error for of_curve in unchanged for of_ahead in of_curve.values() for error in of_ahead]),
            "by_ahead": [[most(sum((of_curve[ahead] for of_curve in kind), [])) for kind in (found, unchanged)] for ahead in range(1, AHEAD + 1)]}


def page(lab, found):
    def percent(value):
        return f"{100 * value:.3g} %"

    rows = [(ahead + 1, *(round(100 * value, 3) for row in found for value in row["by_ahead"][ahead])) for ahead in range(AHEAD)]
    lines = [f"data using 1:{2 + 2 * i + kind} {line(2 * i + kind)} title '{row['workload']}{', if nothing changed' if kind else ''}'" for i, row in enumerate(found) for kind in (0, 1)]
    lab.plot("set logscale y\nset xrange [1:10]\nset xlabel 'predicted ahead (iterations)'\nset ylabel 'nine of ten errors are less (%)'\nplot " + ", \\\n     ".join([*lines, "10 with lines dt 3 lc rgb 'black' title '10 %'"]) + "\n",
             ["ahead", *(f"{row['workload']}{kind}" for row in found for kind in ("", "_unchanged"))], rows)
    names = {1: "line", 2: "parabola"}
    shown = table(["workload", "fitted", "median error", "nine of ten", "within 10 %", "nine of ten, if nothing changed"],
                  [[row["workload"], f"{names[row['form'][1]]} through {row['form'][0]}", percent(row["median"]), percent(row["most"]), percent(row["within_tenth"]), percent(row["unchanged_most"])] for row in found])
    return f"How far predictions of the next 1 to {AHEAD} iterations are off, whenever {SEEN} or more were seen, of runs of which nothing was chosen.\n\n" + shown
