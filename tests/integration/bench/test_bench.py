#!/usr/bin/env python3
"""Promises of gpusock-bench: what it measures, its JSON, its table, the page of it and its exit statuses. No figure is judged.

usage: test_bench.py GPUSOCK_BENCH

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import contextlib
import errno
import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

LIMIT_S = 240  # a run that takes longer hangs
PLAINLY = ("--group", "thread")  # a block's calls take the CPU device a hundred times as long
PAGE = pathlib.Path(__file__).resolve().parents[3] / "scripts/bench_page.py"
LATENCY = ("p50_ns", "p99_ns", "min_ns", "mean_ns")
RIVALS = {("lat", "tcp"): ["raw TCP"], ("lat", "p2p"): ["raw lines"], ("bw", "tcp"): ["raw TCP"],
          ("bw", "p2p"): ["memcpy in", "memcpy in+out", "memcpy between"]}


class Bench(unittest.TestCase):
    program = ""

    def run_bench(self, *arguments, **environment):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, **environment})

    def measure(self, *arguments):
        """The JSON and the table of a run that succeeds. Calls are made by threads unless the arguments say otherwise."""
        if "--group" not in arguments and "--between" not in arguments:
            arguments += PLAINLY
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
            self.assertGreater(figures["messages_per_s"], 0)
        else:
            self.assertGreater(figures["min_ns"], 0)
            self.assertLessEqual(figures["min_ns"], figures["p50_ns"])
            self.assertLessEqual(figures["p50_ns"], figures["p99_ns"])
            self.assertLessEqual(figures["min_ns"], figures["mean_ns"])

    def expect_report(self, report, question, link, sizes, repeat, messages, rivals=None):
        names = ["gpusock", *(rivals or RIVALS[question, link])]
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
            self.expect_histograms(size, names, question)

    def expect_histograms(self, size, names, question):
        """All samples of all rounds are in one, and the smallest and the largest are where they belong."""
        if question == "bw":
            self.assertNotIn("histograms", size)
            return
        for name in names:
            histogram, rounds = size["histograms"][name], [row[name] for row in size["rounds"]]
            self.assertEqual(sum(samples for _, samples in histogram), sum(figures["messages"] for figures in rounds))
            first, last = histogram[0][0], histogram[-1][0]
            smallest = min(figures["min_ns"] for figures in rounds)
            self.assertTrue(first <= smallest < first * (1 + 1 / 32) + 1, (first, smallest))
            self.assertGreaterEqual(last * (1 + 1 / 32) + 1, max(figures["p99_ns"] for figures in rounds))
            self.assertEqual(histogram, sorted(histogram))

    def test_both_questions_over_both_links_between_kernels_and_between_threads(self):
        for question, link in RIVALS:
            for between in ("kernels", "threads"):
                with self.subTest(question=question, link=link, between=between):
                    report, _ = self.measure(question, "--link", link, "--between", between, "--size", "64,4K", "--iterations", "20", "--repeat", "2",
                                             "--group", "block" if between == "kernels" else "thread")
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

    def test_the_two_sides_may_have_a_gpu_each(self):
        two = ["lat", "--link", "p2p", "--iterations", "5", "--repeat", "1", "--answer-gpu"]
        for shape, gpu, status, says in (("gpu", "1", 0, ""), ("gpus-apart", "1", 0, "keeps GPU 0 and GPU 1 apart"), ("gpu", "7", 1, "there is no GPU 7: the GPUs of this shape are 0 to 1")):
            done = self.run_bench(*two, gpu, GPUSOCK_CPU_SHAPE=shape, GPUSOCK_LOG="info")
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(says, done.stderr)

    def test_more_blocks_than_the_device_keeps_resident_are_refused_at_once(self):
        wait_for_each_other = ["lat", "--link", "p2p", "--iterations", "1", "--repeat", "1", "--sockets", "65", "--limit", "5"]
        done = self.run_bench(*wait_for_each_other, GPUSOCK_CPU_SHAPE="gpu", GPUSOCK_HOST_RINGS="off")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("130 blocks in this process, which wait for each other, but the device keeps 128 resident", done.stderr)

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
        self.assertEqual({len(row) for row in rows}, {1 + 4 * 2 + 1})

    def test_several_sockets_are_measured_at_once_in_each_direction(self):
        for direction, between in (("out", "kernels"), ("in", "threads"), ("both", "kernels")):
            with self.subTest(direction=direction):
                report, table = self.measure("bw", "--link", "p2p", "--sockets", "3", "--direction", direction, "--between", between,
                                             "--iterations", "4", "--size", "1000", "--repeat", "2", "--group", "thread")
                sockets = 6 if direction == "both" else 3
                self.expect_report(report, "bw", "p2p", [1000], 2, 4 * sockets, ["raw TCP"])
                self.assertEqual((report["options"]["sockets"], report["options"]["direction"]), (3, direction))
                if direction == "both":
                    self.assertIn("gpusock in GB/s", table)
                    for figures in report["sizes"][0]["rounds"][0].values():
                        both = figures["out_gigabytes_per_s"] + figures["in_gigabytes_per_s"]
                        self.assertAlmostEqual(figures["gigabytes_per_s"], both)

    def test_round_trips_of_several_sockets(self):
        report, _ = self.measure("lat", "--link", "tcp", "--sockets", "3", "--iterations", "5", "--repeat", "1")
        self.expect_report(report, "lat", "tcp", [64], 1, 15)

    def test_connections_are_counted_on_every_link(self):
        for link, more in (("tcp", ("--sockets", "2")), ("p2p", ("--between", "threads"))):
            with self.subTest(link=link):
                report, table = self.measure("conn", "--link", link, "--iterations", "5", "--repeat", "2", *more)
                self.expect_report(report, "conn", link, [1], 2, 10 if "2" in more else 5, ["raw TCP"])
                self.assertGreater(report["sizes"][0]["medians"]["gpusock"]["connections_per_s"], 0)
                self.assertIn("conn/s", table)

    def test_rates_of_numbers_of_sockets_with_messages_on_their_way(self):
        for link, between, more in (("tcp", "kernels", ()), ("p2p", "threads", ("--window", "3")), ("tcp", "kernels", ("--window", "1024", "--size", "8,64", "--ring-bytes", "64K"))):
            with self.subTest(link=link, between=between, more=more):
                report, table = self.measure("rate", "--link", link, "--between", between, "--sockets", "1,3", "--iterations", "10", "--repeat", "2",
                                             "--group", "thread", *more)
                sizes = [8, 64] if "8,64" in more else [64]
                self.expect_report(report, "rate", link, [size for size in sizes for _ in range(2)], 2, None, ["raw TCP"])
                self.assertEqual([row["sockets"] for row in report["sizes"]], [1, 3] * len(sizes))
                for row in report["sizes"]:
                    for figures in (entry for each in row["rounds"] for entry in each.values()):
                        self.assertEqual(figures["messages"], 10 * row["sockets"])
                        self.assertGreater(figures["round_trips_per_s"], 0)
                self.assertEqual((report["options"]["sockets"], report["options"]["window"]), ([1, 3], int(more[1]) if more else 1))
                rows = [line.split()[:2] for line in table.splitlines()[-len(report["sizes"]):]]
                self.assertEqual(rows, [[str(row["bytes"]), str(row["sockets"])] for row in report["sizes"]])

    def test_round_trips_of_one_group_with_many_sockets_of_which_one_or_all_are_in_use(self):
        for link, between, more in (("tcp", "kernels", ("--group", "thread")), ("p2p", "threads", ()), ("p2p", "kernels", ("--group", "warp", "--size", "8,5000"))):
            with self.subTest(link=link, between=between):
                report, table = self.measure("scale", "--link", link, "--between", between, "--sockets", "1,40", "--iterations", "50", "--repeat", "2", *more)
                sizes = [8, 5000] if "8,5000" in more else [64]
                self.expect_report(report, "scale", link, [size for size in sizes for _ in range(3)], 2, 50, ["raw TCP"])
                self.assertEqual([(row["sockets"], row["in_use"]) for row in report["sizes"]], [(1, 1), (40, 1), (40, 40)] * len(sizes))
                self.assertGreater(report["sizes"][0]["medians"]["gpusock"]["round_trips_per_s"], 0)
                self.assertEqual((report["options"]["sockets"], report["options"]["ring_bytes"]), ([1, 40], 4096))
                self.assertIn("1, 40 exist, of one group on each side; rings of 4096 bytes", table)
                rows = [line.split()[:3] for line in table.splitlines()[-len(report["sizes"]):]]
                self.assertEqual(rows, [[str(row[key]) for key in ("bytes", "sockets", "in_use")] for row in report["sizes"]])

    def test_the_soft_limit_of_open_files_is_raised_and_a_hard_one_is_named(self):
        for limit, status in (("-Sn", 0), ("-n", 1)):
            done = subprocess.run(["bash", "-c", f"ulimit {limit} 100; exec \"$@\"", "_", self.program, "scale", "--link", "tcp", "--sockets", "40", "--iterations", "2",
                                   "--repeat", "1", *PLAINLY], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            if status != 0:
                self.assertIn("--sockets 40 takes 288 open files, and this process may have 100: raise the hard limit (as root: ulimit -Hn 288), or take fewer sockets", done.stderr)

    def test_latencies_of_all_groups_stand_side_by_side(self):
        done, table = self.measure("lat", "--link", "p2p", "--iterations", "2", "--repeat", "1", "--size", "8,64", "--between", "kernels")
        self.expect_report(done, "lat", "p2p", [8, 8, 8, 64, 64, 64], repeat=1, messages=2)
        self.assertEqual([size["group"] for size in done["sizes"]], ["thread", "warp", "block"] * 2)
        self.assertEqual((done["options"]["group"], done["options"]["threads"]), ("all", 64))
        rows = [line.split()[:2] for line in table.splitlines()[-6:]]
        self.assertEqual(rows, [[size, group] for size in ("8", "64") for group in ("thread", "warp", "block")])
        for caller in ("blocks of 1, calls by thread", "blocks of 32, calls by warp", "blocks of 64, calls by block"):
            self.assertIn(caller, table)

    def test_calls_are_made_by_blocks_unless_a_thread_makes_them(self):
        done, table = self.measure("bw", "--link", "p2p", "--iterations", "2", "--repeat", "1", "--between", "kernels")
        self.assertEqual((done["options"]["group"], done["options"]["threads"]), ("block", 64))
        self.assertNotIn("calls by ", table.splitlines()[-2])
        done, _ = self.measure("lat", "--link", "p2p", "--iterations", "2", "--repeat", "1", "--group", "block")
        self.assertEqual((done["options"]["group"], done["options"]["threads"]), ("block", 64))
        done, _ = self.measure("lat", "--link", "p2p", "--iterations", "2", "--repeat", "1", "--between", "threads")
        self.assertEqual((done["options"]["group"], done["options"]["threads"]), ("thread", 1))

    def test_help_succeeds(self):
        for arguments in (["--help"], ["lat", "--help"], ["bw", "--help"], ["conn", "--help"], ["rate", "--help"], ["scale", "--help"], ["serve", "--help"]):
            done = self.run_bench(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("--help", done.stdout)

    def test_misuse_exits_2_and_says_why(self):
        for arguments in ([], ["speed"], ["lat"], ["lat", "--link", "carrier-pigeon"], ["lat", "--link", "tcp", "--size", "0"],
                          ["bw", "--link", "tcp", "--size", "64,many"], ["bw", "--link", "tcp", "--iterations", "0"],
                          ["bw", "--link", "tcp", "--duration", "-1"], ["lat", "--link", "tcp", "--duration", "nan"],
                          ["lat", "--link", "tcp", "--repeat", "0"],
                          ["lat", "--link", "tcp", "--between", "friends"], ["lat", "--link", "tcp", "--at", "no:where"],
                          ["lat", "--link", "tcp", "--group", "crowd"], ["lat", "--link", "tcp", "--block-threads", "513"],
                          ["lat", "--link", "tcp", "--between", "threads", "--group", "block"],
                          ["lat", "--link", "tcp", "--between", "threads", "--group", "all"],
                          ["lat", "--link", "tcp", "--group", "all", "--to", "127.0.0.1:1"],
                          ["lat", "--link", "tcp", "--direction", "in"], ["conn", "--link", "tcp", "--size", "64"],
                          ["bw", "--link", "tcp", "--direction", "up"], ["bw", "--link", "tcp", "--sockets", "0"],
                          ["bw", "--link", "tcp", "--sockets", "128", "--size", "64M"],
                          ["lat", "--link", "tcp", "--to", "127.0.0.1:0"], ["lat", "--link", "tcp", "--to", "nowhere"],
                          ["lat", "--link", "tcp", "--to", "127.0.0.1:1", "--at", "127.0.0.2"],
                          ["lat", "--link", "tcp", "--to", "127.0.0.1:1", "--answer-gpu", "1"],
                          ["rate", "--link", "tcp", "--to", "127.0.0.1:1"], ["rate", "--link", "tcp", "--size", "7"], ["rate", "--link", "tcp", "--sockets", "4,129"],
                          ["scale", "--link", "tcp", "--to", "127.0.0.1:1"], ["scale", "--link", "tcp", "--sockets", "4097"], ["scale", "--link", "tcp", "--window", "2"],
                          ["scale", "--link", "tcp", "--ring-bytes", "1M"], ["rate", "--link", "tcp", "--window", "2", "--size", "64K"], ["rate", "--link", "tcp", "--window", "2", "--size", "4K", "--ring-bytes", "4K"],
                          ["serve", "--at", "no:where"], ["serve", "--link", "tcp"],
                          ["lat", "--link", "tcp", "--ring-bytes", "5000"], ["lat", "--link", "tcp", "extra"]):
            with self.subTest(arguments=arguments):
                done = self.run_bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertNotEqual(done.stderr, "")

    def test_a_file_that_cannot_be_written_fails_and_is_named(self):
        done = self.run_bench("lat", "--link", "p2p", "--iterations", "1", "--json", "/nonexistent/figures.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/figures.json", done.stderr)

    def test_a_run_that_fails_makes_no_file_and_keeps_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            made, before = pathlib.Path(folder, "made"), pathlib.Path(folder, "before")
            before.write_text("results", encoding="ascii")
            for file in (made, before):
                done = self.run_bench("lat", "--link", "p2p", "--iterations", "1", "--at", "192.0.2.1", "--json", file)  # nobody's
                self.assertEqual(done.returncode, 1, done.stderr)
            self.assertFalse(made.exists())
            self.assertEqual(before.read_text(encoding="ascii"), "results")
            done = self.run_bench("lat", "--link", "p2p", "--iterations", "1", "--json", before)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(before.read_text(encoding="utf-8"))["benchmark"], "lat")

    def test_a_table_that_nobody_can_read_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([self.program, "lat", "--link", "p2p", "--iterations", "1", "--repeat", "1"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write standard output: No space left on device", done.stderr)


class Markup(html.parser.HTMLParser):
    """What is in a page: its texts, by the tag that holds them, the names of its parts, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.names, self.refers, self.pictures, self.open = {}, [], [], 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.pictures += tag == "svg"
        self.open.append(tag)
        for key, value in attrs:
            if key == "id":
                self.names.append(value)
            if key in ("src", "href", "xlink:href"):
                self.refers.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:  # <meta> and others have no end
            pass

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data.strip())


class Page(Bench):
    """scripts/bench_page.py. Of Bench: only how programs are run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def runs(self):
        """The JSON files of a few short runs."""
        files = []
        for name, *arguments in (("lat-groups", "lat", "--link", "p2p", "--commit", "<of & this>"), ("bw", "bw", "--link", "tcp", "--size", "64,1K", *PLAINLY),
                                 ("rate", "rate", "--link", "tcp", "--sockets", "1,2", "--window", "2", *PLAINLY), ("scale", "scale", "--link", "p2p", "--sockets", "1,3", "--group", "all"), ("conn", "conn", "--link", "tcp", *PLAINLY)):
            files.append(self.folder / f"{name}.json")
            done = self.run_bench(*arguments, "--iterations", "3", "--repeat", "2", "--json", files[-1])
            self.assertEqual(done.returncode, 0, done.stderr)
        return files

    def make(self, *arguments, path=None):
        return subprocess.run([sys.executable, "-B", str(PAGE), *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, **({"PATH": path} if path else {})})

    def expect_tables(self, markup, files):
        shown = [float(text.replace(",", "")) for text in markup.texts["td"] if re.fullmatch(r"[0-9.,]+", text)]
        for report in (json.loads(file.read_text()) for file in files):
            for fact in (report["commit"], report["machine"]["kernel"], report["machine"]["compiler"]):
                self.assertTrue(any(fact in text for text in markup.texts["td"]), fact)
            for contestant in report["contestants"]:
                self.assertTrue(any(contestant["description"] in text for text in markup.texts["li"]), contestant)
            for medians in (each for row in report["sizes"] for each in row["medians"].values()):
                for figure in {"gigabytes_per_s", "messages_per_s", "connections_per_s", "round_trips_per_s", "p50_ns", "p99_ns"} & set(medians):
                    median = medians[figure] / (1000 if figure.endswith("_ns") else 1)
                    self.assertTrue(any(abs(number - median) <= 0.001 * median for number in shown), (figure, median))

    @unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot here")
    def test_a_page_has_the_tables_and_pictures_of_all_runs_and_needs_no_other_file(self):
        files = self.runs()
        done = self.make(self.folder / "page", *files)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        pictures = sorted(path.name for path in (self.folder / "page").glob("*.svg"))
        self.assertEqual(pictures, ["bw-sizes.svg", "conn-times.svg", "lat-groups-times.svg", "rate-sockets.svg", "rate-times.svg", "scale-sockets.svg", "scale-times.svg"])
        markup = Markup((self.folder / "page/index.html").read_text(encoding="utf-8"))
        self.assertEqual(markup.pictures, len(pictures))
        self.assertEqual(len(markup.names), len(set(markup.names)))
        self.assertNotEqual(markup.refers, [])
        for where in markup.refers:
            self.assertIn(where.removeprefix("#"), markup.names)
        for line in ("gpusock, a thread", "gpusock, a warp", "gpusock, a block", "raw lines", "raw TCP", "gpusock, a warp, one in use", "raw TCP, all by turns"):
            self.assertIn(line, [text for texts in markup.texts.values() for text in texts])
        self.expect_tables(markup, files)

    def test_without_gnuplot_the_page_has_the_tables_and_says_what_to_install(self):
        files = self.runs()
        done = self.make(self.folder / "page", *files, path=str(self.folder))
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr, "bench_page: no pictures: gnuplot is not installed; install the package gnuplot-nox, or run ./run install-deps\n")
        markup = Markup((self.folder / "page/index.html").read_text(encoding="utf-8"))
        self.assertEqual(markup.pictures, 0)
        self.assertTrue(any("install the package gnuplot-nox" in text for text in markup.texts["p"]))
        self.expect_tables(markup, files)

    def test_what_is_not_a_result_is_named_and_misuse_exits_2(self):
        for text in ("new", "{}", '{"benchmark": "store", "options": {}, "sizes": []}', "[]"):
            (self.folder / "odd.json").write_text(text)
            done = self.make(self.folder / "page", self.folder / "odd.json")
            self.assertEqual(done.returncode, 1, text)
            self.assertRegex(done.stderr, r"odd\.json is not what gpusock-bench --json writes \(.*\): measure anew")
            self.assertFalse((self.folder / "page").exists())
        self.assertEqual(self.make(self.folder / "page", self.folder / "none.json").returncode, 1)
        self.assertEqual([self.make(*arguments).returncode for arguments in ((), ("page",), ("--speed", "a.json"), ("--help",))], [2, 2, 2, 0])


class Served:
    """A server that runs, and where."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen([Bench.program, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        self.greeting = self.process.stdout.readline()
        self.command = self.process.stdout.readline().split()
        self.address = self.command[-1] if self.command else ""

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        _, problems = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, problems

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class Control:
    """What the two sides say, as in microbench/control_message.hpp."""

    HEADER = struct.Struct("<8sIIII")
    MAGIC = b"gpsbench"
    VERSION = 4
    OPEN, READY, ROUND, STARTED, ACCOUNT, REFUSED, WAIT = range(1, 8)
    ROUND_BODY = {"entrant": 0, "job": {"bytes": 64, "warmup": 1, "messages_max": 10, "duration_ns": 2 ** 64 - 1, "limit_ns": 60_000_000_000,
                                        "token": 7}}

    @classmethod
    def message(cls, kind, body=None, version=VERSION):
        text = json.dumps(body).encode()
        return cls.HEADER.pack(cls.MAGIC, version, kind, len(text), 0) + text

    @classmethod
    def open_message(cls, ring_bytes=0):
        return cls.message(cls.OPEN, {"entrant": 0, "options": {  # latency over TCP of one thread's calls
            "question": 0, "link": 2, "between": 1, "group": 0, "block_threads": 64, "sockets": 1, "direction": 0, "ring_bytes": ring_bytes}})

    @classmethod
    def round_message(cls):
        return cls.message(cls.ROUND, cls.ROUND_BODY)

    @classmethod
    def receive(cls, connection):
        """Kind and body of the next message; (None, None) at the end."""
        header = connection.recv(cls.HEADER.size, socket.MSG_WAITALL)
        if len(header) < cls.HEADER.size:
            return None, None
        _, _, kind, size, _ = cls.HEADER.unpack(header)
        return kind, json.loads(connection.recv(size, socket.MSG_WAITALL))


def connect(address):
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    return connection


class TwoProcesses(Bench):
    """A client and a server. Of Bench: only how programs are run."""

    FEW = ("--iterations", "5", "--repeat", "2")

    def measure_at(self, address, question, link, *arguments):
        report, table = self.measure(question, "--link", link, "--to", address, *self.FEW, *arguments)
        self.assertEqual(report["options"]["to"], address)
        self.assertNotEqual(report["server"], "")
        self.assertIn(f"at {address}", table)
        return report

    def expect_failure(self, words, address, *arguments):
        """A run that fails, and says these words."""
        done = self.run_bench("lat", "--link", "tcp", "--between", "threads", "--to", address, *self.FEW, *arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(words, done.stderr)
        return done

    def test_one_server_answers_every_question_on_every_link(self):
        links = ["tcp", "p2p"] + (["fabric"] if os.environ.get("GPUSOCK_TEST_FABRIC") else [])
        with Served() as server:
            for link in links:
                for question, messages, more in (("lat", 5, ()), ("bw", 5, ("--size", "100,4K")), ("conn", 5, ()),
                                                 ("bw", 20, ("--direction", "both", "--sockets", "2")),
                                                 ("bw", 5, ("--direction", "in"))):
                    with self.subTest(link=link, question=question, more=more):
                        report = self.measure_at(server.address, question, link, "--between", "threads", *more)
                        sizes = {"lat": [64], "bw": [65536], "conn": [1]}[question] if "--size" not in more else [100, 4096]
                        self.expect_report(report, question, link, sizes, 2, messages, ["raw TCP"])
            report = self.measure_at(server.address, "bw", "tcp", "--group", "warp", "--sockets", "2")
            self.expect_report(report, "bw", "tcp", [65536], 2, 10, ["raw TCP"])
            self.assertEqual(server.end(), (0, ""))

    def test_the_command_that_it_prints_works_and_once_ends_it(self):
        for at in ((), ("--at", "0.0.0.0"), ("--at", "127.0.0.2:0")):
            with Served("--once", *at) as server:
                command = server.command if "--at" not in at or at[1] != "0.0.0.0" else server.command[:6]
                self.assertEqual(command[0], "gpusock-bench")
                done = self.run_bench(*command[1:], *self.FEW, *PLAINLY)
                self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")
                self.assertEqual(server.wait(), (0, ""))

    def test_rings_that_processes_cannot_share_are_told_with_what_to_set(self):
        """In the shape of a GPU, processes share rings by a name only."""
        name, shape = f"bench-{os.getpid()}", {"GPUSOCK_CPU_SHAPE": "gpu"}
        with Served(GPUSOCK_HOST_RINGS=f"{name},connections=2", **shape) as server:
            for question, sockets, rings, warns, advises in (
                    ("lat", "1", "off", "the same name in both processes (here: off)", "the same GPUSOCK_HOST_RINGS=NAME; set that"),
                    ("bw", "3", name, f"all 2 host rings are in use; start all with GPUSOCK_HOST_RINGS={name},connections=N", "GPUSOCK_HOST_RINGS=NAME,connections=N")):
                done = self.run_bench(question, "--link", "p2p", "--sockets", sockets, "--to", server.address, *self.FEW, *PLAINLY,
                                      GPUSOCK_HOST_RINGS=rings, **shape)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(warns, done.stderr)
                self.assertIn(advises, done.stderr)
            server.end()  # the last user removes the rings' file

    def test_an_address_that_is_taken_is_named(self):
        with Served() as server:
            done = self.run_bench("serve", "--at", server.address)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{server.address}: Address already in use", done.stderr)

    def test_a_server_outlives_bad_clients_and_serves_the_next(self):
        other_version = Control.message(Control.STARTED, version=9)
        openings = {b"GET / HTTP/1.1\r\n\r\n": "is not gpusock-bench", other_version: "version 9",
                    Control.round_message(): "before its contestant was opened",
                    Control.message(Control.OPEN, {"entrant": 0}): "sent a message that is not valid",
                    Control.message(Control.ACCOUNT): "another message than the one that was due",
                    Control.open_message(ring_bytes=5): "is 5, not", Control.open_message()[:30]: "has ended"}
        with Served() as server:
            for said, _ in openings.items():
                with connect(server.address) as client:
                    client.sendall(said)
                    try:
                        client.shutdown(socket.SHUT_WR)
                        while client.recv(4096):  # what it refuses, and the end
                            pass
                    except OSError as error:  # it does not read on, so it may have reset the connection
                        self.assertIn(error.errno, (errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE))
            self.measure_at(server.address, "lat", "tcp", "--between", "threads")
            status, problems = server.end()
            self.assertEqual(status, 0)
            for words in openings.values():
                self.assertIn(words, problems)

    def test_a_client_that_dies_in_a_round_ends_its_round_only(self):
        with Served() as server:
            with connect(server.address) as client:
                client.sendall(Control.open_message())
                self.assertEqual(Control.receive(client)[0], Control.READY)
                client.sendall(Control.round_message())
                self.assertEqual(Control.receive(client)[0], Control.STARTED)
            self.measure_at(server.address, "lat", "tcp", "--between", "threads")
            status, problems = server.end()
            self.assertEqual(status, 0)
            self.assertIn("during a round", problems)

    def test_strangers_that_reset_their_connections_end_nobodys_measurement(self):
        with Served() as server, connect(server.address) as client:
            client.sendall(Control.open_message())
            self.assertEqual(Control.receive(client)[0], Control.READY)
            client.sendall(Control.round_message())
            self.assertEqual(Control.receive(client)[0], Control.STARTED)
            for said in (b"", b"GPU", Control.open_message()) * 4:
                stranger = connect(server.address)
                stranger.sendall(said)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
                stranger.close()
            with connect(server.address) as waits:  # it is heard after all of them
                waits.sendall(Control.open_message())
                self.assertEqual(Control.receive(waits)[0], Control.WAIT)
            status, problems = server.end()
            self.assertEqual(status, 0, problems)
            self.assertNotIn("none", problems)

    def test_strangers_that_reset_their_connections_do_not_end_an_idle_server(self):
        with Served() as server:
            for _ in range(20):
                stranger = connect(server.address)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
                stranger.close()
            with connect(server.address) as client:  # it is heard after all of them
                client.sendall(Control.open_message())
                kinds = [Control.receive(client)[0]]
                if kinds[0] == Control.WAIT:  # a stranger's session has not ended yet
                    kinds.append(Control.receive(client)[0])
                self.assertEqual(kinds[-1], Control.READY)
            status, problems = server.end()
            self.assertEqual(status, 0, problems)
            self.assertNotIn("none", problems)

    def test_a_server_that_is_stopped_in_a_round_ends_it(self):
        with Served() as server, connect(server.address) as client:
            client.sendall(Control.open_message())
            Control.receive(client)
            client.sendall(Control.round_message())
            self.assertEqual(Control.receive(client)[0], Control.STARTED)
            status, problems = server.end()
            self.assertEqual(status, 0)
            self.assertIn("the server was stopped while it served the client at 127.0.0.1:", problems)
            self.assertNotIn("the client left", problems)

    def test_strangers_on_the_measured_port_do_no_harm(self):
        with Served() as server, connect(server.address) as client:
            client.sendall(Control.open_message())
            port = Control.receive(client)[1]["port"]
            client.sendall(Control.round_message())
            self.assertEqual(Control.receive(client)[0], Control.STARTED)
            for said in (b"", b"hello", struct.pack("<QQ48x", 8, 0), struct.pack("<QQ48x", 7, 1)):  # another token, another socket
                with connect(f"127.0.0.1:{port}") as stranger:
                    stranger.sendall(said)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(4096):
                        pass
            with connect(f"127.0.0.1:{port}") as measured:
                measured.sendall(struct.pack("<QQ48x", 7, 0) + bytes(64))
                self.assertEqual(measured.recv(64, socket.MSG_WAITALL), bytes(64))
            kind, answer = Control.receive(client)
            self.assertEqual(kind, Control.ACCOUNT)
            self.assertEqual(answer["account"]["failed_step"], 0)

    def test_a_second_client_waits_for_the_first(self):
        with Served() as server:
            with connect(server.address) as first:
                first.sendall(Control.open_message())
                self.assertEqual(Control.receive(first)[0], Control.READY)
                second = subprocess.Popen([self.program, "lat", "--link", "tcp", "--between", "threads", "--to", server.address,
                                           *self.FEW], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.assertIn("serves another client; waiting", second.stderr.readline())
            self.assertEqual(second.communicate(timeout=LIMIT_S)[1], "")
            self.assertEqual(second.returncode, 0)

    def test_clients_that_died_while_they_waited_make_room(self):
        with Served() as server, connect(server.address) as first:
            first.sendall(Control.open_message())
            self.assertEqual(Control.receive(first)[0], Control.READY)
            for _ in range(16):  # as many as may wait
                with connect(server.address) as dead:
                    dead.sendall(Control.open_message())
                    self.assertEqual(Control.receive(dead)[0], Control.WAIT)
            with connect(server.address) as waits:
                waits.sendall(Control.open_message())
                self.assertEqual(Control.receive(waits)[0], Control.WAIT)
                first.close()
                self.assertEqual(Control.receive(waits)[0], Control.READY)

    def test_silent_and_slow_clients_hold_up_nobody(self):
        with Served() as server, contextlib.ExitStack() as stack:
            for number in range(100):  # more than are kept at a time
                client = stack.enter_context(connect(server.address))
                client.sendall(Control.open_message()[:number % 64])  # silent; or a part of a message, and no more
            self.measure_at(server.address, "lat", "tcp", "--between", "threads")

    def lie(self, *answers):
        """A server that gives these answers, each to a message; at the end it closes. A None is silence."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def run():
            with listener.accept()[0] as client:
                for answer in answers:
                    if not answer:
                        client.recv(1)  # until the client has gone
                        while client.recv(4096):
                            pass
                        return
                    Control.receive(client)
                    client.sendall(answer)

        liar = threading.Thread(target=run)
        liar.start()
        self.addCleanup(liar.join)
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def test_a_server_that_lies_or_hangs_is_an_error_that_says_so(self):
        ready = Control.message(Control.READY, {"port": 1, "device": "its"})
        self.expect_failure("is not gpusock-bench", self.lie(b"HTTP/1.1 400 Bad Request\r\n"))
        self.expect_failure("speaks version 9", self.lie(Control.message(Control.READY, version=9)))
        self.expect_failure("has ended", self.lie(ready[:9]))
        self.expect_failure("has ended", self.lie())
        self.expect_failure("has said nothing for 0.2 s: Connection timed out (ETIMEDOUT); is it gpusock-bench serve?", self.lie(None), "--limit", "0.2")
        self.expect_failure("named no port", self.lie(Control.message(Control.READY, {"port": 0, "device": "its"})))
        self.expect_failure("sent a message that is not valid", self.lie(Control.message(Control.READY)))
        self.expect_failure("another message than the one that was due", self.lie(ready, ready, ready))
        refusal = {"error": 16, "text": "go\033[1maway"}
        self.expect_failure("refuses: go?[1maway\n", self.lie(Control.message(Control.REFUSED, refusal)))

    def test_a_server_that_dies_in_a_round_is_named(self):
        with Served() as server, socket.create_server(("127.0.0.1", 0)) as between:
            client = subprocess.Popen([self.program, "lat", "--link", "tcp", "--between", "threads", "--duration", "600", "--to",
                                       "127.0.0.1:%d" % between.getsockname()[1]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                      text=True)
            with between.accept()[0] as here, connect(server.address) as there:
                for _ in range(3):  # two contestants are opened, then the first round starts
                    kind, body = Control.receive(here)
                    there.sendall(Control.message(kind, body))
                    kind, body = Control.receive(there)
                    if kind == Control.STARTED:
                        server.end(signal.SIGKILL)
                    here.sendall(Control.message(kind, body))
                self.assertEqual(kind, Control.STARTED)
            problems = client.communicate(timeout=LIMIT_S)[1]
            self.assertEqual(client.returncode, 1)
            self.assertIn("has ended", problems)


def tests_of(case):
    """Its own tests, without those of the class that it is made from."""
    return [case(name) for name in unittest.defaultTestLoader.getTestCaseNames(case) if name in vars(case)]


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    Bench.program = os.path.abspath(sys.argv[1])
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    suite = unittest.TestSuite([*tests_of(Bench), *tests_of(Page), *tests_of(TwoProcesses)])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
