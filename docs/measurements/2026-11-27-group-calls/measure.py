#!/usr/bin/env python3
"""Measures two builds of gpusock-bench in turn: measure.py BEFORE AFTER TURNS > runs.tsv

A row is one run of gpusock-bench: the median, the better quartile and the best of its rounds' figures, and the same of
the raw rival of that run. Its two busiest threads, the two kernels' blocks, are bound to a processor of their own each:
otherwise the system now and then lets both take turns on one.
"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

BLOCK32, BLOCK64 = ["--group", "block", "--block-threads", "32"], ["--group", "block", "--block-threads", "64"]
THREAD, WARP = ["--group", "thread"], ["--group", "warp"]
STREAM = ["--size", "64,4K,64K,1M", "--repeat", "7"]
CASES = [
    *(["lat", "--link", "p2p", "--size", "64", *group] for group in (THREAD, BLOCK32, BLOCK64, WARP)),
    *(["lat", "--link", "tcp", "--size", "64", *group] for group in (THREAD, BLOCK64)),
    *(["bw", "--link", "p2p", *STREAM, *group] for group in (THREAD, BLOCK64, WARP)),
    ["bw", "--link", "tcp", *STREAM, *BLOCK64],
]


def name_and_ticks(pid, thread):
    with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
        before, after = file.read().rsplit(")", 1)
    fields = after.split()
    return before.split("(", 1)[1], int(fields[11]) + int(fields[12])


def bind_busiest(pid):
    """Binds the two kernels' threads to a processor each, and the two busiest of the rival's threads, too. A proxy is free."""
    pairs = {"cpu_device": [], "rival": []}
    for thread in os.listdir(f"/proc/{pid}/task"):
        name, ticks = name_and_ticks(pid, thread)
        if name != "gpusock-proxy":
            pairs["cpu_device" if name == "cpu_device" else "rival"].append((ticks, int(thread)))
    for threads in pairs.values():
        for number, (_, thread) in enumerate(sorted(threads, reverse=True)):
            os.sched_setaffinity(thread, {number} if number < 2 else {0, 1})


def run(program, case, environment):
    """The report of one run as JSON."""
    command = [program, *case, "--duration", "0.02", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **environment}) as process:
        def keep_bound():
            while process.poll() is None:
                time.sleep(0.05)
                try:
                    bind_busiest(process.pid)
                except (OSError, IndexError):  # a thread has ended
                    pass
        binder = threading.Thread(target=keep_bound)
        binder.start()
        out, errors = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{command} {environment}: {process.returncode} {errors[-2000:]}")
        report = json.loads(out)
        binder.join()
    return report


def rows(report):
    rival = report["contestants"][1]["name"]
    latency = report["benchmark"] == "lat"
    unit, best = ("p50_ns", min) if latency else ("gigabytes_per_s", max)
    for size in report["sizes"]:
        def figures(name):
            return [one[name][unit] for one in size["rounds"]]
        def summary(values):
            quartiles = statistics.quantiles(values, n=4, method="inclusive")
            return [f"{value:.4g}" for value in (quartiles[1], quartiles[0 if latency else 2], best(values))]
        yield [size["bytes"], unit, *summary(figures("gpusock")), rival, *summary(figures(rival))]


def main():
    before, after, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    programs = [("before", before, {}), ("after", after, {})]
    print("turn", "program", "command", "link", "group", "threads", "bytes", "unit", "median", "quartile", "best",
          "rival", "rival_median", "rival_quartile", "rival_best", "load_before", sep="\t")
    for turn in range(turns):
        for case in CASES:
            for name, program, environment in programs:
                report = run(program, case, environment)
                options, load = report["options"], round(report["machine"]["load_before"], 1)
                case_of = (report["benchmark"], options["link"], options["group"], options["threads"])
                for row in rows(report):
                    print(turn + 1, name, *case_of, *row, load, sep="\t", flush=True)


if __name__ == "__main__":
    main()
