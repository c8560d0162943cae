"""Who runs beside the two callers of a round trip of 64 bytes on tcp, in 15 rounds of 50 ms: who_runs.py GPUSOCK_BENCH

Needs perf, as root, and a machine on which nothing else runs."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    data, out = pathlib.Path(folder) / "sched.data", pathlib.Path(folder) / "out.json"
    subprocess.run(["perf", "sched", "record", "-o", data, sys.argv[1], "lat", "--link", "tcp", "--size", "64", "--group", "thread", "--json", out], check=True, capture_output=True)
    text = subprocess.run(["perf", "sched", "timehist", "-i", data, "--state"], check=True, capture_output=True, text=True).stdout
    rounds = json.loads(out.read_text())["sizes"][0]
print("p50, p99 of gpusock and raw TCP, us:", *(f"{rounds['medians'][name][key] / 1000:.1f}" for name in rounds["medians"] for key in ("p50_ns", "p99_ns")))
times, ran_ms = collections.Counter(), collections.Counter()
for line in text.splitlines():
    if (found := re.match(r"\s*[0-9.]+ \[\d+\]\s+(.+?)\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)", line)) is not None:
        task = re.sub(r"\[.*", "", found[1])
        times[task] += 1
        ran_ms[task] += float(found[4])
for task in ("gpusock-proxy", "cpu_device", "rcu_preempt", "ksoftirqd/0", "ksoftirqd/1"):
    print(f"{task:14} {times[task]:6} times  {ran_ms[task]:8.2f} ms")
