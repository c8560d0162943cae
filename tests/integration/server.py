"""What tests of example servers share: the server as a process, what its environment says, and the tests' main program."""
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import unittest

SCALE = float(os.environ.get("GPUSOCK_TEST_SCALE", "1"))
SEED = int(os.environ.get("GPUSOCK_TEST_SEED", random.SystemRandom().randrange(2**32)))
IDLE = int(os.environ.get("GPUSOCK_TEST_IDLE", 1000))  # idle clients beside active ones
LIMIT_S = 240  # a server or client that takes longer hangs


class Server:
    """A server that prints `listening on HOST:PORT,link=...` once clients can connect; it ends with this object's `with`."""

    def __init__(self, *command, stderr=None):
        """`stderr`: subprocess.PIPE where a test looks at it (in `errors`, once it has stopped)."""
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.said = self.errors = None
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            _, errors = self.process.communicate(timeout=LIMIT_S)
            raise RuntimeError(f"the server said {line!r}, {errors!r} and exited with {self.process.returncode}")
        self.endpoint = line.split()[-1]  # as gpusock programs take it
        self.where = self.endpoint.split(",")[0]
        host, port = self.where.rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)
        self.process.stdout.close()

    def stop(self, which=signal.SIGTERM):
        """Its exit status; what it said last is then in `said`."""
        self.process.send_signal(which)
        self.said, self.errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode

    def connect(self):
        client = socket.create_connection(self.address, timeout=LIMIT_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client


def make_room_for_descriptors(test, count):
    """Lets this process have so many sockets, until the test ends; skips the test where it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 500:
        test.skipTest(f"{count} idle clients need as many descriptors, and the hard limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    test.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))


def connect_idle(test, server, count, between=lambda: None):
    """Clients that connect, or try to, and then do nothing until the test ends; `between` runs after every 50."""
    clients = []
    for number in range(count):
        client = socket.socket()
        test.addCleanup(client.close)
        client.setblocking(False)
        client.connect_ex(server.address)
        clients.append(client)
        if number % 50 == 49:
            between()
    return clients


def reset(client):
    """Closes with a TCP reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def receive_all(client, size):
    """All bytes, or fewer where the stream ends."""
    data = bytearray()
    while len(data) < size and (more := client.recv(min(1 << 18, size - len(data)))):
        data += more
    return bytes(data)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, **options)


def kernel_lines(path, names=None):
    """Lines of the kernels and device functions of a file, of all or of those with these names, without blank ones and comments."""
    text = (pathlib.Path(__file__).resolve().parents[2] / path).read_text()
    functions = re.findall(r"^((?:template.*\n)?__(?:device|global)__[^;{]*?\b(\w+)\((?:.|\n)*?^\}$)", text, re.MULTILINE)
    wanted = [body for body, name in functions if names is None or name in names]
    return sum(1 for body in wanted for line in body.splitlines() if line.strip() and not line.strip().startswith("//"))


def main(documentation, take_program):
    """Runs the calling module's tests for the program that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(documentation)
        return 0 if len(sys.argv) == 2 else 2
    take_program(os.path.abspath(sys.argv[1]))
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    print(f"replay with GPUSOCK_TEST_SEED={SEED}")
    return 0 if unittest.main(module="__main__", argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1
