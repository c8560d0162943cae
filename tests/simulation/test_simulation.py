#!/usr/bin/env python3
"""Promises of the simulation itself: a seed always goes the same way, and what fails is shrunk to a command that fails, too.

usage: test_simulation.py SIMULATION

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import re
import shlex
import subprocess
import sys
import unittest

LIMIT_S = 120


class Simulation(unittest.TestCase):
    program = ""

    def call(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def test_a_seed_goes_the_same_way_in_every_process(self):
        for seed in range(1, 21):
            first, second = (self.call("--seed", str(seed), "--trace").stdout for _ in range(2))
            self.assertIn("trace ", first)
            self.assertEqual(first, second)

    def test_seeds_differ(self):
        traces = {self.call("--seed", str(seed), "--trace").stdout.split("\n")[0] for seed in range(1, 21)}
        self.assertEqual(len(traces), 20)

    def test_a_planted_bug_is_caught_and_its_replay_fails_as_well(self):
        found = self.call("--bug", "3", "--seeds", "1..500")
        self.assertEqual(found.returncode, 1, found.stdout)
        replay = [line for line in found.stdout.split("\n") if line.startswith("replay: simulation ")]
        self.assertEqual(len(replay), 1, found.stdout)
        again = self.call(*shlex.split(replay[0])[2:])
        self.assertEqual(again.returncode, 1, again.stdout)
        self.assertIn("FAILED", again.stdout)

    def test_a_plan_without_its_faults_ends(self):
        # In some plans both sides of a connection send before they read. Only their faults end that.
        for seed in range(1, 61):
            call = self.call("--seed", str(seed), "--faults", "none", "--no-shrink")
            self.assertEqual(call.returncode, 0, call.stdout)

    def test_some_planted_bugs_are_caught_within_few_seeds(self):
        # Which, changes with every change of what is simulated; that it catches hardly any would mean that it no longer looks.
        said = self.call("--planted-bugs", "--seeds", "1..20", "--every", "25").stdout
        self.assertNotIn("fails without it", said)
        found = re.search(r"^planted bugs caught: (\d+)/\d+$", said, re.MULTILINE)
        self.assertIsNotNone(found, said)
        self.assertGreaterEqual(int(found[1]), 10, said)

    def test_misuse_is_exit_status_2(self):
        for arguments in (["--seeds", "7..3"], ["--seed", "x"], ["--bug", "1000"], ["--nonsense"]):
            self.assertEqual(self.call(*arguments).returncode, 2, arguments)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(2)
    Simulation.program = sys.argv.pop(1)
    unittest.main()
