#!/usr/bin/env python3
"""A rank of a group is killed, stopped or misused, and the others say which one they have lost, or that they do not know.

usage: test_groups.py GROUP_RANK
       test_groups.py GROUP_RANK --count ROUNDS   how often survivors are right, unsure and wrong, by link and cause

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402

LINKS = ("p2p", "tcp")
TIMEOUT_MS = 1000  # of an operation; who waits for a stopped rank then asks around
AT_ONCE = 4  # groups: some only wait for deadlines


class Group:
    """The processes of a group's ranks. `does`: for each rank."""

    def __init__(self, program, link, does, timeout_ms=60_000):
        self.ranks = [subprocess.Popen([program, str(rank), str(len(does)), link, what, str(timeout_ms)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, bufsize=0) for rank, what in enumerate(does)]
        self.guard = threading.Timer(LIMIT_S, self.kill)
        self.guard.start()
        self.strangers = []
        self.addresses = [self.read(rank, "listening ") for rank in range(len(does))]
        for rank in self.ranks:
            rank.stdin.write(" ".join(self.addresses).encode() + b"\n")

    def read(self, rank, words):
        line = self.ranks[rank].stdout.readline().decode()
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

    def lose_one_more(self, survivors):
        """When the first of them ends, another is killed; which."""
        told, _, _ = select.select([self.ranks[rank].stdout for rank in survivors], [], [])
        victim = next(rank for rank in survivors if self.ranks[rank].stdout is not told[0])
        self.ranks[victim].kill()
        return victim

    def send_strangers(self):
        """Silent ones, to the ports of all ranks."""
        for address in self.addresses:
            host, port = address.rsplit(":", 1)
            stranger = socket.socket()
            self.strangers.append(stranger)
            stranger.setblocking(False)  # nobody but the system answers for a stopped rank
            stranger.connect_ex((host, int(port)))

    def kill(self):
        for rank in self.ranks:
            rank.kill()

    def end(self):
        self.guard.cancel()
        self.kill()
        for stranger in self.strangers:
            stranger.close()
        for rank in self.ranks:
            rank.communicate()


def verdict(error, lost):
    """right, unsure or wrong."""
    if "the lost rank is unknown" in error or "has given this rank up" in error:
        return "unsure"
    named = re.search(r"rank \d+: (?:lost )?rank (\d+)", error)
    return "right" if named and int(named[1]) in lost else "wrong"


class Loss(typing.NamedTuple):
    """Of ranks, by a signal; and what fails second, while that is being reported."""
    link: str
    does: str
    victims: tuple = (1,)
    sent: signal.Signals = signal.SIGKILL
    second: str = ""  # "kill" of another rank, or "strangers"


def lose(program, loss, ranks=4):
    """The ranks that were lost, and what the survivors say."""
    group = Group(program, loss.link, [loss.does] * ranks, TIMEOUT_MS if loss.sent == signal.SIGSTOP else 60_000)
    try:
        group.await_running()
        for victim in loss.victims:
            os.kill(group.ranks[victim].pid, loss.sent)
        lost = list(loss.victims)
        if loss.second == "strangers":
            group.send_strangers()
        if loss.second == "kill":
            lost.append(group.lose_one_more([rank for rank in range(ranks) if rank not in lost]))
        return lost, {rank: group.error(rank) for rank in range(ranks) if rank not in lost}
    finally:
        group.end()


def lose_all(program, losses):
    """(loss, lost ranks, what survivors say) of each."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [(loss, *result) for loss, result in zip(losses, pool.map(lambda loss: lose(program, loss), losses))]


class Groups(unittest.TestCase):
    program = ""

    def test_no_rank_that_lives_is_said_to_be_lost(self):
        losses = [Loss(link, "sums", sent=signal.SIGSTOP, second=second) for link in LINKS for second in ("", "kill", "strangers")]
        for link in LINKS:
            losses += [Loss(link, does, victims) for does in ("sums", "parameters") for victims in ((1,), (0, 2))]
            losses.append(Loss(link, "sums", second="strangers"))
        for loss, lost, said in lose_all(self.program, losses):
            verdicts = [verdict(error, lost) for error in said.values()]
            self.assertNotIn("wrong", verdicts, (loss, lost, said))
            if loss.sent == signal.SIGKILL:
                self.assertIn("right", verdicts, (loss, said))

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
    losses = [Loss(link, does, (victim,), sent, second) for link in LINKS for does in ("sums", "parameters")
              for sent in (signal.SIGKILL, signal.SIGSTOP) for victim in range(4) for second in ("", "kill", "strangers")
              if sent == signal.SIGSTOP or second != "kill"]
    for loss, lost, said in lose_all(program, losses * rounds):
        for rank, error in said.items():
            found = verdict(error, lost)
            told[loss.link, loss.does, loss.sent.name, loss.second or "alone", found] += 1
            if found == "wrong":
                print(f"{loss}, lost {lost}: {error}", flush=True)
    for key in sorted(told):
        print(*key, told[key])


def take_program(path):
    Groups.program = path


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] == "--count":
        sys.exit(count(sys.argv[1], int(sys.argv[3])))
    sys.exit(main(__doc__, take_program))
