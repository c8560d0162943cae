#!/usr/bin/env python3
"""Promises of examples/all_to_all: ranks in one process, ranks in processes of their own, and ranks that do not come.

usage: test_all_to_all.py ALL_TO_ALL

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import os
import pathlib
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "support")]
from addresses import own_addresses  # noqa: E402
from server import LIMIT_S, kernel_lines, main, run  # noqa: E402


class AllToAll(unittest.TestCase):
    program = ""

    def test_its_socket_kernels_are_half_as_long_as_without_exchange_cuh(self):
        ours = kernel_lines("examples/all_to_all.cu", {"meet_all", "exchange_all"})
        plain = kernel_lines("tests/unit/io/plain_all_to_all.cuh")
        self.assertGreater(ours, 0)
        self.assertLessEqual(2 * ours, plain, f"{ours} lines, and {plain} without")

    def test_all_ranks_of_one_process_get_what_was_sent_to_them(self):
        for ranks, size in ((1, "64K"), (2, "8"), (3, "40K"), (5, "16392")):
            with self.subTest(ranks=ranks, size=size):
                done = run(self.program, "--ranks", str(ranks), "--bytes", size, "--repeat", "3")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout.count("all as it was sent"), ranks, done.stdout)

    def test_records_go_over_tcp_by_the_environment(self):
        for ranks in ("2", "3"):
            done = run(self.program, "--ranks", ranks, "--bytes", "100008", env=dict(os.environ, GPUSOCK_LINK="tcp"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("all as it was sent", done.stdout)

    def test_ranks_of_several_processes_find_each_other_in_any_order(self):
        peers = ",".join(own_addresses(3))
        ranks = [subprocess.Popen([self.program, "--rank", str(rank), "--peers", peers, "--bytes", "32K", "--timeout-s", "20"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (2, 0, 1)]
        said = [(*rank.communicate(timeout=LIMIT_S), rank.returncode) for rank in ranks]
        for out, errors, status in said:
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("all as it was sent", out)

    def test_a_rank_that_does_not_come_is_named(self):
        here, gone = own_addresses(2)
        done = run(self.program, "--rank", "1", "--peers", f"{gone},{here}", "--timeout-s", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"rank 1: rank 0 at {gone}.* did not come within 1 s: start")
        done = run(self.program, "--rank", "0", "--peers", f"{here},{gone}", "--timeout-s", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"rank 0: rank 1 at {gone}.* did not come within 1 s: start")

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(run(self.program, "--help").returncode, 0)
        for arguments in (("--ranks", "0"), ("--bytes", "12"), ("--rank", "1"), ("--peers", "127.0.0.1:1"),
                          ("--rank", "2", "--peers", "127.0.0.1:1,127.0.0.1:2")):
            self.assertEqual(run(self.program, *arguments).returncode, 2, arguments)
        self.assertIn("--rank 2 is none of those in --peers, which has 2: the first is rank 0", run(self.program, *arguments).stderr)


def take_program(program):
    AllToAll.program = program


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
