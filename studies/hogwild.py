"""HOGWILD! (Recht et al., NIPS 2011): threads that learn from the same memory without locks, against locks, and against one thread."""
import math

from study import median, note, style, table

TITLE = "Threads that learn without locks learn as one thread does; what locks cost depends on how long an update is"
PROGRAMS = ("matrix_completion",)
CONTEXT = "Matrix completion, one rank; CPU device, two cores, real time; left medians of 5 seeds, right medians of 11 runs, bars: least to most"
ASSUMES = ("The example `matrix_completion` with one rank, whose threads learn from ratings at the same time; learning rate 0.03. With locks a thread takes the user's row and the item's. A batch is an epoch: so the store costs nothing "
           "that counts. RMSE: of the ratings to test, of 60,000 by 1,000 users of 500 items, medians of five seeds. Speed: updates of a second in the fastest epoch of a run, from 1,000,000 ratings; with 16 items there are 32 users. On the CPU device a block runs on one thread of the system, and its threads "
           "take turns, so at most as many updates happen at the same time as there are blocks and cores. Figures of the CPU device say nothing about a GPU. They vary by machine and by run: ways take turns, and the ratio is the median of the "
           "ratios of runs that follow each other.")
WAYS = {"one thread": (1, 1), "one thread, locks": (1, 1, "--locks"), "2 blocks": (2, 1), "2 blocks, locks": (2, 1, "--locks"), "8 blocks of 32": (8, 32), "8 blocks of 32, locks": (8, 32, "--locks")}
SHAPES = {"4 factors": ("--factors", 4, "--epochs", 20), "32 factors": ("--factors", 32, "--epochs", 5), "4 factors, 16 items": ("--factors", 4, "--users", 32, "--items", 16, "--epochs", 20)}
NAMES = {way: way.replace("2 blocks", "2 blocks of 1 thread").replace("8 blocks of 32", "8 blocks of 32 threads") for way in WAYS}
TICKS = {"4 factors": "4 factors,\\n500 items", "32 factors": "32 factors,\\n500 items", "4 factors, 16 items": "4 factors,\\n16 items"}
EPOCHS = 20


def run(lab):
    ways = tuple(WAYS)[:4] if lab.quick else tuple(WAYS)
    shapes = tuple(SHAPES)[:1] if lab.quick else tuple(SHAPES)
    seeds, rounds, ratings = ((1,), 1, 100_000) if lab.quick else ((1, 2, 3, 4, 5), 11, 1_000_000)
    base = {way: ("--ranks", 1, "--batch", 1 << 24, "--blocks", WAYS[way][0], "--threads", WAYS[way][1], *WAYS[way][2:]) for way in ways}
    learned = lab.run_all("matrix_completion", {(way, seed): (*base[way], "--epochs", EPOCHS, "--seed", seed) for way in ways for seed in seeds})
    timed = lab.run_all("matrix_completion", {(shape, turn, way): (*base[way], "--ratings", ratings, *SHAPES[shape]) for shape in shapes for turn in range(rounds) for way in ways}, at_a_time=1)
    found = []
    for way in ways:
        curves = [learned[way, seed] for seed in seeds]
        row = {"way": way, "curve": [((epoch + 1) * curves[0]["ratings"], median([one["epochs"]["test_rmse"][epoch] for one in curves])) for epoch in range(EPOCHS)],
               "rmse": [one["test_rmse"] for one in curves], "speed": {}}
        for shape in shapes:
            row["speed"][shape] = [speed(timed[shape, turn, way]) for turn in range(rounds)]
        found.append(row)
    return found


def speed(result):
    """Updates of a second in the fastest epoch, in millions: in others, other programs may have had a core."""
    seconds = result["epochs"]["seconds"]
    return round(result["ratings"] / min(end - begin for begin, end in zip([0, *seconds], seconds)) / 1e6, 2)


def points(number):
    """Marks without a line."""
    return style(number).replace("lw 2", "lw 1.5")


def page(lab, found):
    shapes = list(found[0]["speed"])
    at = {row["way"]: row for row in found}
    columns = ["updates", *(NAMES[row["way"]] for row in found), *(f"{what}_{NAMES[row['way']]}" for row in found for what in ("speed", "least", "most"))]
    rows = []
    for i, (updates, _) in enumerate(found[0]["curve"]):
        speeds = [cell for row in found for cell in ((median(row["speed"][shapes[i]]), min(row["speed"][shapes[i]]), max(row["speed"][shapes[i]])) if i < len(shapes) else (None, None, None))]
        rows.append((updates, *(row["curve"][i][1] for row in found), *speeds))
    curves = [f"data using ($1/1e6):{2 + i} with lines lw 2 dt 1 lc rgb '#8a8a8a' notitle" for i in range(len(found))]
    curves += [f"data using ($1/1e6):{2 + i} every 6::{i} with points {points(i)} notitle" for i in range(len(found))]  # marks of others are not on each other: lines are
    first = 2 + len(found)
    bars = [f"data using ($0 + {0.12 * i - 0.3:.2f}):{first + 3 * i}:{first + 3 * i + 1}:{first + 3 * i + 2} with yerrorbars {points(i)} title '{NAMES[row['way']]}'" for i, row in enumerate(found)]
    names = ", ".join(f"\"{TICKS[shape]}\" {i}" for i, shape in enumerate(shapes))
    apart = max(abs(math.log(one / other)) for row in found for one, other in zip(row["rmse"], at["one thread"]["rmse"]))
    lab.plot(note(f"all within {math.ceil(1000 * apart) / 10} %\\nat the end", "graph 0.95", "graph 0.22", "right")
             + "set logscale y\nset yrange [0.09:1.2]\nset ytics (0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1)\nset xlabel 'updates (millions)'\nset ylabel 'test RMSE (noise 0.1)'\nplot "
             + ", \\\n     ".join(curves) + f"\nunset label\nset yrange [4:200]\nset ytics (5, 10, 20, 50, 100, 200)\nset xrange [-0.6:{len(shapes) - 0.4}]\nset xtics ({names})\nunset xlabel\nset ylabel 'updates per second (millions)'\nplot "
             + ", \\\n     ".join(bars) + "\n", columns, rows, panels="1,2", legend=3)
    serial = at["one thread"]["rmse"]
    quality = table(["way", "RMSE", "beside one thread, most of the seeds"], [[NAMES[row["way"]], round(median(row["rmse"]), 4), f"{100 * max(abs(math.log(one / other)) for one, other in zip(row['rmse'], serial)):.2f} %"] for row in found])
    pairs = [(row["way"], row["way"] + ", locks") for row in found if row["way"] + ", locks" in at]
    speeds = table(["way", *shapes], [[NAMES[row["way"]], *(f"{median(row['speed'][shape]):.0f} ({min(row['speed'][shape]):.0f} to {max(row['speed'][shape]):.0f})" for shape in shapes)] for row in found])
    ratios = table(["without locks, times as fast as with them", *shapes], [[NAMES[one], *(f"{median([a / b for a, b in zip(at[one]['speed'][shape], at[other]['speed'][shape])]):.1f} ×" for shape in shapes)] for one, other in pairs])
    return ("Left: the RMSE over updates. Right: updates of a second on this machine's CPU device, the median of all runs, the least and the most.\n\n" + quality +
            "\n\nMillions of updates a second, median (least to most):\n\n" + speeds + "\n\n" + ratios)
