"""Requests that a server computes together (Rhythm, Agrawal et al., ASPLOS 2014; Nexus, Shen et al., SOSP 2019): how many a second it answers in time."""
import pathlib
import signal
import statistics
import subprocess
import tempfile

from study import line, table

TITLE = "Larger cohorts answer more requests in time, up to a size"
NAMES = {"LeNet": "LeNet", "two layers of 512": "perceptron, two hidden layers of 512"}
OBJECTIVE_MS = 20
SIZES = (1, 2, 4, 8, 16, 32)
CONTEXT = "Inference by one server and its clients on two cores; CPU device, real time; medians of 3 searches"
ASSUMES = (f"`param_sync serve` with LeNet, or with a perceptron of two hidden layers of 512, one block, on the CPU device; `param_sync ask` beside it on the same two cores, with 64 connections. A request counts from when it is due, whether or not "
           f"the client has a connection for it. A rate is borne if 99 % of the answers come within {OBJECTIVE_MS} ms in one of three tries; the greatest such rate is searched for by halves, in steps of 5 %. Medians of three searches. "
           "These are times of one machine, and of a CPU: a GPU computes cohorts in another way. Ratios within a picture say more than the numbers.")
MODELS = {"LeNet": ("--model", "lenet"), "two layers of 512": ("--hidden", "512,512")}


class Server:
    """A server with these weights; ends with the `with`."""

    def __init__(self, program, weights, *options):
        self.process = subprocess.Popen([program, "serve", "127.0.0.1:0", "--weights", weights, "--clients", "80", *map(str, options)],
                                        stdout=subprocess.PIPE, text=True)
        self.where = self.process.stdout.readline().split()[-1].split(",")[0]

    def __enter__(self):
        return self.where

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def borne(lab, where, rate, seconds):
    """What `ask` measures at a rate, and if it is borne in one of three tries: a moment in which the machine does something else makes a hundredth late."""
    for _ in range(3):
        found = lab.run("param_sync", ("ask", where, "--connections", 64, "--rate", rate, "--requests", max(200, int(rate * seconds))))
        if found["p99_ms"] <= OBJECTIVE_MS and not found["refused"]:
            return found, True
    return found, False


def greatest_rate(lab, where, seconds):
    """The greatest rate that is borne, and what `ask` measures there."""
    closed = lab.run("param_sync", ("ask", where, "--connections", 64, "--requests", 500 if lab.quick else 3000))
    low, high, best = 0.0, 1.2 * closed["answers_per_s"], None
    while high - low > (0.3 if lab.quick else 0.05) * high:
        rate = (low + high) / 2
        found, is_borne = borne(lab, where, rate, seconds)
        if is_borne:
            low, best = rate, found
        else:
            high = rate
        if high < 20:
            break
    return {"rate": low, "p99_ms": best and best["p99_ms"], "p50_ms": best and best["p50_ms"], "closed_per_s": closed["answers_per_s"], "closed_p99_ms": closed["p99_ms"]}


def run(lab):
    sizes, models = ((1, 16), ("LeNet",)) if lab.quick else (SIZES, tuple(MODELS))
    found = []
    program = str(lab.build / "apps/param_sync/param_sync")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            weights = pathlib.Path(folder) / "weights"
            lab.run("param_sync", ("--serial", *MODELS[model], "--nodes", 1, "--epochs", 1, "--limit", 2000, "--save-weights", weights))
            tries = {size: [] for size in sizes}
            for _ in range(1 if lab.quick else 3):  # all sizes, and then all again: a machine's slow minute meets all of them
                for size in sizes:
                    with Server(program, weights, *MODELS[model], "--cohort", size) as where:
                        tries[size].append(greatest_rate(lab, where, 0.2 if lab.quick else 1))
            for size in sizes:
                median = {name: statistics.median([one[name] or 0 for one in tries[size]]) for name in tries[size][0]}
                found.append({"model": model, "cohort": size, **median, "tries": tries[size]})
    return found


def page(lab, found):
    models, sizes = (list(dict.fromkeys(row[name] for row in found)) for name in ("model", "cohort"))
    at = {(row["model"], row["cohort"]): row for row in found}
    lab.plot("set logscale x 2\nset xtics (" + ", ".join(map(str, SIZES)) + f")\nset yrange [0:*]\nset xlabel 'largest cohort (requests answered together)'\nset title 'greatest rate with 99 % of the answers within {OBJECTIVE_MS} ms' offset 0,-0.7 font ',12'\nset ylabel 'requests per second'\nplot "
             + ", \\\n     ".join(f"data using 1:{2 + 2 * i} {line(i)} title '{NAMES[model]}'" for i, model in enumerate(models))
             + "\nunset key\nset title '64 clients that ask as soon as they have their answers' offset 0,-0.7 font ',12'\nset ylabel 'p99 of an answer (ms)'\nplot "
             + ", \\\n     ".join(f"data using 1:{3 + 2 * i} {line(i)} title '{NAMES[model]}'" for i, model in enumerate(models)) + "\n",
             ["cohort", *(f"{name}_{model.replace(' ', '_')}" for model in models for name in ("rate", "p99_ms"))],
             [(size, *(value for model in models for value in (round(at[model, size]["rate"]), round(at[model, size]["closed_p99_ms"], 2)))) for size in sizes], panels="2,1", legend=1)
    shown = table(["model", "largest cohort", f"requests/s with p99 up to {OBJECTIVE_MS} ms", "of cohorts of 1", "requests/s, 64 clients that wait", "their p99 (ms)"],
                  [[row["model"], row["cohort"], round(row["rate"]), f"{row['rate'] / at[row['model'], 1]['rate']:.2f} ×", round(row["closed_per_s"]), f"{row['closed_p99_ms']:.1f}"] for row in found])
    return ("Above: the greatest rate that the server bears. Below: how long the slowest hundredth waits if 64 clients ask as soon as they have their answers.\n\n" + shown)
