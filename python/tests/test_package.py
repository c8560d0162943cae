"""Promises of the installed package: nothing to import, torchrun, groups of PyTorch's, and ends of programs."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
import torch.distributed as dist

from processes import run


def program(text, *arguments, command=(sys.executable,), launcher=(), environment={}, seconds=120):
    """Runs a Python program, and returns its exit status and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        done = subprocess.run(
            [*command, *launcher, path, *arguments, os.path.join(folder, "store")],
            text=True,
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
    return done.returncode, done.stdout + done.stderr


def sub_groups(rank):
    """Groups of neighbours, each with its own operations, and a mesh of two by two."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank // 2]
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mine)
    assert tensor == (1 if rank < 2 else 5), tensor
    dist.broadcast(tensor, rank // 2 * 2 + 1, group=mine)
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mesh.get_group("columns"))
    dist.all_reduce(tensor, group=mesh.get_group("rows"))
    assert tensor == 6, tensor


def functional(rank):
    """Operations as torch.compile and DTensor call them."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    ranks = dist.get_world_size()
    assert torch.equal(functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD), torch.full((3,), float(ranks)))
    assert torch.equal(
        functional.reduce_scatter_tensor(torch.ones(ranks * 2), "sum", 0, dist.group.WORLD),
        torch.full((2,), float(ranks)),
    )
    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.arange(ranks * 6.0).reshape(ranks * 2, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert isinstance(sharded, DTensor)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    assert torch.equal((sharded @ sharded.redistribute(mesh, [Replicate()]).T).full_tensor(), whole @ whole.T)


def fork(rank):
    """Workers of a loader, and a child that destroys what it has of its parent's group, beside the group's threads."""
    dist.all_reduce(torch.ones(1))
    samples = torch.utils.data.TensorDataset(torch.arange(64.0))
    for _ in range(2):
        total = sum(batch[0].sum() for batch in torch.utils.data.DataLoader(samples, batch_size=8, num_workers=2))
        dist.all_reduce(total)
        assert total == 2016 * dist.get_world_size(), total
    child = os.fork()
    if child == 0:
        dist.destroy_process_group()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == dist.get_world_size(), tensor


class Package(unittest.TestCase):
    def test_nothing_is_to_be_imported(self):
        status, said = program("""
            import sys
            import torch.distributed as dist
            dist.init_process_group("gpusock", init_method="file://" + sys.argv[-1], rank=0, world_size=1)
            print("back end", dist.get_backend())
            dist.destroy_process_group()
        """)
        self.assertEqual(status, 0, said)
        self.assertIn("back end gpusock", said)

    def test_another_pytorch_than_it_was_built_with_is_refused(self):
        """Here the version is all that differs. With another C++ interface the program could crash."""
        text = """
            import sys, torch
            torch.__version__ = "2.14.1+cpu"
            import gpusock
            import torch.distributed as dist
            for call in (lambda: gpusock.Options, lambda: gpusock.abort, lambda: gpusock.traffic(object())):
                try:
                    call()
                except ImportError as error:
                    assert "and here is PyTorch 2.14.1: pip install torch==" in str(error), error
                else:
                    raise SystemExit("it is not refused")
            assert "gpusock._gpusock" not in sys.modules
            context = gpusock.Context(timeout=1)  # sockets need no PyTorch
            dist.init_process_group("gpusock", init_method="file://" + sys.argv[-1], rank=0, world_size=1)
        """
        status, said = program(text)
        self.assertEqual(status, 1, said)
        self.assertRegex(said.splitlines()[-1], r"^ImportError: gpusock: this package was built with PyTorch 2\.\d+")

    def test_a_build_for_gpus_and_one_for_the_cpu_are_the_same_version(self):
        status, said = program("""
            import sys, torch, gpusock
            torch.__version__ = torch.__version__.partition("+")[0] + "+cpu"
            print("options", gpusock.Options().deterministic)
        """)
        self.assertEqual(status, 0, said)
        self.assertIn("options False", said)

    def test_torchrun(self):
        status, said = program(
            """
            import torch, torch.distributed as dist
            dist.init_process_group("gpusock")
            tensor = torch.tensor([dist.get_rank() + 1])
            dist.all_reduce(tensor)
            print(f"rank {dist.get_rank()}: {tensor.item()}")
        """,
            launcher=("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"),
        )
        self.assertEqual(status, 0, said)
        for rank in (0, 1):
            self.assertIn(f"rank {rank}: 3", said)

    def test_a_program_that_destroys_nothing_ends(self):
        status, said = program("""
            import sys, torch, torch.distributed as dist
            dist.init_process_group("gpusock", init_method="file://" + sys.argv[-1], rank=0, world_size=1)
            work = dist.all_reduce(torch.ones(3), async_op=True)
            work.get_future().then(lambda future: print("done", future.value()[0][0].item()))
        """)
        self.assertEqual(status, 0, said)
        self.assertIn("done 1.0", said)

    def test_a_program_that_nobody_answers_ends(self):
        status, said = program(
            """
            import sys, threading, torch, torch.distributed as dist
            if dist.is_available() and len(sys.argv) == 2:
                import subprocess
                other = subprocess.Popen([sys.executable, *sys.argv, "1"])
            rank = len(sys.argv) - 2
            dist.init_process_group("gpusock", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
            dist.barrier()
            if rank == 0:
                dist.all_reduce(torch.ones(3), async_op=True)   # the other one has no such call
                print("ends")
            else:
                import time
                time.sleep(20)
        """,
            seconds=60,
        )
        self.assertEqual(status, 0, said)
        self.assertIn("ends", said)

    def test_two_hosts(self):
        """Namespaces: ranks share no memory and no loopback, and find each other, and a secret, by the store alone."""
        cluster = pathlib.Path(__file__).parents[2] / "run"
        status, said = program(
            """
            import os, torch, torch.distributed as dist
            rank = int(os.environ["GPUSOCK_RANK"])
            for name in ("SECRET", "RANK", "SIZE", "PEERS"):
                del os.environ["GPUSOCK_" + name]
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="10.78.0.1", MASTER_PORT="29500")
            dist.init_process_group("gpusock")
            sums = torch.full((100_000,), rank + 1.0)
            dist.all_reduce(sums)
            message = torch.zeros(3)
            dist.send(torch.full((3,), 7.0), 1) if rank == 0 else dist.recv(message, 0)
            print(f"rank {rank}: {sums[-1].item()} {message[0].item()}", flush=True)
            dist.destroy_process_group()
            """,
            command=(str(cluster), "--yes", "cluster", "2", "--", sys.executable),
        )
        if status == 77:
            self.skipTest("no network namespaces here")
        self.assertEqual(status, 0, said)
        self.assertIn("rank 0: 3.0 0.0", said)
        self.assertIn("rank 1: 3.0 7.0", said)

    def test_sub_groups_and_meshes(self):
        run(4, sub_groups)

    def test_processes_that_are_forked(self):
        run(2, fork)

    def test_operations_of_compiled_programs_and_of_distributed_tensors(self):
        for ranks in (1, 2, 3):
            run(ranks, functional)

    def test_debug_mode(self):
        status, said = program(
            """
            import sys, torch, torch.distributed as dist
            dist.init_process_group("gpusock", init_method="file://" + sys.argv[-1], rank=0, world_size=1)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            print("sum", tensor[0].item())
            dist.destroy_process_group()
        """,
            environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        )
        self.assertEqual(status, 0, said)
        self.assertIn("sum 1.0", said)


if __name__ == "__main__":
    unittest.main()
