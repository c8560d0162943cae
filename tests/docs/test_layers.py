#!/usr/bin/env python3
"""Promises of the folders' READMEs: a folder includes what its README allows, and nothing else; and no rooms include each other in a circle.

usage: test_layers.py SOURCE_FOLDER

A README says it in a paragraph "May include: ringbuf, gpusock/error.hpp": folders (their own files, not those of folders below) and
single files, or "nothing". (Files of the trainer and of the schedule lab name their own folders without the path to them.) A folder without such a README has the nearest one above it, and includes all below that one: they are one room. What a README
allows and no file includes is reported, too, and so are rooms that include each other in a circle.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import sys
import tempfile
import unittest

LAYERS = ("ringbuf", "plain_types", "socket_table", "cpu_device", "rdma", "host_proxy", "gpusock", "program", "param_sync", "apps", "tools", "examples", "microbench")
HOUSES = ("apps/param_sync", "tools/schedule_lab")  # their files name their own folders without the path to them
APP = HOUSES[0]
SOURCES = (".hpp", ".cpp", ".cuh", ".cu", ".inl", ".h")


def statement(readme):
    """What the README allows, or None if it says nothing of it."""
    found = re.search(r"^May include:(.*?)(?:\n\s*\n|\Z)", readme.read_text(), re.DOTALL | re.MULTILINE) if readme.exists() else None
    return None if found is None else set(re.split(r",\s*", found[1].strip().strip("."))) - {"nothing"}


def named(root, source, name):
    """The header that an include of `name` means."""
    for house in (root / house for house in HOUSES):
        if source.is_relative_to(house) and (house / name).is_file():
            return house / name
    return root / name


def included(source):
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', source.read_text(), re.MULTILINE)


def violations(root):
    """What is wrong in this tree, a line for each."""
    wrong = []
    used = {}  # README's folder: the entries that were needed
    for layer in LAYERS:
        for source in sorted(path for path in (root / layer).rglob("*") if path.suffix in SOURCES):
            folder = source.parent
            while (allowed := statement(folder / "README.md")) is None:
                if folder == root:
                    return wrong + [f"{source.relative_to(root)}: no README above it says what it may include"]
                folder = folder.parent
            needed = used.setdefault(folder, set())
            for name in included(source):
                header = named(root, source, name)
                if not header.is_file() or header.is_relative_to(folder) and statement_folder(header, root) == folder:
                    continue  # the system's, beside the source, or of the same README
                entry = next((entry for entry in (name, str(pathlib.PurePath(name).parent)) if entry in allowed), None)
                if entry is None:
                    wrong.append(f"{source.relative_to(root)} includes {name}, which {folder.relative_to(root)}/README.md does not allow")
                else:
                    needed.add(entry)
    for folder, needed in used.items():
        for entry in sorted(statement(folder / "README.md") - needed):
            wrong.append(f"{folder.relative_to(root)}/README.md allows {entry}, which nothing there includes")
    return wrong


def circles(root):
    """Rooms that include each other in a circle: for each the shortest way that leads back to it."""
    graph = {}  # room: the rooms that it includes
    for layer in LAYERS:
        for source in (path for path in (root / layer).rglob("*") if path.suffix in SOURCES):
            headers = (named(root, source, name) for name in included(source))
            graph.setdefault(statement_folder(source, root), set()).update(statement_folder(header, root) for header in headers if header.is_file())
    ways = (way_back(graph, room) for room in sorted(graph))
    return [" includes ".join(str(room.relative_to(root)) for room in way) for way in ways if way is not None]


def way_back(graph, start):
    """The shortest way from this room over others back to it, or None."""
    ways, seen = [[start]], set()
    for way in ways:  # grows
        for room in sorted(graph.get(way[-1], set()) - {way[-1]}):
            if room == start:
                return [*way, start]
            if room not in seen:
                seen.add(room)
                ways.append([*way, room])
    return None


def statement_folder(path, root):
    """The folder whose README speaks for this file."""
    folder = path.parent
    while folder != root and statement(folder / "README.md") is None:
        folder = folder.parent
    return folder


class Layers(unittest.TestCase):
    source = None

    def test_folders_include_what_their_readmes_allow(self):
        self.assertEqual(violations(self.source), [])

    def test_no_rooms_include_each_other_in_a_circle(self):
        self.assertEqual(circles(self.source), [])

    def test_a_planted_circle_is_found_though_each_include_is_allowed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"gpusock/README.md": "May include: host_proxy\n", "gpusock/net.hpp": '#include "gpusock/detail/side.hpp"\n', "gpusock/endpoint.hpp": "",
                               "gpusock/detail/side.hpp": '#include "gpusock/endpoint.hpp"\n#include "host_proxy/table.hpp"\n',
                               "host_proxy/README.md": "May include: gpusock\n", "host_proxy/table.hpp": ""}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(circles(root), [])  # gpusock/detail, which has no README, is in the room gpusock
            (root / "host_proxy/table.hpp").write_text('#include "gpusock/endpoint.hpp"\n')
            self.assertEqual(violations(root), [])
            self.assertEqual(circles(root), ["gpusock includes host_proxy includes gpusock", "host_proxy includes gpusock includes host_proxy"])

    def test_a_planted_include_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"ringbuf/README.md": "May include: nothing\n", "ringbuf/ring.hpp": "#include <cstdint>\n",
                               "rdma/README.md": "# rdma\n\nMay include: ringbuf\n", "rdma/device.hpp": '#include "ringbuf/ring.hpp"\n'}.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(violations(root), [])
            (root / "ringbuf/ring.hpp").write_text('#include "rdma/device.hpp"\n')
            self.assertEqual(violations(root), ["ringbuf/ring.hpp includes rdma/device.hpp, which ringbuf/README.md does not allow"])
            (root / "ringbuf/ring.hpp").write_text("")
            rooms = root / APP
            for name, text in {"README.md": "May include: nothing\n", "data/README.md": "May include: nothing\n", "data/idx.hpp": "",
                               "runs/README.md": "May include: nothing\n", "runs/cluster.cpp": '#include "data/idx.hpp"\n'}.items():
                (rooms / name).parent.mkdir(parents=True, exist_ok=True)
                (rooms / name).write_text(text)
            self.assertEqual(violations(root), [f"{APP}/runs/cluster.cpp includes data/idx.hpp, which {APP}/runs/README.md does not allow"])
            (rooms / "runs/cluster.cpp").write_text("")
            (root / "rdma/device.hpp").write_text("")
            self.assertEqual(violations(root), ["rdma/README.md allows ringbuf, which nothing there includes"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Layers.source = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
