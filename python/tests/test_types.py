"""Promises for type checkers: the package says that it has types, the stub has what the C++ module has, and no more, a
checker sees what is wrong in a program."""

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import gpusock
from gpusock import _gpusock

FOLDER = pathlib.Path(gpusock.__file__).parent
PROGRAM = textwrap.dedent("""
    import gpusock
    import torch
    import torch.distributed as dist

    options = gpusock.Options()
    options.deterministic = True
    dist.init_process_group("gpusock", pg_options=options)
    state = gpusock.ErrorFeedback("top", share=0.1)
    left: torch.Tensor = state.withheld(torch.ones(1))
    sent: int = gpusock.traffic().sent
    gpusock.Options(3)              # wrong
    gpusock.ErrorFeedback(1)        # wrong
    options.deterministic = "yes"   # wrong
    gpusock.nothing                 # wrong
""")


class Types(unittest.TestCase):
    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((FOLDER / "py.typed").exists())

    def test_all_public_names_are_there(self):
        for name in gpusock.__all__:
            self.assertTrue(callable(getattr(gpusock, name)), name)

    def test_the_stub_is_of_the_module(self):
        stub = ast.parse((FOLDER / "_gpusock.pyi").read_text()).body
        named = {node.name: node for node in stub if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.assertEqual(set(named), {name for name in dir(_gpusock) if not name.startswith("__")})
        for name, node in named.items():
            if isinstance(node, ast.FunctionDef):
                arguments = [argument.arg for argument in node.args.args]
                said = getattr(_gpusock, name).__doc__.split("->")[0]  # pybind11: name(one: type, other: type) -> type
                self.assertEqual(arguments, re.findall(r"[(,] ?(\w+):", said), name)
        members = {node.target.id for node in named["Options"].body if isinstance(node, ast.AnnAssign)}
        self.assertEqual(members, {name for name in vars(_gpusock.Options) if not name.startswith("_")})

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not here: pip install mypy")
    def test_a_checker_sees_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.py"
            path.write_text(PROGRAM)
            command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", folder, path]
            # A package in PYTHONPATH is no installed one for mypy.
            environment = {**os.environ, "MYPYPATH": str(FOLDER.parent) if "PYTHONPATH" in os.environ else ""}
            said = subprocess.run(command, text=True, capture_output=True, timeout=120, env=environment).stdout
        found = [int(line) for line in re.findall(r"program.py:(\d+): error", said)]
        wrong = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line]
        self.assertEqual(found, wrong, said)


if __name__ == "__main__":
    unittest.main()
