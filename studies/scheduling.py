"""STRADS (Kim et al., EuroSys 2016; Lee et al., NIPS 2014): coordinates of a Lasso that are changed at the same time, scheduled or by chance."""
from study import COLOURS, median, note, table

TITLE = "Larger sets of coordinates save rounds until they diverge by chance; scheduled ones do not diverge"
PROGRAMS = ("scheduled_lasso",)
CONTEXT = "Lasso, coordinate descent by 2 ranks; nothing depends on time; medians of 5 seeds"
ASSUMES = ("The example `scheduled_lasso`: 1,000 samples and 500 features, of which 360 are in three groups whose features have a correlation of 0.9; l1 is a tenth of the largest that matters, and the scheduler lets coordinates j and k "
           "be in a set if |x_j . x_k| is less than 0.1. Two ranks have the samples. The optimum is what single coordinates by chance reach in 40,000 updates; a run is near it when its objective is within 0.1 %. A round is an exchange of all ranks. "
           "\"By turns\" changes the coordinates in the order of their numbers. Medians of five seeds. Nothing here depends on time.")
SIZES = (1, 2, 4, 8, 12, 16, 32)
WAYS = {"strads": "scheduled, by priorities", "uniform": "scheduled, without priorities", "random": "by chance"}
NEAR, END = 1.001, 1.0001  # times the optimum
DRAWN = (("strads", 16), ("uniform", 16), ("random", 1), ("random", 8), ("random", 12), ("random", 16), ("serial", 1))  # curves

# In both panels a way has one colour and mark, and its sets of 16 the dashes of a way; other sets by chance differ in dashes.
LOOKS = {"strads": ("1", 7, COLOURS[0]), "uniform": ("(9,4)", 4, COLOURS[3]), "random": ("(3,3)", 9, COLOURS[1]), "serial": ("1", 12, COLOURS[2])}
BY_CHANCE = {1: "1", 8: "(14,4)", 12: "(8,3,2,3)"}
KEYS = {("strads", 16): "scheduled, by priorities (left: 16)", ("uniform", 16): "scheduled, without priorities (left: 16)", ("serial", 1): "one, by turns",
        ("random", 1): "by chance, 1", ("random", 8): "by chance, 8", ("random", 12): "by chance, 12", ("random", 16): "by chance, 16 (right: all sizes)"}


def look(way, size):
    """Dashes, mark and colour."""
    dashes, mark, colour = LOOKS[way]
    return f"lw 2 dt {BY_CHANCE.get(size, dashes) if way == 'random' else dashes} pt {mark} lc rgb '{colour}'"


def run(lab):
    sizes, seeds = ((1, 16), (1,)) if lab.quick else (SIZES, (1, 2, 3, 4, 5))
    shape = ("--samples", 300, "--features", 150, "--groups", 3, "--group-features", 36) if lab.quick else ()
    length = 6000 if lab.quick else 60000
    base = {seed: ("--seed", seed, *shape) for seed in seeds}
    optima = lab.run_all("scheduled_lasso", {seed: (*base[seed], "--schedule", "random", "--parallel", 1, "--updates", length * 2 // 3) for seed in seeds})
    optimum = {seed: optima[seed]["objectives"][-1] for seed in seeds}
    keys = [("serial", 1), *((way, size) for way in WAYS for size in sizes)]
    done = lab.run_all("scheduled_lasso", {(way, size, seed): (*base[seed], "--schedule", way, "--parallel", size, "--updates", length, "--target", END * optimum[seed])
                                           for way, size in keys for seed in seeds}, statuses=(0, 1))  # 1: it has diverged
    found = []
    for way, size in keys:
        reached = [near(done[way, size, seed], optimum[seed]) for seed in seeds]
        rounds, updates = ([None if one is None else one[kind] for one in reached] for kind in (0, 1))
        found.append({"way": way, "size": size, "rounds": median(rounds), "updates": median(updates), "all_rounds": rounds, "all_updates": updates,
                      "diverged": sum(has_diverged(done[way, size, seed]) for seed in seeds),
                      "curve": curve([(done[way, size, seed], optimum[seed]) for seed in seeds]) if (way, size) in DRAWN else []})
    return found


def near(result, optimum):
    """After how many rounds and updates the objective is near the optimum; None: never."""
    return next(((number, result["updates"][number]) for number, objective in enumerate(result["objectives"]) if objective is not None and objective <= NEAR * optimum), None)


def has_diverged(result):
    first, last = result["objectives"][0], result["objectives"][-1]
    return last is None or last > first


def curve(results, points=80):
    """How far the objective is above the optimum at rounds that grow by a factor: medians over seeds, None where it is no number. A run that has ended keeps its last objective."""
    last = max(len(result["objectives"]) for result, _ in results) - 1
    chosen = sorted({0, *(round(last ** (point / points)) for point in range(points + 1))})
    return [(number, median([gap(result["objectives"], number, optimum) for result, optimum in results])) for number in chosen]


def gap(objectives, number, optimum):
    objective = objectives[min(number, len(objectives) - 1)]
    return None if objective is None else round(objective / optimum - 1, 7)


def page(lab, found):
    drawn = [row for row in found if row["curve"]]
    sizes = list(dict.fromkeys(row["size"] for row in found))
    at = {(row["way"], row["size"]): row for row in found}
    names = {("serial", 1): "one, by turns", **{(way, size): f"{text}, {size}" for way, text in WAYS.items() for size in sizes}}
    columns, rows = [], []
    for row in drawn:
        columns += [f"round_{row['way']}_{row['size']}", f"gap_{row['way']}_{row['size']}"]
    columns += ["size", *WAYS]
    for i in range(max(len(sizes), *(len(row["curve"]) for row in drawn))):
        cells = [cell for row in drawn for cell in (tuple(row["curve"][i]) if i < len(row["curve"]) else (None, None))]
        rows.append((*cells, *((sizes[i], *(at[way, sizes[i]]["rounds"] for way in WAYS)) if i < len(sizes) else (None, None, None, None))))
    curves = [f"data using ($0 > 0 ? ${2 * i + 1} : NaN):{2 * i + 2} with linespoints {look(row['way'], row['size'])} pi {1 if row['diverged'] else 9} notitle" for i, row in enumerate(drawn)]
    keys = [f"keyentry with linespoints {look(*key)} title '{text}'" for key, text in KEYS.items() if key in at]
    first = 2 * len(drawn) + 1
    by_size = [f"data using {first}:{first + 1 + i} with linespoints {look(way, 16)} notitle" for i, way in enumerate(WAYS)]
    one = at["serial", 1]["rounds"]
    diverged = [size for size in sizes if at["random", size]["diverged"]]
    notes = note(f"by chance: {diverged[0]} and more diverge", "graph 0.97", "graph 0.93", "right") if diverged else ""
    lab.plot("set logscale xy\nset format y '10^{%L}'\nset format x '10^{%L}'\nset xrange [1:5e4]\nset yrange [1e-4:1e1]\nset xlabel 'rounds (exchanges of all ranks)'\n"
             + (note(f"by chance, {' and '.join(str(row['size']) for row in drawn if row['diverged'])}:\\ndiverge", 5, 6) if diverged else "") + "set ylabel 'objective above the optimum (share)'\nplot " + ", \\\n     ".join([*curves, *keys])
             + "\nunset label\nunset key\nset format xy '%g'\nset xrange [0.9:40]\nset yrange [500:20000]\nset xtics (1, 2, 4, 8, 12, 16, 32)\nset ytics (500, 1000, 2000, 5000, 10000, 20000)\n"
             + notes + f"set xlabel 'coordinates at a time (at most)'\nset ylabel 'rounds to 0.1 % above the optimum'\nplot " + ", \\\n     ".join(by_size)
             + f", \\\n     '-' using 1:2 with points {look('serial', 1)} ps 1.4 notitle\n1 {one}\ne\n", columns, rows, panels="1,2", legend=4)
    shown = table(["coordinates at a time", "rounds", "updates", "of the seeds, have diverged"],
                  [[names[row["way"], row["size"]], row["rounds"], row["updates"], f"{row['diverged']} of {len(row['all_rounds'])}"] for row in found])
    return ("Left: the objective after each round. Right: rounds until the objective is near the optimum, over the size of sets.\n\n" + shown)
