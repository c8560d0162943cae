"""Prints what DDP's hooks send, how long they take, and what a training learns with them, as a table.

usage: hooks_table.py

Two ranks on this machine, in turns: each hook averages the gradients of a matrix of 1,000 x 1,000 eleven times, in
rounds. Bytes are those that a rank sends in a step; times are medians of the slower rank. Then each hook learns
Fashion-MNIST for 200 steps, if it is here.
"""

import statistics
import time

import gpusock
import torch
from torch.nn.parallel import DistributedDataParallel

import fashion
from processes import run
from test_hooks import Given, pass_back, register_of

ROUNDS = 11
SIDE = 1000


def ours(**arguments):
    return lambda model: model.register_comm_hook(gpusock.ErrorFeedback(**arguments), gpusock.ddp_hook)


HOOKS = {
    "none": lambda model: None,
    "`bf16_compress_hook`": register_of("bf16_compress_hook"),
    "`fp16_compress_hook`": register_of("fp16_compress_hook"),
    "`powerSGD_hook`, rank 4": register_of("powerSGD", matrix_approximation_rank=4),
    '`ErrorFeedback("int8")`': ours(codec="int8"),
    '`ErrorFeedback("top", share=0.1)`': ours(codec="top", share=0.1),
    '`ErrorFeedback("top", share=0.01)`': ours(codec="top", share=0.01),
}


def measure(rank):
    """Of each hook: bytes in a step, and seconds of each round."""
    torch.manual_seed(rank)
    models, sent, seconds = {}, {name: [] for name in HOOKS}, {name: [] for name in HOOKS}
    for name, register in HOOKS.items():
        models[name] = DistributedDataParallel(Given([(SIDE, SIDE)]))
        register(models[name])
        for _ in range(3):  # PowerSGD begins after two steps
            pass_back(models[name], [torch.randn(SIDE, SIDE)])
    for _ in range(ROUNDS):
        for name, model in models.items():
            gradient = torch.randn(SIDE, SIDE)
            torch.distributed.barrier()
            before, begin = gpusock.traffic().sent, time.perf_counter()
            pass_back(model, [gradient])
            seconds[name].append(time.perf_counter() - begin)
            sent[name].append(gpusock.traffic().sent - before)
    return {name: (statistics.median(sent[name]), seconds[name]) for name in HOOKS}


def learn(rank, name):
    return fashion.train(rank, register=HOOKS[name])[1]


def main():
    ranks = run(2, measure)
    print("| hook | bytes of a step, KB | of none | ms | learned |\n|---|---|---|---|---|")
    for name in HOOKS:
        sent = statistics.mean(rank[name][0] for rank in ranks)
        whole = statistics.mean(rank["none"][0] for rank in ranks)
        slower = [max(times) for times in zip(*(rank[name][1] for rank in ranks))]
        learned = f"{run(2, learn, name)[0]:.1%}" if fashion.is_here() else "-"
        print(
            f"| {name} | {sent / 1000:,.0f} | {sent / whole:.3f} | {statistics.median(slower) * 1e3:.1f} | {learned} |"
        )


if __name__ == "__main__":
    main()
