#!/usr/bin/env python3
"""Trains with bounded staleness until an oracle has judged many reads of weights, while nodes are stopped and slowed at random.

usage: PARAM_SYNC=PROGRAM stale_reads.py [READS]    (default: 1000000)

The oracle (store_oracle.py) knows the format of histories and what a clock promises, and nothing of the code. The delays follow from the seed that is
printed; how the nodes' work falls between them does not.
Exit status: 0 no read broke its clock, 1 one did, or a run failed.
"""
import json
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support  # noqa: E402
from store_oracle import objections  # noqa: E402

NODES = 3
EPOCHS = 100
BOUNDS = (0, 1, 2, 3, 8)


def history_of(clock, link, delays, file):
    """The events of a run, by rank."""
    cluster = support.start(*support.SMALL[:-1], EPOCHS, "--nodes", NODES, "--sync", clock, "--link", link, "--history", file)
    support.stop_now_and_then(cluster, lambda: (delays.expovariate(30), delays.expovariate(100)))
    _, err = cluster.communicate(timeout=support.PATIENCE_S)
    if cluster.returncode != 0:
        raise SystemExit(f"{clock}: exit status {cluster.returncode}: {err}")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return [[event for event in events if event["worker"] == rank] for rank in range(NODES)]


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6
    seed = random.randrange(2**32)
    delays = random.Random(seed)
    reads, late, runs = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while reads < wanted:
            bound = BOUNDS[runs % len(BOUNDS)]
            link = support.LINKS_BETWEEN_PROCESSES[runs // len(BOUNDS) % len(support.LINKS_BETWEEN_PROCESSES)]
            histories = history_of(f"ssp:{bound}", link, delays, pathlib.Path(folder) / "history.jsonl")
            if found := objections(histories, f"ssp:{bound}"):
                print(f"seed {seed}, run {runs}, ssp:{bound}, {link}: {len(found)} objections, first {found[0]}")
                return 1
            of_run = [event for events in histories for event in events if event["op"] == "read"]
            reads += len(of_run)
            late += sum(min(event["seen"]) < event["clock"] for event in of_run)
            runs += 1
    print(f"stale reads: {reads} reads in {runs} runs, {late} of weights that missed a push, 0 violations; seed {seed}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        support.DATA.remove()
