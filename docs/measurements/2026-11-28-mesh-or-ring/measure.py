#!/usr/bin/env python3
"""Times torch.distributed's all_reduce on gpusock by three schemes, and by Gloo, by turns: measure.py RESULTS.json

Each rank is a process of this machine. GPUSOCK_LINK chooses the link. Needs the Python package, and a machine on which nothing else runs.
A round times one scheme after the other, each for several calls, as the slowest rank has it."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = (2, 3, 4, 6, 8)
SIZES = (64 << 10, 256 << 10, 1 << 20, 16 << 20, 100 << 20)
SCHEMES = ("butterfly", "mesh", "ring", "gloo")
ROUNDS = 9


def measure(rank, ranks, store):
    import torch
    import torch.distributed as dist
    import gpusock

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    groups = {}
    for scheme in SCHEMES:
        options = gpusock.Options()
        options.all_reduce = scheme
        groups[scheme] = dist.group.WORLD if scheme == "gloo" else dist.new_group(backend="gpusock", pg_options=options)
    for size in SIZES:
        tensor, calls = torch.zeros(size // 4), max(1, (8 << 20) // size)
        times = {scheme: [] for scheme in SCHEMES}
        for _ in range(ROUNDS):
            for scheme, group in groups.items():
                if scheme == "butterfly" and size > 1 << 20:
                    continue
                dist.barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(tensor, group=group)
                spent = torch.tensor([(time.perf_counter() - start) / calls])
                dist.all_reduce(spent, op=dist.ReduceOp.MAX)
                times[scheme].append(spent.item() * 1e3)
        if rank == 0:
            print(json.dumps({"ranks": ranks, "bytes": size, "ms": times}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main(results):
    found = []
    for ranks in RANKS:
        with tempfile.TemporaryDirectory() as folder:
            started = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), str(ranks), folder + "/store"],
                                        stdout=subprocess.PIPE if rank == 0 else None, text=True) for rank in range(ranks)]
            for line in started[0].stdout:
                one = json.loads(line)
                found.append(one)
                medians = {scheme: statistics.median(times) for scheme, times in one["ms"].items() if times}
                faster = statistics.median(r / m for r, m in zip(one["ms"]["ring"], one["ms"]["mesh"]))
                print(ranks, one["bytes"] >> 10, "KiB", *(f"{scheme} {ms:.3f}" for scheme, ms in medians.items()), f"ring / mesh {faster:.2f}", flush=True)
            if any(one.wait() for one in started):
                sys.exit("a rank has failed")
    facts = {"link": os.environ.get("GPUSOCK_LINK", "auto"), "processors": os.cpu_count(), "rounds": found}
    with open(results, "w") as file:
        json.dump(facts, file, indent=1)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--rank":
        measure(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
