#!/usr/bin/env python3
"""Throughput and latency of http_server against the size of its cohorts, under wrk; see docs/http_cohorts.md.

usage: measure_cohorts.py HTTP_SERVER OUT_FOLDER [SECONDS]

Starts the server anew for each path and cohort size (one block, so that all connections can join a cohort), loads it with
64 connections of wrk for SECONDS (10), and writes cohorts.tsv and, where gnuplot is installed, cohorts.svg to OUT_FOLDER.
Exit status: 0 measured; 1 failed, or an answer was wrong; 2 misuse.
"""
import os
import re
import shutil
import signal
import subprocess
import sys

PATHS = ("/", "/primes?n=100000")
SIZES = (1, 2, 4, 8, 16, 32, 64)
CONNECTIONS = 64
DELAY_US = 1000
UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
PLOT = """
set terminal svg size 900,640 dynamic background rgb 'white'
set output 'cohorts.svg'
set datafile separator tab
set multiplot layout 2,1
set logscale x 2
set xtics (1,2,4,8,16,32,64)
set grid
set key left top
set yrange [0:*]
set ylabel 'requests/s'
plot for [path in paths] 'cohorts.tsv' using (strcol(1) eq path ? $2 : NaN):4 with linespoints pointtype 7 title path noenhanced
set xlabel 'largest cohort (requests), CPU device'
set ylabel 'p99 latency (ms)'
plot for [path in paths] 'cohorts.tsv' using (strcol(1) eq path ? $2 : NaN):6 with linespoints pointtype 7 title path noenhanced
"""


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()
    return float(number) * UNITS_MS[unit]


def measure(program, path, size, seconds):
    """(mean cohort, requests/s, p50 ms, p99 ms)"""
    server = subprocess.Popen([program, "127.0.0.1:0", "--blocks", "1", "--connections", str(CONNECTIONS + 16),
                               "--cohort", str(size), "--delay-us", str(DELAY_US)], stdout=subprocess.PIPE, text=True)
    try:
        where = server.stdout.readline().split()[-1]
        told = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "60s", "--latency",
                               f"http://{where}{path}"], capture_output=True, text=True, check=True).stdout
    finally:
        server.send_signal(signal.SIGTERM)
        served = server.communicate()[0]
    if server.returncode != 0 or "Socket errors" in told or "Non-2xx" in told:
        raise RuntimeError(f"{path}, cohorts of {size}: the server exited with {server.returncode}; wrk says:\n{told}")
    mean = float(re.search(r"cohorts of ([\d.e+]+) on average", served)[1])
    rate = float(re.search(r"Requests/sec: +([\d.]+)", told)[1])
    return mean, rate, *(milliseconds(re.search(rf" {percent}% +(\S+)", told)[1]) for percent in (50, 99))


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    program, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    seconds = int(sys.argv[3]) if len(sys.argv) == 4 else 10
    if shutil.which("wrk") is None:
        print("measure_cohorts: wrk is not installed (Debian: apt-get install wrk)", file=sys.stderr)
        return 1
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cohorts.tsv"), "w", encoding="utf-8") as table:
        for line in [("# path", "cohort_max", "cohort_mean", "requests_per_s", "p50_ms", "p99_ms", "load_before")] + [
                (path, size) for path in PATHS for size in SIZES]:
            if len(line) == 2:
                load = os.getloadavg()[0]
                line += tuple(f"{value:.3f}" for value in measure(program, *line, seconds)) + (f"{load:.1f}",)
            text = "\t".join(str(value) for value in line)
            print(text, flush=True)
            table.write(text + "\n")
    if shutil.which("gnuplot") is not None:
        subprocess.run(["gnuplot", "-e", f"paths='{' '.join(PATHS)}'", "-"], input=PLOT, text=True, cwd=folder, check=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure_cohorts: {error}", file=sys.stderr)
        sys.exit(1)
