#!/usr/bin/env python3
"""Runs a study: many short trainings, a picture, and a page that says what it shows.

study.py BUILD RESULTS NAME [--quick], where BUILD is the folder of the build and NAME is a study, or all; without arguments it lists the studies.
study.py BUILD RESULTS NAME --from FILE draws the picture and writes the page of raw results that were kept (results.json of an earlier run). It runs no training.
study.py --programs NAME: which programs it needs. --quick: few and short trainings, for tests.
RESULTS/NAME gets page.md, picture.svg, and the raw results; RESULTS/index.md has all studies whose results are there.
A study is a module of this folder with TITLE, CONTEXT, ASSUMES, run(lab) and page(lab, results), and with PROGRAMS if it runs others than param_sync. To add one, write the module and add its name to STUDIES.
A picture must be understood without its page. CONTEXT is the small line above it: the problem, the nodes, whether time is real or virtual, and what a point is.
"""
import concurrent.futures
import gzip
import importlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

STUDIES = ("depth", "stragglers", "intervals", "budget", "compression", "lateness", "trees", "prediction", "scheduling", "hogwild", "completion", "batches", "forecast", "naming", "cohorts", "techniques", "fusion", "tiles", "backups", "goodput", "paths")
PROGRAMS = {"param_sync": "apps/param_sync/param_sync", "matrix_completion": "examples/matrix_completion", "scheduled_lasso": "examples/scheduled_lasso",
            "sparse_regression": "examples/sparse_regression", "coded_transfer": "examples/coded_transfer"}  # in a build
# Pictures are read in black and white, too. Two lines with the same dashes differ in luminance by a tenth at least, no mark is drawn twice, and every second mark is open. No colour is light.
COLOURS = ("#000000", "#d9731a", "#1f2f9c", "#2f9150", "#a82f4a", "#3d0f4d", "#3d94c9", "#6b3a12", "#8a8a8a")
POINTS = (7, 4, 9, 12, 5, 6, 11, 8, 13)
DASHES = ("1", "(9,4)", "(3,3)", "(10,3,3,3)")


class Lab:
    """What studies run trainings with. Results of equal settings are equal on every machine of one kind, but those that a study says are not."""

    def __init__(self, build, folder, quick, context):
        self.build, self.folder, self.quick, self.context = pathlib.Path(build), folder, quick, context
        self.seeds = (1,) if quick else (1, 2, 3)
        self.length = ("--epochs", 1, "--limit", 15360) if quick else ("--epochs", 2)  # of a training

    def run(self, program, arguments, statuses=(0,)):
        """What a program writes with --json. `statuses`: with which it may end."""
        command = [str(self.build / PROGRAMS[program]), *map(str, arguments), "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in statuses or not done.stdout:
            sys.exit(f"study: {' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def run_all(self, program, settings, statuses=(0,), at_a_time=None):
        """The results of many runs. `settings`: a name for each one, and its arguments. `at_a_time`: how many; None: as many as there are processors."""
        with concurrent.futures.ThreadPoolExecutor(at_a_time or os.cpu_count()) as pool:
            running = {name: pool.submit(self.run, program, arguments, statuses) for name, arguments in settings.items()}
            results = {}
            for number, (name, result) in enumerate(running.items(), 1):
                results[name] = result.result()
                print(f"\r{number} of {len(running)} runs", end="" if number < len(running) else "\n", file=sys.stderr, flush=True)
        return results

    def train_all(self, settings, serial=True):
        """The results of many trainings by param_sync. `serial`: in virtual time."""
        with tempfile.TemporaryDirectory() as folder:
            data = unpacked(pathlib.Path(folder) / "fashion-mnist")
            return self.run_all("param_sync", {name: (*(("--serial",) if serial else ()), *data, *arguments) for name, arguments in settings.items()})

    def simulate(self, arguments):
        """The last line of `param_sync simulate`: milliseconds of a step, the efficiency, and the megabytes that a node sends."""
        command = [str(self.build / PROGRAMS["param_sync"]), "simulate", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        found = re.fullmatch(r"\S+ +([\d.]+) +[\d.]+ +-?[\d.]+ +([\d.]+) % +([\d.]+)", done.stdout.rstrip().split("\n")[-1]) if done.returncode == 0 else None
        if found is None:
            sys.exit(f"study: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return {"step_ms": float(found[1]), "efficiency": round(float(found[2]) / 100, 4), "mb": float(found[3])}

    def simulate_all(self, settings):
        """The results of many simulations, as run_all()."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(settings, pool.map(self.simulate, settings.values())))

    def plot(self, script, columns, rows, panels=None, legend=0):
        """Draws the picture with gnuplot, whose `data` has the columns, under the study's CONTEXT. `panels`: rows and columns of plots, if there are several. `legend`: how many rows a legend below the plots has; 0: it is elsewhere."""
        table = "\n".join("\t".join("nan" if value is None else str(value) for value in row) for row in rows)
        (self.folder / "data.tsv").write_text("# " + "\t".join(columns) + "\n" + table + "\n")
        height = 720 if panels and not panels.startswith("1,") else 520
        bottom, top, between = (80 + 24 * legend) / height, 1 - 65 / height, 105 / height
        key = "outside right"
        if legend:
            longest = max(map(len, re.findall(r"title '([^']*)'", script)), default=0)  # gnuplot takes texts to be a sixth longer than they are
            key = f"at screen 0.5,0.02 bottom center vertical Left reverse samplen 3 width {-(longest // 6)} maxrows {legend}"
        head = (f"set terminal svg size 900,{height} dynamic background rgb 'white' font ',14'\nset output '{self.folder}/picture.svg'\ndata = '{self.folder}/data.tsv'\n"
                f"set grid\nset style textbox opaque noborder margins 0.4,0.4\nset key {key} font ',12'\n")
        if panels:
            head += f"set multiplot layout {panels} margins 0.11,0.97,{bottom:.3f},{top:.3f} spacing 0.12,{between:.3f} title \"{self.context}\" font ',12'\n"
        else:
            head += f"set label \"{self.context}\" at screen 0.5,0.955 center font ',12'\nset tmargin 3\n" + (f"set bmargin at screen {bottom:.3f}\n" if legend else "")
        (self.folder / "picture.gp").write_text(head + script + ("unset multiplot\n" if panels else ""))
        subprocess.run(["gnuplot", self.folder / "picture.gp"], check=True)


def unpacked(folder):
    """The option that names a copy of the images that is not compressed: a training would unpack them each time. None where there are none: then a training says so."""
    packed = sorted(pathlib.Path("/usr/share/datasets/fashion-mnist").glob("*.gz"))
    folder.mkdir()
    for file in packed:
        with gzip.open(file) as images:
            (folder / file.stem).write_bytes(images.read())
    return ("--data", folder) if packed else ()


def style(number):
    """Dashes, mark and colour of a line. `number`: which one, from 0; no other has its dashes and mark."""
    return f"lw 2 dt {DASHES[number % len(DASHES)]} pt {POINTS[number % len(POINTS)]} lc rgb '{COLOURS[number % len(COLOURS)]}'"


def line(number, every=1):
    """How a picture draws a line. `number`: as style(). `every`: so many values have one mark."""
    return f"with linespoints {style(number)} pi {every}"


def note(text, x, y, how="left"):
    """A text in a plot, in gnuplot's units: what a line is, or why it ends."""
    return f"set label \"{text}\" at {x},{y} {how} front boxed font ',12'\n"


def steps_to(losses, target, window=50):
    """After how many steps the mean of the last `window` losses is at most `target`; None: never. They are of samples that were not seen before, in the first epoch."""
    total = 0.0
    for step, loss in enumerate(losses):
        if loss is None:  # it diverged
            return None
        total += loss - (losses[step - window] if step >= window else 0)
        if step + 1 >= window and total / window <= target:
            return step + 1
    return None


def median(values):
    """The median, where None is larger than all numbers."""
    found = statistics.median_low(sorted(float("inf") if value is None else value for value in values))
    return None if found == float("inf") else found


def table(head, rows):
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join("never" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def make(name, build, results, quick, kept=None):
    """Runs a study, and writes its page and the index. `kept`: raw results of an earlier run, instead of a run."""
    study = importlib.import_module(name)
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(build, folder, quick, study.CONTEXT)
    found = study.run(lab) if kept is None else kept
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    page = (f"# {study.TITLE}\n\n![{study.TITLE}](picture.svg)\n\n{study.page(lab, found)}\n\n"
            f"**Assumptions.** {study.ASSUMES}\n\n**To repeat:** `./run study {name}`. Raw results: `results.json`, `data.tsv`.\n")
    (folder / "page.md").write_text(page)
    print(page)
    made = [one for one in STUDIES if (results / one / "page.md").exists()]
    rows = [[f'<a href="{one}/page.md"><img src="{one}/picture.svg" width="240" alt="{one}"></a>', f"[{one}]({one}/page.md)", importlib.import_module(one).TITLE] for one in made]
    (results / "index.md").write_text("# Studies\n\n" + table(["", "study", "what it shows"], rows) + "\n")
    print(f"== {folder}/page.md; all: {results}/index.md")


def kept_results(file):
    """Raw results of an earlier run."""
    try:
        return json.loads(pathlib.Path(file).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"study: {file} has no raw results: {error}; take the results.json of an earlier run, or a file of docs/measurements")


def main(arguments):
    quick = "--quick" in arguments
    arguments = [argument for argument in arguments if argument != "--quick"]
    file = None
    if "--from" in arguments[:-1]:
        at = arguments.index("--from")
        file = arguments[at + 1]
        del arguments[at:at + 2]
    if not arguments:
        for name in STUDIES:
            print(f"{name:<12}{importlib.import_module(name).TITLE}")
        return 0
    asks = arguments[0] == "--programs"
    others = arguments[1 if asks else 2:]
    if not others:
        print("study: usage: study.py BUILD RESULTS NAME [--quick | --from FILE], or study.py --programs NAME; without arguments it lists the studies", file=sys.stderr)
        return 2
    names = STUDIES if others == ["all"] else others
    if len(others) > 1 or names[0] not in STUDIES:
        print(f"study: there is no study \"{' '.join(others)}\": take one of {', '.join(STUDIES)}, or all", file=sys.stderr)
        return 2
    if asks:
        print(*sorted({program for name in names for program in getattr(importlib.import_module(name), "PROGRAMS", ("param_sync",))}))
        return 0
    if file and len(names) > 1:
        print("study: --from FILE has the results of one study: name it instead of all", file=sys.stderr)
        return 2
    kept = kept_results(file) if file else None
    for name in names:
        make(name, arguments[0], pathlib.Path(arguments[1]).resolve(), quick, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
