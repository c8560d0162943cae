#!/usr/bin/env python3
"""Promises of examples/http_client, checked by servers that answer in every way that HTTP/1.1 allows, and in some that it does not.

usage: test_http_client.py HTTP_CLIENT

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import contextlib
import pathlib
import socket
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, kernel_lines, main, run  # noqa: E402


class HttpClient(unittest.TestCase):
    program = ""

    @contextlib.contextmanager
    def serving(self, *pieces, clients=1):
        """A server that sends these pieces to each client that has sent its request; the requests are in `asked`."""
        self.asked = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                for _ in range(clients):
                    with listener.accept()[0] as client:
                        request = b""
                        while b"\r\n\r\n" not in request and (more := client.recv(4096)):
                            request += more
                        self.asked.append(request)
                        for piece in pieces:
                            client.sendall(piece)

            thread = threading.Thread(target=serve)
            thread.start()
            yield f"127.0.0.1:{listener.getsockname()[1]}"
            thread.join(LIMIT_S)

    def fetch(self, *pieces, options=(), clients=1, path="/a?b=c"):
        with self.serving(*pieces, clients=clients) as where:
            self.where = where
            return run(self.program, where, path, *options)

    def test_its_kernels_are_half_as_long_as_without_io_and_text(self):
        ours, plain = kernel_lines("examples/http_client.cu"), kernel_lines("tests/unit/io/plain_http_client.cuh")
        self.assertGreater(ours, 0)
        self.assertLessEqual(2 * ours, plain, f"{ours} lines, and {plain} without")

    def test_asks_as_http_1_1_says(self):
        self.fetch(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        line, *fields = self.asked[0].decode().split("\r\n")
        self.assertEqual(line, "GET /a?b=c HTTP/1.1")
        self.assertIn(f"Host: {self.where}", fields)
        self.assertIn("Connection: close", fields)

    def test_bodies_of_all_kinds_come_whole(self):
        body = bytes(range(32, 127)) * 2000
        text = body.decode()
        length = b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  %d \r\nX: y\r\n\r\n" % len(body)
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
        for what, pieces in {
            "length": (length, body),
            "in bytes": (*(length[i:i + 1] for i in range(len(length))), body[:1], body[1:]),
            "until the end": (b"HTTP/1.0 200 OK\r\n\r\n", body),
            "chunks": (chunked, b"%X;name=value\r\n" % 1000, body[:1000], b"\r\n%x\r\n" % (len(body) - 1000), body[1000:],
                       b"\r\n0\r\nTrailer: t\r\n\r\n"),
            "after interim answers": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", length, body),
            "empty": (b"HTTP/1.1 204 No Content\r\n\r\n",),
        }.items():
            with self.subTest(what):
                done = self.fetch(*pieces)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout == ("" if what == "empty" else text))

    def test_several_threads_fetch_at_once(self):
        done = self.fetch(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", options=("--times", "40"), clients=40)
        self.assertEqual((done.returncode, done.stdout), (0, "abc" * 40))

    def test_a_refusal_is_printed_and_is_a_failure(self):
        done = self.fetch(b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsorry\n")
        self.assertEqual((done.returncode, done.stdout), (1, "sorry\n"))
        self.assertIn("status 404", done.stderr)

    def test_what_is_not_http_or_not_whole_is_named(self):
        for pieces, why in (((b"220 mail server\r\n",), "not HTTP"), ((), "not HTTP"), ((b"HTTP/1.1 200 OK\r\nCont",), "not whole"),
                            ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive.",), "not whole"),
                            ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",), "not HTTP"),
                            ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",), "not HTTP"),
                            ((b"HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\nabc",), "Content-Length is invalid"),
                            ((b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",), "Content-Length is invalid"),
                            ((b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nabc",), "two that differ"),
                            ((b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2000,), "too long"),
                            ((b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",), "too long")):
            with self.subTest(pieces=pieces):
                done = self.fetch(*pieces, options=("--body-max", "4K"))
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, done.stderr)

    def test_a_silent_server_is_given_up(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            done = run(self.program, f"127.0.0.1:{listener.getsockname()[1]}", "/", "--timeout-ms", "50")
        self.assertEqual(done.returncode, 1)
        self.assertIn("timed out", done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(run(self.program, "--help").returncode, 0)
        for arguments in ((), ("127.0.0.1:1",), ("127.0.0.1:1", "no-slash"), ("127.0.0.1:1", "/a b"), ("127.0.0.1:1,link=p2p", "/"),
                          ("127.0.0.1:1", "/\r\nX: y")):
            self.assertEqual(run(self.program, *arguments).returncode, 2, arguments)


def take_program(program):
    HttpClient.program = program


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
