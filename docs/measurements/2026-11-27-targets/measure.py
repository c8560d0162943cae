"""Measures paths of gpusock beside their rivals, each in the same run: measure.py BUILD_FOLDER RESULTS.json

Needs a machine on which nothing else runs, wrk, and nginx. Takes some six minutes. Measures sums only where param_sync-gloo is built. The table of ../../performance.md is made of what it prints."""
import json
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

build, results = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
bench, trainer, server = build / "microbench/gpusock-bench", build / "apps/param_sync/param_sync", build / "examples/http_server"
commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
found = {"commit": commit, "bench": [], "sums": [], "training": {}, "idle": {}}

THREAD, BLOCK32, BLOCK64, WARP = ["--group", "thread"], ["--group", "block", "--block-threads", "32"], ["--group", "block"], ["--group", "warp"]
RUNS = [("lat", "p2p", "64", group) for group in (THREAD, BLOCK32, BLOCK64, WARP)]
RUNS += [("lat", "tcp", "64", group) for group in (THREAD, BLOCK64)]
RUNS += [("lat", "fabric", "64,64K", group) for group in (THREAD, BLOCK64)]
RUNS += [("bw", "tcp", "64,1K,16K,64K,256K,1M", group) for group in (THREAD, BLOCK64)]
RUNS += [("bw", "p2p", "64,1K,64K,1M", group) for group in (THREAD, BLOCK64)]
RUNS += [("bw", "fabric", "16K,64K,1M", group) for group in (THREAD, BLOCK64)]
RUNS += [("conn", link, None, THREAD) for link in ("tcp", "p2p")]


def json_of(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "out.json"
        done = subprocess.run([program, *arguments, "--json", file], capture_output=True, text=True)
        if done.returncode != 0:
            return {"failed": done.stderr}
        return json.loads(file.read_text())


for what, link, sizes, group in RUNS:
    one = json_of(bench, what, "--link", link, *(["--size", sizes] if sizes else []), *group, "--commit", commit)
    caller = " ".join(group[1:]).replace("--block-threads ", "")
    if "failed" in one:
        print(what, link, caller, one["failed"])
        continue
    one["caller"] = caller
    found["bench"].append(one)
    for size in one["sizes"]:
        medians = size["medians"]
        names = list(medians)
        shown = {"lat": ("p50_ns", "p99_ns"), "bw": ("gigabytes_per_s",), "conn": ("connections_per_s",)}[what]
        texts = [f"{key} {' / '.join(f'{medians[name][key]:.4g}' for name in names)}" for key in shown]
        print(f"{what:4} {link:6} {caller:9} {size['bytes']:>8} B  ratio {size['ratio']:.2f}  {'; '.join(texts)}  ({' / '.join(names)})", flush=True)

# All schemes by turns with Gloo: its time, that of the fastest scheme, and the ratio.
has_gloo = trainer.with_name("param_sync-gloo").exists()
for size in ("1K", "64K", "256K", "1M", "16M") if has_gloo else ():
    text = subprocess.run([trainer, "bench", "--link", "tcp", "--sizes", size, "--beside", "gloo"], capture_output=True, text=True, check=True).stdout
    row = re.search(rf"^ *{size} +Gloo +([0-9.]+) +([0-9.]+)", text, re.M)
    found["sums"].append({"bytes": size, "gloo_ms": float(row[1]), "best_ms": float(row[2]), "text": text})
    print(f"sum of 4 ranks, {size}: Gloo {row[1]} ms, fastest scheme {row[2]} ms, ratio {float(row[1]) / float(row[2]):.2f}", flush=True)

TRAINING = {"serial": ["--serial"], "4 in one process": ["--in-process", "--nodes", "4"], "4 in one process, no overlap": ["--in-process", "--nodes", "4", "--no-overlap"],
            "4 processes, p2p": ["--nodes", "4", "--link", "p2p"], "4 processes, tcp": ["--nodes", "4", "--link", "tcp"]}
rates = {name: [] for name in TRAINING}
for _ in range(5):
    for name, options in TRAINING.items():
        rates[name].append(json_of(trainer, *options, "--epochs", "1")["samples_per_s"])
found["training"] = rates
serial = statistics.median(rates["serial"])
for name, values in rates.items():
    print(f"training {name}: {statistics.median(values):.0f} samples/s, {statistics.median(values) / serial:.2f} of serial", flush=True)



def ask(port, path=b"/"):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        whole = b""
        while part := client.recv(65536):
            whole += part
    return whole.split(b"\r\n\r\n", 1)[1]


def started_server():
    process = subprocess.Popen([server, "127.0.0.1:0", "--connections", "1024", "--when-full", "wait"], stdout=subprocess.PIPE, text=True)
    return process, int(re.search(r":(\d+)", process.stdout.readline())[1])


def ended(process):
    process.terminate()
    process.wait()


def started_nginx(folder, page):
    (folder / "page").write_bytes(page)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "conf").write_text(f"daemon off; worker_processes 2; pid {folder}/pid; error_log /dev/null; events {{ worker_connections 2048; }}\n"
                                 f"http {{ access_log off; keepalive_requests 1000000000; server {{ listen 127.0.0.1:{port}; location / {{ root {folder}; try_files /page =404; }} }} }}\n")
    folder.chmod(0o755)
    process = subprocess.Popen(["nginx", "-c", folder / "conf", "-p", folder], stderr=subprocess.DEVNULL)
    while True:
        try:
            if ask(port) != page:
                raise RuntimeError("nginx serves another page")
            return process, port
        except ConnectionRefusedError:
            time.sleep(0.01)


def load(port, connections):
    text = subprocess.run(["wrk", "-t", "1", "-c", str(connections), "-d", "2", "--latency", f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
    number, unit = re.search(r"99%\s+([0-9.]+)(us|ms|s)", text).groups()
    if "Socket errors" in text or "Non-2xx" in text:
        raise RuntimeError(text)
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", text)[1]), float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]


firsts = []
for _ in range(5):
    process, port = started_server()
    began = time.monotonic()
    page = ask(port)
    firsts.append(time.monotonic() - began)
    ended(process)
found["first_request_s"] = firsts
print("first request after start (--connections 1024):", [round(first * 1000, 2) for first in firsts], "ms", flush=True)

if shutil.which("wrk") and shutil.which("nginx"):
    found["http"] = []
    for connections in (1, 16, 64, 256, 1000):
        rounds = []
        for _ in range(3):
            process, port = started_server()
            gpusock = load(port, connections)
            ended(process)
            with tempfile.TemporaryDirectory() as folder:
                process, port = started_nginx(pathlib.Path(folder), page)
                nginx = load(port, connections)
                ended(process)
            rounds.append((gpusock, nginx))
        found["http"].append({"connections": connections, "rounds": rounds})
        rate, late = (statistics.median(one[0][what] / one[1][what] for one in rounds) for what in (0, 1))
        print(f"http, {connections} connections: {rate:.2f} of nginx's requests/s, p99 {late:.2f} of its  {rounds}", flush=True)

idle = subprocess.Popen([server, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
idle.stdout.readline()
time.sleep(5)  # what an idle server costs is what this measures
idle.terminate()
before = resource.getrusage(resource.RUSAGE_CHILDREN)
idle.wait()
after = resource.getrusage(resource.RUSAGE_CHILDREN)
found["idle"] = {"seconds": 5, "processor_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
print("an idle http_server:", found["idle"], flush=True)
results.write_text(json.dumps(found))
