"""Promises for type checkers: the package says that it has types, the .pyi files have what the C++ modules have, and no
more, a checker sees what is wrong in a program."""

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
import torch  # whose libraries the first of these modules needs
from gpusock import _gpusock, _sockets

FOLDER = pathlib.Path(gpusock.__file__).parent
PROGRAM = textwrap.dedent("""
    import gpusock
    import numpy
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

    with gpusock.Context(timeout=None) as context, context.listen(("127.0.0.1", 0)) as listener:
        peer: gpusock.Socket = context.connect(listener.address, timeout=3)
        peer.sendall(numpy.ones(3))
        received: int = peer.recv_into(torch.ones(3))
        for ready, events in context.poll([listener, (peer, 4)]):
            ready.close()
    gpusock.Context(None)           # wrong
    context.connect(3)              # wrong
    peer.send("text")               # wrong
    peer.accept()                   # wrong
    gpusock.Socket.made()           # wrong
""")


def declarations(module):
    """What the .pyi file of a C++ module declares."""
    return ast.parse((FOLDER / (module.__name__.split(".")[1] + ".pyi")).read_text()).body


def declared_class(module, name):
    [found] = (node for node in declarations(module) if isinstance(node, ast.ClassDef) and node.name == name)
    return found


class Types(unittest.TestCase):
    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((FOLDER / "py.typed").exists())

    def test_all_public_names_are_there(self):
        for name in gpusock.__all__:
            self.assertTrue(callable(getattr(gpusock, name)), name)

    def functions_match(self, nodes, of):
        """Declared functions, and properties, have the arguments of those of a C++ module or class."""
        for node in nodes:
            if not isinstance(node, ast.FunctionDef) or node.name == "__exit__":  # whose arguments nobody names
                continue
            arguments = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            is_property = any(isinstance(name, ast.Name) and name.id == "property" for name in node.decorator_list)
            self.assertEqual(is_property, isinstance(vars(of)[node.name], property), node.name)
            if not is_property:
                said = getattr(of, node.name).__doc__.split("->")[0]  # pybind11: name(one: type, other: type) -> type
                self.assertEqual(arguments, re.findall(r"[(,] ?(\w+):", said), node.name)

    def test_the_declarations_are_those_of_the_modules(self):
        for module in (_gpusock, _sockets):
            declared = declarations(module)
            named = {node.name: node for node in declared if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            public = {name for name in named if not name.startswith("_")}
            self.assertEqual(public, {name for name in dir(module) if not name.startswith("__")})
            self.functions_match(declared, module)
        members = {node.target.id for node in declared_class(_gpusock, "Options").body if isinstance(node, ast.AnnAssign)}
        self.assertEqual(members, {name for name in vars(_gpusock.Options) if not name.startswith("_")})
        for name in ("Context", "Socket", "Listener"):
            body, of = declared_class(_sockets, name).body, getattr(_sockets, name)
            self.functions_match(body, of)
            members = {node.name for node in body if isinstance(node, ast.FunctionDef)}
            self.assertEqual(
                {member for member in members if not member.startswith("_")},
                {member for member in vars(of) if not member.startswith("_")},
            )

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
