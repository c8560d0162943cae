#!/usr/bin/env python3
"""Runs a study: many short trainings, a picture, and a page that says what it shows.

study.py PROGRAM RESULTS NAME [--quick], where PROGRAM is param_sync; without arguments it lists the studies. --quick: few and short trainings, for tests.
RESULTS/NAME gets page.md, picture.svg, and the raw results.
A study is a module of this folder with TITLE, ASSUMES, run(lab) and page(lab, results). To add one, write the module and add its name to STUDIES.
"""
import concurrent.futures
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

STUDIES = ("depth", "stragglers", "intervals", "budget", "compression", "lateness", "trees", "prediction")


class Lab:
    """What studies run trainings with. Results of equal settings are equal on every machine of one kind."""

    def __init__(self, program, folder, quick):
        self.program, self.folder, self.quick = program, folder, quick
        self.seeds = (1,) if quick else (1, 2, 3)
        self.length = ("--epochs", 1, "--limit", 15360) if quick else ("--epochs", 2)  # of a training

    def train(self, arguments, serial):
        """The results of a training."""
        command = [self.program, *(("--serial",) if serial else ()), "--json", "-", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"study: {' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def train_all(self, settings, serial=True):
        """The results of many trainings, as many at a time as there are processors. `settings`: a name for each one, and its arguments. `serial`: in virtual time."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            running = {name: pool.submit(self.train, arguments, serial) for name, arguments in settings.items()}
            results = {}
            for number, (name, result) in enumerate(running.items(), 1):
                results[name] = result.result()
                print(f"\r{number} of {len(running)} trainings", end="" if number < len(running) else "\n", file=sys.stderr, flush=True)
        return results

    def plot(self, script, columns, rows):
        """Draws the picture with gnuplot, whose $data has the columns."""
        table = "\n".join("\t".join("nan" if value is None else str(value) for value in row) for row in rows)
        (self.folder / "data.tsv").write_text("# " + "\t".join(columns) + "\n" + table + "\n")
        head = f"set terminal svg size 900,520 dynamic background rgb 'white' font ',14'\nset output '{self.folder}/picture.svg'\nset grid\nset key outside right\n"
        (self.folder / "picture.gp").write_text(head + f"data = '{self.folder}/data.tsv'\n" + script)
        subprocess.run(["gnuplot", self.folder / "picture.gp"], check=True)


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


def main(arguments):
    quick = "--quick" in arguments
    arguments = [argument for argument in arguments if argument != "--quick"]
    if 0 < len(arguments) < 3:
        print("study: usage: study.py PROGRAM RESULTS NAME [--quick]; without arguments it lists the studies", file=sys.stderr)
        return 2
    if not arguments:
        for name in STUDIES:
            print(f"{name:<12}{importlib.import_module(name).TITLE}")
        return 0
    program, results, name, *others = arguments
    if name not in STUDIES or others:
        print(f"study: there is no study \"{' '.join([name, *others])}\": take one of {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    study = importlib.import_module(name)
    folder = pathlib.Path(results).resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(program, folder, quick)
    found = study.run(lab)
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    page = (f"# {study.TITLE}\n\n![{study.TITLE}](picture.svg)\n\n{study.page(lab, found)}\n\n"
            f"**Assumptions.** {study.ASSUMES}\n\n**To repeat:** `./run study {name}`. Raw results: `results.json`, `data.tsv`.\n")
    (folder / "page.md").write_text(page)
    print(page)
    print(f"== {folder}/page.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
