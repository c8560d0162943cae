#!/usr/bin/env python3
"""Times operations of torch.distributed by gpusock, by Gloo and by MPI, by turns in the same processes.

usage: bench.py [--ranks 2,4] [--sizes 1K,64K,1M,16M,100M] [--operations all_reduce] [--rounds 11] [--mpi] [--json FILE]

A round times one of them and then the next, each for several calls that follow each other, as the slowest rank has it.
The table has medians of the rounds, and the medians of the rounds' ratios: above 1 gpusock is faster. All ranks are
processes of this machine. PyTorch's wheels have no MPI: --mpi takes mpi4py, on the tensors' memory, under mpirun.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

LEAST_S = 0.02  # of calls in a round


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


def call_of(operation, size, ranks, group):
    """The operation on tensors of this size in all, as a function. `group`: of torch.distributed, or None for MPI."""
    count = max(1, size // 4 // ranks) * ranks
    whole, part, other = torch.zeros(count), torch.zeros(count // ranks), torch.zeros(count)
    if group is None:
        from mpi4py import MPI

        every, w, p, o = MPI.COMM_WORLD, whole.numpy(), part.numpy(), other.numpy()
        return {
            "all_reduce": lambda: every.Allreduce(MPI.IN_PLACE, w),
            "all_gather": lambda: every.Allgather(p, w),
            "reduce_scatter": lambda: every.Reduce_scatter_block(w, p),
            "broadcast": lambda: every.Bcast(w, 0),
            "all_to_all": lambda: every.Alltoall(w, o),
            "barrier": every.Barrier,
        }[operation]
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "barrier": lambda: dist.barrier(group=group),
    }[operation]


def measure(store, ranks, arguments):
    """One rank. Rank 0 prints each result as a line of JSON."""
    torch.set_num_threads(1)
    if arguments.mpi:
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
    else:
        rank = int(os.environ["RANK"])
    dist.init_process_group("gpusock", init_method=f"file://{store}", rank=rank, world_size=ranks)
    groups = {"gpusock": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if arguments.mpi:
        groups["mpi"] = None
    names = list(groups)

    def seconds_of(call, repeats):
        """Seconds of a call, as the slowest rank has them. All ranks begin together."""
        dist.barrier(group=groups["gloo"])
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        spent = torch.tensor([(time.perf_counter() - start) / repeats], dtype=torch.float64)
        dist.all_reduce(spent, dist.ReduceOp.MAX, group=groups["gloo"])
        return spent.item()

    for operation in arguments.operations:
        for size in arguments.sizes:
            calls = {name: call_of(operation, size, ranks, group) for name, group in groups.items()}
            repeats = {}
            for name, call in calls.items():
                seconds_of(call, 2)
                repeats[name] = max(1, min(200, int(LEAST_S / seconds_of(call, 1))))
            times = {name: [] for name in names}
            for turn in range(arguments.rounds):
                first = turn % len(names)
                for name in names[first:] + names[:first]:
                    times[name].append(seconds_of(calls[name], repeats[name]))
            if rank == 0:
                result = {"operation": operation, "ranks": ranks, "bytes": size}
                print(json.dumps(result | {"calls_of_a_round": repeats, "seconds": times}), flush=True)
    dist.destroy_process_group()


def machine():
    model = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "load_average": os.getloadavg(),
    }


def row_of(result, rivals):
    times = result["seconds"]
    columns = [f"{result['operation']:<15}{result['ranks']:>6}{result['bytes']:>12}"]
    for name in ["gpusock", *rivals]:
        columns.append(f"{statistics.median(times[name]) * 1e3:>9.3f} ms")
    for name in rivals:
        ratio = statistics.median(theirs / ours for ours, theirs in zip(times["gpusock"], times[name]))
        columns.append(f"{ratio:>16.2f}")
    return "".join(columns)


def results_of(ranks, arguments):
    """Starts the ranks. Yields the results that rank 0 prints."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_ones:
        command = [sys.executable, *sys.argv, "--rank-of", f"{folder}/store,{ranks}"]
        if arguments.mpi:
            mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
            processes = [subprocess.Popen(mpirun + command, stdout=subprocess.PIPE, text=True)]
        else:
            processes = [
                subprocess.Popen(
                    command,
                    env=os.environ | {"RANK": str(rank)},
                    stdout=subprocess.PIPE if rank == 0 else None,
                    text=True,
                )
                for rank in range(ranks)
            ]
        for process in processes:
            open_ones.enter_context(process)  # waits at the end
        for line in processes[0].stdout:
            yield json.loads(line)
        for process in processes:
            if process.wait() != 0:
                sys.exit(f"a rank ended with status {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument(
        "--sizes", type=lambda text: [bytes_of(word) for word in text.split(",")], default="1K,64K,1M,16M,100M"
    )
    parser.add_argument("--operations", type=lambda text: text.split(","), default="all_reduce")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)  # store,ranks: this process is a rank
    arguments = parser.parse_args()
    if arguments.rank_of:
        store, ranks = arguments.rank_of.rsplit(",", 1)
        return measure(store, int(ranks), arguments)
    if arguments.mpi and not shutil.which("mpirun"):
        parser.error("--mpi needs mpirun: apt-get install openmpi-bin libopenmpi-dev, and pip install mpi4py")
    rivals = ["gloo", "mpi"] if arguments.mpi else ["gloo"]
    kept = {"machine": machine(), "rounds": []}
    heads = [f"{'operation':<15}{'ranks':>6}{'bytes':>12}"]
    heads += [f"{name:>12}" for name in ["gpusock", *rivals]] + [f"{name + ' / gpusock':>16}" for name in rivals]
    print("".join(heads))
    for ranks in arguments.ranks:
        for result in results_of(ranks, arguments):
            kept["rounds"].append(result)
            print(row_of(result, rivals), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
