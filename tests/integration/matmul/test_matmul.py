#!/usr/bin/env python3
"""Promises of examples/matmul_server, checked by ordinary TCP clients. Matrices hold small integers, whose products floats hold
exactly in whatever order they are summed.

usage: test_matmul.py MATMUL_SERVER

Environment: GPUSOCK_TEST_SCALE (0 to 1) scales how much is multiplied; GPUSOCK_TEST_SEED replays a run.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import array
import pathlib
import random
import signal
import socket
import struct
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, SCALE, SEED, Server, main, receive_all, reset, run  # noqa: E402

EPROTO, EMSGSIZE = 71, 90


def make_request(rng, rows, inner, columns):
    """The bytes to send, and those of the right answer."""
    a = [rng.randrange(-9, 10) for _ in range(rows * inner)]
    b = [rng.randrange(-9, 10) for _ in range(inner * columns)]
    b_columns = [b[column::columns] for column in range(columns)]
    c = [sum(x * y for x, y in zip(a[row * inner:(row + 1) * inner], column)) for row in range(rows) for column in b_columns]
    request = struct.pack("<4s3I", b"MMUL", rows, inner, columns)
    answer = struct.pack("<4I", 0, rows, columns, 0)
    return (request + array.array("f", a).tobytes() + array.array("f", b).tobytes(), answer + array.array("f", c).tobytes())


def random_size(rng, most):
    return rng.choice((1, rng.randrange(1, most + 1), 15, 16, 17, most))


class MatmulServer(unittest.TestCase):
    program = ""

    def setUp(self):
        self.rng = random.Random(SEED)

    def server(self, *options, endpoint="127.0.0.1:0,link=tcp"):
        return Server(self.program, endpoint, *options)

    def expect_product(self, client, rows, inner, columns, rng=None):
        request, answer = make_request(rng or self.rng, rows, inner, columns)
        client.sendall(request)
        self.assertEqual(receive_all(client, len(answer)), answer, f"{rows} x {inner} x {columns}")

    def test_products_of_all_sizes_are_right(self):
        with self.server("--size-max", "64") as server, server.connect() as client:
            for sizes in ((1, 1, 1), (16, 16, 16), (1, 64, 1), (64, 1, 64), (15, 17, 31), (64, 64, 64), (3, 50, 20)):
                self.expect_product(client, *sizes)

    def test_a_product_larger_than_the_rings_is_right(self):
        with self.server("--size-max", "300") as server, server.connect() as client:
            self.expect_product(client, 300, 3, 300)
            self.expect_product(client, 3, 300, 300)

    def test_requests_may_come_before_earlier_answers_are_read_and_in_any_pieces(self):
        requests = [make_request(self.rng, *(random_size(self.rng, 40) for _ in range(3))) for _ in range(10)]
        sent = b"".join(request for request, _ in requests)
        expected = b"".join(answer for _, answer in requests)
        with self.server() as server, server.connect() as client:

            def send():
                rest = memoryview(sent)
                while rest:
                    size = min(len(rest), self.rng.choice((1, 15, 16, 17, 1000, 30_000)))
                    client.sendall(rest[:size])
                    rest = rest[size:]
                client.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            self.assertEqual(receive_all(client, len(expected) + 1), expected)
            sender.join(LIMIT_S)

    def test_many_clients_at_once_get_their_own_products(self):
        failures = []

        def work(number):
            rng = random.Random(SEED + number)
            try:
                with server.connect() as client:
                    for _ in range(1 + int(5 * SCALE)):
                        self.expect_product(client, *(random_size(rng, 40) for _ in range(3)), rng=rng)
            except Exception as failure:  # told by the main thread
                failures.append(failure)

        with self.server("--blocks", "4") as server:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_S)
            self.assertEqual(failures, [])
            self.assertEqual(server.stop(), 0)
            self.assertIn(f"16 clients, {16 * (1 + int(5 * SCALE))} products, 0 requests refused", server.said)

    def test_bad_sizes_are_answered_with_an_error_and_the_connection_ends(self):
        refused = struct.pack("<4I", EMSGSIZE, 32, 32, 0)
        with self.server("--size-max", "32", "--blocks", "1") as server:
            for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (33, 1, 1), (1, 33, 1), (1, 1, 33), (2**32 - 1,) * 3, (2**31, 2, 1)):
                with server.connect() as client:
                    self.expect_product(client, 2, 3, 4)
                    client.sendall(struct.pack("<4s3I", b"MMUL", *sizes) + bytes(1000))
                    client.shutdown(socket.SHUT_WR)
                    self.assertEqual(receive_all(client, 100), refused, sizes)

    def test_rubbish_is_answered_with_an_error_and_disturbs_nobody(self):
        with self.server("--blocks", "2") as server, server.connect() as good:
            self.expect_product(good, 5, 6, 7)
            for rubbish in (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", bytes(16), self.rng.randbytes(1_000_000)):
                with server.connect() as client:
                    client.sendall(rubbish)
                    client.shutdown(socket.SHUT_WR)
                    self.assertEqual(receive_all(client, 100), struct.pack("<4I", EPROTO, 256, 256, 0))
                self.expect_product(good, 5, 6, 7)

    def test_clients_that_stop_half_way_disturb_nobody(self):
        request, _ = make_request(self.rng, 20, 20, 20)
        with self.server("--blocks", "2") as server, server.connect() as good:
            self.expect_product(good, 5, 6, 7)
            for size in (0, 1, 15, 16, 17, 1616, len(request) - 1):
                client = server.connect()
                client.sendall(request[:size])
                client.close()
                client = server.connect()
                client.sendall(request[:size])
                reset(client)
            self.expect_product(good, 5, 6, 7)
            with server.connect() as client:  # the other block is free again
                self.expect_product(client, 7, 6, 5)

    def test_a_client_that_goes_without_reading_its_products_disturbs_nobody(self):
        request, _ = make_request(self.rng, 64, 1, 64)
        with self.server("--blocks", "1") as server:
            client = server.connect()
            for _ in range(20):
                client.sendall(request)
            reset(client)
            with server.connect() as good:
                self.expect_product(good, 5, 6, 7)

    def test_a_silent_client_is_given_up_and_its_seat_is_another_s(self):
        with self.server("--blocks", "1", "--patience", "2") as server, server.connect() as silent, server.connect() as good:
            silent.sendall(b"MMUL")
            self.expect_product(good, 5, 6, 7)
            self.assertEqual(silent.recv(1), b"")

    def test_ends_cleanly_on_sigint_and_sigterm_idle_or_with_a_client(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            with self.server() as server:
                self.assertEqual(server.stop(which), 0)
            with self.server() as server, server.connect() as client:
                self.expect_product(client, 2, 2, 2)
                self.assertEqual(server.stop(which), 0)

    def test_an_address_in_use_is_a_failure_that_names_it(self):
        with self.server() as server:
            done = run(self.program, server.endpoint)
            self.assertEqual(done.returncode, 1)
            self.assertIn(server.where, done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(run(self.program, "--help").returncode, 0)
        for arguments in ((), ("nonsense",), ("127.0.0.1:0,link=carrier-pigeon",), ("127.0.0.1:0", "--size-max", "0"),
                          ("127.0.0.1:0,type=seqpacket",), ("127.0.0.1:0", "--size-max", "4096", "--blocks", "256")):
            done = run(self.program, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")


if __name__ == "__main__":
    sys.exit(main(__doc__, lambda program: setattr(MatmulServer, "program", program)))
