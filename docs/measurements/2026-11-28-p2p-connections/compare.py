#!/usr/bin/env python3
"""compare.py OLD NEW OUT.json: two gpusock-bench by turns, in five rounds: connections, and round trips of 64 bytes."""
import json
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 5
CASES = {"p2p connections a second": (["conn", "--link", "p2p", "--group", "thread"], "connections_per_s"),
         "tcp connections a second": (["conn", "--link", "tcp", "--group", "thread"], "connections_per_s"),
         "p2p round trip, p50 in ns": (["lat", "--link", "p2p", "--group", "thread", "--size", "64"], "p50_ns"),
         "p2p round trip, p99 in ns": (["lat", "--link", "p2p", "--group", "thread", "--size", "64"], "p99_ns"),
         "tcp round trip, p50 in ns": (["lat", "--link", "tcp", "--group", "thread", "--size", "64"], "p50_ns"),
         "tcp round trip, p99 in ns": (["lat", "--link", "tcp", "--group", "thread", "--size", "64"], "p99_ns")}


def run(program, arguments):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([program, *arguments, "--json", file.name], check=True, stdout=subprocess.DEVNULL)
        result = json.load(file)
    return result["commit"], result["sizes"][0]["medians"]


programs, out = sys.argv[1:3], sys.argv[3]
rounds = {case: [] for case in CASES}
for turn in range(ROUNDS):
    for arguments in {tuple(arguments) for arguments, _ in CASES.values()}:
        for program in programs if turn % 2 else programs[::-1]:
            commit, medians = run(program, arguments)
            for case, (of, key) in CASES.items():
                if tuple(of) == arguments:
                    own = {name: values[key] for name, values in medians.items() if key in values}
                    rounds[case].append({"commit": commit, **own})
with open(out, "w", encoding="utf-8") as file:
    json.dump(rounds, file, indent=1)
for case, all_of in rounds.items():
    for commit in dict.fromkeys(one["commit"] for one in all_of):
        mine = [one for one in all_of if one["commit"] == commit]
        rival = next(name for name in mine[0] if name not in ("commit", "gpusock"))
        print(f"{case}: {commit[:8]} {statistics.median(one['gpusock'] for one in mine):.0f}, "
              f"{statistics.median(one['gpusock'] / one[rival] for one in mine):.2f} x {rival}")
