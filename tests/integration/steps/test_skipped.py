#!/usr/bin/env python3
"""Promises of scripts/skipped.py: each test that skips is named with its reason, whatever kind of test it is, and others are not.

usage: test_skipped.py SOURCE_FOLDER CTEST

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUITE = """import unittest
class Suite(unittest.TestCase):
    def test_that_runs(self):
        pass
    def test_that_skips(self):
        self.skipTest("nc isn't installed")
unittest.main(verbosity=2)
"""
GOOGLE = """printf '%s\n' '/a/folder/users_test.cpp:11: Skipped' 'only root can play another user' '' '[  SKIPPED ] 1 test.'"""


class Skipped(unittest.TestCase):
    source = ctest = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def said(self, *presets, **commands):
        """What is printed of tests that are shell commands, with the same results in each preset."""
        tests = "".join(f"add_test({name} sh -c [==[{command}]==])\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n"
                        for name, command in commands.items())
        (self.folder / "CTestTestfile.cmake").write_text(tests)
        results = self.folder / "tests.xml"
        subprocess.run([self.ctest, "--output-junit", str(results), "--test-output-size-passed", "1000000"], cwd=self.folder, check=False,
                       stdout=subprocess.DEVNULL)
        return subprocess.run([f"{self.source}/scripts/skipped.py", *(f"{preset}={results}" for preset in presets)], text=True, check=True,
                              stdout=subprocess.PIPE).stdout

    def test_a_test_that_ends_with_the_status_for_it(self):
        self.assertEqual(self.said("host", whole="echo more; echo 'skipped: no GPU here'; exit 77"), "whole in host: no GPU here\n")

    def test_a_test_that_does_not_say_why(self):
        self.assertEqual(self.said("host", silent="exit 77"), "silent in host: it does not say why\n")

    def test_one_of_a_google_test(self):
        self.assertEqual(self.said("host", program=GOOGLE), "program (users_test.cpp) in host: only root can play another user\n")

    def test_one_of_a_python_suite(self):
        (self.folder / "suite.py").write_text(SUITE)
        self.assertEqual(self.said("host", suite=f"{sys.executable} suite.py 2>&1"),
                         "suite (test_that_skips) in host: nc isn't installed\n")

    def test_a_reason_is_said_once(self):
        whole = "echo 'no namespaces'; exit 77"
        self.assertEqual(self.said("host", "tsan", one=whole, two=whole), "one in host tsan, two in host tsan: no namespaces\n")

    def test_nothing_where_all_run_also_where_output_is_long(self):
        self.assertEqual(self.said("host", good="seq 20000", bad="echo Skipped; exit 1"), "")
        self.assertEqual(self.said("host", long=f"seq 20000; {GOOGLE}"),
                         "long (users_test.cpp) in host: only root can play another user\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Skipped.source, Skipped.ctest = sys.argv[1:]
    sys.argv = sys.argv[:1]
    unittest.main()
