"""How long the threads of http_server, and wrk, wait for a processor: who_waits.py HTTP_SERVER CONNECTIONS

Needs perf, as root, and wrk, on a machine on which nothing else runs."""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

server = subprocess.Popen([sys.argv[1], "127.0.0.1:0", "--connections", "1024", "--when-full", "wait"], stdout=subprocess.PIPE, text=True)
port = re.search(r":(\d+)", server.stdout.readline())[1]
with tempfile.TemporaryDirectory() as folder:
    data = pathlib.Path(folder) / "sched.data"
    load = subprocess.run(["perf", "sched", "record", "-q", "-o", data, "wrk", "-t", "1", "-c", sys.argv[2], "-d", "2", "--latency", f"http://127.0.0.1:{port}/"],
                          capture_output=True, text=True, check=True).stdout
    server.terminate()
    server.wait()
    text = subprocess.run(["perf", "sched", "timehist", "-i", data], capture_output=True, text=True, check=True).stdout
print(f"{sys.argv[2]} connections: {re.search('Requests/sec: +([0-9.]+)', load)[1]} requests a second, p99 {re.search('99% +([0-9.a-z]+)', load)[1]}")
waits_ms, ran_ms = collections.defaultdict(list), collections.Counter()
for line in text.splitlines():
    found = re.match(r"\s*[0-9.]+ \[\d+\]\s+((?:cpu_device|gpusock-proxy|wrk)\[\d+)\S*\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)", line)
    if found is not None:
        waits_ms[found[1]].append(float(found[3]))
        ran_ms[found[1]] += float(found[4])
for thread, waits in waits_ms.items():
    waits.sort()
    if ran_ms[thread] > 1:
        print(f"  {re.sub(r'.[0-9]+$', '', thread):14} ran {ran_ms[thread]:5.0f} ms in {len(waits):6} turns; waited for a processor: p99 {waits[len(waits) * 99 // 100]:.3f} ms, most {waits[-1]:.3f} ms")
