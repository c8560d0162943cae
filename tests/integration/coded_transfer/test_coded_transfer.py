#!/usr/bin/env python3
"""The example coded_transfer: codes, slow paths, lost paths, two processes, and peers that lie.

usage: test_coded_transfer.py CODED_TRANSFER

Environment: GPUSOCK_TEST_ISAL: the build has Reed-Solomon codes.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main, run  # noqa: E402

HAS_ISAL = bool(os.environ.get("GPUSOCK_TEST_ISAL"))
CODES = ("plain", "lt", *(("rs:1", "rs:2") if HAS_ISAL else ()))
PATHS, CHUNK, CHUNKS = 4, 1024, 600
DATA = ("--paths", PATHS, "--chunk", CHUNK, "--bytes", CHUNK * CHUNKS)
FRAME = CHUNK + 8
MAGIC = 0x31306465646f63


def hello(path=0, magic=MAGIC, paths=1, spare=0, is_lt=0, chunk=64, size=64, checksum=0):
    """The first message of a path."""
    return struct.pack("<QQIIIIQQQ", magic, path, paths, spare, is_lt, chunk, size, 1, checksum)


class CodedTransfer(unittest.TestCase):
    program = ""

    def run_with(self, *options, **environment):
        return run(self.program, *map(str, options), env={**os.environ, **environment})

    def result(self, *options, **environment):
        """What a transfer writes with --json; the program has compared checksums."""
        done = self.run_with(*DATA, *options, "--json", "-", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def start(self, *options):
        process = subprocess.Popen([self.program, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def listen(self, *options):
        """A receiver, and where it listens."""
        process = self.start("--listen", "127.0.0.1:0,link=tcp", *options)
        return process, process.stdout.readline().removeprefix("listening on ").strip()

    def assert_fails(self, process, pattern):
        said = process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(process.returncode, 1)
        self.assertRegex(said, pattern)

    def test_all_codes_on_all_numbers_of_paths(self):
        for code in CODES:
            for paths in (1, 5):
                if code.startswith("rs:") and paths == 1:
                    continue
                for size in (1, 63 * CHUNK + 5):
                    done = self.run_with("--code", code, "--paths", paths, "--chunk", CHUNK, "--bytes", size)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), (code, paths, size))
                    self.assertRegex(done.stdout, rf"^{code}: {size} bytes over {paths} paths in [\d.]+ s")

    def test_over_tcp(self):
        for code in CODES:
            self.assertEqual(self.result("--code", code, GPUSOCK_LINK="tcp")["chunks"], CHUNKS)

    def test_lt_takes_few_more_symbols_than_chunks(self):
        found = self.result("--code", "lt", "--bytes", 2000 * CHUNK)
        self.assertEqual(found["chunks"], 2000)
        self.assertLessEqual(found["taken"], 1.1 * 2000)

    def test_a_slow_path_holds_up_plain_and_no_other_code(self):
        rate, factor = 1_500_000, 16
        plain = self.result("--code", "plain", "--rate", rate, "--slow", f"2:{factor}", "--bytes", CHUNK * 100)
        self.assertEqual([path["bytes"] for path in plain["paths"]], [25 * FRAME] * PATHS)
        self.assertGreater(plain["seconds"], 24 * FRAME * factor / rate)
        for code in CODES[1:]:
            with self.subTest(code):
                found = self.result("--code", code, "--rate", rate, "--slow", "2:100")
                taken = [path["bytes"] for path in found["paths"]]
                self.assertLess(4 * taken.pop(2), min(taken))
                self.assertFalse(any(path["is_lost"] for path in found["paths"]))

    def test_the_rate_is_kept(self):
        found = self.result("--code", "lt", "--rate", 1_000_000)
        for path in found["paths"]:
            self.assertLessEqual(path["bytes"] - 2 * FRAME, 1_000_000 * (found["seconds"] + 0.1))

    def test_a_path_that_ends_in_the_middle_is_borne_by_codes_and_named_without_one(self):
        kill = ("--kill", "1@40000")
        done = self.run_with(*DATA, "--code", "plain", *kill)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^coded_transfer: lost path 1 after 40000 bytes: the other end has closed it: --code plain needs 4 of 4 paths; take ")
        for code in CODES[1:]:
            with self.subTest(code):
                self.assertEqual([path["is_lost"] for path in self.result("--code", code, "--rate", 2_000_000, *kill)["paths"]], [False, True, False, False])
                done = self.run_with(*DATA, "--code", code, "--rate", 2_000_000, *kill)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("\nlost path 1 after 40000 bytes: the other end has closed it\n", done.stdout)

    def test_the_last_path_of_lt_must_not_end(self):
        done = self.run_with("--code", "lt", "--paths", 1, "--bytes", "1M", "--kill", "0@40000")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^coded_transfer: lost path 0 after 40000 bytes: .*: --code lt needs one path that stays\n$")

    def test_ends_may_be_processes(self):
        for code in CODES:
            receiver, where = self.listen()
            sender = self.run_with(*DATA, "--connect", where, "--code", code, *(() if code == "plain" else ("--kill", "0@20000")))
            self.assertEqual((sender.returncode, sender.stderr), (0, ""))
            self.assertRegex(sender.stdout, r"^sent \d+ bytes, and the receiver has them\n$")
            said, errors = receiver.communicate(timeout=LIMIT_S)
            self.assertEqual((receiver.returncode, errors), (0, ""))
            self.assertRegex(said, rf"^all paths are open\n{code}: {CHUNK * CHUNKS} bytes over {PATHS} paths")

    def test_an_end_that_is_killed_is_told_by_the_other_one(self):
        forever = (*DATA, "--bytes", "8M")
        receiver, where = self.listen("--rate", 200_000)
        sender = self.start(*forever, "--connect", where, "--code", "lt")
        self.assertEqual(receiver.stdout.readline(), "all paths are open\n")
        sender.kill()
        self.assert_fails(receiver, r"^coded_transfer: lost path 0 after \d+ bytes: .*; lost path 3 .*--code lt needs one path that stays")
        receiver, where = self.listen("--rate", 200_000)
        sender = self.start(*forever, "--connect", where, "--code", "lt")
        self.assertEqual(receiver.stdout.readline(), "all paths are open\n")
        receiver.kill()
        self.assert_fails(sender, r"^coded_transfer: the receiver has not got the buffer; lost path 0 after \d+ bytes: ")

    def test_an_end_that_stalls_is_lost_at_the_deadline(self):
        receiver, where = self.listen("--rate", 200_000, "--timeout-s", 1)
        sender = self.start(*DATA, "--bytes", "8M", "--connect", where, "--code", "lt", "--timeout-s", 1)
        self.assertEqual(receiver.stdout.readline(), "all paths are open\n")
        receiver.send_signal(signal.SIGSTOP)
        self.assert_fails(sender, r"the receiver has not got the buffer; lost path 0 after \d+ bytes: .*timed out")

    def test_a_peer_that_lies_gets_nowhere(self):
        receiver, where = self.listen()
        host, port = where.split(",")[0].rsplit(":", 1)
        for wrong in ({"magic": 1}, {"paths": 0}, {"paths": 65}, {"path": 1}, {"spare": 1}, {"chunk": 0}, {"chunk": 72}, {"size": 0}, {"size": 2**31},
                      {"chunk": 2**31}, {"size": 2**63}, {"is_lt": 1, "spare": 1, "paths": 2}, {"is_lt": 1, "size": 2**24}):
            with socket.create_connection((host, int(port)), timeout=LIMIT_S) as liar:
                liar.sendall(hello(**wrong))
                self.assertEqual(liar.recv(1), b"", wrong)  # it is disconnected
        sender = self.run_with(*DATA, "--connect", where)
        self.assertEqual((sender.returncode, receiver.wait(timeout=LIMIT_S)), (0, 0))

    def test_chunks_that_lie_are_refused(self):
        for number, error in ((5, r"lost path 0 after 8 bytes: .*[Pp]rotocol"), (2**63, r"lost path 0 after 8 bytes: .*[Pp]rotocol"), (0, "the buffer is not the sender's")):
            receiver, where = self.listen()
            host, port = where.split(",")[0].rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=LIMIT_S) as liar:
                liar.sendall(hello() + struct.pack("<Q", number) + bytes(64))
                liar.shutdown(socket.SHUT_WR)
                self.assert_fails(receiver, error)

    def test_misuse_is_refused(self):
        for options, said in ((("--code", "none"), "--code none: take plain, lt, or rs:K"), (("--code", "rs:0"), "take plain"), (("--code", "rs:1x"), "take plain"),
                              (("--paths", 0), "--paths"), (("--chunk", 72), "--chunk must be a multiple of 16"), (("--bytes", "1G", "--chunk", 64, "--code", "plain"), "than a million: take a larger --chunk"),
                              (("--bytes", "1G", "--chunk", "4K"), "than 131072, the most of lt: take a larger --chunk"),
                              (("--slow", "1:2"), "--slow goes with --rate"), (("--rate", 9, "--slow", "4:2"), "--slow PATH:FACTOR"),
                              (("--rate", 9, "--slow", "1:0"), "--slow PATH:FACTOR"), (("--kill", "4@1"), "--kill PATH@BYTES"), (("--kill", "x"), "--kill PATH@BYTES"),
                              (("--listen", "127.0.0.1:0", "--paths", 2), "--listen goes with"), (("--connect", "127.0.0.1:1", "--rate", 2), "are for the receiver"),
                              (("--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"), "--listen goes with"), (("--listen", "nowhere"), "nowhere")):
            done = self.run_with(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""), options)
            self.assertIn(said, done.stderr)
        done = self.run_with("--code", "rs:1", "--paths", 1)
        self.assertEqual(done.returncode, 2)
        self.assertIn("take more --paths than K" if HAS_ISAL else "install libisal-dev", done.stderr)
        done = self.run_with("--connect", "127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^coded_transfer: connecting to 127.0.0.1:1: Connection refused")


def take_program(path):
    CodedTransfer.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
