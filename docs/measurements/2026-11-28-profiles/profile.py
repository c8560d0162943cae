"""Where the processors' time goes on a path, beside its rival's, which runs in the same process by turns: profile.py GPUSOCK_BENCH PARAM_SYNC RESULTS.json

Needs perf, as root, and a machine on which nothing else runs. For each path: the share of each kind of work in the time of gpusock's
threads (the device's and the proxies') and in that of the rival's. A sample counts for the system call that it is in, else for the code
that runs. "Between threads" are sleeps, wake-ups and yields."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

bench, trainer, results = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PATHS = {"round trip, tcp, 64 B": [bench, "lat", "--link", "tcp", "--size", "64", "--group", "thread"],
         "round trip, tcp, 64 B, block of 64": [bench, "lat", "--link", "tcp", "--size", "64", "--group", "block"],
         "round trip, fabric, 64 KiB": [bench, "lat", "--link", "fabric", "--size", "64K", "--group", "thread"],
         "stream, tcp, 1 KiB": [bench, "bw", "--link", "tcp", "--size", "1K", "--group", "thread"],
         "stream, tcp, 64 KiB": [bench, "bw", "--link", "tcp", "--size", "64K", "--group", "thread"],
         "stream, tcp, 256 KiB": [bench, "bw", "--link", "tcp", "--size", "256K", "--group", "thread"],
         "stream, tcp, 1 KiB, block of 64": [bench, "bw", "--link", "tcp", "--size", "1K", "--group", "block"],
         "stream, tcp, 64 KiB, block of 64": [bench, "bw", "--link", "tcp", "--size", "64K", "--group", "block"],
         "stream, p2p, 64 B": [bench, "bw", "--link", "p2p", "--size", "64", "--group", "thread"],
         "stream, p2p, 1 MiB": [bench, "bw", "--link", "p2p", "--size", "1M", "--group", "thread"],
         "stream, p2p, 1 KiB, block of 64": [bench, "bw", "--link", "p2p", "--size", "1K", "--group", "block"],
         "connections, tcp": [bench, "conn", "--link", "tcp", "--group", "thread"],
         "connections, p2p": [bench, "conn", "--link", "p2p", "--group", "thread"],
         "sum of 1 KiB, 4 ranks, tcp": [trainer, "bench", "--link", "tcp", "--sizes", "1K", "--scheme", "mesh", "--repeats", "2000"],
         "sum of 64 KiB, 4 ranks, tcp": [trainer, "bench", "--link", "tcp", "--sizes", "64K", "--scheme", "mesh", "--repeats", "1000"],
         "sum of 1 MiB, 4 ranks, tcp": [trainer, "bench", "--link", "tcp", "--sizes", "1M", "--scheme", "mesh", "--repeats", "50"],
         "sum of 16 MiB, 4 ranks, tcp": [trainer, "bench", "--link", "tcp", "--sizes", "16M", "--scheme", "mesh", "--repeats", "15"]}
CALLS = {"sendto": "tcp: send", "sendmsg": "tcp: send", "writev": "tcp: send", "readv": "tcp: receive", "recvfrom": "tcp: receive", "recvmsg": "tcp: receive", "epoll_wait": "look for events", "epoll_pwait": "look for events", "poll": "look for events",
         "read": "look for events", "write": "between threads",
         "ppoll": "between threads", "futex": "between threads", "nanosleep": "between threads", "sched_yield": "between threads",
         "accept4": "open and close", "connect": "open and close", "socket": "open and close", "close": "open and close", "shutdown": "open and close",
         "setsockopt": "open and close", "getsockopt": "open and close", "getsockname": "open and close", "getpeername": "open and close", "epoll_ctl": "open and close",
         "mmap": "open and close", "munmap": "open and close", "memfd_create": "open and close", "ftruncate": "open and close"}


def kind_of(frames):
    for name, _ in frames:
        if (call := re.match(r"__x64_sys_(\w+)", name)) is not None:
            call = call[1].removeprefix("clock_")
            return CALLS.get(call, "other system calls")
    if any("page_fault" in name for name, _ in frames):
        return "page faults"
    name, code = frames[0]
    if "[kernel" in code:
        return "between threads" if re.search("schedule|switch|irq|idle", name) else "other system calls"
    if "vdso" in code or "clock_gettime" in name:
        return "clocks"
    if re.search("memcpy|memmove|copy", name):
        return "copies"
    if "proxy::" in name:
        return "the proxy's step"
    if "cpu_device" in name:
        return "the device: fibers and waits"
    return "the callers' own code"


def profile(command):
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "perf.data"
        done = subprocess.run(["perf", "record", "-q", "-g", "-F", "2500", "-o", data, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}")
        text = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym,dso", "--no-inline"], capture_output=True, text=True, check=True).stdout
    counts = {"gpusock": collections.Counter(), "rival": collections.Counter()}
    for sample in re.split(r"\n\s*\n", text):
        lines = sample.strip().splitlines()
        if len(lines) < 2:
            continue
        frames = [(m[1], m[2]) for line in lines[1:] if (m := re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line))]
        if frames:
            counts["gpusock" if lines[0].strip() in ("cpu_device", "gpusock-proxy") else "rival"][kind_of(frames)] += 1
    return {side: {kind: round(number / sum(count.values()), 3) for kind, number in count.most_common()} for side, count in counts.items() if count}, done.stdout


found = {"commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip(), "paths": {}}
for name, command in PATHS.items():
    shares, printed = profile(command)
    found["paths"][name] = {"command": " ".join([command[0].name, *command[1:]]), "shares": shares, "printed": printed.splitlines()}
    for side, kinds in shares.items():
        print(f"{name:36} {side:8} " + ", ".join(f"{kind} {share:.0%}" for kind, share in kinds.items() if share >= 0.03), flush=True)
results.write_text(json.dumps(found, indent=1) + "\n")
