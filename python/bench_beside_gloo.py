#!/usr/bin/env python3
"""Times operations of torch.distributed by gpusock and by Gloo, by turns in the same processes.

usage: bench_beside_gloo.py [--ranks 2,4] [--sizes 1K,64K,1M,16M,100M] [--operations all_reduce] [--rounds 11]
                            [--json FILE]

A round times one back end and then the other, each for several calls that follow each other, as the slowest rank has
it. The table has medians of the rounds, and the median of the rounds' ratios: above 1 gpusock is faster. All ranks are
processes of this machine.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import multiprocessing

BACKENDS = ("gpusock", "gloo")
LEAST_S = 0.02  # of calls in a round


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


def call_of(operation, size, ranks, group):
    """The operation on tensors of this size in all, as a function."""
    count = max(1, size // 4 // ranks) * ranks
    whole, part = torch.zeros(count), torch.zeros(count // ranks)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(count), whole, group=group),
        "barrier": lambda: dist.barrier(group=group),
    }[operation]


def measure(rank, ranks, path, arguments, results):
    torch.set_num_threads(1)
    dist.init_process_group("gpusock", init_method=f"file://{path}", rank=rank, world_size=ranks)
    groups = {"gpusock": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for operation in arguments.operations:
        for size in arguments.sizes:
            calls = {backend: call_of(operation, size, ranks, groups[backend]) for backend in BACKENDS}
            repeats = {}
            for backend in BACKENDS:
                for _ in range(2):
                    calls[backend]()
                start = time.perf_counter()
                calls[backend]()
                spent = torch.tensor([time.perf_counter() - start])
                dist.all_reduce(spent, dist.ReduceOp.MAX, group=groups["gloo"])
                repeats[backend] = max(1, min(200, int(LEAST_S / spent.item())))
            times = {backend: [] for backend in BACKENDS}
            for turn in range(arguments.rounds):
                for backend in BACKENDS if turn % 2 == 0 else reversed(BACKENDS):
                    dist.barrier(group=groups["gloo"])
                    start = time.perf_counter()
                    for _ in range(repeats[backend]):
                        calls[backend]()
                    spent = torch.tensor([(time.perf_counter() - start) / repeats[backend]], dtype=torch.float64)
                    dist.all_reduce(spent, dist.ReduceOp.MAX, group=groups["gloo"])
                    times[backend].append(spent.item())
            if rank == 0:
                results.put(
                    {
                        "operation": operation,
                        "ranks": ranks,
                        "bytes": size,
                        "calls_of_a_round": repeats,
                        "seconds": times,
                    }
                )
    if rank == 0:
        results.put(None)
    dist.destroy_process_group()


def next_result(results, processes):
    """The next result, or None at the end, also of ranks that have failed."""
    while results.empty():
        if any(process.exitcode not in (None, 0) for process in processes):
            return None
        time.sleep(0.05)
    return results.get()


def machine():
    model = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "load_average": os.getloadavg(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument(
        "--sizes", type=lambda text: [bytes_of(word) for word in text.split(",")], default="1K,64K,1M,16M,100M"
    )
    parser.add_argument("--operations", type=lambda text: text.split(","), default="all_reduce")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    kept = {"machine": machine(), "rounds": []}
    print(f"{'operation':<15}{'ranks':>6}{'bytes':>12}{'gpusock':>12}{'gloo':>12}{'gloo / gpusock':>16}")
    for ranks in arguments.ranks:
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                context.Process(target=measure, args=(rank, ranks, os.path.join(folder, "store"), arguments, results))
                for rank in range(ranks)
            ]
            for process in processes:
                process.start()
            while result := next_result(results, processes):
                kept["rounds"].append(result)
                ours, theirs = (result["seconds"][backend] for backend in BACKENDS)
                ratio = statistics.median(b / a for a, b in zip(ours, theirs))
                print(
                    f"{result['operation']:<15}{ranks:>6}{result['bytes']:>12}{statistics.median(ours) * 1e3:>9.3f} ms"
                    f"{statistics.median(theirs) * 1e3:>9.3f} ms{ratio:>16.2f}",
                    flush=True,
                )
            for process in processes:
                process.join()
                if process.exitcode != 0:
                    sys.exit(f"a rank ended with status {process.exitcode}")
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
