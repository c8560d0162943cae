#!/usr/bin/env python3
"""The example sparse_regression: what its filter saves, and that it changes nothing.

usage: test_sparse_regression.py SPARSE_REGRESSION

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402


class SparseRegression(unittest.TestCase):
    def outcome(self, *options):
        """The objective, how many weights are not 0, and which shares of gradients and of bytes were pushed."""
        done = subprocess.run([self.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = re.fullmatch(r"objective (\S+), (\d+) of 2000 weights are not 0\npushed (\S+) % of all gradients, (\S+) % of the bytes\n", done.stdout)
        self.assertTrue(found, done.stdout)
        return [float(number) for number in found.groups()]

    def test_the_filter_saves_pushes_and_changes_nothing(self):
        objective, weights, _, _ = self.outcome("--filter", 0)
        filtered = self.outcome()
        self.assertLess(abs(filtered[0] / objective - 1), 1e-3)
        self.assertLess(abs(filtered[1] - weights), 0.2 * weights)
        self.assertLess(filtered[2], 5)
        self.assertLess(filtered[3], 10)

    def test_ranks_need_not_wait_for_each_other(self):
        objective = self.outcome()[0]
        for clock in ("ssp:2", "async"):
            self.assertLess(abs(self.outcome("--clock", clock)[0] / objective - 1), 1e-3, clock)

    def test_one_rank_is_enough(self):
        self.assertLess(abs(self.outcome("--ranks", 1)[0] / self.outcome()[0] - 1), 1e-3)

    def test_misuse_is_refused(self):
        for options, said in ((("--clock", "ssp"), "'ssp' is none of"), (("--ranks", 0), "--ranks"), (("--filter", 2), "--filter")):
            done = subprocess.run([self.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)


def take_program(path):
    SparseRegression.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
