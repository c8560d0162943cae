#!/usr/bin/env python3
"""The example sparse_regression: what its filter saves, and that it changes nothing.

usage: test_sparse_regression.py SPARSE_REGRESSION

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402


class SparseRegression(unittest.TestCase):
    def run_with(self, *options):
        return subprocess.run([self.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def outcome(self, *options):
        """The objective, how many weights are not 0, and which shares of gradients and of bytes were pushed."""
        done = self.run_with(*options)
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

    def test_samples_of_a_file_are_as_good_as_those_that_it_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/samples.svm"
            written, read, other = (self.run_with("--steps", 20, *options).stdout for options in (("--write", file), ("--data", file), ("--seed", 2)))
        self.assertEqual(read, written)
        self.assertNotEqual(other, written)

    def test_it_learns_from_a_file_with_fewer_samples_than_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            (file := pathlib.Path(folder) / "samples.svm").write_text("# by hand\n+1 2:1\n0 2:-1 7:1\n")
            done = self.run_with("--data", file, "--lr", 1, "--l1", 0.1)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # The loss is log(1 + exp(-w)) and w / 10, with w in the second weight alone, whose minimum is at exp(w) = 9.
        self.assertRegex(done.stdout, r"^objective 0\.325083, 1 of 7 weights are not 0\n")

    def test_a_malformed_file_is_refused_with_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            (file := pathlib.Path(folder) / "samples.svm").write_text("1 1:1\n1 1\n")
            done = self.run_with("--data", file)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (1, "", f"sparse_regression: {file}, line 2: '1' has no colon: index:value is needed\n"))
            self.assertEqual(self.run_with("--data", f"{folder}/none").stderr,
                             f"sparse_regression: cannot open {folder}/none: name a file that this user may read\n")

    def test_json_has_the_objective_of_each_step(self):
        done = self.run_with("--steps", 30, "--json")
        objectives = json.loads(done.stdout)["objectives"]
        self.assertEqual((len(objectives), objectives), (31, sorted(objectives, reverse=True)))
        self.assertAlmostEqual(objectives[0], 0.693147, delta=1e-6)  # log(2): all weights are 0
        self.assertRegex(done.stderr, f"^objective {objectives[-1]:.6f}, ")

    def test_it_says_why_it_learns_nothing(self):
        done = self.run_with("--lr", 1e5, "--steps", 20)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "sparse_regression: the loss grows: take a smaller --lr\n"))

    def test_misuse_is_refused(self):
        for options, said in ((("--clock", "ssp"), "'ssp' is none of"), (("--ranks", 0), "--ranks"), (("--filter", 2), "--filter"),
                              (("--data", "x", "--seed", 2), "do not go with --data")):
            done = self.run_with(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)


def take_program(path):
    SparseRegression.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
