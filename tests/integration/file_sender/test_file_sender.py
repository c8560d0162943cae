#!/usr/bin/env python3
"""Promises of examples/file_sender: a file arrives whole, as zlib's CRC-32 says, or the error is clear.

usage: test_file_sender.py FILE_SENDER

Environment: GPUSOCK_TEST_SCALE (0 to 1) scales how much is sent; GPUSOCK_TEST_SEED replays a run; GPUSOCK_TEST_FABRIC: the build
has the fabric link.
Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, SCALE, SEED, Server, main, receive_all, reset, run  # noqa: E402

MAGIC = b"gpufile1"
FEW_THREADS = ("--blocks", "2", "--threads", "32")  # ThreadSanitizer's time goes into the number of threads at barriers
LINKS = ("auto", "p2p", "tcp") + (("fabric",) if os.environ.get("GPUSOCK_TEST_FABRIC") else ())  # that work on any machine
EPIPE, EPROTO, ETIMEDOUT = 32, 71, 110


class FileSender(unittest.TestCase):
    program = ""

    def setUp(self):
        self.rng = random.Random(SEED)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def receiver(self, *options, link="auto"):
        return Server(self.program, "receive", f"127.0.0.1:0,link={link}", *FEW_THREADS, *options, stderr=subprocess.PIPE)

    def make_file(self, size, name="file"):
        path = self.folder / name
        path.write_bytes(self.rng.randbytes(size))
        return path

    def make_endless(self):
        """A file that nobody sends whole within a test; it takes no room."""
        path = self.folder / "large"
        with open(path, "wb") as file:
            file.truncate(1 << 40)
        return path

    def send(self, where, path, *options):
        return run(self.program, "send", where, str(path), *options)

    def expect_sent(self, done, path):
        """The sender succeeded, and names the size, zlib's CRC-32 and a rate."""
        data = path.read_bytes()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{len(data)} bytes, crc32 {zlib.crc32(data):08x}, ", done.stdout)
        self.assertRegex(done.stdout, r"[0-9.]+ MB/s\n$")

    def test_a_file_arrives_whole_on_every_link(self):
        for link in LINKS:
            path = self.make_file(1 + int(30_000_000 * SCALE))
            with self.subTest(link=link), self.receiver(link=link) as server:
                self.assertIn(f",link={link}", server.endpoint)
                self.expect_sent(self.send(server.endpoint, path), path)

    def test_a_server_that_does_not_speak_gpusock_is_named_as_such(self):
        path = self.make_file(100)
        for answer in ("echo", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as listener:
                def serve():
                    with listener.accept()[0] as client:
                        hello = client.recv(1000)
                        client.sendall(hello if answer == "echo" else answer)

                server = threading.Thread(target=serve)
                server.start()
                done = self.send(f"127.0.0.1:{listener.getsockname()[1]},link=auto", path)
                server.join(LIMIT_S)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"warning: connecting to 127.*add link=tcp")
                self.assertRegex(done.stderr, r"connecting to 127.*: .*add link=tcp")

    def test_a_plain_tcp_client_is_named_to_a_gpusock_server(self):
        with self.receiver(link="auto") as server:
            with server.connect() as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                try:
                    self.assertEqual(client.recv(1), b"")
                except ConnectionError:
                    pass
            server.stop()
            self.assertRegex(server.errors, r"warning: listening at 127.*listen with link=tcp .*'GET / HTTP/1.1'")
        with self.receiver(link="auto") as server, server.connect() as silent:
            silent.settimeout(0.3)  # long enough to be told of
            with self.assertRaises(TimeoutError):
                silent.recv(1)
            server.stop()
            self.assertNotIn("connecting to", server.errors)

    def test_files_of_all_sizes_from_any_tcp_program_arrive_whole(self):
        sizes = (0, 1, 2, 32, 33, 34, 1000, 4096, 65_537, 262_143, 262_144, 262_145, 3_000_001)
        with self.receiver("--threads", "33", link="tcp") as server:
            for size in sizes:
                self.expect_answer(server, self.rng.randbytes(size))
            self.assertEqual(server.stop(), 0)
            self.assertIn(f"received {len(sizes)} files, {sum(sizes)} bytes; 0 not whole", server.said)

    def expect_answer(self, server, data):
        """The receiver answers an ordinary TCP client with the data's size and zlib's CRC-32."""
        with server.connect() as client:
            client.sendall(MAGIC + struct.pack("<Q", len(data)) + data)
            self.assertEqual(receive_all(client, 17), struct.pack("<QIi", len(data), zlib.crc32(data), 0))

    def test_one_program_sends_to_its_own_kernel(self):
        for size in (0, 1 + int(10_000_000 * SCALE)):
            path = self.make_file(size)
            for link in LINKS:
                with self.subTest(size=size, link=link):
                    self.expect_sent(run(self.program, "local", "--link", link, *FEW_THREADS, str(path)), path)

    def test_its_own_kernel_is_reached_on_verbs_or_it_says_that_there_is_none(self):
        done = run(self.program, "local", "--link", "verbs", str(self.make_file(10)))
        if done.returncode != 0:
            self.assertEqual(done.returncode, 1, done.stderr)  # not misuse: the link is known
            self.assertIn("no link verbs", done.stderr)

    def test_a_file_whose_size_is_not_what_it_holds_is_refused(self):
        done = run(self.program, "local", *FEW_THREADS, "/proc/self/status")  # whose size is said to be 0
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "/proc/self/status does not say its size.*send a copy")
        number = "/sys/kernel/uevent_seqnum"  # a few digits, whose size is said to be a page
        if os.path.exists(number) and os.path.getsize(number) > 100:
            done = run(self.program, "local", *FEW_THREADS, number)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, "/sys.*send a copy")

    def test_several_senders_at_once(self):
        paths = [self.make_file(1 + int(5_000_000 * SCALE), f"file{number}") for number in range(5)]
        with self.receiver("--blocks", "3") as server:
            senders = [subprocess.Popen([self.program, "send", server.where, str(path)], stdout=subprocess.PIPE, text=True)
                       for path in paths]
            for sender, path in zip(senders, paths):
                said, _ = sender.communicate(timeout=LIMIT_S)
                self.assertEqual(sender.returncode, 0)
                self.assertIn(f"crc32 {zlib.crc32(path.read_bytes()):08x}", said)

    def test_what_is_not_a_file_is_refused_and_disturbs_nobody(self):
        with self.receiver("--blocks", "1", link="tcp") as server:
            for rubbish in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(16), self.rng.randbytes(1_000_000)):
                with server.connect() as client:
                    client.sendall(rubbish)
                    client.shutdown(socket.SHUT_WR)
                    self.assertEqual(receive_all(client, 100), struct.pack("<QIi", 0, 0, EPROTO))
            self.expect_answer(server, b"a file")

    def test_a_sender_that_stops_half_way_is_told_and_disturbs_nobody(self):
        with self.receiver("--blocks", "1", link="tcp") as server:
            with server.connect() as client:
                client.sendall(MAGIC + struct.pack("<Q", 1_000_000) + bytes(1000))
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(receive_all(client, 100), struct.pack("<QIi", 1000, zlib.crc32(bytes(1000)), EPIPE))
            client = server.connect()
            client.sendall(MAGIC + struct.pack("<Q", 1_000_000) + bytes(1000))
            reset(client)
            self.expect_answer(server, b"a file")
            self.assertEqual(server.stop(), 0)
            # A connection that is reset before the kernel accepts it was never there.
            self.assertRegex(server.said, r"received 1 files, \d+ bytes; [12] not whole")

    def test_a_silent_sender_is_given_up(self):
        with self.receiver("--blocks", "1", "--patience", "2", link="tcp") as server, server.connect() as client:
            client.sendall(MAGIC + struct.pack("<Q", 10) + b"12345")
            self.assertEqual(receive_all(client, 100), struct.pack("<QIi", 5, zlib.crc32(b"12345"), ETIMEDOUT))

    def test_a_killed_sender_disturbs_nobody(self):
        small = self.make_file(1000, "small")
        with self.receiver("--blocks", "1") as server:
            large = self.make_endless()
            sender = subprocess.Popen([self.program, "send", server.where, str(large)], stderr=subprocess.DEVNULL)
            self.wait_until_sending(sender)
            sender.kill()
            sender.wait(LIMIT_S)
            self.expect_sent(self.send(server.where, small), small)

    def wait_until_sending(self, process):
        """The process is in the middle of its file."""
        while process.poll() is None:
            counters = dict(line.split(": ") for line in pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines())
            if int(counters["rchar"]) > 8 << 20:
                return
        self.fail("the sender ended early")

    def test_a_killed_receiver_is_a_clear_error(self):
        for link in ("p2p", "tcp"):
            with self.subTest(link=link), self.receiver(link=link) as server:
                large = self.make_endless()
                sender = subprocess.Popen([self.program, "send", f"{server.where},link={link}", str(large)],
                                          stderr=subprocess.PIPE, text=True)
                self.wait_until_sending(sender)
                server.stop(signal.SIGKILL)
                _, said = sender.communicate(timeout=LIMIT_S)
                self.assertEqual(sender.returncode, 1)
                self.assertRegex(said, r"file_sender: sending .*large, after \d+ of 1099511627776 bytes: \w+")

    def test_a_file_that_cannot_be_read_is_a_failure_that_names_it(self):
        with self.receiver() as server:
            for path in (self.folder / "nothing", self.folder, pathlib.Path("/dev/null")):
                done = self.send(server.where, path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(str(path), done.stderr)

    def test_a_receiver_that_is_not_there_is_a_failure_that_names_it(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            done = self.send(where, self.make_file(10))
        self.assertEqual(done.returncode, 1)
        self.assertIn(where, done.stderr)

    def test_a_peer_that_is_no_receiver_is_a_failure(self):
        path = self.make_file(10)
        for answer, message in ((b"", "ended the connection before it answered"),
                                (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answered is no file_sender"),
                                (struct.pack("<QIi", 10, 0, -5), "what answered is no file_sender"),
                                (struct.pack("<QIi", 11, 0, EPIPE), "what answered is no file_sender"),
                                (struct.pack("<QIi", 3, 0, EPIPE), "the receiver did not get all of it"),
                                (struct.pack("<QIi", 10, 1 + zlib.crc32(path.read_bytes()) & 0xFFFFFFFF, 0), "damaged")):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as listener:
                where = f"127.0.0.1:{listener.getsockname()[1]},link=tcp"

                def answer_and_end(listener=listener, answer=answer):
                    client, _ = listener.accept()
                    receive_all(client, 26)
                    client.sendall(answer)
                    client.close()

                thread = threading.Thread(target=answer_and_end)
                thread.start()
                done = self.send(where, path)
                thread.join(LIMIT_S)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)

    def test_ends_cleanly_on_sigint_and_sigterm_idle_or_with_a_sender(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            with self.receiver() as server:
                self.assertEqual(server.stop(which), 0)
            with self.receiver(link="tcp") as server, server.connect() as client:
                client.sendall(MAGIC + struct.pack("<Q", 1_000_000))
                self.assertEqual(server.stop(which), 0)

    def test_a_result_that_cannot_be_printed_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([self.program, "local", *FEW_THREADS, str(self.make_file(10))], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("was sent, but that cannot be printed", done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        for arguments in (("--help",), ("receive", "--help"), ("send", "--help"), ("local", "--help")):
            self.assertEqual(run(self.program, *arguments).returncode, 0, arguments)
        for arguments in ((), ("nonsense",), ("receive",), ("receive", "nonsense"), ("send", "127.0.0.1:7000"),
                          ("receive", "127.0.0.1:0", "--blocks", "0"), ("receive", "127.0.0.1:0,type=seqpacket"),
                          ("local", "--link", "carrier-pigeon", "file")):
            done = run(self.program, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")


if __name__ == "__main__":
    sys.exit(main(__doc__, lambda program: setattr(FileSender, "program", program)))
