#!/usr/bin/env python3
"""Times sums by "butterfly" and by "ring" among the ranks of one process.

usage: measure.py PARAM_SYNC OUT.json [ROUNDS]

One round is a run of each scheme, by turns, for each number of ranks and each link. The times are of
`param_sync bench`: medians of nine sums, in milliseconds.
"""

import json
import os
import subprocess
import sys

SIZES = ["16K", "32K", "64K", "128K", "256K", "512K", "1M"]


def times_of(program, ranks, link, scheme):
    command = [program, "bench", "--nodes", str(ranks), "--link", link, "--scheme", scheme, "--sizes", ",".join(SIZES)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    rows = [line.split() for line in text.splitlines()]
    return [float(next(row[1] for row in rows if row[:1] == [size])) for size in SIZES]


def main():
    program, out, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5
    kept = {"sizes": SIZES, "load_average": os.getloadavg(), "runs": []}
    for turn in range(rounds):
        for ranks in (2, 4, 8):
            for link in ("p2p", "tcp"):
                for scheme in ("butterfly", "ring") if turn % 2 == 0 else ("ring", "butterfly"):
                    ms = times_of(program, ranks, link, scheme)
                    kept["runs"].append({"ranks": ranks, "link": link, "scheme": scheme, "ms": ms})
    with open(out, "w") as file:
        json.dump(kept, file)
        file.write("\n")


if __name__ == "__main__":
    main()
