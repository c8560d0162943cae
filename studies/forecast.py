"""Hemingway (Pan et al., 2017): from the first iterations of a training, how it goes on, for a Lasso, matrix completion and sparse regression."""
import math
import statistics

from prediction import AHEAD, SEEN, least_squares, most
from study import line, table

TITLE = "Fifty iterations say how trainings go on, but for a Lasso of few weights: chance decides there, and error bars say so"
PROGRAMS = ("matrix_completion", "scheduled_lasso", "sparse_regression")
CONTEXT = "Three examples on the CPU device, a Lasso twice, each from its first 50 iterations on; nothing depends on time; 5 seeds, of which nothing was chosen"
ASSUMES = ("Three examples. `matrix_completion`: the RMSE of the ratings to test after each of 150 epochs, learning rate 0.002. `sparse_regression`: the objective of each of 200 steps, learning rate 100. `scheduled_lasso`: the mean objective of each ten rounds, "
           "with few weights that are not 0 (`--l1 0.1`) and with many (`--l1 0.01`). Objectives are those above the optimum, which a long run has found: without it, predictions would be far nearer than 10 %, and say nothing. "
           "They end where a 1,000th (few weights) or a 100th (many) of the optimum, or 0.00002 (sparse regression), are left. "
           "A prediction goes on from the logarithms of the last losses that were seen: a line or a parabola is fitted to them (and need not pass through the last one), or it starts at the last one, with the mean slope over iterations or over their square roots, for which an iteration counts half as much as one that is so many iterations later. "
           "The runs of seeds 1, 7, 8 and 101 to 103 have chosen the form for each workload: the least error that nine of ten do not exceed. Errors are those of seeds 11 to 15: nothing was chosen with them, neither forms nor settings. "
           "A band has a half-width which four of five errors of the same form, made earlier in the same run, do not exceed. Futures: the same run, in which sets are drawn by another seed after the last iteration that was seen.")
CHOOSING, HELD_BACK = (1, 7, 8, 101, 102, 103), (11, 12, 13, 14, 15)  # seeds
FORMS = (*((kind, window) for kind in ("line", "parabola") for window in (6, 10, 20, 30)), *((kind, half) for kind in ("from the last", "from the last, over roots") for half in (3, 5, 8, 12, 20)))
SKIPPED = 4          # the first iterations, in which a loss falls in another way
SPARSE_LEFT = 2e-5
ROUNDS = 10          # of an iteration of the Lasso
BACKTESTED = 25      # so many iterations are seen at least for predictions whose errors make a band
COVERED = 0.8        # by a band
FUTURES = 11         # drawn for each point
POINTS = (50, 60, 70, 80)  # iterations seen, from which futures are drawn
LASSOS = {"Lasso, few weights": {"run": ("--updates", 20000), "optimum": ("--schedule", "random", "--parallel", 1, "--updates", 40000), "left": 1e-3},
          "Lasso, many weights": {"run": ("--l1", 0.01, "--updates", 30000), "optimum": ("--l1", 0.01, "--updates", 120000), "left": 1e-2}}


def run(lab):
    choosing, held_back = ((1,), (2,)) if lab.quick else (CHOOSING, HELD_BACK)
    seeds = choosing + held_back
    steps, small = (75, ("--ranks", 1, "--samples", 1000)) if lab.quick else (200, ())
    sparse = lab.run_all("sparse_regression", {(seed, length): ("--seed", seed, "--lr", 100, "--steps", length, *small) for seed in seeds for length in (steps, 4 * steps)})
    curves = {"sparse regression": {seed: above(sparse[seed, steps]["objectives"], sparse[seed, 4 * steps]["objectives"][-1], SPARSE_LEFT) for seed in seeds}}
    futures = {}
    if not lab.quick:
        completed = lab.run_all("matrix_completion", {seed: ("--seed", seed, "--lr", 0.002, "--epochs", 150, "--blocks", 1, "--threads", 8) for seed in seeds})
        curves["matrix completion"] = {seed: completed[seed]["epochs"]["test_rmse"] for seed in seeds}
        for name, settings in LASSOS.items():
            done = lab.run_all("scheduled_lasso", {(seed, way): ("--seed", seed, *settings[way]) for seed in seeds for way in ("run", "optimum")})
            optima = {seed: done[seed, "optimum"]["objectives"][-1] for seed in seeds}
            curves[name] = {seed: above(of_iterations(done[seed, "run"]["objectives"]), optima[seed], settings["left"] * optima[seed]) for seed in seeds}
            futures[name] = drawn_futures(lab, settings["run"], {seed: done[seed, "run"]["updates"] for seed in held_back}, optima, curves[name])
    return [{"workload": name, **judged([of_seeds[seed] for seed in choosing], [of_seeds[seed] for seed in held_back], [futures.get(name, {}).get(seed, {}) for seed in held_back])}
            for name, of_seeds in curves.items()]


def of_iterations(objectives):
    """The mean objectives of each ROUNDS rounds."""
    return [sum(objectives[i:i + ROUNDS]) / ROUNDS for i in range(0, len(objectives) - ROUNDS + 1, ROUNDS)]


def drawn_futures(lab, arguments, updates, optima, curves):
    """By seed and iterations that were seen: how far the objectives of the next AHEAD iterations are above the optimum, in each of FUTURES runs that differ in what is drawn from then on."""
    settings = {}
    for seed, of_rounds in updates.items():
        for seen in POINTS:
            if seen + AHEAD <= len(curves[seed]):
                last = of_rounds[(seen + AHEAD) * ROUNDS] + 20 * ROUNDS  # sets differ in size
                for future in range(FUTURES):
                    settings[seed, seen, future] = ("--seed", seed, *arguments, "--updates", last, "--redraw-after", of_rounds[seen * ROUNDS - 1], "--redraw-seed", 1000 + future)
    found = {seed: {} for seed in updates}
    for (seed, seen, _), result in lab.run_all("scheduled_lasso", settings).items():
        means = of_iterations(result["objectives"])[seen:seen + AHEAD]
        found[seed].setdefault(seen, []).append([mean - optima[seed] for mean in means])
    return found


def above(objectives, optimum, left):
    """How far objectives are above the optimum, until so much is left."""
    gaps = [objective - optimum for objective in objectives]
    return gaps[:next((i for i, gap in enumerate(gaps) if gap <= left), len(gaps))]


def forecast(losses, kind, number):
    """A function that predicts the loss so many iterations later. `losses`: from the first iteration on. `number`: of a line or a parabola, how many of the last losses count; of the others, after how many iterations one counts half."""
    logs, last = [math.log(loss) for loss in losses], len(losses)
    if kind in ("line", "parabola"):
        degree, logs = 1 if kind == "line" else 2, logs[-number:]
        found = least_squares([tuple((i - len(logs) + 1) ** power for power in range(degree + 1)) for i in range(len(logs))], logs)
        return lambda ahead: math.exp(sum(factor * ahead ** power for power, factor in enumerate(found)))
    # A random walk with drift: where it is, is its last place, not one on a line through its past.
    place = math.sqrt if kind == "from the last, over roots" else float
    weights = {i: 0.5 ** ((last - i) / number) for i in range(SKIPPED + 2, last + 1)}  # of the fall from iteration i - 1 to i
    slope = sum(weight * (logs[i - 1] - logs[i - 2]) for i, weight in weights.items()) / sum(weight * (place(i) - place(i - 1)) for i, weight in weights.items())
    return lambda ahead: math.exp(logs[-1] + slope * (place(last + ahead) - place(last)))


def errors(losses, form):
    """By iterations ahead: how far predictions are off, relatively, whenever SEEN or more were seen. `form`: None: as if nothing changed."""
    found = {ahead: [] for ahead in range(1, AHEAD + 1)}
    for seen in range(SEEN, len(losses) - AHEAD + 1):
        predicted = forecast(losses[:seen], *form) if form else lambda ahead: losses[seen - 1]
        for ahead, of_ahead in found.items():
            of_ahead.append(abs(predicted(ahead) / losses[seen + ahead - 1] - 1))
    return found


def bands(losses, form):
    """The band of each prediction, made from iterations that were seen alone: (by how much the logarithm may differ, by how much it does) of all predictions whenever SEEN or more were seen."""
    predicted = {seen: forecast(losses[:seen], *form) for seen in range(BACKTESTED, len(losses) + 1)}
    differs = {(seen, ahead): abs(math.log(predicted[seen](ahead) / losses[seen + ahead - 1])) for seen in predicted for ahead in range(1, AHEAD + 1) if seen + ahead <= len(losses)}
    found = []
    for seen in range(SEEN, len(losses) - AHEAD + 1):
        for ahead in range(1, AHEAD + 1):
            earlier = sorted(differs[before, ahead] for before in range(BACKTESTED, seen - ahead + 1))
            found.append((earlier[min(len(earlier), math.ceil(COVERED * (len(earlier) + 1))) - 1], differs[seen, ahead]))
    return found


def within_tenth(all_errors):
    return sum(error <= 0.1 for error in all_errors) / len(all_errors)


def of_futures(curves, form, futures):
    """At the points of which futures were drawn: the share of predictions within 10 %, of the form and of the median of all futures."""
    fitted, known = [], []
    for losses, by_seen in zip(curves, futures):
        for seen, drawn in by_seen.items():
            predicted = forecast(losses[:seen], *form)
            for ahead in range(1, AHEAD + 1):
                real = losses[seen + ahead - 1]
                fitted.append(abs(predicted(ahead) / real - 1))
                known.append(abs(statistics.median(future[ahead - 1] for future in drawn) / real - 1))
    return {"predictions": len(fitted), "fitted": within_tenth(fitted), "known": within_tenth(known)} if fitted else None


def judged(choosing, held_back, futures):
    """Which form the curves of `choosing` choose, and how far its predictions of the others are off. `futures`: of those, by iterations seen."""
    form = min(FORMS, key=lambda one: most([error for curve in choosing for of_ahead in errors(curve, one).values() for error in of_ahead]))
    found, unchanged = ([errors(curve, which) for curve in held_back] for which in (form, None))
    all_errors = [error for of_curve in found for of_ahead in of_curve.values() for error in of_ahead]
    in_bands = [one for curve in held_back for one in bands(curve, form)]
    return {"form": form, "iterations": [len(curve) for curve in (*choosing, *held_back)], "median": statistics.median(all_errors), "most": most(all_errors), "within_tenth": within_tenth(all_errors),
            "unchanged_most": most([error for of_curve in unchanged for of_ahead in of_curve.values() for error in of_ahead]),
            "band": {"covered": sum(differs <= may for may, differs in in_bands) / len(in_bands), "median": math.exp(statistics.median(may for may, _ in in_bands)) - 1},
            "futures": of_futures(held_back, form, futures),
            "by_ahead": [[most(sum((of_curve[ahead] for of_curve in kind), [])) for kind in (found, unchanged)] for ahead in range(1, AHEAD + 1)]}


def page(lab, found):
    def percent(value):
        return f"{100 * value:.3g} %"

    rows = [(ahead + 1, *(round(100 * value, 3) for row in found for value in row["by_ahead"][ahead])) for ahead in range(AHEAD)]
    lines = [f"data using 1:{2 + 2 * i + kind} {line(2 * i + kind)} title '{row['workload']}{', taken as unchanged' if kind else ''}'" for i, row in enumerate(found) for kind in (0, 1)]
    lab.plot("set key font ',11'\nset logscale y\nset xrange [1:10]\nset xlabel 'predicted ahead (iterations)'\nset ylabel 'error of the predicted loss (%): nine of ten are less'\nplot " + ", \\\n     ".join([*lines, "10 with lines dt 3 lc rgb 'black' title 'goal: 10 %'"]) + "\n",
             ["ahead", *(f"{row['workload']}{kind}" for row in found for kind in ("", "_unchanged"))], rows)
    shown = table(["workload", "form", "median error", "nine of ten", "within 10 %", "nine of ten, if nothing changed", "bands: half-width (median)", "hold"],
                  [[row["workload"], f"{row['form'][0]}, {row['form'][1]}", percent(row["median"]), percent(row["most"]), percent(row["within_tenth"]), percent(row["unchanged_most"]),
                    percent(row["band"]["median"]), percent(row["band"]["covered"])] for row in found])
    limits = table(["workload", "predictions", "of the form, within 10 %", "of the median of futures, within 10 %"],
                   [[row["workload"], row["futures"]["predictions"], percent(row["futures"]["fitted"]), percent(row["futures"]["known"])] for row in found if row["futures"]])
    known = (f"\n\nHow far chance goes: {FUTURES} futures of the same run, in which the sets are drawn by another seed after {', '.join(map(str, POINTS))} iterations. Their median knows all of the run's state, and how it goes on on average.\n\n{limits}"
             if any(row["futures"] for row in found) else "")
    return f"How far predictions of the next 1 to {AHEAD} iterations are off, whenever {SEEN} or more were seen, of runs of which nothing was chosen. Bands are to hold for {100 * COVERED:.0f} % of the predictions.\n\n{shown}{known}"
