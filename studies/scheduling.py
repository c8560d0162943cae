"""STRADS (Kim et al., EuroSys 2016; Lee et al., NIPS 2014): coordinates of a Lasso that are changed at the same time, scheduled or by chance."""
from study import line, median, table

TITLE = "Larger sets of coordinates save rounds until they diverge by chance; scheduled ones do not diverge"
PROGRAMS = ("scheduled_lasso",)
ASSUMES = ("The example `scheduled_lasso`: 1,000 samples and 500 features, of which 360 are in three groups whose features have a correlation of 0.9; l1 is a tenth of the largest that matters, and the scheduler lets coordinates j and k "
           "be in a set if |x_j . x_k| is less than 0.1. Two ranks have the samples. The optimum is what single coordinates by chance reach in 40,000 updates; a run is near it when its objective is within 0.1 %. A round is an exchange of all ranks. "
           "\"By turns\" changes the coordinates in the order of their numbers. Medians of five seeds. Nothing here depends on time.")
SIZES = (1, 2, 4, 8, 12, 16, 32)
WAYS = {"strads": "scheduled, by priorities", "uniform": "scheduled, without priorities", "random": "by chance"}
NEAR, END = 1.001, 1.0001  # times the optimum
DRAWN = (("strads", 16), ("uniform", 16), ("random", 1), ("random", 8), ("random", 12), ("random", 16), ("serial", 1))  # curves


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
                      "curve": curve(done[way, size, seeds[0]], optimum[seeds[0]]) if (way, size) in DRAWN else []})
    return found


def near(result, optimum):
    """After how many rounds and updates the objective is near the optimum; None: never."""
    return next(((number, result["updates"][number]) for number, objective in enumerate(result["objectives"]) if objective is not None and objective <= NEAR * optimum), None)


def has_diverged(result):
    first, last = result["objectives"][0], result["objectives"][-1]
    return last is None or last > first


def curve(result, optimum, points=60):
    """Round, updates, and how far the objective is above the optimum, at rounds that grow by a factor."""
    last = len(result["objectives"]) - 1
    chosen = sorted({0, last, *(round(last ** (point / points)) for point in range(points + 1))})
    return [(number, result["updates"][number], None if result["objectives"][number] is None else round(result["objectives"][number] / optimum - 1, 7)) for number in chosen]


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
        cells = [cell for row in drawn for cell in ((row["curve"][i][0], row["curve"][i][2]) if i < len(row["curve"]) else (None, None))]
        rows.append((*cells, *((sizes[i], *(at[way, sizes[i]]["rounds"] for way in WAYS)) if i < len(sizes) else (None, None, None, None))))
    curves = [f"data using ($0 > 0 ? ${2 * i + 1} : NaN):{2 * i + 2} {line(i, 8)} title '{names[row['way'], row['size']]}'" for i, row in enumerate(drawn)]
    first = 2 * len(drawn) + 1
    bars = [f"data using {first}:{first + 1 + i} {line(i)} title '{text}'" for i, text in enumerate(WAYS.values())]
    lab.plot("set multiplot layout 1,2\nset key inside left bottom Left reverse font ',11'\nset logscale xy\nset format y '10^{%L}'\nset xrange [1:*]\nset yrange [1e-7:1e3]\nset xlabel 'rounds (exchanges of all ranks)'\n"
             "set ylabel 'objective above the optimum (share)'\nplot " + ", \\\n     ".join(curves) + "\nset key inside right top noreverse Right font ',11'\nset format y '%g'\nset xrange [1:40]\nset yrange [500:50000]\n"
             "set xtics (1, 2, 4, 8, 16, 32)\nset xlabel 'coordinates at a time (at most)'\nset ylabel 'rounds to 0.1 % above the optimum'\nplot " + ", \\\n     ".join(bars) + "\nunset multiplot\n", columns, rows)
    shown = table(["coordinates at a time", "rounds", "updates", "of the seeds, have diverged"],
                  [[names[row["way"], row["size"]], row["rounds"], row["updates"], f"{row['diverged']} of {len(row['all_rounds'])}"] for row in found])
    return ("Left: one seed's objective after each round. Right: rounds until the objective is near the optimum, over the size of sets. A line that ends, or leaves the picture, has diverged.\n\n" + shown)
