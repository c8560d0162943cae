#!/usr/bin/env python3
"""Promises of examples/redis_client, kept towards a real redis-server (and towards servers that are none).

usage: test_redis.py REDIS_CLIENT

Environment: GPUSOCK_TEST_SCALE (0 to 1) scales how many keys are used.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU, or redis-server is not installed).
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

SCALE = float(os.environ.get("GPUSOCK_TEST_SCALE", "1"))
LIMIT_S = 120  # a program that takes longer hangs
program = ""


class Redis:
    """A redis-server of our own. It cannot choose a port itself: it is given one that was free, and another if that is taken."""

    def __init__(self, *options):
        for _ in range(20):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.folder = tempfile.TemporaryDirectory()
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                 "--dir", self.folder.name, "--daemonize", "no", "--logfile", "", *options], stdout=subprocess.PIPE, text=True)
            # It says so once it listens; its output ends where it could not.
            if any("Ready to accept connections" in line for line in self.process.stdout):
                # Its log is read on, or it would wait for us one day.
                self.reader = threading.Thread(target=self.process.stdout.read)
                self.reader.start()
                return
            self.process.wait(LIMIT_S)
            self.process.stdout.close()
            self.folder.cleanup()
        raise RuntimeError("redis-server found no free port in 20 attempts")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        self.process.stdout.close()
        self.folder.cleanup()

    def ask(self, command):
        """The first line of what it answers to an inline command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as client:
            client.sendall(command.encode() + b"\r\n")
            return client.makefile("rb").readline().decode().strip()


class FakeServer:
    """Answers what comes on one connection with the first of these answers, what comes then with the next one, and so on; then
    it ends its stream, if `ends`. What is asked must be short."""

    def __init__(self, *answers, ends=True):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(answers, ends))
        self.thread.start()

    def serve(self, answers, ends):
        client, _ = self.listener.accept()
        with client:
            try:
                for answer in answers:
                    client.recv(1 << 16)
                    client.sendall(answer)
                if ends:
                    client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
            except ConnectionError:
                pass  # the client has closed before it had read everything

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(LIMIT_S)
        self.listener.close()


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)


class RedisClient(unittest.TestCase):
    def expect_success(self, redis, *options):
        done = run(f"127.0.0.1:{redis.port}", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+) commands +\d+ /s$", done.stdout, re.MULTILINE)}

    def test_sets_gets_and_deletes_what_it_is_told_to(self):
        keys = max(500, int(20_000 * SCALE))
        with Redis() as redis:
            counts = self.expect_success(redis, "--keys", str(keys))
            self.assertEqual(counts, {"SET": keys, "GET": keys, "MGET": (keys + 15) // 16, "DEL": keys})
            self.assertEqual(redis.ask("DBSIZE"), ":0")
            stats = self.command_counts(redis)
            self.assertEqual({name: stats[name.lower()] for name in counts}, counts)  # the server has seen every one of them

    def command_counts(self, redis):
        with socket.create_connection(("127.0.0.1", redis.port), timeout=LIMIT_S) as client:
            client.sendall(b"INFO commandstats\r\n")
            file = client.makefile("rb")
            text = file.read(int(file.readline()[1:])).decode()
        return {name: int(calls) for name, calls in re.findall(r"cmdstat_(\w+):calls=(\d+)", text)}

    def test_works_with_values_and_pipelines_of_any_size(self):
        with Redis() as redis:
            for options in (("--keys", "1", "--pipeline", "1", "--value-bytes", "1", "--threads", "1"),
                            ("--keys", "7", "--mget", "64"),  # MGET goes around more than once
                            ("--keys", "100", "--value-bytes", "64K", "--pipeline", "100", "--mget", "3"),
                            ("--keys", "1000", "--blocks", "3", "--pipeline", "999", "--threads", "33")):
                with self.subTest(options=options):
                    self.expect_success(redis, *options)
                    self.assertEqual(redis.ask("DBSIZE"), ":0")

    def test_shows_the_servers_error(self):
        with Redis("--requirepass", "secret") as redis:
            done = run(f"127.0.0.1:{redis.port}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the server answered SET with: NOAUTH Authentication required", done.stderr)

    def test_notices_what_is_not_a_redis_server_and_wrong_answers(self):
        surplus = "not RESP|wrong answer to GET"  # as the bytes come: with the answers before, or where others are expected
        for answer, message in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "not RESP"), (b"+OK", "ended the connection"),
                                (b"", "ended the connection"), (b"+NO\r\n", "wrong answer to SET"),
                                (b"+OK\r\n$3\r\nabc\r\n", "wrong answer to SET"), (b"$99999999999999999999\r\n", "not RESP"),
                                (b"+OK\r\n+OK\r\n+OK\r\n", surplus)):
            with self.subTest(answer=answer), FakeServer(answer) as server:
                done = run(f"127.0.0.1:{server.port}", "--keys", "2")
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, message)

    def test_takes_no_answer_of_another_shape_than_asked_for(self):
        value = b"$1\r\n%c\r\n" % (ord("a"))
        nested = b"*8\r\n" * 8 + 57 * value  # as many elements as arrays of 8 in arrays of 8 have; far more than 8 values
        for answer in (value, nested, b"*8\r\n*8\r\n", b"*9\r\n", b"*-1\r\n", b"*8\r\n$-1\r\n", b"*8\r\n:1\r\n"):
            with self.subTest(answer=answer), FakeServer(b"+OK\r\n", value, answer) as server:
                done = run(f"127.0.0.1:{server.port}", "--keys", "1", "--value-bytes", "1", "--pipeline", "1", "--mget", "8")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("wrong answer to MGET", done.stderr)

    def test_does_not_wait_for_an_answer_that_says_it_is_too_long(self):
        with FakeServer(b"+OK\r\n", b"$1000000000\r\nabc", ends=False) as server:
            done = run(f"127.0.0.1:{server.port}", "--keys", "1", "--timeout-ms", "3600000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong answer to GET", done.stderr)

    def test_prints_no_control_characters_of_the_servers(self):
        with FakeServer(b"-ERR \x1b[31mred\x07\nand more\r\n") as server:
            done = run(f"127.0.0.1:{server.port}", "--keys", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the server answered SET with: ERR ?[31mred??and more", done.stderr)

    def test_commands_are_well_formed_however_many_keys_there_are(self):
        keys = 10_000_000_000  # the most; each of two blocks starts with keys of its own
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(LIMIT_S)
            where = f"127.0.0.1:{listener.getsockname()[1]}"
            with subprocess.Popen([program, where, "--keys", str(keys), "--blocks", "2", "--value-bytes", "1", "--pipeline", "2"],
                                  stderr=subprocess.DEVNULL) as client:
                asked = {self.commands_on(listener, 2) for _ in range(2)}
                self.assertEqual(client.wait(LIMIT_S), 1)
        expected = {tuple(f"gpusock:{first + index:010}" for index in range(2)) for first in (0, keys // 2)}
        self.assertEqual(asked, expected)

    @staticmethod
    def commands_on(listener, count):
        """The keys of so many SET commands on a connection, which then ends; each length is what it says."""
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file:
            keys = []
            for _ in range(count):
                assert file.readline() == b"*3\r\n"
                words = []
                for _ in range(3):
                    size = int(file.readline().removeprefix(b"$"))
                    words.append(file.read(size + 2).removesuffix(b"\r\n").decode())
                assert words[0] == "SET" and len(words[2]) == 1, words
                keys.append(words[1])
            return tuple(keys)

    def test_says_that_nobody_listens(self):
        with socket.socket() as unused:  # bound, and nobody else's, but not listening
            unused.bind(("127.0.0.1", 0))
            done = run(f"127.0.0.1:{unused.getsockname()[1]}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("connecting: Connection refused (ECONNREFUSED): no program listens there; start the server first", done.stderr)

    def test_gives_a_silent_server_up_in_time(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            done = run(f"127.0.0.1:{silent.getsockname()[1]}", "--timeout-ms", "100")
        self.assertEqual(done.returncode, 1)
        self.assertIn("timed out", done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(run("--help").returncode, 0)
        for arguments in ((), ("nonsense",), ("127.0.0.1:0",), ("127.0.0.1:1,link=p2p",),
                          ("127.0.0.1:1", "--keys", "1", "--blocks", "2"), ("127.0.0.1:1,type=seqpacket",)):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")
            self.assertNotIn("link=tcp'", done.stderr)  # which nobody has typed

    def test_more_memory_than_can_be_meant_is_refused_by_the_names_of_the_options(self):
        done = run("127.0.0.1:1", "--pipeline", "4096", "--value-bytes", "64K", "--mget", "64")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--value-bytes x --pipeline x --mget x --blocks: together they take 16", done.stderr)


def main():
    global program
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    program = os.path.abspath(sys.argv[1])
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    if shutil.which("redis-server") is None:
        print("skipped: redis-server is not installed")
        return 77
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
