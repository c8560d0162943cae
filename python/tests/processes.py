"""Ranks of a test: processes that are forked from it, each in a process group of its own rank. They meet at a file."""

import datetime
import multiprocessing
import os
import signal
import tempfile
import time
import traceback

import gpusock
import torch
import torch._dynamo  # DDP imports it, in 2 s: here once, instead of in each rank
import torch.distributed as dist

os.environ.setdefault("GPUSOCK_LOG", "error")  # ranks that are killed are no warning here
gpusock.register()
PATIENCE_S = 120


class Failure(AssertionError):
    """A rank has failed. The text is its traceback."""


def _rank(rank, ranks, path, pipe, body, arguments, backend, timeout_s, options):
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(path, ranks)
        given = gpusock.Options() if options else None
        for name, value in options.items():
            setattr(given, name, value)
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=timeout_s),
            pg_options=given,
        )
        result = body(rank, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()


def run(ranks, body, *arguments, backend="gpusock", timeout_s=60, options={}, killed=()):
    """Calls body(rank, *arguments) in `ranks` processes, and returns what they return, by rank.

    Ranks in `killed` kill themselves; None stands for what they return. Raises Failure if another one fails.
    """
    context = multiprocessing.get_context("fork")
    processes, pipes, results = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(ranks):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_rank,
                    args=(
                        rank,
                        ranks,
                        os.path.join(folder, "store"),
                        theirs,
                        body,
                        arguments,
                        backend,
                        timeout_s,
                        options,
                    ),
                )
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
            until = time.monotonic() + PATIENCE_S
            for rank, (process, pipe) in enumerate(zip(processes, pipes)):
                if not pipe.poll(max(0, until - time.monotonic())):
                    raise Failure(f"rank {rank} of {ranks} has not ended after {PATIENCE_S} s")
                try:
                    well, result = pipe.recv()
                except EOFError:
                    process.join(10)
                    well, result = rank in killed and process.exitcode == -signal.SIGKILL, None
                    if not well:
                        result = f"it ended with status {process.exitcode}"
                if not well:
                    raise Failure(f"rank {rank} of {ranks}: {result}")
                results.append(result)
            for rank, process in enumerate(processes):
                process.join(max(0, until - time.monotonic()))
                if rank not in killed and process.exitcode != 0:
                    raise Failure(f"rank {rank} of {ranks} ended with status {process.exitcode}")
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
    return results


def die():
    """Ends this process as the kernel ends one that has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
