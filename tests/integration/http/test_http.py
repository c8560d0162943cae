#!/usr/bin/env python3
"""Promises of examples/http_server, checked by real clients: curl, wrk, and raw sockets for what those would not send.

usage: test_http.py HTTP_SERVER

Environment: GPUSOCK_TEST_SCALE (0 to 1) scales how much is sent; GPUSOCK_TEST_SEED replays a run.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import contextlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import IDLE, LIMIT_S, SCALE, SEED, Server as AnyServer, connect_idle, main, make_room_for_descriptors  # noqa: E402

MB = 1_000_000
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Server(AnyServer):
    """The web server as a process, listening at a port of its own choice."""

    program = ""

    def __init__(self, *options, endpoint="127.0.0.1:0"):
        # As on a GPU. The CPU device has one by default: a class of its own tests that.
        threads = () if "--threads" in options else ("--threads", "32")
        super().__init__(self.program, endpoint, *threads, *options, stderr=subprocess.PIPE)

    def stop(self, which=signal.SIGTERM):
        """Ends it; (status, what it printed since, its errors)."""
        return super().stop(which), self.said, self.errors

    def url(self, path="/"):
        return f"http://{self.where}{path}"


class Answers:
    """Reads answers from a connection, one after the other."""

    def __init__(self, connection):
        self.connection, self.left = connection, b""

    def _more(self):
        data = self.connection.recv(1 << 16)
        if not data:
            raise EOFError(f"the stream ended within an answer: {self.left[:200]!r}")
        self.left += data

    def next(self, to_head=False):
        """(status, fields, body)"""
        while b"\r\n\r\n" not in self.left:
            self._more()
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if to_head else int(fields.get("content-length", "0"))
        while len(self.left) < length:
            self._more()
        body, self.left = self.left[:length], self.left[length:]
        return int(first.split()[1]), fields, body

    def at_end(self):
        return not self.left and self.connection.recv(1) == b""


def ask(server, *pieces):
    """Sends the pieces on a connection of their own; its first answer."""
    with server.connect() as client:
        for piece in pieces:
            client.sendall(piece)
        return Answers(client).next()


def primes_up_to(n):
    return sum(all(number % divisor for divisor in range(2, number)) for number in range(2, n + 1))


def post(body, fields=b""):
    return b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), fields, body)


def hoard(clients):
    """They ask, and never read, until the server takes no more."""
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0.05)
        with contextlib.suppress(OSError):
            while True:
                client.sendall(post(bytes(100_000)))


class WithServer(unittest.TestCase):
    """One server for all tests of the class: what one test does to it must not disturb the next."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options)

    @classmethod
    def tearDownClass(cls):
        status, _, errors = cls.server.stop(signal.SIGTERM)
        if status != 0 or errors:
            raise RuntimeError(f"the server exited with {status}: {errors}")

    def setUp(self):
        self.rng = random.Random(SEED)


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Curl(WithServer):
    def curl(self, *arguments, data=None):
        done = subprocess.run(["curl", "-sS", "--max-time", str(LIMIT_S), *arguments], input=data, capture_output=True,
                              timeout=2 * LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_gets_the_page(self):
        self.assertIn(b"<h1>Served by a kernel</h1>", self.curl(self.server.url()))

    def test_asks_many_times_on_one_connection(self):
        urls = [self.server.url(f"/primes?n={n}") for n in range(30)]
        told = self.curl("-v", "-w", "\n%{num_connects}\n", *urls).split()
        self.assertEqual([int(number) for number in told[1::2]], [1] + [0] * 29)
        self.assertEqual([int(count) for count in told[0::2]], [primes_up_to(n) for n in range(30)])

    def test_counts_primes(self):
        for n, primes in ((0, 0), (2, 1), (3, 2), (32_770, 3512), (32_771, 3513), (100_000, 9592), (999_983, 78_498),
                          (1_000_000, 78_498)):
            self.assertEqual(int(self.curl(self.server.url(f"/primes?n={n}"))), primes, n)

    def test_echoes_a_body_of_1_mb(self):
        body = self.rng.randbytes(MB)
        for extra in ((), ("-H", "Expect: 100-continue"), ("-H", "Transfer-Encoding: chunked"), ("-0",)):
            self.assertTrue(self.curl(*extra, "--data-binary", "@-", self.server.url("/echo"), data=body) == body, extra)

    def test_waits_for_100_continue_and_gets_it(self):
        # curl would send the body anyway after its patience; so much patience that the test would fail instead.
        sent = self.curl("--expect100-timeout", str(2 * LIMIT_S), "-H", "Expect: 100-continue", "--data-binary", "@-",
                         self.server.url("/echo"), data=b"x" * 10)
        self.assertEqual(sent, b"x" * 10)

    def test_sends_large_bodies_one_after_the_other_on_one_connection(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.rng.randbytes(MB))
            file.flush()
            arguments = []
            for _ in range(3):
                arguments += ["--next", "-sS", "-o", "-", "-w", "%{stderr}%{num_connects}", "--data-binary", "@" + file.name,
                              self.server.url("/echo")]
            done = subprocess.run(["curl", *arguments[1:]], capture_output=True, timeout=LIMIT_S, check=True)
            with open(file.name, "rb") as sent:
                self.assertTrue(done.stdout == 3 * sent.read())
            self.assertEqual(done.stderr, b"100")

    def test_head_describes_what_get_sends(self):
        head = self.curl("-I", self.server.url())
        self.assertIn(b"Content-Length: %d\r\n" % len(self.curl(self.server.url())), head)

    def test_gets_stats_as_json(self):
        self.curl(self.server.url())
        stats = json.loads(self.curl(self.server.url("/stats")))
        page = stats["kinds"]["page"]
        self.assertGreaterEqual(page["requests"], page["cohorts"])
        self.assertGreaterEqual(page["cohorts"], 1)
        self.assertEqual(sum(page["sizes"].values()), page["cohorts"])


class CurlWithBlocksOfOneThread(Curl):
    options = ("--threads", "1")


class RawSockets(WithServer):
    options = ("--body-max", "1M")

    def expect_alive(self):
        self.assertEqual(ask(self.server, GET)[0], 200)

    def test_answers_pipelined_requests_in_their_order(self):
        count = max(20, int(1000 * SCALE))
        bodies = [self.rng.randbytes(self.rng.choice((0, 1, 100, 20_000))) for _ in range(count)]
        with self.server.connect() as client:
            answers = Answers(client)
            # In batches: a client that never reads while it sends would wait for a server that waits for it to read.
            for first in range(0, count, 10):
                batch = bodies[first:first + 10]
                client.sendall(b"".join(b"GET /primes?n=%d HTTP/1.1\r\nHost: a\r\n\r\n" % (index % 7) + post(body)
                                        for index, body in enumerate(batch)))
                for index, body in enumerate(batch):
                    self.assertEqual(answers.next()[2], b"%d\n" % (0, 0, 1, 2, 2, 3, 3)[index % 7])
                    self.assertTrue(answers.next()[2] == body)

    def test_answers_what_was_pipelined_before_the_clients_end(self):
        with self.server.connect() as client:
            client.sendall(GET * 5 + b"GET / HT")
            client.shutdown(socket.SHUT_WR)
            answers = Answers(client)
            for _ in range(5):
                self.assertEqual(answers.next()[0], 200)
            self.assertTrue(answers.at_end())

    def test_reads_requests_that_come_byte_by_byte(self):
        request = post(b"hello") + CHUNKED + b"2\r\nhe\r\n3;x\r\nllo\r\n0\r\nT: x\r\n\r\n"
        with self.server.connect() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in request:
                client.sendall(bytes([byte]))
            answers = Answers(client)
            for _ in range(2):
                self.assertEqual(answers.next()[2], b"hello")

    def test_decodes_many_tiny_chunks(self):
        body = self.rng.randbytes(max(2000, int(100_000 * SCALE)))
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        with self.server.connect() as client:
            client.sendall(CHUNKED + chunks + b"0\r\n\r\n" + GET)
            answers = Answers(client)
            self.assertTrue(answers.next()[2] == body)
            self.assertEqual(answers.next()[0], 200)

    def test_refuses_bad_requests_and_ends_their_connection(self):
        for request, status in (
            (b"nonsense\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\nHost: a\n\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),  # a browser that tries TLS
            (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400), (CHUNKED + b"x\r\n", 400), (CHUNKED + b"5 garbage\r\n", 400),
            (CHUNKED + b"0\r\nno trailer\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
            (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", 413), (CHUNKED + b"100001\r\n", 413),
            (b"GET /" + b"x" * 9000, 414), (b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
            (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 9000, 431), (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
            (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501), (b"GET / HTTP/2.0\r\n\r\n", 505)):
            with self.subTest(request=request[:60]), self.server.connect() as client:
                client.sendall(request)
                answers = Answers(client)
                got, fields, _ = answers.next()
                self.assertEqual((got, fields["connection"]), (status, "close"))
                self.assertTrue(answers.at_end())
        self.expect_alive()

    def test_refuses_what_it_does_not_have_and_goes_on(self):
        with self.server.connect() as client:
            answers = Answers(client)
            for request, status, allow in ((b"GET /nothing", 404, None), (b"GET /primes?n=x", 400, None),
                                           (b"GET /echo", 405, "POST"), (b"DELETE /", 405, "GET, HEAD"), (b"GET /", 200, None)):
                client.sendall(request + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                got, fields, _ = answers.next()
                self.assertEqual((got, fields.get("allow")), (status, allow), request)

    def test_a_refused_body_on_its_way_does_not_cost_the_answer(self):
        with self.server.connect() as client:
            client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n")
            try:
                client.sendall(bytes(2_000_000))
            except ConnectionError:
                self.fail("reset while sending what the server knows about")
            self.assertEqual(Answers(client).next()[0], 413)

    def test_ends_or_keeps_connections_as_asked(self):
        for request, kept in ((GET, True), (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
                              (b"GET / HTTP/1.0\r\n\r\n", False), (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True)):
            with self.subTest(request=request), self.server.connect() as client:
                client.sendall(request)
                answers = Answers(client)
                fields = answers.next()[1]
                self.assertEqual(fields.get("connection"), None if request == GET else "keep-alive" if kept else "close")
                if kept:
                    client.sendall(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
                    self.assertEqual(answers.next(to_head=True)[0], 200)
                else:
                    self.assertTrue(answers.at_end())

    def test_a_client_that_resets_disturbs_nobody(self):
        for request in (b"", b"GET / HT", post(bytes(MB))[:5000], post(bytes(MB))):
            client = self.server.connect()
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends a reset
            client.close()
        self.expect_alive()


class SlowClients(WithServer):
    options = ("--timeout-ms", "300", "--connections", "4", "--blocks", "2", "--when-full", "wait")

    def test_are_told_and_cut_off_within_a_request(self):
        for request in (b"GET / HT", post(b"12345")[:-1], CHUNKED + b"5\r\nab"):
            with self.subTest(request=request), self.server.connect() as client:
                client.sendall(request)
                answers = Answers(client)
                self.assertEqual(answers.next()[0], 408)
                self.assertTrue(answers.at_end())

    def test_are_cut_off_without_a_word_between_requests(self):
        with self.server.connect() as client:
            client.sendall(GET)
            answers = Answers(client)
            self.assertEqual(answers.next()[0], 200)
            self.assertTrue(answers.at_end())

    def test_drops_of_bytes_do_not_buy_more_time(self):
        with self.server.connect() as client:
            client.settimeout(0.02)
            data = b""
            while b"\r\n\r\n" not in data:
                try:
                    client.sendall(b"x")
                    data += client.recv(1000)
                except TimeoutError:
                    pass
            self.assertTrue(data.startswith(b"HTTP/1.1 408 ") or data.startswith(b"HTTP/1.1 414 "), data)

    def test_who_do_not_take_their_answers_make_room_for_others(self):
        hoarders = [self.server.connect() for _ in range(4)]  # as many as the server serves at a time
        hoard(hoarders)
        self.assertEqual(ask(self.server, GET)[0], 200)
        for client in hoarders:
            client.close()

    def test_hold_up_nobody_else_while_they_last(self):
        slow = [self.server.connect() for _ in range(3)]
        for client in slow:
            client.sendall(b"GET / HT")
        self.assertEqual(ask(self.server, GET)[0], 200)
        for client in slow:
            client.close()

    def test_more_clients_than_connections_wait_their_turn(self):
        clients = [self.server.connect() for _ in range(20)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for client in clients:
            self.assertEqual(Answers(client).next()[0], 200)
            client.close()


class Full(unittest.TestCase):
    """All connections are taken."""

    def sit(self, server, count):
        """Clients that were answered once, so they have seats; they keep them."""
        clients = [server.connect() for _ in range(count)]
        for client in clients:
            self.addCleanup(client.close)
            client.sendall(GET)
            self.assertEqual(Answers(client).next()[0], 200)
        return clients

    def test_a_new_client_gets_503_while_the_others_are_busy(self):
        with Server("--connections", "4", "--blocks", "2", "--timeout-ms", "600000", "--displace-ms", "600000") as server:
            busy = self.sit(server, 4)
            for client in busy:
                client.sendall(b"GET / HT")  # half a request
            for request in (GET, b"GET /primes?n=1 HTTP/1.0\r\n\r\n", post(bytes(100))):
                with server.connect() as client:
                    client.sendall(request)
                    answers = Answers(client)
                    status, fields, body = answers.next()
                    self.assertEqual((status, fields["retry-after"], fields["connection"]), (503, "1", "close"))
                    self.assertEqual(body, b"503 Service Unavailable\n")
                    self.assertTrue(answers.at_end())
            for client in busy:
                client.sendall(b"TP/1.1\r\nHost: a\r\n\r\n")
                self.assertEqual(Answers(client).next()[0], 200)
            busy[0].close()
            self.until_answered(server)  # there is a seat again
            _, said, _ = server.stop()
            self.assertRegex(said, r"all connections were taken: 0 idle or slow clients made room, [0-9]+ new ones got 503")

    def until_answered(self, server):
        """Asks again while it is told to, as Retry-After says, without the waiting. A client that is slow to ask may lose its seat."""
        for _ in range(10_000):
            with contextlib.suppress(EOFError, ConnectionError):
                if ask(server, GET)[0] == 200:
                    return
        self.fail("503 for ever")

    def test_a_new_client_takes_the_seat_of_the_one_that_was_idle_longest(self):
        with Server("--connections", "3", "--blocks", "1", "--displace-ms", "1", "--timeout-ms", "60000") as server:
            idle = self.sit(server, 3)
            new = server.connect()
            self.addCleanup(new.close)
            new.sendall(GET)
            status = Answers(new).next()[0]
            self.assertIn(status, (200, 503))  # 503: within the millisecond
            self.until_answered(server)
            self.assertTrue(Answers(idle[0]).at_end())

    def test_slow_requests_keep_nobody_out(self):
        # Three times as many as there are seats, who come again when they are cut off; no time limit ends a request.
        starts = (b"GET / H", post(bytes(100_000))[:-90_000], CHUNKED + b"5", b"")
        with Server("--connections", "8", "--displace-ms", "50", "--timeout-ms", "600000") as server:
            slow = {}

            def send_a_byte_each():
                for number in range(24):
                    with contextlib.suppress(OSError):
                        if number in slow:
                            slow[number].send(b"0")
                            with contextlib.suppress(BlockingIOError):
                                if slow[number].recv(1000):
                                    continue
                                slow.pop(number).close()
                            continue
                    if number in slow:
                        slow.pop(number).close()
                    slow[number] = server.connect()
                    self.addCleanup(slow[number].close)
                    slow[number].setblocking(False)
                    slow[number].send(starts[number % len(starts)])

            for _ in range(5):
                send_a_byte_each()
                with server.connect() as client:
                    client.sendall(GET)
                    client.settimeout(0.01)
                    answer = b""
                    while b"\r\n\r\n" not in answer:
                        try:
                            answer += client.recv(1000)
                        except TimeoutError:
                            send_a_byte_each()
                    self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
            self.assertIn(" 0 new ones got 503", server.stop()[1])

    def test_who_do_not_take_their_answers_make_room(self):
        with Server("--connections", "2", "--displace-ms", "20", "--timeout-ms", "600000") as server:
            hoarders = self.sit(server, 2)
            hoard(hoarders)
            for _ in range(2):
                self.sit(server, 1)

    def test_thousands_of_idle_clients_keep_nobody_out(self):
        count = max(200, int(IDLE * SCALE))
        make_room_for_descriptors(self, count)
        with Server("--connections", "64", "--timeout-ms", "600000", "--displace-ms", "20") as server:
            active = self.sit(server, 4)

            def stay_active():
                for at, client in enumerate(active):
                    active[at] = self.answered(server, client)

            connect_idle(self, server, count, between=stay_active)
            stay_active()
            self.until_answered(server)

    def answered(self, server, client):
        """An active client has its answer, if on another connection: the server may close one that is idle."""
        for _ in range(10_000):
            try:
                client.sendall(GET)
                status, _, _ = Answers(client).next()
                if status == 200:
                    return client
            except (EOFError, ConnectionError):
                pass
            client.close()
            client = server.connect()
            self.addCleanup(client.close)
        self.fail("never served")


class Cohorts(unittest.TestCase):
    def test_similar_requests_are_executed_together_and_answered_each(self):
        # A cohort waits for long, unless it is full or every connection has asked: so each turn is one cohort, but for the
        # first one, which may begin before all clients are accepted; it then waits once, and no client is cut off meanwhile.
        with Server("--blocks", "1", "--connections", "16", "--cohort", "16", "--delay-us", "8000000", "--timeout-ms",
                    "120000") as server:
            clients = [server.connect() for _ in range(16)]
            for path in ("/", "/primes?n=100", "/primes?n=40000"):  # after the first turn all are accepted
                for client in clients:
                    client.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
                for client in clients:
                    status, _, body = Answers(client).next()
                    self.assertEqual(status, 200)
                    self.assertIn(body, {b"25\n", b"4203\n"} if "primes" in path else {body})
            for index, client in enumerate(clients):  # each has its own answer
                client.sendall(b"GET /primes?n=%d HTTP/1.1\r\nHost: a\r\n\r\n" % index)
            for index, client in enumerate(clients):
                self.assertEqual(Answers(client).next()[2], b"%d\n" % primes_up_to(index))
            for client in clients:
                client.close()
            status, output, _ = server.stop(signal.SIGTERM)
        self.assertEqual(status, 0)
        self.assertIn("primes: 48 requests in 3 cohorts of 16 on average, the largest of 16", output)

    def test_of_one_serve_each_request_by_itself(self):
        with Server("--cohort", "1") as server:
            with server.connect() as client:
                client.sendall(GET * 10)
                answers = Answers(client)
                for _ in range(10):
                    self.assertEqual(answers.next()[0], 200)
            _, output, _ = server.stop(signal.SIGTERM)
        self.assertIn("page: 10 requests in 10 cohorts of 1 on average, the largest of 1", output)


class Load(unittest.TestCase):
    @unittest.skipIf(shutil.which("wrk") is None, "wrk is not installed")
    def test_64_connections_of_wrk_see_no_error(self):
        with Server() as server:
            for path in ("/", "/primes?n=1000"):
                done = subprocess.run(["wrk", "-t1", "-c64", "-d1s", "--timeout", "60s", "--latency", server.url(path)],
                                      capture_output=True, text=True, timeout=LIMIT_S, check=True)
                self.assertNotRegex(done.stdout, "Socket errors|Non-2xx", done.stdout)
                self.assertGreater(int(re.search(r"(\d+) requests in", done.stdout)[1]), 0, done.stdout)
            self.assertEqual(ask(server, GET)[0], 200)
            status, output, errors = server.stop(signal.SIGTERM)
        self.assertEqual((status, errors), (0, ""))  # under ASan: nothing leaked either
        self.assertRegex(output, "page: .*\nprimes: ")


class Program(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([Server.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def test_ends_cleanly_on_sigint_and_sigterm_with_a_request_half_sent(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            with Server() as server, server.connect() as client:
                client.sendall(GET + b"GET / HT")
                self.assertEqual(Answers(client).next()[0], 200)
                self.assertEqual(server.stop(which)[0], 0)

    def test_an_address_in_use_is_a_failure_that_names_it(self):
        with Server() as server:
            done = self.run_program(server.where)
            self.assertEqual(done.returncode, 1)
            self.assertIn(server.where, done.stderr)

    def test_listens_once_its_memory_is_made(self):
        """Where there is neither the memory nor the port, the memory is what it complains about."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            limited = f"ulimit -v {3 << 20} && exec \"$@\""
            done = subprocess.run(["bash", "-c", limited, "-", Server.program, where, "--connections", "2048", "--body-max", "1900K"],
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if "Sanitizer" in done.stderr or os.environ.get("GPUSOCK_TEST_NEEDS_GPU"):
            self.skipTest("it needs more addresses than that in any case")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "allocating [0-9]* bytes of device memory")

    def test_more_clients_can_connect_at_once_than_the_backlog_holds(self):
        """The system's queue is as long as it allows: nobody has to try again, though the server does nothing now."""
        count, allowed = 1000, int(pathlib.Path("/proc/sys/net/core/somaxconn").read_text())
        if allowed < count:
            self.skipTest(f"net.core.somaxconn is {allowed}")
        make_room_for_descriptors(self, count)
        with Server() as server:
            server.process.send_signal(signal.SIGSTOP)
            try:
                waiting = select.poll()
                for client in connect_idle(self, server, count):
                    waiting.register(client, select.POLLOUT)
                connected = len(waiting.poll(0))
            finally:
                server.process.send_signal(signal.SIGCONT)
        self.assertEqual(connected, count)

    def test_errors_quote_the_endpoint_as_it_was_typed(self):
        done = self.run_program("127.0.0.1:1x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("endpoint '127.0.0.1:1x': ", done.stderr)

    def test_more_memory_than_can_be_meant_is_refused_by_the_names_of_the_options(self):
        done = self.run_program("127.0.0.1:0", "--connections", "2048", "--body-max", "256M")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--connections x --body-max: together they take 5243", done.stderr)

    def test_is_plain_tcp_whatever_the_environment_says_of_links(self):
        with unittest.mock.patch.dict("os.environ", GPUSOCK_LINK="p2p"), Server() as server:
            self.assertEqual(ask(server, GET)[0], 200)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(self.run_program("--help").returncode, 0)
        for arguments in ((), ("nonsense",), ("127.0.0.1:0,link=p2p",), ("127.0.0.1:0,type=seqpacket",),
                          ("127.0.0.1:0", "--cohort", "0"),
                          ("127.0.0.1:0", "--blocks", "0")):
            done = self.run_program(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")


def take_program(program):
    Server.program = program


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
