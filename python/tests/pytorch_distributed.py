"""PyTorch's own tests of torch.distributed, with the back end gpusock.

usage: [WORLD_SIZE=3] [BACKEND=gpusock] [AS_GLOO=1] python -m pytest --junitxml RESULTS pytorch_distributed.py

The tests are those of the PyTorch that is installed: torch.testing._internal.distributed.distributed_test. BACKEND=gloo
runs them with Gloo, to compare. Many tests name the back ends that they are for; AS_GLOO=1 runs those for Gloo, too:
the name is replaced in the tests' text.
"""
import importlib.util
import os
import pathlib
import sys
import tempfile
import types

import gpusock
from torch import multiprocessing
from torch.testing._internal.common_distributed import DistTestCases

NAME = "torch.testing._internal.distributed.distributed_test"

os.environ.setdefault("BACKEND", "gpusock")
os.environ.setdefault("WORLD_SIZE", "3")
# Processes of a test meet at files of this folder.
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="gpusock-pytorch-"))
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

gpusock.register()
for feature in ("ddp", "subgroup", "gpu") if os.environ.get("AS_GLOO") else ("ddp", "subgroup"):
    DistTestCases.backend_feature[feature].add("gpusock")

if os.environ.get("AS_GLOO"):
    path = pathlib.Path(importlib.util.find_spec(NAME).origin)
    tests = sys.modules[NAME] = types.ModuleType(NAME)
    tests.__file__ = str(path)
    text = path.read_text().replace('"gloo"', '"gpusock"').replace("dist.Backend.GLOO", '"gpusock"')
    exec(compile(text, path, "exec"), tests.__dict__)
else:
    tests = importlib.import_module(NAME)


class TestGpusock(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Forked: processes that are spawned import PyTorch each, for ten seconds a test.
        self._start_processes(multiprocessing.get_context("fork").Process)
