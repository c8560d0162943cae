"""Goodput over the mean time between failures (torchft's benchmarks; Decoupled DiLoCo, 2026): training that begins again from a checkpoint, and training that goes on with replicas. Measured with nodes that are killed, and in virtual time up to 10,000 nodes."""
import bisect
import contextlib
import json
import math
import os
import pathlib
import pty
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from study import COLOURS, DASHES, table, unpacked

TITLE = "Replicas keep their goodput while processes are killed, but cost a part of each step: where a restart is cheap, and lost nodes do not come back, restarts win in long trainings"
CONTEXT = "A perceptron on nodes that fail at random; left: killed processes, real time, bars: least to most of 3 seeds; right: virtual time"
WAYS = {"restart": "restart from a checkpoint", "replicas": "two replicas, training goes on"}
BASE = {"restart": ("--scheme", "ps:even"), "replicas": ("--sync", "bsp")}
SIZES, FEWER, SEEDS = (6, 8), (3, 4), (1, 2, 3)
CALM = 1e9  # seconds between failures of a node: none fails
MTBFS = (24, 12)  # of a node, in seconds, measured
CHECKPOINT_S = 0.02  # of an earlier run: how often to write them
GIVES_UP_MEASURED = 12  # times the undisturbed training
VIRTUAL_SIZES, VIRTUAL_SEEDS, WORK_S = (8, 100, 1000, 10000), 8, 3600
VIRTUAL_HOURS = tuple(0.1 * 10 ** (i / 3) for i in range(1, 16))
GIVES_UP = 20  # a run that takes so many times as long as an undisturbed one has a goodput of 0
BATCH = 32
ASSUMES = ("Measured: Fashion-MNIST, the demo's net (128 and 64 hidden), two epochs of 38,400 samples, 32 samples a step on each node, all nodes are processes of one machine with two cores, CPU device. Each node fails by itself, at random (exponential distribution, by seed): the study kills its process (SIGKILL), and both ways "
           "meet the same failures. Restart: `--scheme ps:even --checkpoint`, with Young's interval sqrt(2 C M / P) between checkpoints, for P nodes, M seconds between failures of one, and a checkpoint that costs C: 20 ms in what is measured, and what was measured in virtual time; a new process of the lost node is there at once. Replicas: `--sync bsp --replicas 2`; nodes do not come back. "
           "If what is lost has no replica left, or nodes are lost before all have begun, the training begins anew: checkpoints do not go with `--sync`. Goodput: the time of the undisturbed training without checkpoints or replicas, of the same way and the same turn, by that of the disturbed one, both from the first 32 steps on. Ways and "
           "times between failures take turns. All nodes share two cores, so those that are left get the cores of a lost one: the model of the left picture has the measured speeds of fewer nodes. Virtual: speed is in proportion to the nodes, costs are those measured at 8 nodes at any number of nodes, and a loss is seen at once. "
           f"The training takes an hour without failures. All that counts are ratios of times: with costs and a training a hundred times as long, curves are those of a hundred times the time between failures. Means of {VIRTUAL_SEEDS} seeds; where a training takes {GIVES_UP} times as long, goodput is drawn as 0. "
           "Trainer and store take at most 64 nodes: larger ones are there in the model alone. Not compared, as it is not there yet: nodes that join, quorums, local steps with late joiners, checkpoints of a training with replicas.")


class Random:
    """Failures of nodes that each fail by themselves. `mtbf`: the mean time to that, in seconds."""

    def __init__(self, mtbf, seed):
        self.mtbf, self.rng = mtbf, random.Random(seed)

    def after(self, now, alive):
        """When the next node fails, and which one of those that are alive."""
        return now + self.rng.expovariate(len(alive) / self.mtbf), alive[self.rng.randrange(len(alive))]


class Schedule:
    """Failures that are known: times and nodes, in order."""

    def __init__(self, failures):
        self.failures = failures

    def after(self, now, alive):
        return next(((at, node) for at, node in self.failures if at > now and node in alive), (math.inf, None))


def failures_of(nodes, mtbf, seed, until):
    """The first failures of nodes, each of which is there again at once."""
    rng, now, found = random.Random(f"{nodes} {mtbf} {seed}"), 0.0, []
    while True:
        now += rng.expovariate(nodes / mtbf)
        if now > until:
            return found
        found.append((now, rng.randrange(nodes)))


def interval(checkpoint_s, mtbf, nodes):
    """Young's time between checkpoints (1974), in seconds."""
    return math.sqrt(2 * checkpoint_s * mtbf / nodes)


def restarting(failures, nodes, mtbf, work, costs):
    """Seconds of a training that takes `work` seconds undisturbed; inf: it takes GIVES_UP times as long. Also how many losses there were, and the seconds of work that were done again."""
    all_nodes = range(nodes)
    every = min(work, costs.get("every_s") or interval(costs["checkpoint_s"], mtbf, nodes))
    now = kept = again = 0.0
    losses = 0
    fails, _ = failures.after(now, all_nodes)
    while now < GIVES_UP * work:
        left = work - kept
        parts = max(0, math.ceil(left / every - 1e-9) - 1)  # checkpoints that are written; none at the end
        end = now + left + parts * costs["checkpoint_s"]
        if end <= fails:
            return end, losses, again
        written = int((fails - now) / (every + costs["checkpoint_s"]))
        again += min(every, fails - now - written * (every + costs["checkpoint_s"]))
        kept += every * written
        while now < GIVES_UP * work:  # nodes also fail while it begins again
            losses += 1
            now = fails + costs["restart_s"]
            fails, _ = failures.after(fails, all_nodes)
            if fails > now:
                break
    return math.inf, losses, again


def is_lost(alive, gone, replicas):
    """True if nodes cannot go on without those that are gone: `replicas` neighbours in the ring of ranks, so that what the first one of them owned has no replica left; or too many. `alive`: in order."""
    between = [bisect.bisect(alive, node) % max(1, len(alive)) for node in gone]  # which of those that are left follow
    if max(map(between.count, between)) >= replicas:
        return True
    return len(gone) > len(alive) or (len(gone) == len(alive) and min(gone) < alive[0])


def surviving(failures, nodes, replicas, work, costs, speed):
    """As restarting(), but the last number is how often it began anew. `speed`: of so many nodes, as a share of all."""
    now = done = 0.0
    losses = anew = 0
    alive = list(range(nodes))
    fails, node = failures.after(now, alive)
    while now < GIVES_UP * work:
        rate = speed(len(alive)) / (1 + costs["replicas_share"])
        end = now + (work - done) / rate
        if end <= fails:
            return end, losses, anew
        done = max(0.0, done + (fails - now - costs["step_s"]) * rate)  # the step that no node had ended is repeated
        gone, can_go_on = [], True
        while can_go_on:  # until those that are left have recovered
            losses += 1
            gone.append(node)
            del alive[bisect.bisect_left(alive, node)]
            now = fails + costs["recovery_s"]
            can_go_on = not is_lost(alive, gone, replicas)
            if can_go_on:
                fails, node = failures.after(fails, alive)
                if fails > now:
                    break
        if not can_go_on:
            anew += 1
            now, done, alive = fails + costs["restart_s"], 0.0, list(range(nodes))
            fails, node = failures.after(now, alive)
    return math.inf, losses, anew


def expected_restarting(nodes, mtbf, work, costs):
    """What restarting() takes on average, without the last part (Daly, 2006, for exponential failures)."""
    mean, every = mtbf / nodes, min(work, interval(costs["checkpoint_s"], mtbf, nodes))
    power = (every + costs["checkpoint_s"]) / mean, costs["restart_s"] / mean
    return math.inf if sum(power) > 50 else mean * math.exp(power[1]) * math.expm1(power[0]) * work / every


def expected_surviving(mtbf, work):
    """What surviving() takes on average of many nodes, if a loss costs nothing but the node: of the nodes exp(-t / mtbf) are left."""
    return math.inf if work >= mtbf else -mtbf * math.log1p(-work / mtbf)


class Driven:
    """A training by param_sync whose nodes are killed: what it has printed, and when."""

    SHOWN = re.compile(r"step (\d+)/(\d+)")

    def __init__(self, program, arguments):
        self.shown = []  # when, step, steps of all
        self.terminal, other = pty.openpty()  # on a terminal the program shows its steps ten times a second
        self.begun = time.monotonic()
        self.process = subprocess.Popen([program, *map(str, arguments)], stdout=other, stderr=subprocess.PIPE, text=True)
        os.close(other)

    def watch(self, until):
        """Reads what it shows. True: it has ended."""
        while (now := time.monotonic()) < until:
            ready, _, _ = select.select([self.terminal], [], [], min(until - now, 1))
            if not ready:
                continue
            try:
                text = os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # as all that have the terminal open have ended
                return True
            self.shown += [(time.monotonic(), int(step), int(steps)) for step, steps in self.SHOWN.findall(text)]
        return False

    def kill(self, rank):
        """Kills a node, if it is there. True: it was."""
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
                if "--rank" in words and words[words.index("--rank") + 1] == str(rank):
                    os.kill(int(child), signal.SIGKILL)
                    return True
        return False

    def end(self, is_given_up=False):
        """Its exit status, and what it wrote to stderr."""
        if is_given_up:
            self.process.terminate()
        while not self.watch(time.monotonic() + 60):
            self.process.kill()
        _, err = self.process.communicate()
        os.close(self.terminal)
        self.ended = time.monotonic()
        return self.process.returncode, err

    def steps_at(self, when, first, rate):
        """How many steps were made at a time: those that were shown before, and `rate` a second after, but fewer than the 32 after which more are shown. `first`: with which it began."""
        before = [one for one in self.shown if one[0] <= when]
        return before[-1][1] + min(31, (when - before[-1][0]) * rate) if before else first


def drive(program, arguments, failures, limit_s, rate=0.0):
    """A training, begun again until it has ended, while nodes are killed at times that count from the first steps that it shows. `failures`: times and ranks, in order. `rate`: steps of a second where nothing fails. Seconds are None if that takes longer than the limit."""
    found = {"kills": [], "runs": 0, "detect_s": [], "start_s": [], "recover_s": [], "steps_again": 0, "steps_taken_back": 0, "lost": [], "messages": [], "seconds": None}
    left, zero, exited, kept = list(failures), None, None, 0
    with tempfile.TemporaryDirectory() as folder:
        results, checkpoints = pathlib.Path(folder) / "results.json", pathlib.Path(folder) / "checkpoints"
        protects = "--every" in arguments
        more = ("--checkpoint", checkpoints, "--resume", "latest") if protects else ()
        while True:
            run = Driven(program, (*arguments, *more, "--json", results))
            found["runs"] += 1
            killed, has_ended = [], False
            while not has_ended and time.monotonic() - (zero or run.begun) < limit_s:
                if zero is None and run.shown:
                    zero = run.shown[0][0]
                due = zero + left[0][0] if zero is not None and left else math.inf
                if due <= time.monotonic():
                    _, rank = left.pop(0)
                    if run.kill(rank):
                        killed.append(time.monotonic())
                        found["kills"].append((round(killed[-1] - zero, 3), rank))
                    continue
                has_ended = run.watch(min(due, time.monotonic() + (0.02 if zero is None else 0.2)))
            status, err = run.end(is_given_up=not has_ended)
            if exited is not None and run.shown and pace(run.shown):
                at, step, _ = run.shown[0]
                found["start_s"].append(round(at - exited - (step - kept) / pace(run.shown), 3))
            if not has_ended:
                return found
            if status == 0:
                break
            if not killed:
                raise SystemExit(f"study: param_sync {' '.join(map(str, arguments))}: it has failed, and no node was killed: {err.strip()}")
            exited = run.ended
            found["messages"].append(err.strip().splitlines()[:4])
            found["detect_s"].append(round(exited - killed[-1], 3))
            kept_before, kept = kept, newest(checkpoints) if protects else 0
            found["steps_again"] += max(0, round(run.steps_at(killed[-1], kept_before, rate) - kept))
        result = json.loads(results.read_text())
    found["seconds"] = round(run.shown[-1][0] - zero, 3)
    found["pace"], found["accuracy"], found["lost"] = round(pace(run.shown), 2), result["accuracy"], result["lost"]
    found["step_ms"], found["checkpoint_ms"] = step_ms(result["node_reports"][0]["step_times_ns"], result["first_step"], arguments)
    found["recover_s"] = [one for at in killed for one in recovery(run.shown, at, rate)]
    found["steps_taken_back"] = taken_back(run.shown, found["lost"], arguments[arguments.index("--nodes") + 1])
    return found


def newest(checkpoints):
    """The newest step of which all ranks have a checkpoint; 0: there is none."""
    steps = {}
    for file in checkpoints.glob("rank-*-step-*.safetensors"):
        _, rank, _, step = file.stem.split("-")
        steps.setdefault(rank, set()).add(int(step))
    return max(set.intersection(*steps.values()), default=0) if steps else 0


def step_ms(times, first, arguments):
    """Of a step, the median; and by how much longer it is after a checkpoint, since the next step waits for that."""
    gaps = [(end - begin) / 1e6 for begin, end in zip(times, times[1:])]
    every = arguments[arguments.index("--every") + 1] if "--every" in arguments else math.inf
    others, after = ([gap for i, gap in enumerate(gaps) if ((first + i + 1) % every == 0) == is_after] for is_after in (False, True))
    median_ms = statistics.median(others) if others else None
    return median_ms and round(median_ms, 3), round(statistics.median(after) - median_ms, 3) if after and others else None


def pace(shown):
    """Steps of a second."""
    (begin, first, _), (end, last, _) = shown[0], shown[-1]
    return (last - first) / (end - begin) if end > begin else 0


def recovery(shown, at, rate):
    """How long the nodes that are left did not train after a loss, if that can be seen: the time until they have shown other steps, without that of these. The number of steps of all changes with the nodes."""
    before = [one for one in shown if one[0] <= at]
    after = [one for one in shown if one[0] > at and before and one[2] != before[-1][2]]
    if not after:
        return []
    old, new = (pace([one for one in part if one[2] == of[2]]) for part, of in ((before, before[-1]), (after, after[0])))
    if not new:
        return []
    done = (before[-1][1] + (at - before[-1][0]) * (old or rate)) / before[-1][2]  # of the training
    return [round(after[0][0] - at - max(0.0, after[0][1] - done * after[0][2]) / new, 3)]


def taken_back(shown, lost, nodes):
    """The most steps that were shown as ended before a loss, and were made again after it. `nodes`: before the first loss. All that nodes show of a training has as many steps of all as fit in its samples: so these say how many nodes there are."""
    most, samples = 0, shown[0][2] * nodes
    for loss in lost:
        steps_of_all = samples / nodes
        last = max((step for _, step, steps in shown if abs(steps - steps_of_all) < 0.02 * steps), default=0)
        most, nodes = max(most, last - loss["step"]), loss["nodes"]
    return most


def run(lab):
    program = str(lab.build / "apps/param_sync/param_sync")
    sizes, seeds, mtbfs = ((3,), (1,), ()) if lab.quick else (SIZES, SEEDS, MTBFS)
    measured, plain_runs = [], []
    with tempfile.TemporaryDirectory() as folder:
        length = ("--limit", 6400) if lab.quick else ("--limit", 38400)
        common = (*unpacked(pathlib.Path(folder) / "fashion-mnist"), "--batch", BATCH, "--timeout", 20, "--epochs", 2, *length)
        for seed in seeds:
            if not lab.quick:
                for nodes in FEWER:  # what nodes do that are left
                    plain_runs.append({"way": "replicas", "nodes": nodes, "seed": seed, **drive(program, (*common, "--nodes", nodes, "--seed", seed, *BASE["replicas"]), [], 300)})
            for nodes in sizes:
                for way in WAYS:
                    base = (*common, "--nodes", nodes, "--seed", seed, *BASE[way])
                    plain = drive(program, base, [], 300)
                    plain_runs.append({"way": way, "nodes": nodes, "seed": seed, **plain})
                    for mtbf in (CALM, *mtbfs) if not lab.quick else (0,):
                        if lab.quick:
                            failures, every = [(0.0, 1)], 40
                        else:
                            failures = failures_of(nodes, mtbf, seed, GIVES_UP_MEASURED * plain["seconds"])
                            every = max(1, round(interval(CHECKPOINT_S, min(mtbf, MTBFS[0]), nodes) / (plain["step_ms"] / 1e3)))
                        protected = (*base, *(("--every", every) if way == "restart" else ("--replicas", 2)))
                        done = drive(program, protected, failures, GIVES_UP_MEASURED * plain["seconds"], plain["pace"])
                        measured.append({"way": way, "nodes": nodes, "mtbf_s": mtbf, "seed": seed, "every": every if way == "restart" else None, "failures": failures,
                                         "plain_s": plain["seconds"], "plain_step_ms": plain["step_ms"], "plain_accuracy": plain["accuracy"], **done})
                        print(f"{way}, {nodes} nodes, {mtbf:g} s: {done['seconds']} s of {plain['seconds']} s, {len(done['kills'])} killed", file=sys.stderr, flush=True)
    costs = {str(nodes): costs_of(measured, nodes) for nodes in sizes}
    return {"plain": plain_runs, "measured": measured, "costs": costs, "virtual": virtual(costs[str(sizes[-1])], lab.quick)}


def costs_of(measured, nodes):
    """What a loss, a checkpoint and replicas cost so many nodes: medians."""
    def median_of(way, what):
        values = [one for row in measured if row["nodes"] == nodes and row["way"] == way for one in what(row) if one is not None]
        return statistics.median(values) if values else 0.0

    detect, start = (median_of("restart", lambda row: row[what]) for what in ("detect_s", "start_s"))
    calm = [row for row in measured if row["mtbf_s"] == CALM] or measured
    shares = [row["step_ms"] / row["plain_step_ms"] - 1 for row in calm if row["nodes"] == nodes and row["way"] == "replicas" and row["seconds"]]
    return {"detect_s": detect, "start_s": start, "restart_s": detect + start, "checkpoint_s": max(0.0, median_of("restart", lambda row: [row.get("checkpoint_ms")])) / 1e3,
            "recovery_s": median_of("replicas", lambda row: row["recover_s"]), "replicas_share": max(0.0, statistics.median(shares)) if shares else 0.0,
            "step_s": median_of("replicas", lambda row: [row["plain_step_ms"]]) / 1e3}


def virtual(costs, quick):
    """Goodput of both ways, by nodes and by the time between failures of a node."""
    found = []
    for nodes in VIRTUAL_SIZES[:2] if quick else VIRTUAL_SIZES:
        for hours in VIRTUAL_HOURS[2::6] if quick else VIRTUAL_HOURS:
            mtbf = 3600 * hours
            seeds = range(2 if quick else VIRTUAL_SEEDS)
            is_hopeless = expected_restarting(nodes, mtbf, WORK_S, costs) > 2 * GIVES_UP * WORK_S
            again = [math.inf if is_hopeless else restarting(Random(mtbf, seed), nodes, mtbf, WORK_S, costs)[0] for seed in seeds]
            shrinks_away = nodes > 8 and 2 * mtbf < WORK_S  # all that its nodes can do until they are lost is half of the work
            on = [(math.inf, 0, 0) if shrinks_away else surviving(Random(mtbf, seed), nodes, 2, WORK_S, costs, lambda left: left / nodes) for seed in seeds]
            found.append({"nodes": nodes, "hours": hours, "restart": mean_goodput(again), "replicas": mean_goodput([seconds for seconds, _, _ in on]), "anew": statistics.mean(anew for *_, anew in on)})
    return found


def mean_goodput(times):
    return round(statistics.mean(WORK_S / seconds for seconds in times), 4)


def speeds(plain):
    """The speed of so many nodes as a share of that of others, as measured: a function of both. Between two numbers of nodes that were measured there is a line; fewer are in proportion."""
    at = {nodes: 1 / statistics.median(row["seconds"] for row in plain if row["way"] == "replicas" and row["nodes"] == nodes) for nodes in {row["nodes"] for row in plain}}

    def speed(nodes):
        above = min((one for one in at if one >= nodes), default=max(at))
        below = max((one for one in at if one <= nodes), default=None)
        if below is None:
            return at[above] * nodes / above
        return at[below] if above == below else at[below] + (at[above] - at[below]) * (nodes - below) / (above - below)

    return lambda nodes, of: speed(nodes) / speed(of)


def predicted(row, costs, speed):
    """The goodput of a measured training, by the model, which meets the same failures."""
    failures, nodes, work = Schedule(row["failures"]), row["nodes"], row["plain_s"]
    if row["way"] == "restart":
        seconds, _, _ = restarting(failures, nodes, row["mtbf_s"], work, {**costs, "every_s": row["every"] * row["plain_step_ms"] / 1e3})
    else:
        seconds, _, _ = surviving(failures, nodes, 2, work, costs, lambda left: speed(left, nodes))
    return work / seconds


def goodputs(row):
    """Of a measured training: 0 if it was given up."""
    return row["plain_s"] / row["seconds"] if row["seconds"] else 0.0


def cases_of(found):
    """The measured trainings of each way, number of nodes, and time between failures."""
    cases = {}
    for row in found["measured"]:
        cases.setdefault((row["way"], row["nodes"], row["mtbf_s"]), []).append(row)
    return cases


MARKS = {"restart": (7, 5, 9, 11, 13), "replicas": (6, 4, 8, 10, 12)}  # filled, open


def look(way, place):
    """How a way is drawn. `place`: of the number of nodes."""
    return f"lw 2 dt {DASHES[list(WAYS).index(way)]} pt {MARKS[way][place]} lc rgb '{COLOURS[list(WAYS).index(way)]}'"


def page(lab, found):
    cases, speed = cases_of(found), speeds(found["plain"])
    forecast = {case: statistics.median(predicted(row, found["costs"][str(case[1])], speed) for row in rows) for case, rows in cases.items()}
    seen = {case: sorted(map(goodputs, rows)) for case, rows in cases.items()}
    kinds = [(way, nodes) for way in WAYS for nodes in sorted({nodes for _, nodes, _ in cases})]
    times = sorted({mtbf for *_, mtbf in cases}, reverse=True)
    sizes = sorted({row["nodes"] for row in found["virtual"]})
    hours = sorted({row["hours"] for row in found["virtual"]})
    at = {(row["nodes"], row["hours"]): row for row in found["virtual"]}
    columns = ["hours", *(f"{way}_{nodes}" for way in WAYS for nodes in sizes), *(f"{what}_{way}_{nodes}" for way, nodes in kinds for what in ("median", "least", "most", "predicted"))]
    rows = []
    for i, hour in enumerate(hours):
        of_kinds = [(statistics.median(seen[*kind, times[i]]), seen[*kind, times[i]][0], seen[*kind, times[i]][-1], forecast[*kind, times[i]]) if i < len(times) else (None,) * 4 for kind in kinds]
        rows.append((hour, *(at[nodes, hour][way] for way in WAYS for nodes in sizes), *(cell and round(cell, 4) for cells in of_kinds for cell in cells)))
    first = 2 + len(WAYS) * len(sizes)
    place = {6: 4, 8: 0}
    bars, crosses = [], []
    for i, (way, nodes) in enumerate(kinds):
        x = f"($0 + {0.2 * i - 0.1 * (len(kinds) - 1):.2f})"
        rows_of = f"data every ::0::{len(times) - 1} using {x}"
        bars.append(f"{rows_of}:{first + 4 * i}:{first + 4 * i + 1}:{first + 4 * i + 2} with yerrorbars {look(way, place.get(nodes, 1)).replace('dt', 'ps 1.2 dt')} title '{WAYS[way]}, {nodes} nodes'")
        crosses.append(f"{rows_of.replace('$0 + ', '$0 + 0.07 + ')}:{first + 4 * i + 3} with points pt 2 dt 1 lw 2 ps 0.9 lc rgb '#8a8a8a' " + ("title 'the model, with the same failures'" if i == 0 else "notitle"))
    curves = [f"data using 1:{2 + i} with linespoints {look(way, sizes.index(nodes))} title '{way}, {nodes:,} nodes'" for i, (way, nodes) in enumerate((way, nodes) for way in WAYS for nodes in sizes)]
    names = ", ".join(f"'{name_of(mtbf)}' {i}" for i, mtbf in enumerate(times))
    lab.plot(f"set title 'measured: processes are killed' offset 0,-0.7 font ',12'\nset key at screen 0.25,0.02 bottom center vertical Left reverse samplen 2 maxrows 5 font ',11'\nset yrange [0:1.8]\nset ylabel 'goodput (1: the undisturbed training)'\nset xrange [-0.5:{len(times) - 0.5}]\nset xtics ({names})\n"
             "set xlabel 'mean time between failures of a node'\nplot " + ", \\\n     ".join([*bars, *crosses])
             + f"\nset title 'virtual time: a training of an hour' offset 0,-0.7 font ',12'\nset key at screen 0.75,0.02 bottom center vertical Left reverse samplen 3 width -3 maxrows {len(sizes)} font ',11'\nset yrange [0:1.1]\nset logscale x\nset xrange [{0.8 * hours[0]:.3g}:{1.2 * hours[-1]:.6g}]\n"
             "set xtics (0.1, 1, 10, 100, '1,000' 1000, '10,000' 10000)\nset xlabel 'mean time between failures of a node (hours)'\nset ylabel 'goodput (1: the undisturbed training)'\nplot " + ", \\\n     ".join(curves) + "\n",
             columns, rows, panels="1,2", legend=5)
    measured = table(["way", "nodes", "time between failures of a node", "nodes killed", "begun again", "steps made again for a loss", "goodput", "least, most", "by the model", "accuracy, beside the undisturbed one"],
                     [[way, nodes, name_of(mtbf), sum(len(row["kills"]) for row in rows), sum(row["runs"] - 1 for row in rows), steps_again(rows),
                       f"{statistics.median(seen[way, nodes, mtbf]):.2f}", f"{seen[way, nodes, mtbf][0]:.2f}, {seen[way, nodes, mtbf][-1]:.2f}", f"{forecast[way, nodes, mtbf]:.2f}", accuracy(rows)] for (way, nodes, mtbf), rows in sorted(cases.items(), key=lambda case: (case[0][1], case[0][0] != "restart", -case[0][2]))])
    costs = table(["nodes", "s until a loss has ended the others", "s to begin again", "ms of a checkpoint", "s to go on with replicas", "replicas, of a step"],
                  [[nodes, f"{cost['detect_s']:.2f}", f"{cost['start_s']:.2f}", f"{1e3 * cost['checkpoint_s']:.0f}", f"{cost['recovery_s']:.2f}", f"{100 * cost['replicas_share']:.0f} %"] for nodes, cost in found["costs"].items()])
    shown = [hour for hour in hours if math.isclose(math.log10(hour), round(math.log10(hour)), abs_tol=1e-6)]
    modelled = table(["nodes", *(f"{way}, {hour:,.0f} h" for hour in shown for way in WAYS)], [[f"{nodes:,}", *(f"{at[nodes, hour][way]:.2f}" for hour in shown for way in WAYS)] for nodes in sizes])
    return (f"Left: what the killed trainings do of the undisturbed one's samples in a second, median, least and most of the seeds; crosses: the model, which meets the same failures at the same times. A training that takes more than {GIVES_UP_MEASURED} times as long is given up, and has 0. Right: the model.\n\n" + measured
            + "\n\nWhat losses cost, as measured; medians:\n\n" + costs + "\n\nIn virtual time, with the costs of the last row above:\n\n" + modelled)


def name_of(mtbf):
    return "no failures" if mtbf == CALM else "at once" if mtbf == 0 else f"{mtbf:g} s"


def steps_again(rows):
    """Steps that a restart takes back, on average; with replicas the most of those that had been shown as ended."""
    if rows[0]["way"] == "replicas":
        most = max(row["steps_taken_back"] or 0 for row in rows)
        return f"{most}, or all" if any(row["runs"] > 1 for row in rows) else most
    losses = sum(len(row["kills"]) for row in rows)
    return round(sum(row["steps_again"] for row in rows) / losses) if losses else 0


def accuracy(rows):
    """Percentage points, the one that is farthest off."""
    apart = [row["accuracy"] - row["plain_accuracy"] for row in rows if row["seconds"]]
    return f"{100 * max(apart, key=abs):+.2f}" if apart else None
