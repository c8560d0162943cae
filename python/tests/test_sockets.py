"""Promises of sockets from Python: peers that are kernels and peers that are processes, each kind of memory, and what
socket.socket does: timeouts, poll, ends, errors, signals, threads, forks, and the end of a program."""

import array
import collections
import errno
import glob
import importlib.util
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import zlib

import gpusock
import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from server import Server  # noqa: E402

os.environ.setdefault("GPUSOCK_LOG", "error")  # peers that are killed are no warning here
ANYWHERE = "127.0.0.1:0,link="
RING = 64 << 10
LONG_S = 30  # what never takes so long: else the test fails


def links():
    """The links of this machine, without those that need an RDMA device."""
    with gpusock.Context() as context:
        try:
            with context.listen(ANYWHERE + "fabric") as listener:
                context.connect(listener.address)
        except OSError as error:
            if error.errno not in (errno.EPROTONOSUPPORT, errno.ENODEV):
                raise
            return ("p2p", "tcp")
    return ("p2p", "tcp", "fabric")


LINKS = links()


def kernel(name):
    """The path of an example, in whose kernel the peer is. ./run test --only python builds it beside the package."""
    built = os.environ.get("GPUSOCK_TEST_BUILD", str(ROOT / "build/python/*"))
    for pattern in (built + "/gpusock/examples", str(ROOT / "build/host/examples")):
        for folder in glob.glob(pattern):
            if os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
    raise unittest.SkipTest(f"there is no {name}: ./run build host")


def program(text, *arguments):
    """A Python program as a process. What it writes to standard error is there, too."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Interrupted(Exception):
    pass


class Exporter:
    """An object that has DLPack and no buffer protocol, and knows versions of DLPack or not."""

    def __init__(self, of, versions=True, device=None):
        self.of, self.versions, self.device = of, versions, device

    def __dlpack_device__(self):
        return self.device or self.of.__dlpack_device__()

    def __dlpack__(self, **options):
        if options and not self.versions:
            raise TypeError("unexpected keyword")
        return self.of.__dlpack__(**options)


class SocketTest(unittest.TestCase):
    def setUp(self):
        self.context = gpusock.Context(timeout=LONG_S, ring_bytes=RING, handshake_timeout=2 * LONG_S)
        self.addCleanup(self.context.close)

    def pair(self, link="p2p", kind="stream"):
        """Two sockets that are connected to each other."""
        with self.context.listen(f"{ANYWHERE}{link},type={kind}") as listener:
            one = self.context.connect(listener.address)
            other, peer = listener.accept()
        self.assertEqual(peer, one.getsockname())
        self.assertEqual((one.getpeername(), one.link, other.link), (other.getsockname(), link, link))
        return one, other

    def error(self, kind, number, call, *arguments):
        """The error that a call raises: of this class and number, with the number's name in the text."""
        with self.assertRaises(kind) as raised:
            call(*arguments)
        self.assertEqual(raised.exception.errno, number)
        self.assertIn(errno.errorcode[number], str(raised.exception))
        return raised.exception

    def alarm(self, handler):
        """Calls a function in this thread, in the middle of a call that waits."""
        before = signal.signal(signal.SIGALRM, lambda *_: handler())
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.15)

    def interrupt(self):
        raise Interrupted

    def waiting(self, call, *arguments):
        """Starts a thread that makes a call, and returns it, and a list for the call's error."""
        began, errors = threading.Event(), []

        def body():
            began.set()  # the thread keeps the GIL until it waits in the call
            try:
                call(*arguments)
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        began.wait()
        return thread, errors


class Kernels(SocketTest):
    def test_a_kernel_echoes_each_kind_of_memory(self):
        sent = numpy.arange(1000, dtype=numpy.int32)
        source = sent.tobytes()
        flat = torch.from_numpy(sent)
        senders = [
            source,
            bytearray(source),
            memoryview(source),
            array.array("i", sent.tolist()),
            sent,
            sent.reshape(10, 100),
            flat,
            flat.reshape(10, 100)[None],
            flat.view(torch.bfloat16),
            Exporter(sent),
            Exporter(sent, versions=False),
        ]
        fixed = numpy.zeros_like(sent)
        fixed.flags.writeable = False
        for link in LINKS:
            with Server(kernel("echo_server"), ANYWHERE + link) as server:
                with self.context.connect(server.endpoint) as peer:
                    self.assertEqual(peer.link, link)
                    for data in senders:
                        peer.sendall(data)
                        self.assertEqual(peer.recv(len(source), socket.MSG_WAITALL), source)
                    for make in (
                        lambda: bytearray(len(source)),
                        lambda: memoryview(bytearray(len(source))),
                        lambda: numpy.zeros_like(sent),
                        lambda: torch.zeros(10, 100, dtype=torch.int32),
                        lambda: Exporter(numpy.zeros_like(sent)),
                        lambda: Exporter(torch.zeros(1000, dtype=torch.int32), versions=False),
                    ):
                        memory = make()
                        peer.sendall(sent)
                        self.assertEqual(peer.recv_into(memory, 0, socket.MSG_WAITALL), len(source))
                        inside = memory.of if isinstance(memory, Exporter) else memory
                        self.assertEqual(numpy.asarray(inside).tobytes(), source)
                    part = torch.full((4,), 7, dtype=torch.int64)[1:3]  # begins in the middle
                    peer.sendall(part)
                    self.assertEqual(peer.recv(16, socket.MSG_WAITALL), struct.pack("qq", 7, 7))
        one, _ = self.pair()
        for bad, kind, word in (
            ("text", TypeError, "not str"),
            (3, TypeError, "not int"),
            (Exporter(sent, device=(2, 0)), TypeError, "copy it to the CPU"),
            (flat.reshape(10, 100)[:, :50], BufferError, "not contiguous"),
            (sent[::2], ValueError, "contiguous"),
            (torch.ones(3, requires_grad=True), BufferError, "gradient"),
        ):
            for call in (one.send, one.sendall, one.recv_into):
                with self.assertRaisesRegex(kind, word):
                    call(bad)
        for bad in (b"bytes", fixed, Exporter(fixed)):
            with self.assertRaises((BufferError, TypeError, ValueError)):
                one.recv_into(bad)

    def test_a_kernel_computes_what_python_sends(self):
        data = numpy.random.default_rng(1).bytes(3_000_001)
        for link in LINKS:
            with Server(kernel("file_sender"), "receive", ANYWHERE + link) as server:
                with self.context.connect(server.endpoint) as peer:
                    peer.sendall(struct.pack("<8sQ", b"gpufile1", len(data)))
                    peer.sendall(data)
                    self.assertEqual(
                        struct.unpack("<QIi", peer.recv(16, socket.MSG_WAITALL)), (len(data), zlib.crc32(data), 0)
                    )

    def test_the_example_of_the_documents(self):
        text = (ROOT / "docs/python.md").read_text()
        example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
        self.assertIn("127.0.0.1:7000", example)
        with Server(kernel("echo_server"), ANYWHERE + "auto") as server:
            process = program(example.replace("127.0.0.1:7000", server.where))
            said, _ = process.communicate(timeout=LONG_S)
        self.assertEqual((process.returncode, said), (0, "p2p True\n"))


class Processes(SocketTest):
    PEER = """
        import sys, gpusock, numpy
        with gpusock.Context(timeout=30) as context, context.listen(sys.argv[1]) as listener:
            print("listening on", listener.address, flush=True)
            peer, _ = listener.accept()
            with peer:
                while data := peer.recv(4096):
                    peer.sendall(data)
    """

    def peer(self, address):
        process = program(self.PEER, address)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, process.stdout.readline().split()[-1]

    def test_two_processes(self):
        for link in LINKS:
            for kind in ("stream", "seqpacket"):
                process, address = self.peer(f"{ANYWHERE}{link},type={kind}")
                with self.context.connect(address) as one:
                    self.assertEqual(one.link, link)
                    one.sendall(b"one")
                    self.assertEqual(one.recv(100), b"one")
                    one.shutdown(socket.SHUT_WR)
                    self.assertEqual(one.recv(100), b"")
                self.assertEqual(process.wait(LONG_S), 0, process.stdout.read())

    def test_a_process_that_is_killed_resets(self):
        process, address = self.peer(ANYWHERE + "p2p")
        one = self.context.connect(address)
        process.kill()
        self.error(ConnectionResetError, errno.ECONNRESET, one.recv, 1)
        self.error(ConnectionResetError, errno.ECONNRESET, one.send, b"1")
        [(_, events)] = self.context.poll([one], LONG_S)
        self.assertTrue(events & select.POLLERR, events)

    def test_a_connect_that_was_interrupted_leaves_no_connection(self):
        process, address = self.peer(ANYWHERE + "p2p")
        process.send_signal(signal.SIGSTOP)
        self.alarm(self.interrupt)
        with self.assertRaises(Interrupted):
            self.context.connect(address)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(LONG_S), 0)  # it has accepted a connection, and seen its end

    def test_sockets_of_the_system(self):
        with self.context.listen(ANYWHERE + "tcp") as listener:
            client = socket.create_connection(listener.getsockname(), timeout=LONG_S)
            one, address = listener.accept()
        self.assertEqual((address, one.getpeername()), (client.getsockname(),) * 2)
        client.sendall(b"from the system")
        self.assertEqual(one.recv(100), b"from the system")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        self.error(ConnectionResetError, errno.ECONNRESET, one.recv, 100)
        with socket.create_server(("127.0.0.1", 0)) as server:
            two = self.context.connect("127.0.0.1:%d,link=tcp" % server.getsockname()[1])
            client, _ = server.accept()
            with client:
                two.sendall(b"to the system")
                self.assertEqual(client.recv(100), b"to the system")


class Calls(SocketTest):
    def test_ends(self):
        for link in LINKS:
            one, other = self.pair(link)
            one.sendall(b"last")
            one.shutdown(socket.SHUT_WR)
            self.error(BrokenPipeError, errno.EPIPE, one.send, b"more")
            self.assertEqual((other.recv(100), other.recv(100), other.recv_into(bytearray(3))), (b"last", b"", 0))
            other.sendall(b"answer")
            other.close()
            self.assertEqual((one.recv(100), one.recv(100)), (b"answer", b""))
            for how in (-1, 3):
                with self.assertRaises(ValueError):
                    one.shutdown(how)

    def test_flags(self):
        one, other = self.pair()
        one.sendall(b"abc")
        self.assertEqual(other.recv(2, socket.MSG_PEEK), b"ab")
        one.send(b"def", socket.MSG_MORE | socket.MSG_NOSIGNAL)
        self.assertEqual(other.recv(6, socket.MSG_PEEK | socket.MSG_WAITALL), b"abcdef")
        one.shutdown(socket.SHUT_WR)
        self.assertEqual(other.recv(9, socket.MSG_WAITALL), b"abcdef")  # the end came before the rest
        self.error(BlockingIOError, errno.EAGAIN, one.recv, 1, socket.MSG_DONTWAIT)
        self.error(OSError, errno.EINVAL, one.recv, 1, socket.MSG_OOB)
        self.error(OSError, errno.EINVAL, one.send, b"1", socket.MSG_PEEK)

    def test_more_than_the_ring_holds(self):
        data = numpy.random.default_rng(1).bytes(20 * RING + 1)
        for link in LINKS:
            one, other = self.pair(link)
            thread, errors = self.waiting(one.sendall, data)
            self.assertEqual(other.recv(len(data), socket.MSG_WAITALL), data)
            thread.join()
            self.assertEqual(errors, [])

    def test_a_part_of_a_buffer(self):
        one, other = self.pair()
        one.sendall(b"abcdef")
        memory = bytearray(b"......")
        self.assertEqual(other.recv_into(memory, 4), 4)
        self.assertEqual(memory, b"abcd..")
        self.assertEqual(other.recv_into(memoryview(memory)[4:]), 2)
        self.assertEqual(memory, b"abcdef")
        for size in (-1, 7):
            with self.assertRaises(ValueError):
                other.recv_into(memory, size)
        with self.assertRaises(ValueError):
            other.recv(-1)

    def test_records(self):
        for link in LINKS:
            one, other = self.pair(link, "seqpacket")
            for record in (b"first", b"second"):
                self.assertEqual(one.send(record), len(record))
            self.error(OSError, errno.EMSGSIZE, other.recv, 4)  # and it stays
            self.assertEqual((other.recv(100), other.recv(100, socket.MSG_WAITALL)), (b"first", b"second"))
            self.error(OSError, errno.EMSGSIZE, one.sendall, bytes(RING))
            one.close()
            self.assertEqual(other.recv(100), b"")

    def test_timeouts(self):
        one, other = self.pair()
        self.assertEqual((one.gettimeout(), other.gettimeout(), one.getblocking()), (LONG_S, LONG_S, True))
        listener = self.context.listen(ANYWHERE + "p2p")
        one.sendall(bytes(RING))  # the ring is full
        for waiting, call in (
            (other, lambda: other.sendall(bytes(1 << 20))),
            (one, lambda: one.recv(1)),
            (one, lambda: one.recv(1, socket.MSG_WAITALL | socket.MSG_PEEK)),
            (one, lambda: one.send(b"1")),
            (listener, listener.accept),
        ):
            waiting.settimeout(0.25)
            start = time.monotonic()
            self.error(TimeoutError, errno.ETIMEDOUT, call)
            self.assertGreaterEqual(time.monotonic() - start, 0.25)
            if waiting is other:
                while self.context.poll([one], 0):
                    one.recv(1 << 20)
        start = time.monotonic()
        self.assertEqual(self.context.poll([one], 0.25), [])
        self.assertGreaterEqual(time.monotonic() - start, 0.25)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            where = silent.getsockname()
            start = time.monotonic()
            self.error(TimeoutError, errno.ETIMEDOUT, self.context.connect, where, 0.25)
            self.assertGreaterEqual(time.monotonic() - start, 0.25)
        one.settimeout(None)
        self.assertEqual((one.gettimeout(), one.getblocking()), (None, True))
        for bad, kind in ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError)):
            with self.assertRaises(kind):
                one.settimeout(bad)

    def test_calls_that_do_not_wait(self):
        one, other = self.pair()
        listener = self.context.listen(ANYWHERE + "p2p")
        listener.setblocking(False)
        self.error(BlockingIOError, errno.EAGAIN, listener.accept)
        one.settimeout(0)
        self.assertEqual((one.gettimeout(), one.getblocking()), (0, False))
        self.error(BlockingIOError, errno.EAGAIN, one.recv, 1)
        sent = one.send(bytes(1 << 20))  # what the ring takes
        self.error(BlockingIOError, errno.EAGAIN, one.send, b"1")
        self.assertEqual(self.context.poll([(one, select.POLLOUT)], 0), [])
        self.assertEqual(len(other.recv(1 << 20, socket.MSG_WAITALL | socket.MSG_PEEK)), sent)
        other.recv(1 << 20)
        self.assertEqual(self.context.poll([(one, select.POLLOUT)], LONG_S), [(one, select.POLLOUT)])
        one.setblocking(True)
        self.assertIsNone(one.gettimeout())

    def test_poll(self):
        listener = self.context.listen(ANYWHERE + "p2p")
        pairs = [self.pair(LINKS[i % 2]) for i in range(4)]
        watched = [listener, *(other for _, other in pairs)]
        self.assertEqual(self.context.poll(watched, 0), [])
        pairs[1][0].sendall(b"1")
        pairs[2][0].sendall(b"1")
        ready = []
        while len(ready) < 2:
            ready = self.context.poll(watched, LONG_S)
        self.assertEqual(ready, [(pairs[1][1], select.POLLIN), (pairs[2][1], select.POLLIN)])
        client = self.context.connect(listener.address)
        self.assertEqual(self.context.poll([listener]), [(listener, select.POLLIN)])
        pairs[0][0].close()
        [(_, events)] = self.context.poll([(pairs[0][1], 0)], LONG_S)
        self.assertTrue(events & select.POLLHUP, events)
        client.close()
        self.assertEqual(self.context.poll([client, pairs[3][1]]), [(client, select.POLLNVAL)])
        both = select.POLLIN | select.POLLOUT
        self.assertEqual(self.context.poll([(pairs[1][1], both)]), [(pairs[1][1], both)])
        for bad, kind in (([3], TypeError), ([(pairs[0][0], 64)], ValueError), ([(pairs[0][0], "1")], TypeError)):
            with self.assertRaises(kind):
                self.context.poll(bad, 0)
        with gpusock.Context() as another, another.listen(ANYWHERE + "p2p") as theirs:
            with self.assertRaisesRegex(ValueError, "another context"):
                self.context.poll([listener, theirs], 0)
        self.assertEqual(self.context.poll([], 0), [])

    def test_signals(self):
        one, other = self.pair()
        listener = self.context.listen(ANYWHERE + "p2p")
        one.sendall(bytes(RING))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for call in (
                lambda: other.recv(1 << 20, socket.MSG_WAITALL),
                lambda: one.recv(1),
                lambda: one.sendall(bytes(1 << 20)),
                listener.accept,
                lambda: self.context.poll([listener], LONG_S),
                lambda: self.context.connect(silent.getsockname()),
            ):
                self.alarm(self.interrupt)
                with self.assertRaises(Interrupted):
                    call()
        one, other = self.pair()
        self.alarm(lambda: other.sendall(b"sent by the handler"))
        self.assertEqual(one.recv(100), b"sent by the handler")
        self.alarm(one.close)
        self.error(OSError, errno.EBADF, one.recv, 100)

    def test_sockets_that_are_closed(self):
        one, other = self.pair()
        listener = self.context.listen(ANYWHERE + "p2p")
        repr(one), repr(listener)
        for opened in (one, listener):
            self.assertFalse(opened.closed)
            opened.close()
            opened.close()
            self.assertTrue(opened.closed)
            self.assertIn("closed", repr(opened))
        for call in (
            lambda: one.recv(1),
            lambda: one.send(b"1"),
            lambda: one.recv_into(bytearray(1)),
            lambda: one.shutdown(socket.SHUT_WR),
            one.getpeername,
            one.getsockname,
            lambda: one.link,
            listener.accept,
            lambda: listener.address,
        ):
            self.error(OSError, errno.EBADF, call)
        self.context.close()
        self.context.close()
        self.assertTrue(self.context.closed and other.closed)
        for call in (
            lambda: other.recv(1),
            lambda: self.context.connect("127.0.0.1:1"),
            lambda: self.context.listen("127.0.0.1:0"),
            lambda: self.context.poll([]),
        ):
            self.error(OSError, errno.EBADF, call)
        other.close()

    def test_closing_ends_what_others_wait_for(self):
        one, other = self.pair()
        listener = self.context.listen(ANYWHERE + "p2p")
        for opened, call in ((one, lambda: one.recv(1)), (listener, listener.accept)):
            opened.settimeout(None)
            thread, errors = self.waiting(call)
            opened.close()
            thread.join(LONG_S)
            self.assertFalse(thread.is_alive())
            self.assertEqual([error.errno for error in errors], [errno.EBADF])
        one, other = self.pair()
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        others = [
            self.waiting(other.recv, 1),
            self.waiting(self.context.poll, [other]),
            self.waiting(self.context.connect, silent.getsockname(), None),
        ]
        start = time.monotonic()
        self.context.close()
        self.assertLess(time.monotonic() - start, LONG_S)
        for thread, errors in others:
            thread.join(LONG_S)
            self.assertFalse(thread.is_alive())
            self.assertIn([error.errno for error in errors], ([errno.ECANCELED], [errno.EBADF]))

    def test_threads_share_a_socket(self):
        for kind in ("stream", "seqpacket"):
            one, other = self.pair(kind=kind)
            messages, size = (20, 20 * RING) if kind == "stream" else (200, 20_000)
            counts = []

            def send(value):
                for _ in range(messages):
                    one.sendall(bytes([value]) * size)

            def receive():
                mine = collections.Counter()
                while data := other.recv(size):
                    mine.update({value: data.count(value) for value in range(3)})
                counts.append(mine)  # not an update of one counter, which two threads may do at the same time

            senders = [threading.Thread(target=send, args=(value,)) for value in range(3)]
            # Of records one thread at a time may receive.
            receivers = [threading.Thread(target=receive) for _ in range(2 if kind == "stream" else 1)]
            for thread in senders + receivers:
                thread.start()
            for thread in senders:
                thread.join()
            one.shutdown(socket.SHUT_WR)
            for thread in receivers:
                thread.join()
            total = sum(counts, collections.Counter())
            self.assertEqual(total, dict.fromkeys(range(3), messages * size), kind)

    def test_a_thousand_sockets_leave_nothing(self):
        def resident():
            return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)) << 10

        def a_thousand():
            with gpusock.Context(sockets_max=64, ring_bytes=4096) as context:
                listener = context.listen(ANYWHERE + "p2p")
                for i in range(500):
                    one = context.connect(listener.address)
                    other, _ = listener.accept()
                    one.sendall(b"1")
                    self.assertEqual(other.recv(1), b"1")
                    if i % 2 == 0:  # else the last reference closes it
                        one.close()
                        other.close()

        a_thousand()
        descriptors, threads, memory = len(os.listdir("/proc/self/fd")), threading.active_count(), resident()
        a_thousand()
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)
        self.assertEqual(threading.active_count(), threads)
        self.assertLess(resident() - memory, 8 << 20)

    def test_bad_arguments(self):
        for bad, kind, word in (
            ("127.0.0.1", ValueError, "port"),
            ("127.0.0.1:1,link=rope", ValueError, "rope"),
            ("127.0.0.1:1,ring=5", ValueError, "ring"),
            (("127.0.0.1", 70000), ValueError, "65535"),
            (("127.0.0.1", "1"), TypeError, "int"),
            (("127.0.0.1",), TypeError, "HOST"),
            ((1, 2), TypeError, "HOST"),
            (("127.0.0.1\0.example", 1), ValueError, "null"),
            ("127.0.0.1\0.example:1", ValueError, "null"),
            (("\ud800", 1), UnicodeEncodeError, "surrogates"),
            (7, TypeError, "HOST"),
        ):
            for call in (self.context.connect, self.context.listen):
                with self.assertRaisesRegex(kind, word):
                    call(bad)
        for options in (
            {"sockets_max": 0},
            {"ring_bytes": 5},
            {"timeout": 0},
            {"timeout": -1},
            {"handshake_timeout": 0},
            {"handshake_timeout": float("nan")},
        ):
            with self.assertRaises(ValueError):
                gpusock.Context(**options)
        with self.assertRaises(TypeError):
            gpusock.Context(colour="red")
        with self.assertRaises(TypeError):
            gpusock.Socket()
        with self.assertRaises(ValueError):
            self.context.connect("127.0.0.1:1", 0)

    def test_addresses(self):
        with self.context.listen(("127.0.0.1", 0)) as listener:
            self.assertIn(f"127.0.0.1:{listener.getsockname()[1]},link=", listener.address)
            for address in (listener.address, listener.getsockname(), "localhost:%d" % listener.getsockname()[1]):
                self.assertEqual(self.context.connect(address).getpeername(), listener.getsockname())
        if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("no IPv6 here")
        with self.context.listen("[::1]:0") as listener:
            host, port = listener.getsockname()
            self.assertEqual((host, listener.address[: len("[::1]:")]), ("::1", "[::1]:"))
            self.assertEqual(self.context.connect((host, port)).getpeername(), ("::1", port))

    def test_errors_of_opening(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            where = taken.getsockname()
            self.error(OSError, errno.EADDRINUSE, self.context.listen, where)
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.error(ConnectionRefusedError, errno.ECONNREFUSED, self.context.connect, bound.getsockname())
        self.error(OSError, errno.EINVAL, self.context.listen, "127.0.0.1:0", 0)
        listener = self.context.listen(ANYWHERE + "p2p")
        with gpusock.Context(secret="another") as stranger:
            self.error(PermissionError, errno.EACCES, stranger.connect, listener.address)
        with gpusock.Context(p2p=False) as apart:
            self.error(OSError, errno.EPROTONOSUPPORT, apart.connect, listener.address)
            auto = self.context.listen("127.0.0.1:0,link=auto")
            self.assertEqual(apart.connect(auto.address).link, "tcp")
        with self.assertRaisesRegex(socket.gaierror, "no such name"):
            self.context.connect("no such name:1")


class Programs(unittest.TestCase):
    def ends(self, text, *arguments):
        process = program(text, *arguments)
        try:
            said, _ = process.communicate(timeout=LONG_S)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, said)
        return said

    def test_sockets_do_not_import_torch(self):
        said = self.ends("""
            import sys, gpusock
            with gpusock.Context() as context, context.listen("127.0.0.1:0") as listener:
                context.connect(listener.address)
            print([name for name in ("torch", "numpy") if name in sys.modules])
            import torch
            print(hasattr(torch.distributed.Backend, "GPUSOCK"))
        """)
        self.assertEqual(said, "[]\nTrue\n")
        self.assertEqual(self.ends("import gpusock; print(gpusock.Options().deterministic)"), "False\n")

    @unittest.skipUnless(
        importlib.util.find_spec("_interpreters") or importlib.util.find_spec("_xxsubinterpreters"),
        "no module makes interpreters",
    )
    def test_other_interpreters_are_refused(self):
        said = self.ends("""
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters  # its name before Python 3.13
            for turn in range(2):
                other = interpreters.create()
                try:
                    failed = interpreters.run_string(other, "import gpusock; gpusock.Context")
                except Exception as error:
                    failed = error
                print("ImportError" in str(failed))
                interpreters.destroy(other)
                import gpusock
                gpusock.Context().close()
        """)
        self.assertEqual(said, "True\nTrue\n")

    def test_a_program_that_closes_nothing_ends(self):
        said = self.ends("""
            import gpusock, os, sys, threading, time
            class Late:
                def __del__(self, sleep=time.sleep, write=os.write):
                    sleep(0.3)  # so that other threads come back from C++ while the interpreter ends
                    write(1, b"late\\n")
            sys.late = Late()
            context = gpusock.Context(timeout=None)
            listener = context.listen("127.0.0.1:0")
            one = context.connect(listener.address)
            other, _ = listener.accept()
            one.sendall(b"1")
            def wait(call, *arguments):
                began = threading.Event()
                threading.Thread(target=lambda: (began.set(), call(*arguments)), daemon=True).start()
                began.wait()
            threading.excepthook = lambda error: None
            for _ in range(3):
                wait(listener.accept)
                wait(one.recv, 1)
                wait(context.poll, [one])
            print("ends", flush=True)
        """)
        self.assertEqual(said, "ends\nlate\n")

    def test_a_program_ends_while_threads_make_contexts(self):
        said = self.ends("""
            import gpusock, os, sys, threading, time
            class Late:
                def __del__(self, sleep=time.sleep, write=os.write):
                    sleep(0.3)
                    write(1, b"late\\n")
            sys.late = Late()
            def make(began):
                while True:
                    with gpusock.Context():
                        began.set()
            def look_up(began):
                with gpusock.Context() as context:
                    while True:
                        began.set()
                        try:
                            context.listen("localhost.invalid:0")
                        except gaierror:
                            pass
            from socket import gaierror
            threading.excepthook = lambda error: None
            for call in (make, make, look_up):
                began = threading.Event()
                threading.Thread(target=call, args=(began,), daemon=True).start()
                began.wait()
            print("ends", flush=True)
        """)
        self.assertEqual(said, "ends\nlate\n")

    def test_closing_a_context_whose_connections_just_come(self):
        said = self.ends("""
            import gpusock, threading
            def try_to(call, *arguments):
                try:
                    call(*arguments)
                except OSError:
                    pass
            for _ in range(1000):
                context = gpusock.Context(sockets_max=8, ring_bytes=4096, timeout=30)
                listener = context.listen("127.0.0.1:0,link=p2p")
                calls = [(listener.accept,), (context.connect, listener.address)]
                threads = [threading.Thread(target=try_to, args=call) for call in 2 * calls]
                for thread in threads:
                    thread.start()
                context.close()
                for thread in threads:
                    thread.join()
            print("ends")
        """)
        self.assertEqual(said, "ends\n")

    def test_a_process_that_forks(self):
        said = self.ends("""
            import errno, gpusock, os, threading, warnings
            warnings.simplefilter("ignore")  # of a fork beside threads
            context = gpusock.Context()
            listener = context.listen("127.0.0.1:0")
            one = context.connect(listener.address)
            other, _ = listener.accept()
            began = threading.Event()
            threading.Thread(target=lambda: (began.set(), context.poll([])), daemon=True).start()
            began.wait()
            threading.excepthook = lambda error: None
            child = os.fork()
            if child == 0:
                for call in (lambda: one.recv(1), lambda: context.listen("127.0.0.1:0"), listener.accept):
                    try:
                        call()
                    except OSError as error:
                        assert error.errno == errno.ECANCELED, error
                    else:
                        raise SystemExit("no error")
                with gpusock.Context() as own, own.listen("127.0.0.1:0") as own_listener:
                    own.connect(own_listener.address)
                other.close()
                raise SystemExit(7)    # and the interpreter ends
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            one.sendall(b"1")
            assert other.recv(1) == b"1"
            print("ends")
        """)
        self.assertEqual(said, "ends\n")

    def test_interrupted_by_the_keyboard(self):
        process = program("""
            import gpusock
            with gpusock.Context(timeout=None) as context:
                try:
                    print("begins", flush=True)
                    context.poll([])
                except KeyboardInterrupt:
                    print("interrupted")
        """)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            self.assertEqual(process.communicate(timeout=LONG_S)[0], "interrupted\n")
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0)


del SocketTest  # it has no tests


if __name__ == "__main__":
    unittest.main()
