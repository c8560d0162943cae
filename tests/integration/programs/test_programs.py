#!/usr/bin/env python3
"""What all programs promise alike: how they end when the disk is full or a variable is wrong, and what
they say where they cannot listen or connect.

usage: test_programs.py PROGRAM...

Exit status: 0 kept, 1 broken, 2 misuse, 77 the programs cannot run here (they need a GPU).
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 120  # a program that takes longer hangs
ON_GPU = bool(os.environ.get("GPUSOCK_TEST_NEEDS_GPU"))
FEW_THREADS = ("--blocks", "1", "--threads", "32")


class Programs(unittest.TestCase):
    programs = {}  # path, by name

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "file"
        self.file.write_bytes(b"something to send")

    def commands(self):
        """Runs of the programs that succeed, or serve: name and arguments."""
        training = ("--data", str(support.DATA.folder), "--hidden", "8", "--batch", "10", "--epochs", "1")
        return [("all_reduce", "--ranks", "2", "--floats", "10"),
                ("echo_server", "127.0.0.1:0", *FEW_THREADS),
                ("file_sender", "receive", "127.0.0.1:0", *FEW_THREADS),
                ("file_sender", "local", *FEW_THREADS, str(self.file)),
                ("http_server", "127.0.0.1:0", *FEW_THREADS),
                ("matmul_server", "127.0.0.1:0", "--blocks", "1"),
                ("all_to_all", "--ranks", "2", "--bytes", "1K"),
                ("param_sync", "--serial", "--nodes", "2", *training),
                ("param_sync", "--in-process", "--nodes", "2", *training),
                *([] if ON_GPU else [("param_sync", "--nodes", "2", *training)]),  # processes share one GPU only by turns
                ("param_sync", "--nodes", "1", "--rank", "0", "--peers", "127.0.0.1:0", *training),
                ("param_sync", "schedule", "--scheme", "ring"), ("param_sync", "simulate", "--scheme", "ring"),
                ("param_sync", "predict", "--sizes", "1K"), ("param_sync", "schedule", "--scheme", "chain", "--run", "--size", "1K"),
                ("param_sync", "bench", "--nodes", "2", "--scheme", "ring", "--sizes", "1K", "--repeats", "1"),
                ("gpusock-doctor",), ("gpusock-doctor", "--json"),
                ("gpusock-top", "--folder", str(self.folder), "--once"),
                ("gpusock-top", "--folder", str(self.folder), "--once", "--json"),
                ("gpusock-top", "--folder", str(self.folder)),
                ("gpusock-bench", "lat", "--link", "tcp", "--iterations", "10", "--repeat", "1"), ("gpusock-bench", "serve")]

    def run_program(self, name, *arguments, **options):
        return subprocess.run([self.programs[name], *arguments], stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False,
                              **options)

    def expect_full(self, name, *arguments):
        with self.subTest(name=name, arguments=arguments), open("/dev/full", "w", encoding="ascii") as full:
            done = self.run_program(name, *arguments, stdout=full)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{name}: cannot write standard output: No space left on device (ENOSPC)\n", done.stderr)
            self.assertEqual(done.stderr.count("cannot write"), 1)

    def test_output_that_cannot_be_written_is_a_failure_that_is_told(self):
        for command in self.commands():
            self.expect_full(*command)
        for name in self.programs:
            self.expect_full(name, "--help")

    def test_a_full_disk_under_standard_output_costs_no_results(self):
        results = self.folder / "results.json"
        self.expect_full("param_sync", "--serial", "--nodes", "2", "--data", str(support.DATA.folder), "--epochs", "1", "--json",
                         str(results))
        self.assertGreater(json.loads(results.read_text())["steps"], 0)

    def test_json_is_alone_on_standard_output_or_in_a_file(self):
        training = ("--serial", "--nodes", "2", "--data", str(support.DATA.folder), "--hidden", "8", "--batch", "10", "--epochs", "1")
        for command in (("gpusock-doctor",), ("gpusock-top", "--folder", str(self.folder), "--once"), ("param_sync", *training),
                        ("param_sync", "schedule", "--scheme", "ring"),
                        ("gpusock-bench", "lat", "--link", "tcp", "--between", "threads", "--iterations", "10", "--repeat", "1")):
            for json_option in (("--json",), ("--json", "-"), ("--json", str(self.folder / "out.json"))):
                with self.subTest(command=command, json_option=json_option):
                    done = self.run_program(*command, *json_option, stdout=subprocess.PIPE)
                    self.assertIn(done.returncode, (0, 1), done.stderr)  # 1: the doctor found something
                    text = pathlib.Path(json_option[-1]).read_text() if json_option[-1].endswith(".json") else done.stdout
                    self.assertIsInstance(json.loads(text), dict)

    def test_tensors_that_memory_does_not_hold_are_refused(self):
        done = self.run_program("all_reduce", "--ranks", "16", "--floats", str(1 << 28))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--ranks x --floats: together they take 49152 MiB", done.stderr)

    def test_a_wrong_variable_is_misuse_that_names_it(self):
        wrong = {"GPUSOCK_LINK": "pigeon", "GPUSOCK_RING": "attic", "GPUSOCK_GPU": "first", "GPUSOCK_GPUDIRECT": "maybe", "GPUSOCK_HOST_RINGS": "a b",
                 "GPUSOCK_OBSERVE": "somewhere", "GPUSOCK_PROCESSORS": "some", "GPUSOCK_SPIN": "maybe", "GPUSOCK_LOG": "foo", "GPUSOCK_FABRIC_PROVIDER": "no name"}
        commands = [command for command in self.commands() if command[0] not in ("gpusock-doctor", "gpusock-top")]
        commands += [("file_sender", "send", "127.0.0.1:1", str(self.file)), ("redis_client", "127.0.0.1:1")]
        for command in commands:
            for name, value in wrong.items():
                self.expect_misuse(name, value, *command)
        self.expect_misuse("GPUSOCK_OBSERVE", "somewhere", "gpusock-top", "--once")
        self.expect_misuse("GPUSOCK_LINK", "pigeon", "param_sync", "--link", "tcp", "--serial")
        self.expect_misuse("GPUSOCK_CPU_SHAPE", "foo", "param_sync", "--serial")
        self.expect_misuse("GPUSOCK_CPU_GROUP_CALLS", "some", "param_sync", "--serial")

    def expect_misuse(self, name, value, *command):
        with self.subTest(command=command, name=name):
            done = self.run_program(*command, stdout=subprocess.PIPE, env=dict(os.environ, **{name: value}))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(name, done.stderr)
            self.assertIn(f"'{value}'", done.stderr)
            self.assertEqual(done.stdout, "")

    def expect_advice(self, advice, *command, **variables):
        with self.subTest(command=command, variables=variables):
            done = self.run_program(*command, stdout=subprocess.PIPE, env=dict(os.environ, **variables))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(advice, done.stderr)

    def test_where_a_program_cannot_listen_it_says_what_to_do(self):
        file = str(self.file)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            where = "127.0.0.1:%d" % taken.getsockname()[1]
            another = "another process listens there; choose another port"
            for command in (("echo_server", where), ("file_sender", "receive", where), ("http_server", where), ("matmul_server", where)):
                self.expect_advice(f"Address already in use (EADDRINUSE): {another}", *command)
            self.expect_advice(f"address already in use (EADDRINUSE): {another}", "param_sync", "--rank", "0", "--nodes", "2", "--peers",
                               f"{where},127.0.0.1:1", "--data", str(support.DATA.folder), "--batch", "10")
        elsewhere = "no interface of this machine has that address"
        self.expect_advice(elsewhere, "http_server", "192.0.2.1:0")
        self.expect_advice(elsewhere, "gpusock-bench", "lat", "--link", "tcp", "--at", "192.0.2.1")
        done = self.run_program("file_sender", "receive", "0.0.0.0:0", stdout=subprocess.PIPE, env=dict(os.environ, GPUSOCK_SECRET=""))
        self.assertEqual((done.returncode, done.stderr.count("GPUSOCK_SECRET")), (1, 1), done.stderr)  # said once
        self.assertIn("file_sender: listening on 0.0.0.0:0: Permission denied (EACCES)", done.stderr)
        with socket.socket() as silent:  # bound, but nobody listens
            silent.bind(("127.0.0.1", 0))
            where = "127.0.0.1:%d" % silent.getsockname()[1]
            self.expect_advice("Connection refused (ECONNREFUSED): no program listens there", "file_sender", "send", where, file)
            self.expect_advice("Connection refused (ECONNREFUSED): no program listens there", "redis_client", where)
            self.expect_advice("Connection refused (ECONNREFUSED): no program listens there", "http_client", where, "/")

    @unittest.skipUnless(os.environ.get("GPUSOCK_TEST_FABRIC"), "this build has no fabric link")
    def test_a_provider_that_is_not_there_is_named(self):
        advice = "GPUSOCK_FABRIC_PROVIDER=tpc names no provider that libfabric has for that network; unset it"
        for command in (("file_sender", "local", "--link", "fabric", str(self.file)),
                        ("gpusock-bench", "lat", "--link", "fabric"),
                        ("gpusock-bench", "lat", "--link", "fabric", "--between", "threads"),
                        ("param_sync", "--in-process", "--link", "fabric", "--data", str(support.DATA.folder), "--batch", "10")):
            self.expect_advice(advice, *command, GPUSOCK_FABRIC_PROVIDER="tpc")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    if ON_GPU and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    Programs.programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
    try:
        return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1
    finally:
        support.DATA.remove()


if __name__ == "__main__":
    os.environ.setdefault("PARAM_SYNC", "")
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "param_sync"))
    import support

    sys.exit(main())
