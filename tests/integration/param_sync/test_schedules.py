"""What `param_sync schedule` and `param_sync simulate` promise to their users."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

LIMIT_S = 60


def run(*arguments, text=None, megabytes_max=None, folder=None):
    """`megabytes_max`: of the address space; not where a sanitizer takes all of it."""
    def limit():
        if megabytes_max is not None and not os.environ["PARAM_SYNC_SANITIZED"]:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes_max << 20, megabytes_max << 20))

    done = subprocess.run([os.environ["PARAM_SYNC"], *map(str, arguments)], input=text, capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, preexec_fn=limit, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def all_reduce_of(schedule):
    """Runs a schedule whose result is a sum, lane by lane, with messages of any size: each rank's chunks, as sets of ranks."""
    ranks, rings = schedule["ranks"], {}
    data = [[[rank] for _ in range(schedule["chunks"])] for rank in range(schedule["nodes"])]
    done = [[0] * len(rank["lanes"]) for rank in ranks]
    moved = True
    while moved:
        moved = False
        for me, rank in enumerate(ranks):
            for number, lane in enumerate(rank["lanes"]):
                while done[me][number] < len(lane):
                    op = lane[done[me][number]]
                    chunks, channel = range(op["chunk"], op["chunk"] + op["count"]), op.get("channel", 0)
                    if any(done[me][other] <= index for other, index in op.get("after", [])):
                        break
                    if "from" in op:
                        ring = rings.setdefault((op["from"], me, channel), [])
                        if not ring:
                            break
                        for chunk, value in zip(chunks, ring.pop(0)):
                            data[me][chunk] = sorted(value + data[me][chunk]) if "reduce" in op["op"] else value
                    if "to" in op:
                        rings.setdefault((me, op["to"], channel), []).append([data[me][chunk] for chunk in chunks])
                    done[me][number] += 1
                    moved = True
    assert not any(rings.values()), "a message is left"
    return data


class Schedules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write_results_of_a_training(self):
        rows = ["# step\tloss\ttest_accuracy\tpushed_mb\twaited_ms\tseconds\tslowest\theld_up_ms", "# data images, it's ours", "1\t2.5\tnan\t1\t0\t0\t0\t1.5",
                "2\t1.5\t0.5\t2\t0\t0.25\t1\t2"]
        (self.folder / "param_sync.tsv").write_text("\n".join(rows) + "\n")
        spans = [{"ph": "X", "name": f"{what} layer 0", "cat": what, "pid": 0, "tid": thread, "ts": 1000 * thread, "dur": 2000,
                  "args": {"step": 1, "first_layer": 0, "last_layer": 0}} for thread, what in enumerate(("backward", "push", "pull"))]
        (self.folder / "trace.json").write_text(json.dumps({"traceEvents": spans}))

    @unittest.skipIf(shutil.which("gnuplot") is None, "no gnuplot")
    def test_figures_are_drawn_of_what_a_training_has_written(self):
        self.write_results_of_a_training()
        status, out, err = run("plot", self.folder, "--nodes", 2)
        self.assertEqual((status, err), (0, ""))
        for name, texts in (("loss", ("seconds since the first step", "gradients pushed until then", "data images, it s ours", "others held up", "by rank 1")),
                            ("layers", ("rank 0: kernels", "layer 0", "backward", "push")), ("efficiency", ("vgg16, scheme ring", "2 nodes", "10 Gb/s"))):
            picture = self.folder / f"{name}.svg"
            self.assertIn(f"{picture}\n", out)
            drawn = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
            for text in texts:
                self.assertIn(text, drawn)
        (self.folder / "trace.json").write_text("{}")
        status, _, err = run("plot", self.folder, "--nodes", 2)
        self.assertEqual(status, 1)
        self.assertIn("trace.json: not a file of --trace", err)

    def test_a_schedule_is_printed(self):
        status, out, _ = run("schedule", "--scheme", "ring", "--nodes", 3)
        self.assertEqual(status, 0)
        self.assertIn("ring: all_reduce of 3 chunks, 3 ranks; depth 4, 12 messages, 12 chunks sent, 4 by the busiest rank\n", out)
        self.assertIn("  lane 0 op 1: send of chunk 2 to rank 1, after op 0 of lane 1\n", out)
        self.assertTrue(out.endswith("the checker finds it right\n"))

    def test_what_is_written_is_json_that_another_program_can_run(self):
        for scheme in ("ps", "mesh", "ring", "ring:segmented", "rhd", "butterfly", "tree:double-binary", "hierarchical"):
            status, out, error = run("schedule", "--scheme", scheme, "--nodes", 5, "--chunks", 20, "--json", "-")
            self.assertEqual(status, 0, error)
            schedule = json.loads(out)
            self.assertEqual((schedule["version"], schedule["scheme"], schedule["nodes"], schedule["chunks"]), (1, scheme, 5, 20))
            for rank in all_reduce_of(schedule):
                self.assertEqual(rank, [[0, 1, 2, 3, 4]] * 20)

    def test_a_written_schedule_is_read_and_checked_again(self):
        file = self.folder / "schedule.json"
        self.assertEqual(run("schedule", "--scheme", "byteps", "--nodes", 3, "--summation-nodes", 2, "--json", file)[0], 0)
        status, out, _ = run("schedule", "--schedule", file)
        self.assertEqual(status, 0)
        self.assertIn("5 ranks, 2 of them only sum;", out)
        self.assertIn("3 ranks;", run("schedule", "--scheme", "byteps", "--nodes", 3, "--summation-nodes", 0)[1])
        self.assertEqual(run("schedule", "--schedule", "-", "--json", "-", text=file.read_text())[1], file.read_text())

    def test_a_wrong_schedule_is_refused_with_the_place(self):
        schedule = json.loads(run("schedule", "--scheme", "ring", "--json", "-")[1])
        schedule["ranks"][2]["lanes"][1][0]["op"] = "recv"
        status, out, error = run("schedule", "--schedule", "-", text=json.dumps(schedule))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("param_sync: standard input: all_reduce: chunk 1 at rank", error)
        file = self.folder / "empty.json"
        file.write_text("{}")
        status, _, error = run("schedule", "--schedule", file)
        self.assertEqual((status, error), (1, f'param_sync: {file}: the schedule: "version" is missing\n'))

    def test_a_name_in_a_file_does_no_harm_to_a_terminal(self):
        schedule = json.loads(run("schedule", "--scheme", "ring", "--json", "-")[1])
        for name, shown in (("\x1b[31m\x7fr\u00f6t", "\\u001b[31m\\u007fr\\u00f6t: all_reduce"), ("x" * 100, "x" * 64 + "...: all_reduce"),
                            ("plain: \"ring\"", "plain: \"ring\": all_reduce")):
            status, out, error = run("schedule", "--schedule", "-", text=json.dumps(dict(schedule, scheme=name)))
            self.assertEqual(status, 0, error)
            self.assertTrue(out.startswith(shown), out)

    @unittest.skipIf(shutil.which("gnuplot") is None, "no gnuplot")
    def test_each_figure_has_titles_axes_and_ranges_of_its_own(self):
        self.write_results_of_a_training()
        status, _, err = run("plot", self.folder, "--nodes", 4, "--measure", "--link", "p2p")
        self.assertEqual((status, err), (0, ""))
        percents = [str(10 * tens) for tens in range(0, 11, 2)]
        rates = ["1", "10", "100"]
        efficiency = ["vgg16, scheme ring, 32 samples a node, 6 TFLOP/s: training in virtual time"]
        has = {"loss": ["param_sync: data images, it s ours", "training loss (nats)", "test accuracy", "seconds since the first step",
                        "gradients pushed until then, all nodes (MB)"],
               "layers": ["step 1: each layer has a row", "ms", "rank 0: kernels", "layer 0"],
               "efficiency": [*efficiency, "nodes", "Gb/s", "efficiency (percent)", *percents, *rates],
               "predicted": ["All-reduces, 4 ranks of one process, link p2p", "measured (ms)", "predicted (ms)"]}
        for name, texts in has.items():
            drawn = self.folder / f"{name}.svg"
            shown = [text.strip() for text in xml.etree.ElementTree.parse(drawn).getroot().itertext() if text.strip()]
            for text in texts:
                self.assertTrue(any(text == one or len(text) > 20 and text in one for one in shown), f"{name}: {text} in {shown}")
            for other, strange in has.items():
                for text in strange[1:] if other != name else ():
                    self.assertTrue(text in texts or text.isdigit() or text not in shown, f"{name} has {text} of {other}")
            before = drawn.read_bytes()
            drawn.unlink()
            subprocess.run(["gnuplot", f"{name}.gp"], cwd=self.folder, check=True)
            self.assertEqual(drawn.read_bytes(), before, f"{name} alone")

    def test_the_table_of_schemes_says_what_is_counted(self):
        """Each row: its words in docs/schedules.md, and these as numbers, of P nodes in G groups of g; L is log2 P rounded down, extra: P - 2^L."""
        def whole(node_count):
            return 1 << (node_count.bit_length() - 1)

        def height(count, arity):
            last, above = count - 1, 0
            while last > 0:
                last, above = (last - 1) // arity, above + 1
            return above

        def stripes_height(nodes, stripes):
            trees = min(stripes, nodes)
            inner = [len(range(tree, nodes, trees)) for tree in range(trees)]
            return max(height(nodes, max(1, -(-(nodes - 1) // count))) for count in inner)

        def groups(nodes):
            return -(-nodes // 4)

        even = ("2 (P - 1) S / P", lambda p: (2 * (p - 1) / p,) * 2)
        rows = {"ps": ("2", lambda p: (2, 2), "2 (P - 1) S / P on average", lambda p: (2 * (p - 1) / p, 2.6 * (p - 1) / p)),
                "mesh": ("2", lambda p: (2, 2), *even), "ring": ("2 (P - 1)", lambda p: (2 * (p - 1),) * 2, *even),
                "ring:segmented": ("2 (P - 1) for each P chunks of a lane", lambda p: (2 * (p - 1) * 8,) * 2, *even),
                "chain": ("2 (P - 1)", lambda p: (2 * (p - 1),) * 2, "2 S; S where P is 2", lambda p: (1 if p == 2 else 2,) * 2),
                "rhd": ("2 log2 P", lambda p: (2 * height(whole(p), 2) + 2 * (p != whole(p)),) * 2, "2 (P - 1) S / P",
                        lambda p: (2 * (whole(p) - 1) / whole(p) + (p != whole(p)),) * 2),
                "butterfly": ("log2 P", lambda p: (height(whole(p), 2) + (p != whole(p)), height(whole(p), 2) + 2 * (p != whole(p))),
                              "S log2 P", lambda p: (height(whole(p), 2) + (p != whole(p)),) * 2),
                "tree:binary": ("2 log2 P (rounded down)", lambda p: (2 * (p.bit_length() - 1),) * 2, "at most 3 S", lambda p: (1, 3)),
                "tree:double-binary": ("2 log2 P (rounded up)", lambda p: (2 * (p - 1).bit_length(),) * 2, "at most 2 S", lambda p: (1, 2)),
                "splitstream": ("twice the trees' height", lambda p: (2 * stripes_height(p, 4),) * 2, "at most 2.4 S, 2 S for most P",
                                lambda p: (1, 2.4)),
                "hierarchical": ("2 (G - 1) + 2; 2 (G - 1) where g is 1", lambda p: (2 * groups(p),) * 2,
                                 "2 ((g - 1) / g + (G - 1) / (G g)) S where g divides P, else at most 2.4 S",
                                 lambda p: (2 * (3 / 4 + (groups(p) - 1) / groups(p) / 4),) * 2 if p % 4 == 0 else (1, 2.4)),
                "byteps": ("2", lambda p: (2, 2), "2 P (P - 1) S / (P² + k P - 2 k)", even[1]), "ps:even": ("2", lambda p: (2, 2), *even),
                "blink": ("twice the trees' height", None, "", None)}
        table = {}
        for line in (pathlib.Path(__file__).parents[3] / "docs" / "schedules.md").read_text().split("## Schemes\n")[1].split("\n\n")[1].splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            table[cells[0].strip("`")] = cells[1:3]
        self.assertEqual(sorted(table), sorted(rows))
        for scheme, (depth, depth_of, bytes_sent, bytes_of) in rows.items():
            self.assertEqual(table[scheme], [depth, bytes_sent], scheme)
            for nodes in (2, 3, 4, 5, 6, 7, 8, 12, 16, 17) if depth_of else ():
                chunks = 16 * nodes
                status, out, error = run("schedule", "--scheme", scheme, "--nodes", nodes, "--chunks", chunks, "--svg", self.folder / "drawn.svg")
                self.assertEqual(status, 0, error)
                counted = [int(number) for number in re.search(r"; depth (\d+), \d+ messages, (\d+) chunks sent, (\d+) by", out).groups()]
                least, most = depth_of(nodes)
                self.assertTrue(least <= counted[0] <= most, (scheme, nodes, counted, least, most))
                least, most = bytes_of(nodes)
                self.assertTrue(least * chunks - 1.01 <= counted[2] <= most * chunks + 1.01, (scheme, nodes, counted, least, most))
                extra = nodes - whole(nodes)
                in_all = whole(nodes) * height(whole(nodes), 2) + 2 * extra if scheme == "butterfly" else 2 * (nodes - 1)
                self.assertEqual(counted[1], in_all * chunks, (scheme, nodes))

    def test_a_schedule_of_somebody_else_is_run(self):
        hand_made = {"version": 1, "scheme": "by hand", "nodes": 2, "chunks": 3, "result": "all_reduce", "ranks": [
            {"lanes": [[{"op": "recv_reduce_send", "chunk": 0, "count": 3, "from": 1, "to": 1, "channel": 5}]]},
            {"lanes": [[{"op": "send", "chunk": 0, "count": 3, "to": 0, "channel": 5}],
                       [{"op": "recv", "chunk": 0, "count": 3, "from": 0, "channel": 5}]]}]}
        status, out, error = run("schedule", "--schedule", "-", "--run", "--size", "100K", "--deterministic", "--link", "tcp",
                                 text=json.dumps(hand_made))
        self.assertEqual(status, 0, error)
        self.assertIn("ran on 25600 floats, link tcp: ", out)
        self.assertIn("the results are right, bit for bit those of sums in rank order\n", out)
        hand_made["ranks"][1]["lanes"].pop()
        status, out, error = run("schedule", "--schedule", "-", "--run", text=json.dumps(hand_made))
        self.assertEqual((status, out), (1, ""))

    def test_small_files_that_ask_for_much_are_refused_in_little_memory(self):
        def lanes(ranks):
            rank = '{"lanes": [' + ",".join(["[]"] * 4096) + "]}"
            return (f'{{"version": 1, "scheme": "s", "nodes": {ranks}, "chunks": 1, "result": "all_reduce", "ranks": ['
                    + ",".join([rank] * ranks) + "]}")

        send = '{"op": "send", "chunk": 0, "count": 1048576, "to": 1}'
        sends = ('{"version": 1, "scheme": "s", "nodes": 2, "chunks": 1048576, "result": "broadcast", "ranks": [{"lanes": [['
                 + ",".join([send] * 3400) + ']]}, {"lanes": []}]}')
        too_large = self.folder / "objects.json"
        with too_large.open("w", encoding="ascii") as file:
            file.truncate(180 << 20)
        objects = self.folder / "fewer_objects.json"
        objects.write_text("[" + "{}," * (10 << 20) + "{}]")
        for number, text in enumerate((lanes(16), lanes(64), sends)):
            (self.folder / f"{number}.json").write_text(text)
        asked = ((self.folder / "0.json", r"checking it would take \d+ MiB \(\d+ for chunks at ranks, 2049 for clocks of lanes.*make chunks larger"),
                 (self.folder / "1.json", r"checking it would take \d+ MiB .* 8193 for clocks of lanes"),
                 (self.folder / "2.json", r"checking it would take \d+\.\d billion steps, more than"),
                 (objects, r"so many values that reading it would take \d+ MiB, more than 1024"), (too_large, "has more than 128 MiB"))
        for command, file, says in (*(("schedule", *file) for file in asked), ("simulate", *asked[0])):
            status, out, error = run(command, "--schedule", file, megabytes_max=512)
            self.assertEqual((status, out), (1, ""), error)
            self.assertRegex(error, says)
        status, _, error = run("schedule", "--scheme", "blink", "--topology", objects, megabytes_max=512)
        self.assertEqual(status, 1)
        self.assertIn("the topology has so many values", error)
        objects.rename(self.folder / "trace.json")
        status, _, error = run("plot", self.folder, megabytes_max=512)
        self.assertEqual(status, 1)
        self.assertIn("trace.json has so many values", error)

    def test_sums_in_rank_order_are_refused_where_the_scheme_has_another_order(self):
        status, _, error = run("schedule", "--scheme", "ring", "--run", "--deterministic")
        self.assertEqual(status, 2)
        self.assertIn("ring does not add in the order of ranks for 4 ranks. --scheme chain does", error)
        status, out, error = run("schedule", "--scheme", "chain", "--run", "--deterministic", "--size", "10K")
        self.assertEqual(status, 0, error)
        self.assertIn("bit for bit", out)
        status, out, error = run("schedule", "--scheme", "sfb", "--run", "--size", "10K")
        self.assertEqual(status, 0, error)
        self.assertTrue(out.endswith("the results are right\n"), out)

    def test_schemes_are_timed(self):
        status, out, error = run("bench", "--nodes", 2, "--sizes", "4,1K", "--repeats", 2)
        self.assertEqual(status, 0, error)
        self.assertRegex(out, r"(?s)ms for a sum .* ps +mesh +ring .*\n +4( +[0-9.]+)+\n +1K( +[0-9.]+)+\n")

    def test_factors_are_timed_beside_the_whole_gradient(self):
        status, out, error = run("bench", "--additions", 1000, "--rows", 7, "--columns", 3, "--blocks", 4, "--repeats", 1)
        self.assertEqual(status, 0, error)
        self.assertIn("all sums are exact", out)
        self.assertEqual(out.count("million rows a second"), 3)
        status, out, error = run("bench", "--scheme", "sfb", "--nodes", 3, "--rows", 10, "--columns", 20, "--batch", 2, "--repeats", 1)
        self.assertEqual(status, 0, error)
        self.assertIn("gradient of 10 x 20 weights, 2 samples of each of 3 ranks", out)
        self.assertIn("the same bits on all ranks\n", out)
        for scheme, batch, says in (("adam-fc", 2, "factors sent to rank 0, and its weights to all: 0.002 MB"),
                                    ("hybrid", 2, "hybrid takes factors sent to all: 0.000 MB"),
                                    ("hybrid", 20, "hybrid takes the whole gradient: 0.001 MB")):
            status, out, error = run("bench", "--scheme", scheme, "--nodes", 3, "--rows", 10, "--columns", 20, "--batch", batch, "--repeats", 1)
            self.assertEqual(status, 0, error)
            self.assertIn(says, out)

    def test_stores_answer_with_more_than_a_ring_holds(self):
        status, out, error = run("bench", "--owners", "4", "--link", "tcp", "--sizes", "16M", "--pairs", 2, "--repeats", 1)
        self.assertEqual(status, 0, error)
        self.assertRegex(out, r"\n +16M +4 +2( +[0-9.]+){7}\n$")

    def test_stores_are_timed_beside_raw_sockets(self):
        file = self.folder / "stores.json"
        status, out, error = run("bench", "--owners", "1,2", "--nodes", 2, "--sizes", "4,1K", "--pairs", 7, "--repeats", 2, "--json", file)
        self.assertEqual(status, 0, error)
        self.assertRegex(out, r"(?s)ms a sum\n +4 +1 +7 .*\n +4 +2 +7 .*\n +1K +1 +7 .*\n +1K +2 +7( +[0-9.]+){7}\n$")
        whole = json.loads(file.read_text())
        self.assertEqual((whole["benchmark"], whole["options"]), ("store", {"nodes": 2, "link": "auto", "repeats": 2}))
        self.assertGreater(whole["machine"]["cores"], 0)
        self.assertEqual([(size["bytes"], size["owners"], size["pairs"]) for size in whole["sizes"]], [(4, 1, 7), (4, 2, 7), (1024, 1, 7), (1024, 2, 7)])
        for size in whole["sizes"]:
            self.assertEqual([set(round) for round in size["rounds"]], 2 * [{"store_s", "sockets_s", "ps_even_s"}])
            slower = max(round["store_s"] for round in size["rounds"])  # of two rounds the median is the second
            self.assertAlmostEqual(size["medians"]["store"]["pairs_per_s"] * slower, 14)
            self.assertAlmostEqual(size["medians"]["sockets"]["bytes_per_s"], size["medians"]["sockets"]["pairs_per_s"] * 2 * size["bytes"])

    def test_others_are_measured_beside(self):
        built = {"mpi": os.environ.get("PARAM_SYNC_MPI") == "1", "gloo": os.environ.get("PARAM_SYNC_GLOO") == "1"}
        figures = r" +[0-9.]+ +[0-9.]+ +[0-9.]+\n"
        for name, title, library in (("mpi", "MPI", "MPI (libopenmpi-dev)"), ("gloo", "Gloo", "Gloo (libgloo-dev)")):
            status, out, error = run("bench", "--beside", name, "--nodes", 2, "--sizes", "1K", "--scheme", "mesh", "--repeats", 1)
            if not built[name]:
                self.assertEqual((status, out), (1, ""))
                self.assertIn(f"it is built where CMake finds {library}", error)
                continue
            self.assertEqual(status, 0, error)
            self.assertRegex(out, rf"^{title}'s time / ours, .*\n +beside +its ms +best ms +mesh\n +1K +{title}{figures}")
        if all(built.values()):
            out = run("bench", "--beside", "all", "--nodes", 2, "--sizes", "1K", "--scheme", "mesh", "--repeats", 1)[1]
            self.assertRegex(out, rf"^MPI's and Gloo's time / ours, .*\n.*\n +1K +MPI{figures} +Gloo{figures}")

    def test_a_helper_that_is_missing_is_named_before_the_table_begins(self):
        alone = shutil.copy(os.environ["PARAM_SYNC"], self.folder)
        for choice, missing in (("all", "param_sync-mpi"), ("gloo", "param_sync-gloo")):
            ended = subprocess.run([alone, "bench", "--beside", choice, "--nodes", "2"], capture_output=True, text=True, check=False)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""))
            self.assertIn(f"there is no {self.folder}/{missing}: it is built where CMake finds", ended.stderr)

    def test_a_schedule_is_written_as_goal(self):
        """What the lines say is in tests/unit/traces."""
        file = self.folder / "ring.goal"
        status, out, _ = run("schedule", "--scheme", "ring", "--nodes", 3, "--size", "12K", "--reduce", 2, "--goal", file)
        self.assertEqual(status, 0)
        self.assertIn("the checker finds it right", out)
        self.assertNotIn("lane 0 op 0", out)
        lines = file.read_text().splitlines()
        self.assertEqual((lines[0], lines[2], lines[-1]), ("num_ranks 3", "rank 0 {", "}"))
        sent = [int(re.search(r"send (\d+)b", line)[1]) for line in lines if "send" in line]
        self.assertEqual(sum(sent), 4 * 12 << 10)
        self.assertIn("calc 2048 cpu 1", file.read_text())  # 4 KiB at 2 GB/s
        asked = run("schedule", "--scheme", "ring", "--nodes", 3, "--size", "12K", "--reduce", 2, "--goal", "-")
        self.assertEqual(asked, (0, file.read_text(), ""))

    def test_a_schedule_is_written_as_traces(self):
        """What the files say is in tests/unit/traces."""
        status, out, error = run("schedule", "--scheme", "ring", "--nodes", 3, "--chakra", self.folder / "ring")
        if os.environ["PARAM_SYNC_PROTOBUF"] != "1":
            self.assertEqual((status, out), (2, ""))
            self.assertIn("install libprotobuf-dev and protobuf-compiler", error)
            return
        self.assertEqual(status, 0, error)
        self.assertEqual(sorted(file.name for file in self.folder.iterdir()), ["ring.0.et", "ring.1.et", "ring.2.et"])
        (self.folder / "all.2.et").mkdir()  # rank 2's file cannot be written: the others are not left
        status, _, error = run("schedule", "--scheme", "ring", "--nodes", 3, "--chakra", self.folder / "all")
        self.assertEqual(status, 1)
        self.assertIn("cannot write", error)
        self.assertEqual([file.name for file in self.folder.glob("all.*")], ["all.2.et"])

    def test_goal_that_cannot_be_written_leaves_no_file(self):
        goal, written = self.folder / "ring.goal", self.folder / "ring.json"
        status, out, error = run("schedule", "--scheme", "ring", "--chunks", 8, "--size", 28, "--goal", goal, "--json", written)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("give at least 32 bytes, or fewer chunks", error)
        self.assertEqual(list(self.folder.iterdir()), [])
        status, _, error = run("schedule", "--scheme", "ring", "--goal", self.folder / "no" / "file")
        self.assertEqual(status, 1)
        self.assertIn("cannot write", error)

    def test_a_trace_that_cannot_be_written_leaves_links_and_other_files(self):
        dash, goal = self.folder / "-", self.folder / "ring.goal"
        dash.write_text("not a trace")
        goal.symlink_to("target.goal")
        for name in ("-", goal):
            status, _, error = run("schedule", "--scheme", "ring", "--goal", name, "--chakra", "no/folder", folder=self.folder)
            if "libprotobuf-dev" in error:
                self.skipTest("this build has no protobuf")
            self.assertEqual(status, 1)
            self.assertIn("cannot write", error)
        self.assertEqual(dash.read_text(), "not a trace")
        self.assertTrue(goal.is_symlink())

    def test_a_schedule_is_drawn(self):
        file = self.folder / "schedule.svg"
        self.assertEqual(run("schedule", "--scheme", "rhd", "--nodes", 4, "--svg", file)[0], 0)
        titles = [element.text for element in xml.etree.ElementTree.parse(file).iter() if element.tag.endswith("title")]
        self.assertEqual(len(titles), 16)  # messages
        self.assertIn("chunks 2-3 from 0 to 2, reduce, 0 to 3", titles)

    def test_blink_takes_a_topology(self):
        file = self.folder / "topology.json"
        file.write_text(json.dumps({"version": 1, "nodes": 3, "links": [{"a": 0, "b": 1, "bandwidth": 5}, {"a": 1, "b": 2, "bandwidth": 5}]}))
        status, out, _ = run("schedule", "--scheme", "blink", "--topology", file, "--chunks", 10)
        self.assertEqual(status, 0)
        self.assertIn("blink: all_reduce of 10 chunks, 3 ranks; depth 4, 40 messages", out)
        file.write_text(json.dumps({"version": 1, "nodes": 3, "links": [{"a": 0, "b": 1, "bandwidth": 5}]}))
        status, _, error = run("schedule", "--scheme", "blink", "--topology", file)
        self.assertEqual((status, error), (1, f"param_sync: {file}: the topology: no links lead from node 0 to 2\n"))

    def test_a_topology_and_nodes_must_agree(self):
        file = self.folder / "line.json"
        file.write_text(json.dumps({"version": 1, "nodes": 2, "links": [{"a": 0, "b": 1, "bandwidth": 5}]}))
        for arguments in (("simulate", "--scheme", "ring"), ("schedule", "--scheme", "blink")):
            status, _, error = run(*arguments, "--topology", file, "--nodes", 3)
            self.assertEqual((status, error), (2, f"param_sync: --nodes 3: the topology in {file} has 2 nodes; leave --nodes out\n"))
        self.assertEqual(run("simulate", "--scheme", "ring", "--topology", file, "--nodes", 2)[0], 0)

    def test_virtual_time_is_the_closed_form(self):
        status, out, _ = run("simulate", "--scheme", "ring", "--nodes", 8, "--size", "80000000", "--bandwidth", 8, "--latency", 100,
                             "--overhead", 0, "--reduce", 1e6)
        self.assertEqual(status, 0)
        self.assertIn("80000000 bytes: 141.4 ms in virtual time", out)  # 14 (0.1 ms + 10 MB / (1 GB/s))

    def test_prices_are_the_closed_form_and_auto_is_no_slower_than_the_rule(self):
        status, out, _ = run("predict", "--nodes", 8, "--sizes", "1K,16M", "--bandwidth", 8, "--latency", 100, "--overhead", 0,
                             "--reduce", 1e6)
        self.assertEqual(status, 0)
        lines = [line.split() for line in out.splitlines()]
        ring = lines[1].index("ring") + 1
        self.assertAlmostEqual(float(lines[3][ring]), 14 * (0.1 + 2.097152), places=2)  # 16 MiB / 8 at each of 14 levels
        for size, _, _, auto, _, _, rule in lines[-3:-1]:
            self.assertIn(size, ("1K", "16M"))
            self.assertLessEqual(float(auto), float(rule))

    def test_prices_are_measured_on_running_links(self):
        status, out, error = run("predict", "--measure", "--unsteady", "--nodes", 2, "--link", "p2p", "--sizes", "1K,1M")
        self.assertEqual(status, 0, error)
        self.assertRegex(out, r"\n  times of equal runs differ by \d+ % .*, medians of the last two of 2 rounds by \d+ %\n")
        self.assertRegex(out, r"a later round of medians of 7 finds:\n(    \S+, (1K|64K|512K|4M): \d+ % longer than the fastest( \(\S+, \S+\))?\n){4}")
        self.assertRegex(out, r"\nvirtual times, and regrets in them, are the model's own: param_sync bench --nodes 2 measures\n$")
        self.assertRegex(out, r"measured on link p2p, 2 ranks of this process \(least squares\):\n  latency \S+ us, overhead")
        self.assertRegex(out, r"error of the fit: mean [0-9.]+ %, at worst [0-9.]+ % \(\S+, \S+\)\n")
        self.assertRegex(out, r"of schemes that it has not seen: mean [0-9.]+ %")
        self.assertIn("Open MPI's rules", out)

    def test_choices_are_compared_with_all_candidates(self):
        status, out, _ = run("predict", "--exhaustive", "--nodes", 5, "--sizes", "1K,1M")
        self.assertEqual(status, 0)
        self.assertIn("regret in virtual time: auto", out)
        for line in out.splitlines()[-3:-1]:
            auto, rule = [float(text) for text in line.replace("%", "").split()[-2:]]
            self.assertLessEqual(auto, 5.0)
            self.assertGreaterEqual(rule, 0.0)

    def test_a_model_is_trained_in_virtual_time(self):
        status, out, error = run("simulate", "--model", "vgg16", "--nodes", 8, "--bandwidth", 10, "--overhead", 0, "--reduce", 1e6,
                                 "--steps", 3)
        self.assertEqual(status, 0, error)
        self.assertIn("vgg16: 138357544 parameters in 32 tensors, 30.94 GFLOP forward for a sample\n", out)
        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[4:]}
        self.assertEqual([rows[order][3] for order in ("end", "per-layer", "priority")], ["39.0", "52.7", "63.9"])
        self.assertEqual(rows["end"][5], "968.5")

    def test_factors_are_taken_where_they_are_smaller(self):
        status, out, error = run("simulate", "--model", "vgg16", "--nodes", 8, "--scheme", "hybrid", "--order", "priority", "--layers",
                                 "--straggler", 1.5, "--jitter", 5, "--seed", 3, "--steps", 3)
        self.assertEqual(status, 0, error)
        self.assertEqual([line.split()[-1] for line in out.splitlines() if line.startswith("priority")], ["141.1"])
        self.assertEqual([line.split()[1] for line in out.splitlines() if line.startswith("fc")], ["sfb"] * 3)
        self.assertIn("sfb: all_gather of 4 chunks, 4 ranks; depth 1, 12 messages", run("schedule", "--scheme", "sfb")[1])
        self.assertIn("adam-fc: parameter_server", run("schedule", "--scheme", "adam-fc")[1])

    def write_plans_of_others(self):
        """Files of both formats: two that are right, one with a fault, one of another program."""
        def step(number, kind, chunk):
            return f'<step s="{number}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" cnt="1" depid="-1" deps="-1" hasdep="0"/>'

        def ring(ranks):
            text = f'<algo name="ring" proto="LL" nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" coll="allreduce" inplace="1">\n'
            for rank in range(ranks):
                text += f'<gpu id="{rank}" i_chunks="{ranks}" o_chunks="0" s_chunks="0">\n'
                text += f'<tb id="0" send="{(rank + 1) % ranks}" recv="{(rank - 1) % ranks}" chan="0">\n'
                for i in range(2 * (ranks - 1)):
                    text += step(2 * i, "s", (rank - i) % ranks) + step(2 * i + 1, "rrc" if i < ranks - 1 else "r", (rank - i - 1) % ranks) + "\n"
                text += "</tb></gpu>\n"
            return text + "</algo>\n"

        def place(name, index):
            return {name: "o" if name == "type" else 0, "index": index, "size": 1}

        def gather():
            gpus = []
            for rank in range(2):
                ops = [{"name": "signal", "channel_ids": [0], "channel_type": "memory"}, {"name": "wait", "channel_ids": [0], "channel_type": "memory"}, {"name": "nop"},
                       {"name": "put", "src_buff": [place("type", rank)], "dst_buff": [place("buffer_id", rank)], "channel_type": "memory"}, {"name": "nop"},
                       {"name": "signal", "channel_ids": [0], "channel_type": "memory"}, {"name": "wait", "channel_ids": [0], "channel_type": "memory"}]
                block = {"id": 0, "channels": [{"channel_type": "memory", "channel_ids": [0]}], "ops": ops,
                         "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}
                gpus.append({"id": rank, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0, "threadblocks": [block],
                             "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
                             "remote_buffers": [{"rank": 1 - rank, "type": "o", "access_channel_types": ["memory"]}]})
            return {"name": "gather", "collective": "allgather", "protocol": "Simple", "inplace": True, "gpus": gpus}

        plans = self.folder / "plans"
        (plans / "deeper").mkdir(parents=True)
        (plans / "gather.json").write_text(json.dumps(gather()))
        unsynced = gather()
        del unsynced["gpus"][1]["threadblocks"][0]["ops"][4]  # the threads do not meet before one of them signals
        (plans / "deeper" / "unsynced.json").write_text(json.dumps(unsynced))
        (plans / "other.json").write_text('{"version": 1}')
        (plans / "notes.txt").write_text("no plan")
        if os.environ["PARAM_SYNC_PUGIXML"] == "1":
            (plans / "ring.xml").write_text(ring(5))
            (plans / "deeper" / "lost.xml").write_text(ring(5).replace("rrc", "r", 1))
        return plans

    def test_plans_of_others_are_proved_or_refuted(self):
        plans = self.write_plans_of_others()
        file = self.folder / "found.json"
        status, out, error = run("schedule", "--plans", plans, "--json", file)
        self.assertEqual((status, error), (1, ""))
        found = json.loads(file.read_text())
        verdicts = {each["file"]: each["verdict"] for each in found["files"]}
        expected = {"deeper/unsynced.json": "refuted", "gather.json": "proved", "other.json": "not understood"}
        if os.environ["PARAM_SYNC_PUGIXML"] == "1":
            expected.update({"deeper/lost.xml": "refuted", "ring.xml": "proved"})
        self.assertEqual(verdicts, expected)
        self.assertEqual([found[name] for name in ("plans", "proved", "refuted", "not_understood")],
                         [len(expected), *(list(expected.values()).count(word) for word in ("proved", "refuted", "not understood"))])
        self.assertRegex(out, r"(?m)^gather\.json +allgather +2 +2 +proved +any +proved +[0-9.]+$")
        self.assertIn("    race: the caller of rank 0 reads output chunk 1 of rank 0, and rank 1, thread block 0, operation 3 (put) writes it; nothing orders the two\n", out)
        self.assertIn('    the plan: "name" is missing\n', out)
        if os.environ["PARAM_SYNC_PUGIXML"] == "1":
            self.assertRegex(out, r"(?m)^ring\.xml +allreduce +5 +5 +proved +any +proved +[0-9.]+$")
            self.assertRegex(out, r"    result: output chunk \d of rank \d lacks chunk \d of rank \d")
        status, out, _ = run("schedule", "--plans", f"{plans / 'gather.json'},{plans / 'gather.json'}", "--json")
        self.assertEqual((status, json.loads(out)["proved"]), (0, 2))
        status, out, _ = run("schedule", "--plans", "-", text=(plans / "gather.json").read_text())
        self.assertEqual(status, 0)
        self.assertIn("standard input  allgather", out)
        (self.folder / "bad.xml").write_bytes(b"\x1b[31m<\xff\x00")
        status, out, _ = run("schedule", "--plans", self.folder / "bad.xml", megabytes_max=1000)
        self.assertEqual(status, 1)
        self.assertNotIn("\x1b", out)

    def test_a_plan_of_others_is_written_as_goal(self):
        """What the lines say is in tests/unit/traces."""
        plans, goal = self.write_plans_of_others(), self.folder / "gather.goal"
        status, out, error = run("schedule", "--plans", plans / "gather.json", "--size", "8K", "--goal", goal)
        self.assertEqual((status, error), (0, ""))
        self.assertIn("1 plans: 1 proved", out)
        lines = goal.read_text().splitlines()
        self.assertEqual((lines[0], lines[2], lines[-1]), ("num_ranks 2", "rank 0 {", "}"))
        sent = [int(re.search(r"send (\d+)b", line)[1]) for line in lines if "send" in line]
        self.assertEqual(sorted(sent), [1, 1, 1, 1, 4096, 4096])  # each rank signals twice, and puts a half
        self.assertEqual(run("schedule", "--plans", plans / "gather.json", "--size", "8K", "--goal", "-"), (0, goal.read_text(), ""))
        if os.environ["PARAM_SYNC_PROTOBUF"] == "1":
            self.assertEqual(run("schedule", "--plans", plans / "gather.json", "--size", "8K", "--chakra", self.folder / "gather")[0], 0)
            self.assertEqual(sorted(file.name for file in self.folder.glob("*.et")), ["gather.0.et", "gather.1.et"])
        if os.environ["PARAM_SYNC_PUGIXML"] == "1":
            status, out, error = run("schedule", "--plans", plans / "ring.xml", "--size", "20K", "--reduce", 2, "--goal", "-")
            self.assertEqual((status, error), (0, ""))
            self.assertEqual((out.count(": send 4096b"), out.count(": recv 4096b"), out.count(": calc 2048 ")), (40, 40, 20))

    def test_a_plan_of_others_that_cannot_be_written_leaves_no_file(self):
        plans = self.write_plans_of_others()
        goal, found = self.folder / "plan.goal", self.folder / "found.json"
        before = sorted(self.folder.rglob("*"))
        for file, size, status, says in (("deeper/unsynced.json", "8K", 1, "unsynced.json: refuted: race: the caller of rank 0"),
                                         ("other.json", "8K", 1, 'other.json: not understood: the plan: "name" is missing. Only plans that are proved'),
                                         ("gather.json", "12", 2, "--size 12: 12 bytes cannot be cut into 2 chunks of whole floats: give a multiple of 8 bytes")):
            ended, out, error = run("schedule", "--plans", plans / file, "--size", size, "--goal", goal, "--json", found)
            self.assertEqual((ended, out), (status, ""), file)
            self.assertIn(says, error)
            self.assertEqual(sorted(self.folder.rglob("*")), before)
        if os.environ["PARAM_SYNC_PUGIXML"] == "1":  # each rank sends 5 messages of 2 chunks before it receives; 8 pieces have room
            text = '<algo name="p" proto="LL" nchannels="1" nchunksperloop="20" ngpus="2" coll="allgather" inplace="1" maxBytes="163840">'
            for rank in range(2):
                text += f'<gpu id="{rank}" i_chunks="10" o_chunks="20" s_chunks="0"><tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">'
                for i in range(10):
                    kind, source, target = ("s", 2 * i, 10 * rank + 2 * i) if i < 5 else ("r", 2 * (i - 5), 10 * (1 - rank) + 2 * (i - 5))
                    text += (f'<step s="{i}" type="{kind}" srcbuf="i" srcoff="{source}" dstbuf="o" dstoff="{target}" cnt="2" depid="-1" deps="-1" '
                             'hasdep="0"/>')
                text += "</tb></gpu>"
            (self.folder / "few.xml").write_text(text + "</algo>")
            status, out, error = run("schedule", "--plans", self.folder / "few.xml", "--goal", goal)
            self.assertEqual((status, out), (2, ""))
            self.assertIn("--size 1048576: " + str(self.folder / "few.xml") + " is proved for up to 163840 bytes only", error)
            self.assertEqual(run("schedule", "--plans", self.folder / "few.xml", "--size", "160K", "--goal", goal)[0], 0)
        both = f"{plans / 'gather.json'},{plans / 'gather.json'}"
        status, out, error = run("schedule", "--plans", both, "--goal", goal)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--goal and --chakra write one plan, but --plans names 2 files", error)

    def test_misuse_is_told(self):
        for arguments, says in (((), "give --model, or either"), (("--model", "vgg"), "vgg not in"),
                                (("--scheme", "hybrid"), "give --model too"), (("--scheme", "ring", "--order", "end"), "--order is for --model"),
                                (("--model", "vgg16", "--schedule", "f"), "--schedule is not for --model"),
                                (("--model", "vgg16", "--size", "1M"), "--size is not for --model"),
                                (("--model", "vgg16", "--nodes", 1024, "--scheme", "ps"), "take fewer nodes, or --scheme rhd"),
                                (("--model", "vgg16", "--nodes", 64, "--steps", 1000), "take fewer steps (3 at least)"),
                                (("--model", "vgg16", "--scheme", "blink", "--topology", "f"), "--topology is not for --model"),
                                (("--model", "vgg16", "--dense", "mesh"), "--dense is for --scheme sfb"),
                                (("--model", "vgg16", "--seed", 1), "--seed is for --jitter"),
                                (("--model", "vgg16", "--scheme", "byteps", "--summation-nodes", 9), "no use for 9 summation nodes"),
                                (("--model", "vgg16", "--scheme", "hybrid", "--dense", "blink"), "blink needs a topology"),
                                (("--model", "vgg16", "--straggler", 0.5), "not in range")):
            status, _, error = run("simulate", *arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(says, error)
        for arguments, says in ((("--rows", 5), "--rows, --columns and --batch are for --scheme sfb"),
                                (("--scheme", "sfb", "--sizes", "1K"), "--sizes is not for --scheme sfb"),
                                (("--scheme", "sfb", "--nodes", 1), "--scheme sfb needs two nodes"),
                                (("--scheme", "sfb", "--beside", "mpi"), "--beside is for sums"),
                                (("--scheme", "sfb", "--rows", 1 << 20, "--columns", 1 << 20), "--rows, --columns and --nodes"),
                                (("--scheme", "sfb", "--rows", 1 << 20), "--rows, --columns and --nodes"),
                                (("--scheme", "hybrids"), "hybrids not in"), (("--beside", "nccl"), "nccl not in"),
                                (("--scheme", "ring", "--sizes", "1K,7"), "--sizes 7: a tensor is of floats"),
                                (("--scheme", "blink"), "blink needs a topology"), (("--blocks", 5), "--blocks is for --additions"),
                                (("--additions", 5, "--sizes", "1K"), "--sizes, --beside and --batch are not for it"),
                                (("--additions", 1 << 24, "--rows", 8), "up to a million --additions"),
                                (("--owners", "1,5"), "--owners 5: there are 4 --nodes"), (("--owners", 0), "not in range 1 to 16"),
                                (("--owners", 1, "--beside", "mpi"), "--owners times pushes and pulls: --scheme, --beside"),
                                (("--owners", 1, "--additions", 5), "--scheme, --beside and --additions are not for it"),
                                (("--owners", 1, "--rows", 5), "--rows, --columns and --batch are for"),
                                (("--owners", 1, "--sizes", "1G", "--nodes", 16), "--sizes, --nodes and --owners: together they take 65536 MiB"),
                                (("--owners", 1, "--sizes", 6), "--sizes 6: a tensor is of floats"),
                                (("--pairs", 5), "--pairs and --json are for --owners"), (("--json", "-"), "--pairs and --json are for --owners")):
            status, out, error = run("bench", *arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(says, error)
        for arguments, says in ((("--link", "tcp"), "--link is for --measure"), (("--unsteady",), "--unsteady is for --measure"), (("--measure", "--nodes", 17), "--nodes 16 at most"),
                                (("--measure", "--latency", 5), "--measure finds --bandwidth, --latency"),
                                (("--nodes", 1), "not in range 2 to 64"), (("--sizes", "1X"), "x unit not recognized")):
            status, out, error = run("predict", *arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(says, error)
        for arguments, says in ((("--scheme", "rings"), "rings not in"), ((), "give either --scheme or --schedule"),
                                (("--scheme", "blink"), "--scheme blink needs --topology"),
                                (("--scheme", "ring", "--stripes", 2), "--stripes is for --scheme splitstream"),
                                (("--scheme", "ring", "--topology", "f"), "--topology is for --scheme blink"),
                                (("--schedule", "f", "--nodes", 2), "--nodes is for --scheme"),
                                (("--scheme", "ring", "--run", "--size", 7), "--size 7: a tensor is of floats, 4 bytes each"),
                                (("--scheme", "ring", "--nodes", 0), "not in range 1 to 1024"),
                                (("--scheme", "byteps", "--summation-nodes", 9), "no use for 9 summation nodes"),
                                (("--scheme", "ring", "--json", "-", "--svg", "-"), "only one of --json, --svg and --goal"),
                                (("--scheme", "ring", "--goal", "-", "--run"), "--run prints to standard output"),
                                (("--scheme", "ring", "--reduce", 5), "--reduce is for --goal and --chakra"),
                                (("--scheme", "ring", "--goal", "g", "--size", 6), "give a multiple of 4"),
                                (("--plans", "f", "--goal", "-", "--json", "-"), "only one of --json, --svg and --goal"),
                                (("--plans", "f", "--reduce", 5), "--reduce is for --goal and --chakra"),
                                (("--plans", "f", "--size", "1M"), "--size is for --run, --goal and --chakra"),
                                (("--scheme", "ring", "--size", "1M"), "--size is for --run, --goal and --chakra"),
                                (("--scheme", "ring", "--goal", "g", "--link", "tcp"), "--link is for --run"),
                                (("--scheme", "ring", "--chakra", "-"), "--chakra writes a file for each rank"),
                                (("--scheme", "ring", "--schedule", "f"), "give either --scheme or --schedule, or --plans"),
                                (("--scheme", "ring", "--plans", "f"), "give either --plans, or --scheme or --schedule"),
                                (("--plans", "f", "--nodes", 2), "--nodes and --chunks are for --scheme"),
                                (("--plans", "f", "--svg", "g"), "--svg draws schedules"), (("--plans", "f", "--run"), "--run runs schedules"),
                                (("--plans", self.folder / "none"), "none: there is no such file"),
                                (("--plans", self.folder), "has no .xml and no .json files")):
            status, out, error = run("schedule", *arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(says, error)
        status, _, error = run("schedule", "--scheme", "ring", "--json", self.folder / "no" / "file")
        self.assertEqual(status, 1)
        self.assertIn("cannot write", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
