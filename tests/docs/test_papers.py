#!/usr/bin/env python3
"""Promises of docs/papers.md: each row names files that exist and a command whose program takes its options, or says "not yet".

usage: test_papers.py SOURCE_FOLDER BUILD_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import functools
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from commands import LIMIT_S

PROGRAMS = {"param_sync": "apps/param_sync/param_sync", "gpusock-bench": "microbench/gpusock-bench", "http_server": "examples/http_server",
            "sparse_regression": "examples/sparse_regression", "matrix_completion": "examples/matrix_completion",
            "graph_programs": "examples/graph_programs", "scheduled_lasso": "examples/scheduled_lasso",
            "split_layer": "examples/split_layer", "coded_transfer": "examples/coded_transfer"}
ROW = re.compile(r"^\| (.*) \|(.*)\|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)")


def rows(text):
    """What is here, the files and the command of each row."""
    found = [tuple(cell.strip() for cell in row) for row in ROW.findall(text)]
    return [row for row in found if row[0] != "paper or system" and not row[0].startswith("---")]


@functools.cache
def help_of(*command):
    return subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout


def faults_of_command(command, source, build):
    words = command.strip("`").split()
    if words[0] == "./run":
        known = (source / "run").read_text().split(") ;;")[0]
        return [] if re.search(rf"\b{words[1]}\b", known) else [f"./run {words[1]} is no command"]
    if words[0] not in PROGRAMS:
        return [f"{words[0]} is no program of ours"]
    part = words[1:2] if len(words) > 1 and not words[1].startswith("-") else []
    text = help_of(str(build / PROGRAMS[words[0]]), *part)
    faults = [f"{words[0]} takes no {word}" for word in words if word.startswith("--") and not re.search(rf"^ +{word}\b", text, re.MULTILINE)]
    if "--scheme" in words and not re.search(rf"[ ,{{]{words[words.index('--scheme') + 1]}[,:;)}}]", text):
        faults.append(f"{words[0]} knows no such scheme: {command}")
    return faults


def faults_of(row, source, build):
    name, here, files, command, _ = row
    links = LINK.findall(files)
    missing = [f"{name}: there is no {link}" for link in links if not (source / "docs" / link).exists()]
    if not command:
        return missing if re.match("not (yet|built)", here) else [*missing, f"{name}: neither a command nor 'not yet'"]
    if not links:
        missing.append(f"{name}: names no file")
    return missing + [f"{name}: {fault}" for fault in faults_of_command(command, source, build)]


class Papers(unittest.TestCase):
    source = build = None

    def faults(self, text):
        return [fault for row in rows(text) for fault in faults_of(row, self.source, self.build)]

    def test_files_and_commands_exist(self):
        text = (self.source / "docs" / "papers.md").read_text()
        self.assertGreater(len(rows(text)), 20)
        self.assertEqual(self.faults(text), [])

    def test_planted_faults_are_found(self):
        planted = ("| a | here | [x](no.cpp) | `param_sync --nodes 4` | |\n"
                   "| b | here | [x](guide.md) | `param_sync schedule --fly` | |\n"
                   "| c | here | [x](guide.md) | `param_sync schedule --scheme fly` | |\n"
                   "| d | here | | | |\n"
                   "| e | here | [x](guide.md) | `./run fly` | |\n"
                   "| f | not yet | | | |\n")
        self.assertEqual([fault[0] for fault in self.faults(planted)], ["a", "b", "c", "d", "e"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Papers.source, Papers.build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
