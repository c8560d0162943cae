"""PyTorch's tests of its back end Gloo, on gpusock.

usage: C10D_TESTS=FOLDER [BACKEND=gpusock] python -m pytest --junitxml RESULTS pytorch_c10d_gloo.py

FOLDER is test/distributed of PyTorch's source, which its wheels lack: test_c10d_gloo.py and test_c10d_common.py are read
there. Each name of Gloo in the tests' text is replaced. BACKEND=gloo runs them as they are, to compare.
"""

import os
import pathlib
import sys
import types
from datetime import timedelta

import gpusock
from torch import multiprocessing
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.common_utils import TestCase

folder = pathlib.Path(os.environ["C10D_TESTS"])
NAME = "test_c10d_gloo"
backend = os.environ.get("BACKEND", "gpusock")
gpusock.register()


class ProcessGroup:
    """Stands for torch.distributed.ProcessGroupGloo, which the tests make by themselves."""

    _Options = types.SimpleNamespace

    def __new__(cls, store, rank, size, options):
        return gpusock._make(
            types.SimpleNamespace(
                store=store,
                group_rank=rank,
                group_size=size,
                timeout=timedelta(seconds=options._timeout),
                global_ranks_in_group=range(size),
            ),
            None,
        )


def start_processes(self):
    # Forked: processes that are spawned import PyTorch each, for ten seconds a test.
    self._start_processes(multiprocessing.get_context("fork").Process)


MultiProcessTestCase._spawn_processes = start_processes
sys.path.insert(0, str(folder))
path = folder / f"{NAME}.py"
text = path.read_text()
if backend != "gloo":
    for theirs, ours in (
        ('"gloo"', f'"{backend}"'),
        ("c10d.ProcessGroupGloo", "ProcessGroup"),
        ("backend.create_device(interface=LOOPBACK)", "None"),  # Gloo's own: which network it takes
    ):
        text = text.replace(theirs, ours)
tests = sys.modules[NAME] = types.ModuleType(NAME)
tests.__file__ = str(path)
tests.__dict__["ProcessGroup"] = ProcessGroup
exec(compile(text, path, "exec"), tests.__dict__)

globals().update(
    {
        name: case
        for name, case in tests.__dict__.items()
        if isinstance(case, type) and issubclass(case, TestCase) and case.__module__ == NAME
    }
)
