#!/usr/bin/env python3
"""Promises of gpusock-bench: what it measures, its JSON, its table and its exit statuses. No figure is judged.

usage: test_bench.py GPUSOCK_BENCH

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 240  # a run that takes longer hangs
LATENCY = ("p50_ns", "p99_ns", "min_ns", "mean_ns")
RIVALS = {("lat", "tcp"): ["raw TCP"], ("lat", "p2p"): ["raw lines"], ("bw", "tcp"): ["raw TCP"],
          ("bw", "p2p"): ["memcpy in", "memcpy in+out", "memcpy between"]}


class Bench(unittest.TestCase):
    program = ""

    def run_bench(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def measure(self, *arguments):
        """The JSON and the table of a run that succeeds."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "figures.json")
            done = self.run_bench(*arguments, "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file, encoding="utf-8") as text:
                return json.load(text), done.stdout

    def expect_figures(self, figures, question, messages):
        if messages is not None:
            self.assertEqual(figures["messages"], messages)
        if question == "bw":
            self.assertGreater(figures["gigabytes_per_s"], 0)
        else:
            self.assertGreater(figures["min_ns"], 0)
            self.assertLessEqual(figures["min_ns"], figures["p50_ns"])
            self.assertLessEqual(figures["p50_ns"], figures["p99_ns"])
            self.assertLessEqual(figures["min_ns"], figures["mean_ns"])

    def expect_report(self, report, question, link, sizes, repeat, messages):
        names = ["gpusock", *RIVALS[question, link]]
        self.assertEqual(report["benchmark"], question)
        self.assertEqual(report["options"]["link"], link)
        self.assertEqual([contestant["name"] for contestant in report["contestants"]], names)
        self.assertEqual([size["bytes"] for size in report["sizes"]], sizes)
        for size in report["sizes"]:
            self.assertEqual(len(size["rounds"]), repeat)
            self.assertGreater(size["ratio"], 0)
            self.assertEqual(list(size["medians"]), names)
            for row in size["rounds"]:
                self.assertEqual(list(row), names)
                for figures in row.values():
                    self.expect_figures(figures, question, messages)
                self.assertIsInstance(row["gpusock"]["proxy_steps"], int)

    def test_both_questions_over_both_links_between_kernels_and_between_threads(self):
        for question, link in RIVALS:
            for between in ("kernels", "threads"):
                with self.subTest(question=question, link=link, between=between):
                    report, _ = self.measure(question, "--link", link, "--between", between, "--size", "64,4K",
                                             "--iterations", "20", "--repeat", "2")
                    self.expect_report(report, question, link, [64, 4096], repeat=2, messages=20)
                    self.assertEqual(report["options"]["between"], between)

    def test_the_two_sides_meet_at_the_address_that_was_named(self):
        report, _ = self.measure("lat", "--link", "p2p", "--between", "threads", "--iterations", "10", "--repeat", "1",
                                 "--at", "127.0.0.2")
        self.expect_report(report, "lat", "p2p", [64], 1, 10)
        done = self.run_bench("lat", "--link", "p2p", "--iterations", "10", "--at", "192.0.2.1")  # nobody's
        self.assertEqual(done.returncode, 1)
        self.assertIn("192.0.2.1", done.stderr)

    def test_every_group_makes_the_calls(self):
        for group, threads in (("thread", 1), ("warp", 32), ("block", 96)):
            for question in ("lat", "bw"):
                with self.subTest(group=group, question=question):
                    report, _ = self.measure(question, "--link", "p2p", "--group", group, "--block-threads", "96", "--size",
                                             "1000", "--iterations", "5", "--repeat", "1")
                    self.expect_report(report, question, "p2p", [1000], repeat=1, messages=5)
                    self.assertEqual(report["options"]["threads"], threads)

    def test_sizes_from_one_byte_to_more_than_the_ring_and_not_whole_words(self):
        sizes = [1, 7, 9, 4095, 4096, 4097, 100_003]
        for question, link in RIVALS:
            with self.subTest(question=question, link=link):
                report, _ = self.measure(question, "--link", link, "--size", ",".join(map(str, sizes)), "--ring-bytes", "4K",
                                         "--iterations", "3", "--repeat", "1")
                self.expect_report(report, question, link, sizes, repeat=1, messages=3)

    def test_a_duration_ends_a_round_after_at_least_one_message(self):
        for question in ("lat", "bw"):
            report, _ = self.measure(question, "--link", "tcp", "--duration", "0.01", "--repeat", "1")
            self.expect_report(report, question, "tcp", [64 if question == "lat" else 65536], repeat=1, messages=None)
            for figures in report["sizes"][0]["rounds"][0].values():
                self.assertGreaterEqual(figures["messages"], 1)

    def test_medians_and_ratio_are_those_of_the_rounds(self):
        report, _ = self.measure("lat", "--link", "p2p", "--iterations", "20", "--repeat", "3")
        size = report["sizes"][0]
        for name in ("gpusock", "raw lines"):
            for figure in LATENCY:
                values = sorted(row[name][figure] for row in size["rounds"])
                self.assertAlmostEqual(size["medians"][name][figure], values[1])
        ratios = sorted(row["gpusock"]["p50_ns"] / row["raw lines"]["p50_ns"] for row in size["rounds"])
        self.assertAlmostEqual(size["ratio"], ratios[1])

    def test_the_json_says_what_was_measured_where_and_of_which_commit(self):
        report, _ = self.measure("lat", "--link", "p2p", "--iterations", "5", "--repeat", "1", "--commit", "named-by-hand")
        self.assertEqual(report["commit"], "named-by-hand")
        self.assertRegex(report["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn(report["device"]["kind"], ("cpu", "gpu"))
        for fact in ("cpu_model", "kernel", "compiler"):
            self.assertNotEqual(report["machine"][fact], "")
        self.assertGreaterEqual(report["machine"]["cores"], 1)
        unnamed, _ = self.measure("lat", "--link", "p2p", "--iterations", "5", "--repeat", "1")
        self.assertRegex(unnamed["commit"], r"^([0-9a-f]{40}(-dirty)?|unknown)$")

    def test_the_table_names_the_device_and_has_a_line_for_each_size(self):
        report, table = self.measure("bw", "--link", "p2p", "--size", "64,64K", "--iterations", "5", "--repeat", "1")
        self.assertIn(report["device"]["name"], table)
        if report["device"]["kind"] == "cpu":
            self.assertIn("not a GPU's figures", table)
        rows = [line.split() for line in table.splitlines() if re.match(r" *\d+ ", line)]
        self.assertEqual([row[0] for row in rows], ["64", "65536"])
        self.assertEqual({len(row) for row in rows}, {1 + 4 + 1})

    def test_help_succeeds(self):
        for arguments in (["--help"], ["lat", "--help"], ["bw", "--help"]):
            done = self.run_bench(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("--help", done.stdout)

    def test_misuse_exits_2_and_says_why(self):
        for arguments in ([], ["speed"], ["lat"], ["lat", "--link", "carrier-pigeon"], ["lat", "--link", "tcp", "--size", "0"],
                          ["bw", "--link", "tcp", "--size", "64,many"], ["bw", "--link", "tcp", "--iterations", "0"],
                          ["bw", "--link", "tcp", "--duration", "-1"], ["lat", "--link", "tcp", "--duration", "nan"],
                          ["lat", "--link", "tcp", "--repeat", "0"],
                          ["lat", "--link", "tcp", "--between", "friends"], ["lat", "--link", "tcp", "--at", "no:where"],
                          ["lat", "--link", "tcp", "--group", "crowd"],
                          ["lat", "--link", "tcp", "--between", "threads", "--group", "block"],
                          ["lat", "--link", "tcp", "--ring-bytes", "5000"], ["lat", "--link", "tcp", "extra"]):
            with self.subTest(arguments=arguments):
                done = self.run_bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertNotEqual(done.stderr, "")

    def test_a_file_that_cannot_be_written_fails_and_is_named(self):
        done = self.run_bench("lat", "--link", "p2p", "--iterations", "1", "--json", "/nonexistent/figures.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/figures.json", done.stderr)

    def test_a_table_that_nobody_can_read_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([self.program, "lat", "--link", "p2p", "--iterations", "1", "--repeat", "1"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write standard output: No space left on device", done.stderr)


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    Bench.program = os.path.abspath(sys.argv[1])
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
