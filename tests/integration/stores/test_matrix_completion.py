#!/usr/bin/env python3
"""The example matrix_completion: what it learns, without locks and without waiting, and what keys cost.

usage: test_matrix_completion.py MATRIX_COMPLETION

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import functools
import json
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402

SERIAL = ("--ranks", 1, "--blocks", 1, "--threads", 1)
FOUR_RANKS = ("--threads", 8)
REQUEST_BYTES, KEY_BYTES, FACTOR_BYTES = 24, 8, 4
FACTORS, ALL_RATINGS = 4, 100_000  # of each row; in a batch
OUTPUT = re.compile(r"RMSE (\S+) of the ratings to learn from, (\S+) of others \(noise: 0\.1000\)\n"
                    r"\S+ s; (\d+) rows were pulled and pushed\n"
                    r"pulled (\d+) bytes, pushed (\d+); keys, with the requests, are (\d+) of these \((\S+) %\)\n")


class Outcome:
    def __init__(self, texts):
        self.training, self.test = map(float, texts[:2])
        self.rows, self.pulled, self.pushed, self.named = map(int, texts[2:6])
        self.share = float(texts[6])


class MatrixCompletion(unittest.TestCase):
    @classmethod
    @functools.cache
    def run_with(cls, *options):
        return subprocess.run([cls.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def outcome(self, *options):
        done = self.run_with(*options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        found = OUTPUT.fullmatch(done.stdout)
        self.assertTrue(found, done.stdout)
        return Outcome(found.groups())

    def assert_as_serial(self, *options):
        serial, found = self.outcome(*SERIAL), self.outcome(*options)
        self.assertLess(abs(found.test / serial.test - 1), 0.01, options)
        self.assertLess(abs(found.training / serial.training - 1), 0.01, options)

    def test_what_it_predicts_is_near_the_truth(self):
        found = self.outcome(*SERIAL)
        self.assertLess(found.test, 1.1 * 0.1)     # the noise is 0.1
        self.assertGreater(found.test, 0.1)        # nothing predicts the noise
        self.assertLess(found.training, found.test)

    def test_it_predicts_nothing_if_it_does_not_learn(self):
        self.assertGreater(self.outcome("--ranks", 1, "--lr", 1e-6, "--epochs", 1).test, 0.9)

    def test_threads_need_no_locks(self):
        self.assert_as_serial("--ranks", 1, "--blocks", 4, "--threads", 8)
        self.assert_as_serial("--ranks", 1, "--blocks", 4, "--threads", 8, "--locks")

    def test_ranks_share_items_and_need_not_wait_for_each_other(self):
        for clock in ("bsp", "ssp:2"):
            self.assert_as_serial(*FOUR_RANKS, "--clock", clock)
        # It is as good as the others if ranks have about the same speed. Without a bound, one that is late moves items
        # when the others have ended: with four ranks one after the other it is 0.28, and without learning 1.
        self.assertLess(self.outcome(*FOUR_RANKS, "--clock", "async").test, 0.4)

    def test_a_push_does_not_send_the_keys_of_its_pull_again(self):
        found, requests = self.outcome(*FOUR_RANKS, "--clock", "bsp"), 4 * 4 * 20 * 30  # ranks, owners, epochs and batches of each one
        rows_bytes = FACTORS * FACTOR_BYTES * found.rows
        self.assertEqual(found.pushed, requests * REQUEST_BYTES + rows_bytes)
        self.assertEqual(found.named, 2 * requests * REQUEST_BYTES + KEY_BYTES * found.rows)
        self.assertAlmostEqual(found.share, 100 * found.named / (found.pulled + found.pushed), delta=0.06)

    def test_keys_are_sent_once_if_all_steps_name_the_same(self):
        one, three = (self.outcome("--ranks", 1, "--batch", ALL_RATINGS, "--epochs", epochs) for epochs in (1, 3))
        self.assertEqual(three.rows, 3 * one.rows)
        self.assertEqual(one.named, 2 * REQUEST_BYTES + KEY_BYTES * one.rows)
        self.assertEqual(three.named, 6 * REQUEST_BYTES + KEY_BYTES * one.rows)

    def test_json_has_each_epoch_and_nothing_else_is_printed(self):
        done = self.run_with(*SERIAL, "--epochs", 3, "--json")
        found, said = json.loads(done.stdout), OUTPUT.fullmatch(done.stderr)
        self.assertEqual([len(values) for values in found["epochs"].values()], [3, 3])
        self.assertEqual(sorted(found["epochs"]["test_rmse"], reverse=True), found["epochs"]["test_rmse"])
        self.assertEqual(found["epochs"]["test_rmse"][-1], found["test_rmse"])  # one rank has read all
        self.assertAlmostEqual(found["training_rmse"], float(said[1]), delta=1e-4)
        self.assertEqual(found["ratings"], 54_000)

    def test_a_rank_that_sleeps_learns_the_same(self):
        sleeps = self.outcome(*SERIAL, "--epochs", 1, "--batch", 20_000, "--delay-ms", 3)
        self.assertEqual(vars(sleeps), vars(self.outcome(*SERIAL, "--epochs", 1, "--batch", 20_000)))

    def test_misuse_is_refused(self):
        for options, said in ((("--clock", "ssp"), "--clock: 'ssp' is none of"), (("--ranks", 0), "--ranks: "), (("--factors", 65), "--factors: "),
                              (("--lr", 0), "--lr: ")):
            done = self.run_with(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertTrue(done.stderr.startswith(said), done.stderr)

    def test_it_says_why_it_learns_nothing(self):
        done = self.run_with("--ranks", 1, "--lr", 10, "--epochs", 1)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "matrix_completion: the factors have grown without limit: take a smaller --lr or --batch\n")


def take_program(path):
    MatrixCompletion.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
