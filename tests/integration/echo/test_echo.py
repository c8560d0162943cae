#!/usr/bin/env python3
"""Promises of examples/echo_server, checked by ordinary TCP clients: this program's own sockets, and nc.

usage: test_echo.py ECHO_SERVER

Environment: GPUSOCK_TEST_SCALE (0 to 1) scales how much is echoed; GPUSOCK_TEST_SEED replays a run.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import hashlib
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import IDLE, LIMIT_S, SCALE, SEED, Server as AnyServer, connect_idle, main, make_room_for_descriptors  # noqa: E402


class Server(AnyServer):
    """The echo server as a process, listening at a port of its own choice."""

    program = ""

    def __init__(self, *options, endpoint="127.0.0.1:0,link=tcp"):
        super().__init__(self.program, endpoint, *options)


def random_chunks(rng, total_bytes):
    """Chunks of random bytes and random sizes, from one byte to far beyond a ring's turn."""
    left = total_bytes
    while left:
        size = min(left, rng.choice((1, rng.randrange(1, 100), rng.randrange(1, 70_000), rng.randrange(1, 3_000_000))))
        yield rng.randbytes(size)
        left -= size


def echo(client, chunks):
    """Sends all chunks while receiving; what was sent and what came back, as (bytes, SHA-256)."""
    sent, got = hashlib.sha256(), hashlib.sha256()
    got_bytes = 0

    def send():
        for chunk in chunks:
            sent.update(chunk)
            client.sendall(chunk)
        client.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    while data := client.recv(1 << 18):
        got.update(data)
        got_bytes += len(data)
    sender.join(LIMIT_S)
    return sent.hexdigest(), got.hexdigest(), got_bytes


def send_until_full(clients):
    """Sends on all of them, and reads nothing, until none takes any more."""
    for client in clients:
        client.setblocking(False)
    while ready := select.select([], clients, [], 0.2)[1]:
        for client in ready:
            try:
                client.send(bytes(1 << 20))
            except BlockingIOError:
                pass


class EchoServer(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(SEED)

    def expect_echo(self, server, seed, total_bytes):
        with server.connect() as client:
            sent, got, got_bytes = echo(client, random_chunks(random.Random(seed), total_bytes))
        self.assertEqual(got_bytes, total_bytes)
        self.assertEqual(got, sent)

    def test_echoes_100_mb_in_random_chunks_unchanged(self):
        with Server() as server:
            self.expect_echo(server, SEED, int(100_000_000 * SCALE))

    def test_echoes_100_mb_to_nc_unchanged(self):
        nc = shutil.which("nc")
        if nc is None:
            self.skipTest("nc is not installed")
        data = self.rng.randbytes(int(100_000_000 * SCALE))
        with Server() as server:
            done = subprocess.run([nc, "-N", server.address[0], str(server.address[1])], input=data,
                                  stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
        self.assertEqual(len(done.stdout), len(data))
        self.assertEqual(hashlib.sha256(done.stdout).hexdigest(), hashlib.sha256(data).hexdigest())

    def test_serves_several_clients_at_the_same_time(self):
        with Server("--blocks", "4") as server:
            # All four are connected and echo a byte before any goes on: none waits for another's end.
            clients = [server.connect() for _ in range(4)]
            for number, client in enumerate(clients):
                client.sendall(bytes([number]))
            for number, client in enumerate(clients):
                self.assertEqual(client.recv(1), bytes([number]))
            results = [None] * len(clients)

            def talk(number):
                chunks = random_chunks(random.Random(SEED + number), int(10_000_000 * SCALE))
                results[number] = echo(clients[number], chunks)

            threads = [threading.Thread(target=talk, args=(number,)) for number in range(len(clients))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_S)
            for client, (sent, got, got_bytes) in zip(clients, results):
                self.assertEqual(got_bytes, int(10_000_000 * SCALE))
                self.assertEqual(got, sent)
                client.close()

    def test_serves_more_clients_than_it_has_blocks_one_after_the_other(self):
        with Server("--blocks", "2") as server:
            for number in range(20):
                self.expect_echo(server, SEED + number, 1000 * number)

    def test_a_client_that_resets_takes_nobody_with_it(self):
        with Server("--blocks", "2") as server:
            for _ in range(5):
                client = server.connect()
                client.sendall(bytes(100_000))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends a reset
                client.close()
            self.expect_echo(server, SEED, 100_000)

    def test_clients_that_send_without_reading_and_leave_take_no_block_with_them(self):
        hold_four = (f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})\n"
                     "import test_echo, socket\n"
                     "clients = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(4)]\n"
                     "test_echo.send_until_full(clients)\nprint('full', flush=True)\nsys.stdin.read()\n")
        with Server("--blocks", "8") as server:
            host, port = server.address[:2]
            with subprocess.Popen([sys.executable, "-c", hold_four, host, str(port)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as killed:
                clients = [server.connect() for _ in range(4)]
                send_until_full(clients)
                self.assertEqual(killed.stdout.readline(), b"full\n")
                for client in clients:
                    client.close()
                killed.kill()
            with server.connect() as client:
                client.settimeout(LIMIT_S)
                client.sendall(b"x")
                self.assertEqual(client.recv(1), b"x")

    def say(self, client):
        client.sendall(b"x")
        self.assertEqual(client.recv(1), b"x")

    def test_a_block_serves_many_clients_at_the_same_time(self):
        with Server("--blocks", "2", "--connections", "40") as server:
            clients = [server.connect() for _ in range(40)]
            for _ in range(3):
                for client in clients:
                    self.say(client)
            for client in clients:
                client.close()

    def test_clients_that_neither_send_nor_read_are_reset(self):
        with Server("--blocks", "1", "--connections", "4", "--idle-ms", "50") as server:
            with server.connect() as silent, self.assertRaises(ConnectionError):
                silent.recv(1)
            with server.connect() as stopped, self.assertRaises(ConnectionError):
                while True:
                    stopped.sendall(bytes(1 << 20))  # and never reads

    def test_where_all_seats_are_taken_an_idle_client_makes_room(self):
        # One block, so that it is known who has to make room: whoever has been idle longest among all.
        with Server("--blocks", "1", "--connections", "4", "--displace-ms", "1") as server:
            idle = [server.connect() for _ in range(4)]
            for client in idle:
                self.say(client)
            stopped = [server.connect() for _ in range(4)]
            send_until_full(stopped)
            with server.connect() as client:
                self.say(client)
            for client in idle + stopped:
                client.close()

    def test_thousands_of_idle_clients_keep_nobody_out(self):
        count = max(200, int(IDLE * SCALE))
        make_room_for_descriptors(self, count)
        with Server("--connections", "64", "--displace-ms", "20") as server:
            idle = connect_idle(self, server, count)
            for _ in range(5):  # whoever comes after them is served
                with server.connect() as client:
                    self.say(client)
            del idle

    def test_ends_cleanly_on_sigint_and_sigterm_idle_or_with_a_client(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            with Server() as server:
                self.assertEqual(server.stop(which), 0)
            with Server() as server, server.connect() as client:
                client.sendall(b"x")
                self.assertEqual(client.recv(1), b"x")
                self.assertEqual(server.stop(which), 0)

    def test_listens_on_ipv6(self):
        if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("no IPv6 here")
        with Server(endpoint="[::1]:0,link=tcp") as server:
            self.expect_echo(server, SEED, 10_000)

    def run_program(self, *arguments):
        return subprocess.run([Server.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def test_an_address_in_use_is_a_failure_that_names_it(self):
        with Server() as server:
            taken = f"127.0.0.1:{server.address[1]}"
            done = self.run_program(taken + ",link=tcp")
        self.assertEqual(done.returncode, 1)
        self.assertIn(taken, done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(self.run_program("--help").returncode, 0)
        for arguments in ((), ("nonsense",), ("127.0.0.1:0,link=carrier-pigeon",), ("127.0.0.1:0", "--blocks", "0"),
                          ("127.0.0.1:0,type=seqpacket",)):  # a record may be longer than what echoes it
            done = self.run_program(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")


def take_program(program):
    Server.program = program


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
