#!/usr/bin/env python3
"""The example scheduled_lasso: what its scheduler is good for, ranks that are processes, and ranks that are lost.

usage: test_scheduled_lasso.py SCHEDULED_LASSO

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import functools
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, SCALE, SEED, main, run  # noqa: E402

DATA = ("--samples", 400, "--features", 200, "--groups", 2, "--group-features", 60)
PARALLEL, DEPENDENCE = 16, 0.15
SETTINGS = (*DATA, "--parallel", PARALLEL, "--dependence", DEPENDENCE)
GROWS = ("scheduled_lasso: the objective grows: coordinates of a set depend on each other. Take --schedule strads, a smaller --dependence or "
         "a smaller --parallel\n")
SHORT_S = round(3 * SCALE)  # ranks come within it, and each round takes less
FOR_EVER = ("--schedule", "serial", "--updates", 4_000_000)
TABLE = re.compile(r"   round   updates   objective\n((?: +\d+ +\d+ +[\d.]+\n)+)"
                   r"(\S+) coordinates at a time; the largest \|x_j \. x_k\| of two of them is (\S+)\n")


class Outcome(typing.NamedTuple):
    rounds: int
    updates: int
    objectives: list  # of the rounds of the table
    dependence: float  # the largest one within a set


class Processes:
    """A scheduler and ranks, each a process. They end with this object's `with`."""

    def __init__(self, program, *options, ranks=2, come=None, timeout_s=60):
        """`come`: so many ranks are started."""
        self.all = []
        self.timeout = ("--timeout-s", str(timeout_s))
        self.scheduler = self.start(program, "--listen", "127.0.0.1:0", "--ranks", str(ranks), *options)
        self.address = self.scheduler.stdout.readline().removeprefix("listening on ").strip()
        self.ranks = {}
        for _ in range(ranks if come is None else come):
            process = self.start(program, "--join", self.address)
            self.ranks[int(re.fullmatch(rf"rank (\d+) of {ranks}\n", process.stdout.readline())[1])] = process

    def start(self, program, *options):
        self.all.append(subprocess.Popen([program, *map(str, options), *self.timeout], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.all[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.communicate()

    def await_all(self):
        if (said := self.scheduler.stdout.readline()) != "all ranks have come\n":
            raise AssertionError(said)

    @staticmethod
    def error(process):
        """What a process that fails says."""
        said = process.communicate(timeout=LIMIT_S)[1]
        if process.returncode != 1:
            raise AssertionError((process.returncode, said))
        return said.removeprefix("scheduled_lasso: ").strip()


class ScheduledLasso(unittest.TestCase):
    program = ""

    @classmethod
    @functools.cache
    def run_with(cls, *options):
        return run(cls.program, *map(str, (*SETTINGS, *options)))

    def outcome(self, *options, errors=""):
        done = self.run_with(*options)
        self.assertEqual((done.returncode, done.stderr), (1 if errors else 0, errors), options)
        found = TABLE.match(done.stdout)
        self.assertTrue(found, done.stdout)
        lines = [line.split() for line in found[1].splitlines()]
        return Outcome(int(lines[-1][0]), int(lines[-1][1]), [float(line[2]) for line in lines], float(found[3]))

    def optimum(self):
        """By one coordinate after the other."""
        return self.outcome("--ranks", 1, "--schedule", "serial", "--updates", 40_000).objectives[-1]

    def test_it_converges_where_coordinates_by_chance_diverge(self):
        strads, by_chance = self.outcome(), self.outcome("--schedule", "random", errors=GROWS)
        self.assertLess(abs(strads.objectives[-1] / self.optimum() - 1), 1e-3)
        self.assertEqual(sorted(strads.objectives, reverse=True), strads.objectives)
        self.assertGreater(strads.updates / strads.rounds, PARALLEL / 2)
        self.assertGreater(by_chance.objectives[-1], 100 * by_chance.objectives[0])

    def test_it_takes_fewer_rounds_than_one_coordinate_at_a_time(self):
        near = ("--ranks", 1, "--target", 1.001 * self.optimum(), "--updates", 40_000)
        self.assertLess(5 * self.outcome(*near).rounds, self.outcome(*near, "--schedule", "serial").rounds)

    def test_coordinates_of_a_set_are_independent(self):
        for schedule in ("strads", "uniform"):
            self.assertLessEqual(self.outcome("--ranks", 1, "--schedule", schedule).dependence, DEPENDENCE)
        self.assertGreater(self.outcome("--schedule", "random", errors=GROWS).dependence, 0.8)

    def test_priorities_save_updates(self):
        updates = {"strads": 0, "uniform": 0}
        for seed in (1, 2, 3):
            seeded = ("--ranks", 1, "--seed", seed)
            target = 1.001 * self.outcome(*seeded).objectives[-1]
            for schedule in updates:
                found = self.outcome(*seeded, "--schedule", schedule, "--target", target, "--updates", 60_000)
                self.assertLessEqual(found.objectives[-1], target)
                updates[schedule] += found.updates
        self.assertLess(1.4 * updates["strads"], updates["uniform"])

    def test_equal_seeds_give_equal_results(self):
        again = run(self.program, *map(str, SETTINGS))
        self.assertEqual(again.stdout, self.run_with().stdout)
        self.assertNotEqual(self.run_with("--seed", 2).stdout, again.stdout)

    def test_json_has_all_rounds_also_if_the_objective_grows(self):
        for schedule, errors in (("strads", ""), ("random", GROWS)):
            found = json.loads(self.run_with("--schedule", schedule, "--json").stdout)
            outcome = self.outcome("--schedule", schedule, errors=errors)
            self.assertEqual(len(found["objectives"]), outcome.rounds + 1)
            self.assertEqual(found["updates"][-1], outcome.updates)
            for number, objective in ((0, outcome.objectives[0]), (-1, outcome.objectives[-1])):
                self.assertAlmostEqual(found["objectives"][number] / objective, 1, delta=1e-6)

    def test_a_run_may_have_another_future(self):
        """Sets are drawn by another seed from the first round on that begins after so many updates; before it, nothing differs."""
        as_it_was = json.loads(self.run_with("--json").stdout)
        round_ = len(as_it_was["updates"]) // 2
        futures = [json.loads(self.run_with("--redraw-after", as_it_was["updates"][round_], "--redraw-seed", seed, "--json").stdout) for seed in (3, 4)]
        for future in futures:
            for what in ("objectives", "updates"):
                self.assertEqual(future[what][:round_ + 1], as_it_was[what][:round_ + 1])
            self.assertNotEqual(future["objectives"][round_ + 1:], as_it_was["objectives"][round_ + 1:])
        self.assertNotEqual(futures[0], futures[1])
        self.assertEqual(self.run_with("--redraw-after", 10**6).stdout, self.run_with().stdout)

    def test_any_number_of_ranks_has_the_same_optimum(self):
        for ranks in (1, 3):
            self.assertLess(abs(self.outcome("--ranks", ranks).objectives[-1] / self.optimum() - 1), 1e-3)

    def test_ranks_may_be_processes(self):
        with Processes(self.program, *SETTINGS) as processes:
            processes.await_all()
            said, errors = processes.scheduler.communicate(timeout=LIMIT_S)
            self.assertEqual((processes.scheduler.returncode, errors, said), (0, "", self.run_with().stdout))
            for rank in processes.ranks.values():
                self.assertEqual((*rank.communicate(timeout=LIMIT_S), rank.returncode), ("", "", 0))

    def test_a_rank_that_is_killed_is_named_by_all(self):
        lost = random.Random(SEED).randrange(3)
        with Processes(self.program, *SETTINGS, *FOR_EVER, ranks=3) as processes:
            processes.await_all()
            processes.ranks[lost].kill()
            self.assertRegex(processes.error(processes.scheduler), rf"^lost rank {lost}: ")
            for rank in processes.ranks.keys() - {lost}:
                self.assertEqual(processes.error(processes.ranks[rank]), f"lost rank {lost}: the scheduler has told so")

    def test_a_rank_that_is_stopped_is_named_by_all_at_the_deadline(self):
        with Processes(self.program, *SETTINGS, *FOR_EVER, ranks=3, timeout_s=SHORT_S) as processes:
            processes.await_all()
            processes.ranks[1].send_signal(signal.SIGSTOP)
            self.assertEqual(processes.error(processes.scheduler), f"lost rank 1: nothing came of it within {SHORT_S} s")
            for rank in (0, 2):
                self.assertEqual(processes.error(processes.ranks[rank]), "lost rank 1: the scheduler has told so")

    def test_ranks_say_so_if_the_scheduler_is_killed(self):
        with Processes(self.program, *SETTINGS, *FOR_EVER) as processes:
            processes.await_all()
            processes.scheduler.kill()
            for rank in processes.ranks.values():
                self.assertRegex(processes.error(rank), "^lost the scheduler: ")

    def test_a_rank_that_does_not_come_is_named(self):
        with Processes(self.program, *SETTINGS, come=1, timeout_s=SHORT_S) as processes:
            self.assertEqual(processes.error(processes.scheduler),
                             f"rank 1 has not come within {SHORT_S} s: start as many ranks with --join as --ranks says")
            self.assertRegex(processes.error(processes.ranks[0]), "^lost the scheduler: ")
            self.assertRegex(processes.error(processes.start(self.program, "--join", processes.address)), "^joining the scheduler at .*refused")

    def test_misuse_is_refused(self):
        for options, said in ((("--ranks", 0), "--ranks"), (("--schedule", "none"), "--schedule"), (("--groups", 4), "are more than --features"),
                              (("--parallel", 65), "--parallel"), (("--priority-min", 0), "--priority-min"),
                              (("--redraw-seed", 3), "--redraw-seed goes with --redraw-after"), (("--redraw-after", 9, "--schedule", "serial"), "draws no sets"),
                              (("--join", "127.0.0.1:1"), "--join goes with --timeout-s alone"), (("--listen", "nowhere"), "nowhere")):
            done = self.run_with(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""), options)
            self.assertIn(said, done.stderr)


def take_program(path):
    ScheduledLasso.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
