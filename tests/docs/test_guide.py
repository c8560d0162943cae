#!/usr/bin/env python3
"""Promises of docs/guide.md, docs/recipes.md, docs/executor.md and docs/stores.md: their programs, as printed there, build against the installed package and do what they say.

usage: test_guide.py SOURCE_FOLDER BUILD_FOLDER WORK_FOLDER

BUILD_FOLDER: the package is installed from there, for this test alone; -: the package is the system's.

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from commands import LIMIT_S, call

@contextlib.contextmanager
def serving(program):
    """A server of the guide until the end of the block: then Enter is pressed, and it must end in order."""
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[-1]
            server.communicate("\n", timeout=LIMIT_S)
        finally:
            server.kill()
    if server.returncode != 0:
        raise AssertionError(f"{program} exited with {server.returncode}")


def visit(address):
    host, port = address.split(",")[0].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


def read(client, size):
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        if not more:
            break
        got += more
    return got


class Guide(unittest.TestCase):
    source = build = work = None
    programs, flags = {}, []

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(cls.work, ignore_errors=True)
        cls.work.mkdir(parents=True)
        environment = dict(os.environ)
        if cls.build is not None:
            call("cmake", "--install", cls.build, "--prefix", cls.work / "prefix")
            environment["PKG_CONFIG_PATH"] = str(next((cls.work / "prefix").rglob("pkgconfig")))
        cls.flags = call("pkg-config", "--cflags", "--libs", "gpusock", env=environment).split()
        param_sync = call("pkg-config", "--cflags", "--libs", "gpusock-param_sync", env=environment).split()
        codes = [(*printed, param_sync if page in ("executor", "stores") else cls.flags) for page in ("guide", "recipes", "executor", "stores") for printed in cls.printed_in(page)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            cls.programs = dict(pool.map(lambda printed: cls.built(*printed), codes))

    @classmethod
    def printed_in(cls, page):
        """The names and the code of a page's programs."""
        return re.findall(r"```cpp (\w+)\.cu\n(.*?)```", (cls.source / "docs" / f"{page}.md").read_text(), re.DOTALL)

    @classmethod
    def built(cls, name, code, flags):
        file = cls.work / f"{name}.cu"
        file.write_text(code)
        call("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-x", "c++", file, "-x", "none", *flags, "-o", cls.work / name)
        return name, cls.work / name

    def test_the_cpu_devices_page_quotes_what_the_compiler_says_of_extern_shared(self):
        version = call("c++", "-dumpfullversion", "-dumpversion").split(".", maxsplit=1)[0].strip()
        if version not in ("12", "14"):
            self.skipTest(f"the page quotes g++ 12 and 14 of Debian 12 and 13, and this is {version}")
        file = self.work / "extern.cu"
        file.write_text("#include <gpusock/device.cuh>\n__global__ void kernel() { extern __shared__ int x[]; x[0] = 1; }\n")
        done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", file, "-x", "none", *self.flags], text=True,
                              capture_output=True, env=dict(os.environ, LC_ALL="C"), timeout=LIMIT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        said = re.search(r"error: (.*)", done.stderr).group(1)
        self.assertIn(f"`{said}`", (self.source / "docs" / "cpu_device.md").read_text())

    def test_all_programs_were_found(self):
        self.assertEqual(sorted(self.programs), ["cache", "client", "publish", "regression", "room", "server", "store", "train"])

    def test_a_recipe_has_sixty_lines_at_most(self):
        self.assertEqual([name for name, code in self.printed_in("recipes") if code.count("\n") > 60], [])

    def test_the_server_answers_plain_tcp_in_capitals(self):
        with serving(self.programs["server"]) as address, visit(address) as client:
            client.sendall(b"hello, kernel\n")
            self.assertEqual(read(client, 14), b"HELLO, KERNEL\n")

    def test_the_client_talks_to_the_server(self):
        with serving(self.programs["server"]) as address:
            self.assertEqual(call(self.programs["client"], address, "so it is"), "SO IT IS\n")

    def test_the_client_says_what_is_wrong(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        refused = subprocess.run([self.programs["client"], f"127.0.0.1:{port},link=tcp", "x"], stderr=subprocess.PIPE, text=True,
                                 timeout=LIMIT_S, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("Connection refused", refused.stderr)

    def test_the_client_reports_an_answer_that_is_missing_or_cut_off(self):
        for answer in (b"", b"SO "):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(LIMIT_S)
                with subprocess.Popen([self.programs["client"], f"127.0.0.1:{server.getsockname()[1]},link=tcp", "so it is"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
                    with server.accept()[0] as connection:
                        self.assertEqual(read(connection, 8), b"so it is")
                        connection.sendall(answer)
                    out, err = client.communicate(timeout=LIMIT_S)
            self.assertEqual((client.returncode, out), (1, ""))
            self.assertIn("Broken pipe", err)

    def test_the_store_answers_each_line_however_it_was_cut(self):
        with serving(self.programs["store"]) as address, visit(address) as client, visit(address) as other:
            client.sendall(b"SET color deep ")
            client.sendall(b"blue\r\nGET color\nGET nothing\n\nSET k " + b"x" * 300 + b"\n")
            answers = (b"OK\ndeep blue\nNONE\nERROR SET key value, or GET key\n"
                       b"ERROR a value has at most 224 bytes\n")
            self.assertEqual(read(client, len(answers)), answers)
            other.sendall(b"GET color\n" + b"far too long " * 100)
            answers = b"deep blue\nERROR EMSGSIZE\n"
            self.assertEqual(read(other, len(answers)), answers)
            client.sendall(b"unfinished")
            client.shutdown(socket.SHUT_WR)
            self.assertEqual(read(client, 100), b"ERROR EPROTO\n")

    def test_what_one_says_in_the_room_goes_to_all(self):
        with serving(self.programs["room"]) as address:
            with contextlib.ExitStack() as stack:
                guests = []
                for number in range(5):
                    guests.append(stack.enter_context(visit(address)))
                    guests[-1].sendall(b"hi %d\n" % number)  # heard by all that are seated, the guest included
                    for guest in guests:
                        self.assertEqual(read(guest, 5), b"hi %d\n" % number)
                guests[2].close()
                guests[4].sendall(b"bye..\n")
                for number in (0, 1, 3, 4):
                    self.assertEqual(read(guests[number], 6), b"bye..\n")

    def test_who_has_subscribed_gets_what_is_published(self):
        with serving(self.programs["publish"]) as address, visit(address) as one, visit(address) as other, visit(address) as publisher:
            for client, topic in ((one, b"news"), (other, b"sports")):
                client.sendall(b"SUB " + topic + b"\n")
                self.assertEqual(read(client, 3), b"OK\n")
            publisher.sendall(b"PUB news it rains\nPUB sports 1:0\nFOO\n")
            self.assertEqual(read(publisher, 5), b"ERROR")
            self.assertEqual((read(one, 14), read(other, 11)), (b"news it rains\n", b"sports 1:0\n"))

    def test_a_block_of_the_cache_is_fetched_by_its_key(self):
        with serving(self.programs["cache"]) as address:
            self.assertEqual(call(self.programs["cache"], address, "7"), "458752 to 524287\n")
            unknown = subprocess.run([self.programs["cache"], address, "64"], stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(unknown.returncode, 1)
            self.assertIn("EPROTO", unknown.stderr)

    def test_the_training_loop_ends_with_the_mean_of_both_targets(self):
        self.assertEqual(call(self.programs["train"]), "2.000\n2.000\n")

    def test_workers_of_a_store_find_the_line(self):
        self.assertEqual(call(self.programs["regression"]), 3 * "3.00 x + 1.00\n")


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    Guide.source, Guide.build, Guide.work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    if sys.argv[2] == "-":
        Guide.build = None
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
