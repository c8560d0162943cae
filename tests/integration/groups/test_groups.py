#!/usr/bin/env python3
"""A rank of a group is killed, stopped or misused, and the others say which one they have lost, or that they do not know.

usage: test_groups.py GROUP_RANK
       test_groups.py GROUP_RANK --count ROUNDS   how often survivors are right, unsure and wrong, by link and cause

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402

LINKS = ("p2p", "tcp")
TIMEOUT_MS = 1000  # of an operation; who waits for a stopped rank then asks around


class Group:
    """The processes of a group's ranks. `does`: for each rank."""

    def __init__(self, program, link, does, timeout_ms=60_000):
        self.ranks = [subprocess.Popen([program, str(rank), str(len(does)), link, what, str(timeout_ms)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True) for rank, what in enumerate(does)]
        self.guard = threading.Timer(LIMIT_S, self.kill)
        self.guard.start()
        addresses = " ".join(self.read(rank, "listening ") for rank in range(len(does)))
        for rank in self.ranks:
            rank.stdin.write(addresses + "\n")
            rank.stdin.flush()

    def read(self, rank, words):
        line = self.ranks[rank].stdout.readline()
        if not line.startswith(words):
            raise AssertionError(f"rank {rank} said {line!r} instead of {words!r}")
        return line[len(words):].strip()

    def await_running(self):
        for rank in range(len(self.ranks)):
            self.read(rank, "running")

    def error(self, rank):
        said = self.read(rank, "error ")
        self.ranks[rank].wait()
        return said

    def kill(self):
        for rank in self.ranks:
            rank.kill()

    def end(self):
        self.guard.cancel()
        self.kill()
        for rank in self.ranks:
            rank.communicate()


def verdict(error, lost):
    """right, unsure or wrong."""
    if "the lost rank is unknown" in error or "has given this rank up" in error:
        return "unsure"
    named = re.search(r"rank \d+: (?:lost )?rank (\d+)", error)
    return "right" if named and int(named[1]) in lost else "wrong"


def lose(program, link, does, ranks, victims, sent):
    """What the survivors say when these ranks get this signal."""
    group = Group(program, link, [does] * ranks, TIMEOUT_MS if sent == signal.SIGSTOP else 60_000)
    try:
        group.await_running()
        for victim in victims:
            os.kill(group.ranks[victim].pid, sent)
        return {rank: group.error(rank) for rank in range(ranks) if rank not in victims}
    finally:
        group.end()


class Groups(unittest.TestCase):
    program = ""

    def expect(self, said, lost, words):
        for rank, error in said.items():
            self.assertNotEqual(verdict(error, lost), "wrong", (words, rank, error))

    def test_no_rank_that_lives_is_said_to_be_lost(self):
        for link in LINKS:
            for does in ("sums", "parameters"):
                for victims in ((1,), (0, 2)):  # one, and another while the first is being told
                    said = lose(self.program, link, does, 4, victims, signal.SIGKILL)
                    self.expect(said, victims, (link, does, victims))
                    self.assertIn("right", [verdict(error, victims) for error in said.values()], said)

    def test_a_stopped_rank_is_named_or_unknown(self):
        for link in LINKS:
            said = lose(self.program, link, "sums", 3, (1,), signal.SIGSTOP)
            self.expect(said, (1,), link)

    def test_an_invalid_argument_ends_all_ranks_at_once(self):
        for link in LINKS:
            group = Group(self.program, link, ["sums", "misuse", "sums"])
            try:
                group.await_running()
                self.assertIn("a broadcast from rank 3", group.error(1))
                for rank in (0, 2):
                    self.assertRegex(group.error(rank), r"rank 1 \(.*\) was given an invalid argument")
            finally:
                group.end()


def count(program, rounds):
    told = collections.Counter()
    for _ in range(rounds):
        for link in LINKS:
            for does in ("sums", "parameters"):
                for sent in (signal.SIGKILL, signal.SIGSTOP):
                    for victim in range(4):
                        for rank, error in lose(program, link, does, 4, (victim,), sent).items():
                            found = verdict(error, (victim,))
                            told[link, does, sent.name, found] += 1
                            if found == "wrong":
                                print(f"{link} {does} {sent.name} of rank {victim}: {error}", flush=True)
    for key in sorted(told):
        print(*key, told[key])


def take_program(path):
    Groups.program = path


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] == "--count":
        sys.exit(count(sys.argv[1], int(sys.argv[3])))
    sys.exit(main(__doc__, take_program))
