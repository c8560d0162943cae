#!/usr/bin/env python3
"""Ranks train with a store, while some are stopped for a while or killed, and an oracle reads their histories.

usage: test_stores.py STORE_RANK

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import concurrent.futures
import json
import pathlib
import random
import select
import signal
import subprocess
import sys
import threading
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, SEED, main  # noqa: E402
from store_oracle import objections  # noqa: E402

LINKS = ("p2p", "tcp")
CLOCKS = ("bsp", "ssp:2", "async")
RANKS = 3  # each owns a range
LAUNCHES = 7  # of kernels that train; after each one a rank says so
STEPS = 3 * LAUNCHES
FOR_EVER = 3 * 10**8
SIZES = (20_000, 4, 7, 10, 13)  # of the ranges
SILENCE_S = 0.02  # a rank stays stopped until the others have said nothing for so long
AT_ONCE = 2  # stores


def bsp_weights(steps):
    """The weights that a bulk-synchronous run ends with, computed one push after the other (see gradient_of in store_rank.cu)."""
    period = 13
    weights = list(range(period))
    for step in range(steps):
        weights = [weight + sum((5 * weight + 7 * i + 3 * rank + step) % period for rank in range(RANKS))
                   for i, weight in enumerate(weights)]
    return [weights[i % period] for size in SIZES for i in range(size)]


def initial_weights():
    return bsp_weights(0)


class Outcome(typing.NamedTuple):
    """What a rank prints at its end."""
    weights: list
    pushed: list  # for each weight, the sum of the gradients
    history: list


class Ranks:
    """The processes of a store's ranks. After start() they wait for begin()."""

    def __init__(self, program, link, clock, steps=STEPS, connections=1, reads="pulled"):
        self.random = random.Random(f"{SEED} {link} {clock} {steps}")
        seed = self.random.randrange(2**32)
        self.ranks = [subprocess.Popen([program, str(rank), str(RANKS), link, clock, str(steps), str(connections), str(seed), reads],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for rank in range(RANKS)]
        self.guard = threading.Timer(LIMIT_S, self.kill)
        self.guard.start()

    def __enter__(self):
        return self

    def start(self):
        addresses = [self.read(rank, "listening ") for rank in range(RANKS)]
        for rank in self.ranks:
            rank.stdin.write(" ".join(addresses).encode() + b"\n")
        for rank in range(RANKS):
            self.read(rank, "started")

    def __exit__(self, *_):
        self.guard.cancel()
        self.kill()
        for rank in self.ranks:
            rank.communicate()

    def kill(self):
        for rank in self.ranks:
            rank.kill()

    def read(self, rank, words):
        line = self.ranks[rank].stdout.readline().decode()
        if not line.startswith(words):
            raise AssertionError(f"rank {rank} said {line!r} instead of {words!r}")
        return line[len(words):].strip()

    def begin(self, *ranks):
        for rank in ranks:
            self.ranks[rank].stdin.write(b"begin\n")

    def await_trained(self, launches, *ranks):
        for rank in ranks:
            for _ in range(launches):
                self.read(rank, "trained")

    def await_trained_with_stops(self):
        """Reads how far all are, and stops one now and then."""
        missing = [LAUNCHES] * RANKS
        stopped = None
        while any(missing):
            told, _, _ = select.select([self.ranks[rank].stdout for rank in range(RANKS) if missing[rank] > 0], [], [],
                                       LIMIT_S if stopped is None else SILENCE_S)
            for rank in range(RANKS):
                if self.ranks[rank].stdout in told:
                    self.read(rank, "trained")
                    missing[rank] -= 1
            if stopped is None and self.random.random() < 0.4:
                stopped = self.random.choice(self.ranks)
                stopped.send_signal(signal.SIGSTOP)
            elif stopped is not None and not told:
                stopped.send_signal(signal.SIGCONT)
                stopped = None
        if stopped is not None:
            stopped.send_signal(signal.SIGCONT)

    def outcomes(self):
        return [self.outcome(rank) for rank in range(RANKS)]

    def outcome(self, rank):
        said, _ = self.ranks[rank].communicate()
        lines = said.decode().splitlines()
        if self.ranks[rank].returncode != 0 or not lines[0].startswith("weights") or not lines[1].startswith("pushed"):
            raise AssertionError(f"rank {rank} exited with {self.ranks[rank].returncode} and said {lines[0][:1000]!r}")
        weights, pushed = ([int(number) for number in line.split()[1:]] for line in lines[:2])
        return Outcome(weights, pushed, [json.loads(line) for line in lines[2:]])

    def error(self, rank, patience_s=LIMIT_S):
        """Of a rank that trains; None if it says nothing for so long. A rank that has failed goes on serving the others."""
        while select.select([self.ranks[rank].stdout], [], [], patience_s)[0]:
            line = self.ranks[rank].stdout.readline().decode()
            if line.startswith("error "):
                return line
            if line.strip() != "trained":
                raise AssertionError(f"rank {rank} said {line!r} instead of an error")
        return None

    def errors_after_kill(self, lost):
        """What the survivors say."""
        self.ranks[lost].kill()
        return {rank: self.error(rank) for rank in range(RANKS) if rank != lost}

    def errors_after_kill_and_stop(self, lost):
        """What they say if one of them is stopped meanwhile, until the other one has failed, or waits for it."""
        stopped, other = self.random.sample([rank for rank in range(RANKS) if rank != lost], 2)
        self.ranks[stopped].send_signal(signal.SIGSTOP)
        self.ranks[lost].kill()
        error = self.error(other, SILENCE_S)
        self.ranks[stopped].send_signal(signal.SIGCONT)
        return {other: error or self.error(other), stopped: self.error(stopped)}

    def end(self, rank):
        """Lets a rank end that has failed."""
        self.ranks[rank].stdin.write(b"end\n")
        self.ranks[rank].communicate()
        return self.ranks[rank].returncode


class Oracle(unittest.TestCase):
    """That it objects, and only to what is wrong."""

    LATE = {(0, 2): {"seen": [1, 0]}, (0, 4): {"seen": [2, 0]}, (1, 2): {"seen": [2, 1]}}  # worker 1, which then sees all

    # Both use what they have pulled at first. Their last reads have no order: each has the other's first pushes alone.
    CACHED = {(worker, line): {"seen": [line // 2 * (worker == 0), line // 2 * (worker == 1)], "cached": True} for worker in range(2) for line in (2, 4)}

    @staticmethod
    def history(worker):
        """Of one of two workers, as all clocks allow it."""
        seen = ([0, 0], [1, 1], [2, 2])
        lines = []
        for clock in range(3):
            lines.append({"worker": worker, "op": "read", "clock": clock, "keys": [0, 4], "seen": seen[clock]})
            if clock < 2:
                lines.append({"worker": worker, "op": "push", "clock": clock + 1, "keys": [0, 4]})
        return lines

    def changed(self, changes, clock):
        """The objections to histories with these changes: {(worker, line): {key: value}}."""
        histories = [self.history(0), self.history(1)]
        for (worker, line), change in changes.items():
            histories[worker][line].update(change)
        return {what for what, _ in objections(histories, clock)}

    def test_it_does_not_object_to_what_is_right(self):
        for clock in ("bsp", "ssp:0", "ssp:2", "async"):
            self.assertEqual(self.changed({}, clock), set())
        for clock in ("ssp:2", "async"):
            self.assertEqual(self.changed(self.LATE, clock), set())
            self.assertEqual(self.changed(self.CACHED, clock), set())

    def test_it_objects_to_what_is_wrong(self):
        self.assertEqual(self.changed(self.LATE, "ssp:1"), {"too stale"})
        self.assertEqual(self.changed(self.CACHED, "ssp:1"), {"too stale"})
        for clock in ("bsp", "ssp:0"):
            self.assertEqual(self.changed(self.LATE, clock), {"too stale", "too new"})
            self.assertEqual(self.changed({(0, 2): {"seen": [1, 2]}}, clock), {"too new"})
        for clock in CLOCKS:
            self.assertIn("an own push is missing", self.changed({(0, 2): {"seen": [0, 1]}}, clock))
            self.assertIn("an own push before it was made", self.changed({(0, 2): {"seen": [2, 1]}}, clock))
            self.assertIn("a push is gone", self.changed({(0, 2): {"seen": [1, 2]}, (0, 4): {"seen": [2, 1]}}, clock))
            self.assertIn("a push that nobody made", self.changed({(0, 4): {"seen": [2, 3]}}, clock))
            self.assertIn("reads without an order", self.changed({(0, 2): {"seen": [1, 0]}, (1, 2): {"seen": [0, 1]}}, clock))
            self.assertIn("the clock does not count pushes", self.changed({(1, 1): {"clock": 2}}, clock))
            self.assertIn("the clock does not count pushes", self.changed({(1, 4): {"clock": 1}}, clock))
            self.assertIn("another worker's line", self.changed({(1, 0): {"worker": 0}}, clock))
            self.assertIn("nothing was pulled", self.changed({(0, 0): {"cached": True}}, clock))
            self.assertIn("not what was pulled", self.changed({(0, 2): {"cached": True}}, clock))
            self.assertIn("another number of workers", self.changed({(1, 0): {"seen": [0, 0, 0]}}, clock))


class Stores(unittest.TestCase):
    program = ""

    def assert_kept(self, outcomes, clock, what):
        """That a run has kept its clock, and that each push is in the weights, once."""
        self.assertEqual(objections([outcome.history for outcome in outcomes], clock)[:3], [], what)
        for outcome in outcomes:
            self.assertEqual(len(outcome.history), len(SIZES) * (2 * STEPS + 2), what)  # two reads at the end
            self.assertEqual(outcome.weights, outcomes[0].weights, what)
        pushed = (outcome.pushed for outcome in outcomes)
        self.assertEqual([sum(numbers) for numbers in zip(initial_weights(), *pushed)], outcomes[0].weights, what)

    def test_ranks_that_are_stopped_for_a_while_keep_the_clock(self):
        serial = bsp_weights(STEPS)
        for link in LINKS:
            for clock in CLOCKS:
                with Ranks(self.program, link, clock, connections=2) as ranks:
                    ranks.start()
                    ranks.begin(*range(RANKS))
                    ranks.await_trained_with_stops()
                    outcomes = ranks.outcomes()
                self.assert_kept(outcomes, clock, (link, clock))
                if clock == "bsp":
                    self.assertEqual(outcomes[0].weights, serial, link)

    def test_cached_reads_keep_the_clock(self):
        """How many reads may be cached is certain for bsp and async, and of ssp:2 the two after the first one."""
        of_range = {"bsp": (0, 0), "ssp:2": (2, STEPS), "async": (STEPS * 3 // 4, STEPS * 3 // 4)}  # a cache has four pushes of async
        for link, clock in (("p2p", "bsp"), ("p2p", "ssp:2"), ("tcp", "ssp:2"), ("tcp", "async")):
            with Ranks(self.program, link, clock, connections=2, reads="cached") as ranks:
                ranks.start()
                ranks.begin(*range(RANKS))
                ranks.await_trained_with_stops()
                outcomes = ranks.outcomes()
            self.assert_kept(outcomes, clock, (link, clock))
            least, most = (count * len(SIZES) for count in of_range[clock])
            for outcome in outcomes:
                self.assertIn(sum("cached" in event for event in outcome.history), range(least, most + 1), (link, clock))
            if clock == "bsp":
                self.assertEqual(outcomes[0].weights, bsp_weights(STEPS))

    def test_ranks_go_on_as_far_as_the_clock_allows(self):
        """A rank begins when the others have come so far: how stale their reads are is then certain."""
        for link in LINKS:
            for clock, launches, broken, reads in (("async", LAUNCHES, "ssp:2", "pulled"), ("ssp:2", 1, "ssp:1", "pulled"), ("ssp:2", 1, "ssp:1", "cached")):
                with Ranks(self.program, link, clock, reads=reads) as ranks:
                    ranks.start()
                    ranks.begin(0, 1)
                    ranks.await_trained(launches, 0, 1)
                    ranks.begin(2)
                    ranks.await_trained(LAUNCHES - launches, 0, 1)
                    ranks.await_trained(LAUNCHES, 2)
                    outcomes = ranks.outcomes()
                self.assert_kept(outcomes, clock, (link, clock))
                found = objections([outcome.history for outcome in outcomes], broken)
                self.assertEqual({what for what, _ in found}, {"too stale"}, (link, clock))
                self.assertLessEqual({0, 1}, {event["worker"] for _, event in found}, (link, clock))

    def lose(self, link, clock, stops):
        """The rank that was killed, what the survivors say, and how they end."""
        with Ranks(self.program, link, clock, FOR_EVER, connections=2) as ranks:
            ranks.start()
            ranks.begin(*range(RANKS))
            ranks.await_trained(ranks.random.randrange(1, 5), *range(RANKS))
            lost = ranks.random.randrange(RANKS)
            errors = ranks.errors_after_kill_and_stop(lost) if stops else ranks.errors_after_kill(lost)
            return lost, errors, [ranks.end(rank) for rank in errors]

    def test_survivors_name_the_rank_that_was_killed(self):
        runs = [(link, clock, stops) for link in LINKS for clock in CLOCKS for stops in (False, True)]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for run, (lost, errors, ends) in zip(runs, pool.map(lambda run: self.lose(*run), runs)):
                for error in errors.values():
                    self.assertRegex(error, rf"^error a store lost rank {lost}\b", (run, lost, errors))
                self.assertEqual(ends, [1] * (RANKS - 1), (run, lost, errors))


def take_program(path):
    Stores.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
