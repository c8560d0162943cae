"""Promises of DDP's communication hooks: PyTorch's own ones work, and ErrorFeedback's results, memory and bytes."""

import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import gpusock
import numpy
import torch
import torch.distributed as dist
from gpusock import error_feedback
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

import fashion
from processes import die, run

COMPILER = os.environ.get("CXX", "c++")
# Encodes blocks of 64 floats from one file into another, with the numbers of a store's messages.
STORES_INT8 = """
#include "param_sync/codec/wire_format.hpp"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
using Format = param_sync::codec::Int8Format;
using Block = param_sync::codec::Blocks<Format>;
int main(int, char** arguments) {
  std::FILE* in = std::fopen(arguments[1], "rb");
  std::FILE* out = std::fopen(arguments[2], "wb");
  float block[Block::kFloats];
  while (std::fread(block, sizeof block, 1, in) == 1) {
    float largest = 0;
    for (float number : block) largest = std::max(largest, std::fabs(number));
    const float scale = largest / Format::kMost;
    std::uint32_t words[Block::kWords] = {};
    std::memcpy(words, &scale, sizeof scale);
    for (unsigned i = 0; i < Block::kFloats; ++i) words[Block::kHead + i / 4] |= Format::pack(block[i], i % 4, scale);
    std::fwrite(words, sizeof words, 1, out);
  }
  return std::fclose(out);
}
"""

SIZES = (1000, 64, 130, 1, 700)  # of parameters: blocks of 64 lie across them, and the last one is not full
STEPS = 5
RANKS = (1, 2, 3)


class Given(torch.nn.Module):
    """Its gradients are its inputs."""

    def __init__(self, sizes, dtype=torch.float32):
        super().__init__()
        self.rows = torch.nn.ParameterList(torch.zeros(size, dtype=dtype) for size in sizes)

    def forward(self, inputs):
        return sum((row * given).sum() for row, given in zip(self.rows, inputs))


def gradients_of(rank, step, sizes=SIZES):
    """Their sizes differ a lot, so that blocks have different scales, and some are 0."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    return [
        torch.randn(size, generator=generator) ** 3 * (torch.rand(size, generator=generator) < 0.8) for size in sizes
    ]


def pass_back(model, gradients):
    """What DDP makes of this rank's gradients, by parameter."""
    model.zero_grad()
    model(gradients).backward()
    return [row.grad.clone() for row in model.module.rows]


def averages(rank, arguments):
    """All steps' averages and what is withheld at the end, by parameter; each step's buckets: lists of parameters."""
    state, buckets = gpusock.ErrorFeedback(**arguments), []

    def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets[-1].append([number[id(parameter)] for parameter in bucket.parameters()])
        return gpusock.ddp_hook(state, bucket)

    model = DistributedDataParallel(Given(SIZES), bucket_cap_mb=0.003)
    number = {id(row): i for i, row in enumerate(model.module.rows)}
    model.register_comm_hook(state, hook)
    got = []
    for step in range(STEPS):
        buckets.append([])
        got.append([row.numpy() for row in pass_back(model, gradients_of(rank, step))])
    return got, [state.withheld(row).numpy() for row in model.module.rows], buckets


def as_received(values):
    """A block of at most 64 floats after int8: numbers are multiples of a 127th of the largest one."""
    scale = max(abs(value) for value in values) / numpy.float32(127)
    return [numpy.float32(numpy.rint(value / scale)) * scale if scale > 0 else numpy.float32(0) for value in values]


def coded(values):
    return numpy.array([number for i in range(0, len(values), 64) for number in as_received(values[i : i + 64])])


def int8_average(memories):
    """What ranks get of a bucket by int8, from what each of them has to send. Leaves in these what is not sent."""
    ranks, count = len(memories), len(memories[0])
    piece = math.ceil(count / (64 * ranks)) * 64
    padded = [numpy.concatenate((memory, numpy.zeros(piece * ranks - count, numpy.float32))) for memory in memories]
    sent = [coded(row) for row in padded]
    left = [row - received for row, received in zip(padded, sent)]
    whole = []
    for owner in range(ranks):
        part = slice(owner * piece, (owner + 1) * piece)
        mean = sent[0][part]
        for other in sent[1:]:
            mean = mean + other[part]
        mean = mean / numpy.float32(ranks)
        whole.append(coded(mean))
        left[owner][part] += (mean - whole[-1]) * numpy.float32(ranks)
    for memory, row in zip(memories, left):
        memory[:] = row[:count]
    return numpy.concatenate(whole)[:count]


def top_average(memories, share):
    """The same for the largest floats: of equal ones the first."""
    total = numpy.zeros(len(memories[0]), numpy.float32)
    for memory in memories:
        for i in sorted(range(len(memory)), key=lambda i: (-abs(memory[i]), i))[: math.ceil(share * len(memory))]:
            total[i] += memory[i]
            memory[i] = 0
    return total / numpy.float32(len(memories))


def reference(ranks, buckets, average):
    """The averages of all steps, and what each rank withholds at the end, by plain loops."""
    withheld = [[numpy.zeros(size, numpy.float32) for size in SIZES] for _ in range(ranks)]
    results = []
    for step, of_step in enumerate(buckets):
        results.append([None] * len(SIZES))
        gradients = [[row.numpy() for row in gradients_of(rank, step)] for rank in range(ranks)]
        for bucket in of_step:
            memories = [numpy.concatenate([withheld[r][i] + gradients[r][i] for i in bucket]) for r in range(ranks)]
            mean, begin = average(memories), 0
            for i in bucket:
                part = slice(begin, begin := begin + SIZES[i])
                results[-1][i] = mean[part]
                for r in range(ranks):
                    withheld[r][i] = memories[r][part]
    return results, withheld


def same(some, others):
    return all(numpy.array_equal(one, other, equal_nan=True) for one, other in zip(some, others, strict=True))


def bytes_of_steps(rank, register, sizes=(100_000,), steps=4):
    """Bytes that this rank sends in each of some steps, after the first one."""
    model = DistributedDataParallel(Given(sizes))
    register(model)
    pass_back(model, gradients_of(rank, 0, sizes))
    before = gpusock.traffic().sent
    for step in range(steps):
        pass_back(model, gradients_of(rank, step, sizes))
    return (gpusock.traffic().sent - before) / steps


def continued(rank, arguments, interrupted):
    """All averages, and what is withheld. `interrupted`: after two steps, all of it goes on from a checkpoint."""
    got, path = [], tempfile.mktemp()
    for steps in (range(2), range(2, STEPS)) if interrupted else (range(STEPS),):
        state = gpusock.ErrorFeedback(**arguments)
        model = DistributedDataParallel(Given(SIZES))
        model.register_comm_hook(state, gpusock.ddp_hook)
        if steps[0] != 0:
            state.load_state_dict(model, torch.load(path))
            os.remove(path)
        for step in steps:
            got += pass_back(model, gradients_of(rank, step))
        if interrupted and steps[0] == 0:
            torch.save(state.state_dict(model), path)
            pass_back(model, gradients_of(rank, 77))  # what is saved does not change any more
    return [row.numpy() for row in got], [state.withheld(row).numpy() for row in model.module.rows]


def not_finite(rank, codec):
    """A block with NaN or infinity is not finite for all, others are right, and the next step is as if it had none."""
    model = DistributedDataParallel(Given((256,)))
    state = gpusock.ErrorFeedback(codec, **({"share": 0.5} if codec == "top" else {}))
    model.register_comm_hook(state, gpusock.ddp_hook)
    gradient = torch.ones(256)
    if rank == 0:
        gradient[70], gradient[140] = math.nan, math.inf
    (got,) = pass_back(model, [gradient])
    bad = (~got.isfinite()).nonzero().view(-1).tolist()
    assert bad == ([70, 140] if codec == "top" else list(range(64, 192))), bad
    assert state.withheld(model.module.rows[0]).isfinite().all()
    (got,) = pass_back(model, [torch.ones(256)])
    assert got.isfinite().all()
    return got.numpy()


def half_precision(rank, dtype):
    """Memory and messages are float32 or int8: only the result is rounded to the gradients' type."""
    model = DistributedDataParallel(Given((200,), dtype))
    model.register_comm_hook(gpusock.ErrorFeedback("int8"), gpusock.ddp_hook)
    values = torch.linspace(-2, 2, 200).to(dtype)
    (got,) = pass_back(model, [values * (rank + 1)])
    assert got.dtype == dtype
    assert torch.allclose(got.float(), values.float() * 1.5, atol=4 / 127), got


def lose(rank, codec):
    """Rank 1 ends between two steps."""
    model = DistributedDataParallel(Given(SIZES))
    model.register_comm_hook(gpusock.ErrorFeedback(codec), gpusock.ddp_hook)
    pass_back(model, gradients_of(rank, 0))
    if rank == 1:
        die()
    try:
        for step in range(1, 100):
            pass_back(model, gradients_of(rank, step))
    except RuntimeError as error:
        return str(error)


def refusals(rank):
    for wanted, arguments in (
        ('no codec "fp8"', {"codec": "fp8"}),
        ("leave out share", {"codec": "int8", "share": 0.1}),
        ("at most 0.5", {"codec": "top", "share": 0.7}),
        ("more than 0", {"codec": "top", "share": 0}),
        ("a share of nan", {"codec": "top", "share": math.nan}),
    ):
        try:
            gpusock.ErrorFeedback(**arguments)
        except ValueError as error:
            assert wanted in str(error), (wanted, error)
        else:
            raise AssertionError(f"not refused: {arguments}")
    for wanted, group, dtype in (
        ("float64", None, torch.float64),
        ("needs a process group", dist.new_group(backend="gloo"), torch.float32),
    ):
        model = DistributedDataParallel(Given((10,), dtype), process_group=group)
        model.register_comm_hook(gpusock.ErrorFeedback("int8", process_group=group), gpusock.ddp_hook)
        try:
            pass_back(model, [torch.ones(10, dtype=dtype)])
        except (ValueError, RuntimeError) as error:
            assert wanted in str(error), (wanted, error)
        else:
            raise AssertionError(f"not refused: {wanted}")
    try:
        gpusock.traffic(dist.new_group(backend="gloo"))
    except ValueError as error:
        assert "the back end is gloo" in str(error), error
    else:
        raise AssertionError("traffic() of Gloo's group")
    dist.barrier()  # a rank that destroyed its Gloo group now would make new_group() of the other one fail
    group = dist.group.WORLD
    dist.destroy_process_group()
    for which in (None, group):
        try:
            gpusock.traffic(which)
        except ValueError as error:
            assert "no process group" in str(error) or "has been destroyed" in str(error), error
        else:
            raise AssertionError("traffic() of a group that was destroyed")


def register_of(name, **arguments):
    """A function that registers a hook of PyTorch's."""
    if name == "powerSGD":
        return lambda model: model.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, **{"start_powerSGD_iter": 2, **arguments}), powerSGD_hook.powerSGD_hook
        )
    module = quantization_hooks if name.startswith("quantization") else default_hooks
    return lambda model: model.register_comm_hook(None, getattr(module, name))


def train_net(rank, name, settings):
    """A net of several buckets, with a hook of PyTorch's."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(net, **settings)
    register_of(name)(model)
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(16, 64, generator=generator)).square().mean().backward()
        optimizer.step()
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).numpy()


class Hooks(unittest.TestCase):
    def test_hooks_of_pytorch(self):
        for name in ("bf16_compress_hook", "fp16_compress_hook", "powerSGD", "quantization_pertensor_hook"):
            with self.subTest(hook=name):
                gloo = run(2, train_net, name, {}, backend="gloo")[0]
                for weights in run(2, train_net, name, {}):
                    self.assertTrue((weights == gloo).all(), "a sum of two numbers has no order")
                several = {"bucket_cap_mb": 0.01}  # Gloo has no order of the steps of several buckets
                first, second = (run(3, train_net, name, several) for _ in range(2))
                for weights in first + second:
                    self.assertTrue((weights == first[0]).all())

    def check_reference(self, arguments, average):
        for ranks in RANKS:
            with self.subTest(ranks=ranks):
                results = run(ranks, averages, arguments)
                buckets = results[0][2]
                self.assertNotEqual(buckets[0], buckets[1], "DDP made no other buckets: memory did not move")
                self.assertGreater(len(buckets[1]), 1)
                expected, withheld = reference(ranks, buckets, average)
                for rank, (got, left, _) in enumerate(results):
                    for step in range(STEPS):
                        self.assertTrue(same(got[step], expected[step]), f"rank {rank}, step {step}")
                    self.assertTrue(same(left, withheld[rank]), f"what rank {rank} withholds")
                self.check_sum(results)

    def check_sum(self, results):
        """What was received, and what is withheld, is the whole gradient. Without the latter it is not."""
        lacks = 0
        for i in range(len(SIZES)):
            whole = sum(gradients_of(rank, step)[i].double() for rank in range(len(results)) for step in range(STEPS))
            received = len(results) * sum(results[0][0][step][i].astype("f8") for step in range(STEPS))
            withheld = sum(left[i].astype("f8") for _, left, _ in results)
            # A float of 50 is rounded to 2^-19, in a dozen of additions of each rank.
            self.assertLess(abs(received + withheld - whole.numpy()).max(), 12 * len(results) * 2**-18)
            lacks = max(lacks, abs(received - whole.numpy()).max())
        self.assertGreater(lacks, 0.05)

    def test_int8_is_what_plain_loops_give(self):
        self.check_reference({"codec": "int8"}, int8_average)

    @unittest.skipUnless(shutil.which(COMPILER), f"{COMPILER} is not here: set CXX to a C++ compiler")
    def test_int8_is_that_of_stores(self):
        torch.manual_seed(1)
        blocks = torch.randn(5000, 64) ** 3 * torch.logspace(-42, 30, 5000).view(-1, 1)
        blocks[0] = 0
        blocks[1] = torch.arange(64) - 31.5  # halves, which are rounded to even numbers
        blocks[1, 0] = 127
        sources = pathlib.Path(__file__).parents[2]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "int8.cpp").write_text(STORES_INT8)
            blocks.numpy().tofile(folder / "floats")
            compiler = [COMPILER, "-std=c++20", "-I", sources, folder / "int8.cpp", "-o", folder / "int8"]
            subprocess.run(compiler, check=True, timeout=100)
            subprocess.run([folder / "int8", folder / "floats", folder / "bytes"], check=True, timeout=100)
            theirs = numpy.fromfile(folder / "bytes", numpy.int8)
        self.assertTrue((error_feedback.encoded(blocks).view(-1).numpy() == theirs).all())

    def test_top_is_what_plain_loops_give(self):
        self.check_reference({"codec": "top", "share": 0.1}, lambda memories: top_average(memories, 0.1))

    def test_of_equal_floats_the_first_are_the_largest(self):
        values = torch.tensor([1.0, -2, 0, 2, 2, math.nan, -1])
        self.assertEqual(sorted(error_feedback.largest(values, 3).tolist()), [1, 3, 5])
        self.assertEqual(sorted(error_feedback.largest(torch.zeros(5), 2).tolist()), [0, 1])

    def test_all_ranks_have_the_same_bits_in_each_run(self):
        for arguments in ({"codec": "int8"}, {"codec": "top"}):
            first, second = (run(3, averages, arguments) for _ in range(2))
            for got, _, _ in first + second:
                for step in range(STEPS):
                    self.assertTrue(same(got[step], first[0][0][step]))

    def test_a_checkpoint_has_what_is_withheld(self):
        """By "top" in one bucket: its numbers do not depend on the order of parameters, which DDP changes."""
        for ranks in (1, 3):
            whole, parts = (run(ranks, continued, {"codec": "top", "share": 0.5}, way) for way in (False, True))
            for (averages, withheld), (averages_of_parts, withheld_of_parts) in zip(whole, parts):
                self.assertTrue(same(averages, averages_of_parts))
                self.assertTrue(same(withheld, withheld_of_parts))

    def test_a_checkpoint_of_another_module_is_refused(self):
        state = gpusock.ErrorFeedback("int8")
        module, kept = Given((3, 4)), Given((3, 4))
        saved = state.state_dict(module)
        self.assertEqual(sorted(saved), ["rows.0", "rows.1"])
        for other, wanted in ((Given((3,)), "rows.1 is a parameter"), (Given((3, 5)), r"rows.1 has the shape \(5,\)")):
            with self.assertRaisesRegex(ValueError, wanted):
                state.load_state_dict(other, saved)
        state.load_state_dict(kept, {name: tensor + 2 for name, tensor in saved.items()})
        self.assertTrue(torch.equal(state.withheld(kept.rows[0]), torch.full((3,), 2.0)))
        self.assertTrue(torch.equal(state.withheld(module.rows[0]), torch.zeros(3)))

    def test_bytes(self):
        """Of 100,000 floats, and 5 % for messages' headers at most."""
        ours = lambda **arguments: lambda model: model.register_comm_hook(
            gpusock.ErrorFeedback(**arguments), gpusock.ddp_hook
        )
        for ranks in (2, 3):
            both_ways = 2 * (ranks - 1) / ranks * 100_000
            for name, register, expected in (
                ("none", lambda model: None, both_ways * 4),
                ("bf16", register_of("bf16_compress_hook"), both_ways * 2),
                ("int8", ours(codec="int8"), both_ways * 68 / 64),
                ("top", ours(codec="top", share=0.01), (ranks - 1) * 1000 * 8),
            ):
                sent = sum(run(ranks, bytes_of_steps, register)) / ranks
                with self.subTest(hook=name, ranks=ranks):
                    self.assertGreaterEqual(sent, expected)
                    self.assertLess(sent, expected * 1.05)

    def test_what_is_not_finite(self):
        for codec in ("int8", "top"):
            first, second = run(2, not_finite, codec)
            self.assertTrue((first == second).all())

    def test_gradients_of_16_bits(self):
        for dtype in (torch.bfloat16, torch.float16):
            run(2, half_precision, dtype)

    def test_a_lost_rank_ends_the_backward_pass(self):
        for codec in ("int8", "top"):
            for said in run(3, lose, codec, killed=(1,))[::2]:
                self.assertIn("lost rank 1", said)

    def test_refusals(self):
        run(2, refusals)

    @unittest.skipUnless(fashion.is_here(), fashion.MISSING)
    def test_fashion_mnist_is_learned_about_as_well(self):
        def learn(rank, arguments):
            return fashion.train(
                rank,
                register=lambda model: model.register_comm_hook(gpusock.ErrorFeedback(**arguments), gpusock.ddp_hook),
            )

        exact = run(2, fashion.train)[0][1]
        for arguments, loss in (({"codec": "int8"}, 0.01), ({"codec": "top", "share": 0.1}, 0.03)):
            self.assertGreater(run(2, learn, arguments)[0][1], exact - loss, arguments)


if __name__ == "__main__":
    unittest.main()
