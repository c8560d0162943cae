#!/usr/bin/env python3
"""What all programs promise alike: how they end when the disk is full, or when a variable is wrong.

usage: test_programs.py PROGRAM...

Exit status: 0 kept, 1 broken, 2 misuse, 77 the programs cannot run here (they need a GPU).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 120  # a program that takes longer hangs
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
        every = [("echo_server", "127.0.0.1:0", *FEW_THREADS),
                 ("file_sender", "receive", "127.0.0.1:0", *FEW_THREADS),
                 ("file_sender", "local", *FEW_THREADS, str(self.file)),
                 ("http_server", "127.0.0.1:0", *FEW_THREADS),
                 ("matmul_server", "127.0.0.1:0", "--blocks", "1"),
                 ("param_sync", "--serial", "--nodes", "2", *training),
                 ("param_sync", "--in-process", "--nodes", "2", *training),
                 ("param_sync", "--nodes", "2", *training),
                 ("param_sync", "--nodes", "1", "--rank", "0", "--peers", "127.0.0.1:0", *training),
                 ("gpusock-doctor",), ("gpusock-doctor", "--json"),
                 ("gpusock-top", "--folder", str(self.folder), "--once"),
                 ("gpusock-top", "--folder", str(self.folder), "--once", "--json"),
                 ("gpusock-top", "--folder", str(self.folder)),
                 ("gpusock-bench", "lat", "--link", "tcp", "--iterations", "10", "--repeat", "1")]
        return [command for command in every if command[0] in self.programs]

    def run_program(self, name, *arguments, **options):
        return subprocess.run([self.programs[name], *arguments], stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False,
                              **options)

    def expect_full(self, name, *arguments):
        with self.subTest(name=name, arguments=arguments), open("/dev/full", "w", encoding="ascii") as full:
            done = self.run_program(name, *arguments, stdout=full)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{name}: cannot write standard output: No space left on device\n", done.stderr)
            self.assertEqual(done.stderr.count("cannot write"), 1)

    def test_output_that_cannot_be_written_is_a_failure_that_is_told(self):
        for command in self.commands():
            self.expect_full(*command)
        for name in self.programs:
            self.expect_full(name, "--help")

    @unittest.skipUnless("param_sync" in " ".join(sys.argv), "this build has none")
    def test_a_full_disk_under_standard_output_costs_no_results(self):
        results = self.folder / "results.json"
        self.expect_full("param_sync", "--serial", "--nodes", "2", "--data", str(support.DATA.folder), "--epochs", "1", "--json",
                         str(results))
        self.assertGreater(json.loads(results.read_text())["steps"], 0)


    def test_a_wrong_variable_is_misuse_that_names_it(self):
        wrong = {"GPUSOCK_LINK": "pigeon", "GPUSOCK_RING": "attic", "GPUSOCK_GPU": "first", "GPUSOCK_GPUDIRECT": "maybe",
                 "GPUSOCK_OBSERVE": "somewhere", "GPUSOCK_PROCESSORS": "some"}
        commands = [command for command in self.commands() if command[0] not in ("gpusock-doctor", "gpusock-top")]
        if "file_sender" in self.programs:
            commands += [("file_sender", "send", "127.0.0.1:1", str(self.file)), ("redis_client", "127.0.0.1:1")]
        for command in commands:
            for name, value in wrong.items():
                self.expect_misuse(name, value, *command)
        self.expect_misuse("GPUSOCK_OBSERVE", "somewhere", "gpusock-top", "--once")
        if "param_sync" in self.programs:
            self.expect_misuse("GPUSOCK_LINK", "pigeon", "param_sync", "--link", "tcp", "--serial")

    def expect_misuse(self, name, value, *command):
        with self.subTest(command=command, name=name):
            done = self.run_program(*command, stdout=subprocess.PIPE, env=dict(os.environ, **{name: value}))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(name, done.stderr)
            self.assertIn(f"'{value}'", done.stderr)
            self.assertEqual(done.stdout, "")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
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
