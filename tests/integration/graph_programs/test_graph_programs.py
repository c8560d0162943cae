#!/usr/bin/env python3
"""The example graph_programs: in parallel vertices become what they become one after the other, if colours keep them apart.

usage: test_graph_programs.py GRAPH_PROGRAMS

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402

OUTPUT = re.compile(r"(\w+): (\d+) vertices, (\d+) edges, (\d+) colours, (\d+) sweeps on (\d+) ranks\n"
                    r"(\d+) conflicts; (exactly|not) what one update after the other gives\n.*: (\S+) \(serially (\S+)\)\n")
NEEDS = {"pagerank": "edge", "gibbs": "edge", "kaczmarz": "full"}
SMALL = ("--vertices", 300)


class GraphPrograms(unittest.TestCase):
    def run_with(self, *options):
        return subprocess.run([self.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def outcome(self, *options):
        """Colours, conflicts, whether all is as serially, and the two errors."""
        done = self.run_with(*SMALL, *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        found = OUTPUT.fullmatch(done.stdout)
        self.assertTrue(found, done.stdout)
        return int(found[4]), int(found[7]), found[8] == "exactly", float(found[9]), float(found[10])

    def test_parallel_is_as_serial(self):
        for program in NEEDS:
            errors = set()
            for ranks, threads in ((1, 1), (3, 1), (4, 7)):
                _, conflicts, equal, error, serial = self.outcome("--program", program, "--ranks", ranks, "--threads", threads)
                self.assertEqual((conflicts, equal, error), (0, True, serial), (program, ranks, threads))
                errors.add(error)
            self.assertEqual(len(errors), 1, program)

    def test_each_program_solves_its_problem(self):
        self.assertLess(self.outcome("--program", "pagerank", "--sweeps", 60)[3], 1e-4)
        self.assertGreater(self.outcome("--program", "pagerank", "--sweeps", 1)[3], 1e-2)
        self.assertLess(self.outcome("--program", "gibbs")[3], -0.4)
        self.assertLess(self.outcome("--program", "kaczmarz")[3], 1e-5)

    def test_updates_that_meet_are_counted(self):
        """With fewer colours than a program needs all or most updates meet others. Samples are then wrong, and projections grow without limit."""
        colours, conflicts, equal, error, serial = self.outcome("--program", "gibbs", "--consistency", "vertex", "--sweeps", 20)
        self.assertEqual((colours, conflicts, equal), (1, 300 * 20, False))
        self.assertGreater(error, 0.9)  # all are alike
        self.assertLess(serial, -0.4)
        for consistency in ("vertex", "edge"):
            _, conflicts, equal, error, serial = self.outcome("--program", "kaczmarz", "--consistency", consistency)
            self.assertGreater(conflicts, 300 * 20 / 2)
            self.assertFalse(equal)
            self.assertFalse(error < 1, "they have not converged")
            self.assertLess(serial, 1e-5)

    def test_more_consistency_takes_more_colours(self):
        by = {consistency: self.outcome("--consistency", consistency) for consistency in ("vertex", "edge", "full")}
        self.assertEqual(by["vertex"][0], 1)
        self.assertLess(by["edge"][0], by["full"][0])
        self.assertEqual([found[1] == 0 for found in by.values()], [False, True, True])

    def test_a_circle_has_two_or_three_colours(self):
        for vertices, colours in ((10, 2), (11, 3)):
            self.assertEqual(self.outcome("--vertices", vertices, "--edges", 0)[:3], (colours, 0, True))

    def test_wrong_options_are_refused(self):
        for options, said in ((("--program", "colour"), "--program"), (("--consistency", "none"), "--consistency"), (("--vertices", 2), "--vertices")):
            done = self.run_with(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""), options)
            self.assertIn(said, done.stderr)


def take_program(path):
    GraphPrograms.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
