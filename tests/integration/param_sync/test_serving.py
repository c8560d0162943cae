#!/usr/bin/env python3
"""param_sync serve: what it answers, whose weights it has, and what it does when the training, a client or the time does not do as it should.

usage: test_serving.py (with PARAM_SYNC, see support.py)

Exit status: 0 kept, 1 broken.
"""
import contextlib
import errno
import json
import pathlib
import signal
import socket
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import DATA, ENDLESS, PATIENCE_S, SMALL, kill_with_nodes, own_addresses, results, run, start, wait_for_line  # noqa: E402

MAGIC = b"ASK1"
HEAD = struct.Struct("<IiIIQQ")  # of an answer: serving/wire.hpp
MODEL = ["--data", DATA.folder, "--hidden", "16,8"]
STEPS = 2 * 600 // 20  # of SMALL with two nodes
IMAGES = (DATA.folder / "t10k-images-idx3-ubyte").read_bytes()[16:]
LABELS = (DATA.folder / "t10k-labels-idx1-ubyte").read_bytes()[8:]


def image(number):
    return IMAGES[DATA.PIXELS * number:DATA.PIXELS * (number + 1)]


class Client:
    def __init__(self, where):
        host, port = where.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def send(self, number):
        self.socket.sendall(MAGIC + struct.pack("<I", number) + image(number))

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self):
        """The id, errno, class, version and age of an answer, and its scores as they came."""
        name, error, label, classes, version, age_us = HEAD.unpack(self.read(HEAD.size))
        return name, error, label, version, age_us, self.read(4 * classes)

    def ask(self, number):
        self.send(number)
        return self.receive()

    def answered(self, number):
        """The first answer with scores: there may be no weights yet."""
        while (answer := self.ask(number))[1] != 0:
            assert answer[1] == errno.EAGAIN, answer
        return answer


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.weights = pathlib.Path(cls.folder.name) / "weights.safetensors"
        cls.accuracy = results("--nodes", 2, "--serial", *SMALL, "--save-weights", cls.weights)["accuracy"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def client(self, where):
        client = Client(where)
        self.addCleanup(client.socket.close)
        return client

    @contextlib.contextmanager
    def serving(self, *options, model=MODEL):
        """A server; gives its process and address. Ends it at the end of the `with`, and then its results are in `served`."""
        file = pathlib.Path(self.folder.name) / "served.json"
        server = start("serve", "127.0.0.1:0", *model, *options, "--json", file)
        try:
            yield server, wait_for_line(server, r"listening on (127\.0\.0\.1:\d+)")[1]
            server.send_signal(signal.SIGTERM)
            server.out, server.err = server.communicate(timeout=PATIENCE_S)
            self.assertEqual(server.returncode, 0, server.err)
            self.served = json.loads(file.read_text())
        finally:
            server.kill()
            server.communicate()

    @contextlib.contextmanager
    def training(self, publish="127.0.0.1:0"):
        """A training that does not end by itself; gives its process and where it publishes."""
        process = start("--nodes", 2, "--in-process", *ENDLESS, "--publish", publish, "--publish-every", 3)
        try:
            yield process, wait_for_line(process, r"publishing weights at (\S+)")[1]
        finally:
            kill_with_nodes(process)
            process.communicate()

    def test_answers_are_right_as_often_as_after_the_training(self):
        with self.serving("--weights", self.weights) as (_, where):
            status, out, err = run("ask", where, "--data", DATA.folder, "--connections", 7, "--json", "-")
            self.assertEqual((status, json.loads(out)["answered"], json.loads(out)["refused"]), (0, DATA.TEST, {}), err)
            self.assertAlmostEqual(json.loads(out)["accuracy"], self.accuracy, places=9)
        self.assertEqual((self.served["answered"], self.served["clients"]), (DATA.TEST, 7))

    def test_answers_do_not_depend_on_cohorts(self):
        found = []
        for options in (["--cohort", 1], ["--cohort", 32], ["--cohort", 5, "--blocks", 3]):
            with self.serving("--weights", self.weights, *options) as (server, where):
                clients = [self.client(where) for _ in range(30)]
                for number, client in enumerate(clients):
                    client.ask(number)  # all have a seat
                server.send_signal(signal.SIGSTOP)
                for number, client in enumerate(clients):
                    client.send(number)
                server.send_signal(signal.SIGCONT)
                found.append([client.receive() for client in clients])
            if "--blocks" not in options:
                self.assertEqual(self.served["largest_cohort"] > 1, options[1] > 1)
            self.assertLessEqual(self.served["largest_cohort"], options[1])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])
        self.assertEqual([answer[0] for answer in found[0]], list(range(30)))

    def test_weights_of_a_running_training(self):
        with self.training() as (training, published), self.serving("--from", published, "--poll-ms", 1) as (server, where):
            client = self.client(where)
            versions = [client.answered(0)[3]]
            while len(set(versions)) < 20:
                versions.append(client.answered(0)[3])
            self.assertEqual(versions, sorted(versions))
            self.assertTrue(all(version == 1 or version % 3 == 0 for version in versions), versions)
            training.kill()
            training.wait()
            old = client.answered(0)
            while (new := client.answered(0))[4] < old[4] + 20_000:  # the training is gone, and its last weights grow old
                self.assertLessEqual(new[3], versions[-1] + 10_000)
        self.assertIn("cannot be reached, and is looked for each second", server.err)
        self.assertGreaterEqual(self.served["versions_taken"], 20)
        self.assertGreaterEqual(self.served["age_ms_max"], 20)

    def test_weights_that_are_too_old_are_not_used(self):
        with self.training() as (training, published), self.serving("--from", published, "--stale-ms", 500) as (_, where):
            client = self.client(where)
            while client.ask(0)[1] != 0:
                pass
            training.send_signal(signal.SIGSTOP)
            while (answer := client.ask(0))[1] == 0:
                self.assertLessEqual(answer[4], 500_000)
            self.assertEqual(answer[1], errno.ESTALE)
            training.send_signal(signal.SIGCONT)
            while client.ask(0)[1] != 0:  # it goes on
                pass
        self.assertGreater(self.served["stale"], 0)

    def test_the_last_weights_of_a_training_are_kept(self):
        peers = own_addresses(2)
        arguments = ["--nodes", 2, "--peers", ",".join(peers), *SMALL]
        first = start("--rank", 0, *arguments, "--publish", "127.0.0.1:0", "--publish-every", 1000)
        published = wait_for_line(first, r"publishing weights at (127\.0\.0\.1:\d+)")[1]
        with self.serving("--from", published) as (server, where):
            second = start("--rank", 1, *arguments)
            for process in (first, second):
                self.assertEqual((process.communicate(timeout=PATIENCE_S)[1], process.returncode), ("", 0))
            client = self.client(where)
            while (answer := client.answered(0))[3] != STEPS or answer[4] != 0:
                pass
            right = sum(client.ask(number)[2] == label for number, label in enumerate(LABELS))
            self.assertAlmostEqual(right / DATA.TEST, self.accuracy, places=9)
        self.assertIn("has ended: its last weights are served", server.err)

    def test_a_training_is_the_same_if_it_publishes(self):
        for way in (["--scheme", "ring"], ["--sync", "bsp"]):
            hashes = [results("--nodes", 2, "--in-process", *SMALL, *way, *more)["weights_hash"]
                      for more in ([], ["--publish", "127.0.0.1:0", "--publish-every", 1])]
            self.assertEqual(*hashes)

    def test_a_training_of_other_layers_is_refused(self):
        with self.training() as (training, published):
            found = run("serve", "127.0.0.1:0", "--from", published, "--data", DATA.folder, "--hidden", "16,9")
            self.assertEqual(found[0], 1)
            self.assertIn("has other layers, or is none: give the same --model, --hidden, --batch-norm and --data", found[2])
            self.assertIsNone(training.poll())
            with self.serving("--from", published) as (_, where):  # the training goes on
                self.assertGreater(self.client(where).answered(0)[3], 0)

    def test_who_follows_a_training_cannot_disturb_it(self):
        for link in ("auto", "tcp"):
            with self.training(f"127.0.0.1:0,link={link}") as (training, published):
                host, port = published.split(",")[0].rsplit(":", 1)
                strangers = [socket.create_connection((host, int(port))) for _ in range(20)]
                for stranger, says in zip(strangers, 5 * (b"GET / HTTP/1.1\r\n\r\n" * 20, b"x", b"", bytes(23))):
                    self.addCleanup(stranger.close)
                    stranger.sendall(says)
                with self.serving("--from", published) as (_, where):
                    client = self.client(where)
                    before = client.answered(0)[3]
                    while client.answered(0)[3] < before + 300:  # half a question once cost a training almost all of its time
                        pass
                self.assertIsNone(training.poll())

    def test_what_is_no_request_ends_its_connection_alone(self):
        with self.serving("--weights", self.weights) as (_, where):
            good, bad, half, gone = (self.client(where) for _ in range(4))
            half.socket.sendall(MAGIC + b"half")
            gone.send(1)
            gone.socket.close()
            bad.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(bad.receive()[1], errno.EPROTO)
            self.assertRaises(EOFError, bad.receive)
            answer = good.ask(7)
            self.assertEqual(answer[:2], (7, 0))
            half.socket.sendall(image(0))
            self.assertEqual(half.receive()[1], 0)
        self.assertEqual(self.served["broken"], 1)

    def test_clients_beyond_the_seats_wait(self):
        with self.serving("--weights", self.weights, "--clients", 2) as (_, where):
            seated = [self.client(where) for _ in range(2)]
            for client in seated:
                client.ask(0)
            third = self.client(where)
            third.send(5)
            self.assertEqual(seated[0].ask(1)[:2], (1, 0))
            third.socket.setblocking(False)
            self.assertRaises(BlockingIOError, third.socket.recv, 1)
            third.socket.settimeout(PATIENCE_S)
            seated[0].socket.close()
            self.assertEqual(third.receive()[:2], (5, 0))

    def test_requests_that_would_be_late_are_refused(self):
        wide = ["--data", DATA.folder, "--hidden", "2048,2048"]
        weights = pathlib.Path(self.folder.name) / "wide.safetensors"
        results("--nodes", 1, "--serial", *wide, "--batch", 10, "--limit", 10, "--epochs", 1, "--save-weights", weights)
        for objective, late in ((5, True), (0, False)):
            with self.serving("--weights", weights, "--cohort", 1, "--objective-ms", objective, model=wide) as (_, where):
                clients = [self.client(where) for _ in range(60)]
                for client in clients:
                    client.send(0)
                errors = [client.receive()[1] for client in clients]
            self.assertEqual(set(errors) - {0}, {errno.ETIMEDOUT} if late else set())
            self.assertEqual(self.served["late"], errors.count(errno.ETIMEDOUT))

    def test_misuse_and_wrong_files_are_told(self):
        damaged = pathlib.Path(self.folder.name) / "damaged"
        damaged.write_bytes(self.weights.read_bytes()[:-1] + b"x")
        table = pathlib.Path(self.folder.name) / "table.csv"
        table.write_text("1,2,a\n3,4,b\n")
        for status, options, problem in (
                (2, [], "give either --weights FILE or --from HOST:PORT"),
                (2, ["--weights", self.weights, "--from", "127.0.0.1:1"], "give either"),
                (2, ["--weights", self.weights, "--stale-ms", 5], "--stale-ms needs --from"),
                (2, ["--weights", self.weights, "--blocks", 3, "--clients", 2], "--clients is less than --blocks"),
                (2, ["--weights", self.weights, "--data", table], "images are served"),
                (2, ["--weights", self.weights, "--model", "lenet"], "--hidden is for --model mlp"),
                (1, ["--weights", damaged], "are damaged"),
                (1, ["--weights", "/nowhere"], "cannot read the weights /nowhere"),
                (1, ["--weights", self.weights, "--hidden", "8,16"], "other layers")):
            found = run("serve", "127.0.0.1:0", *MODEL, *options)
            self.assertEqual(found[0], status, options)
            self.assertIn(problem, found[2])
        for options, problem in ((["--serial", "--publish", "127.0.0.1:0"], "publishes no weights"),
                                 (["--publish-every", 5], "needs --publish"),
                                 (["--publish", "127.0.0.1:0,type=seqpacket"], "leave out type=seqpacket")):
            found = run(*SMALL, *options)
            self.assertEqual(found[0], 2)
            self.assertIn(problem, found[2])
        busy = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(busy.close)
        found = run("--nodes", 2, *SMALL, "--publish", f"127.0.0.1:{busy.getsockname()[1]}")
        self.assertEqual((found[0], "Address already in use" in found[2]), (1, True), found)
        self.assertEqual(run("ask", f"127.0.0.1:{busy.getsockname()[1]}x")[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
