"""What param_sync promises of its ways to run: all end with the same weights. Run by ctest."""
import collections
import json
import math
import os
import pathlib
import re
import struct
import tempfile
import unittest
import unittest.mock

import support
from support import DEVICE, ENDLESS, LAYERS_OF_SMALL, LINKS_BETWEEN_PROCESSES, SANITIZED, SCHEMES, SMALL, kill_with_nodes, needs_processes, node_processes, results, run, start

# Their sums are in the order of ranks, for any number of nodes; as those of ps:even, the default.
OTHERS_IN_RANK_ORDER = ("chain", "ps", "mesh", "byteps")
# All nodes' gradients are made of their factors, in the order of ranks; and layers with schemes of their own.
SCHEMES_OF_FACTORS = ("sfb", "adam-fc", "sfb,ps:even,adam-fc")


class Modes(unittest.TestCase):
    """All ways to run end with the same weights, bit for bit."""

    reports = {}  # several tests look at the same run

    def report(self, nodes, *mode):
        """Of a run with half of the samples, in two epochs. Links are named, so that equal runs have equal names; the default scheme need not."""
        key = (nodes, "".join(f"{word} " for word in mode).replace("--scheme ps:even ", ""))
        if key not in self.reports:
            self.reports[key] = results(*SMALL, "--limit", 300, "--nodes", nodes, *mode)
            self.assertTrue(self.reports[key]["same_weights"])
        return self.reports[key]

    def weights(self, nodes, *mode):
        return self.report(nodes, *mode)["weights_hash"]

    def test_tables_of_ones_own(self):
        """Two half circles, which no line separates. The same numbers in another form train the same weights."""
        rows = []
        for i in range(400):
            angle, upper = (i // 2 * 37 % 200) * math.pi / 200, i % 2 == 0
            rows.append((math.cos(angle), math.sin(angle), 1) if upper else (1 - math.cos(angle), 0.5 - math.sin(angle), 0))
        with tempfile.TemporaryDirectory() as folder:
            csv, npy = pathlib.Path(folder) / "table.csv", pathlib.Path(folder) / "table.npy"
            csv.write_text("x,y,is upper\n" + "".join(f"{x!r},{y!r},{label}\n" for x, y, label in rows))
            header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}, 3), }}".ljust(117) + "\n"
            npy.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + b"".join(struct.pack("<3d", *row) for row in rows))
            train = ("--hidden", 16, "--batch", 8, "--epochs", 30, "--lr", 0.1, "--nodes", 2)
            serial = results("--data", csv, *train, "--serial")
            self.assertGreater(serial["accuracy"], 0.97)
            self.assertLess(results("--data", csv, *train, "--hidden", "", "--serial")["accuracy"], 0.95)
            self.assertEqual(results("--data", csv, *train, "--in-process")["weights_hash"], serial["weights_hash"])
            self.assertEqual(results("--data", npy, *train, "--serial")["weights_hash"], serial["weights_hash"])

    def test_in_process_equals_serial(self):
        for nodes in (3,) if SANITIZED else (1, 2, 3):
            reference = self.weights(nodes, "--serial")
            for link in ("p2p", "tcp"):
                self.assertEqual(self.weights(nodes, "--in-process", "--link", link), reference, f"{nodes} nodes, {link}")

    def test_layers_in_tiles_equal_serial(self):
        """In tiles smaller than a row of weights (300 floats), in larger ones, and in one larger than all layers."""
        wide = (*SMALL, "--hidden", "300,40", "--epochs", 1, "--limit", 100, "--nodes", 2)
        whole = results(*wide, "--serial")
        self.assertEqual((whole["tile"], [layer["bands"] for layer in whole["layers"]]), (None, [1, 1, 1]))
        for tile, bands, passed in (("1K", [36, 50, 1], 10 * (300 * 35 + 40 * 49 + 300 * 39)), ("8K", [5, 6, 1], 10 * (300 * 4 + 40 * 5 + 300 * 4)), ("1M", [1, 1, 1], 0)):
            ways = (("--serial",), ("--in-process",), ("--in-process", "--scheme", "ring,sfb,adam-fc"), ("--in-process", "--sync", "bsp"), ("--in-process", "--sync", "bsp", "--device-pool", "100K"))
            for way in ways[1:] if SANITIZED else ways:
                report = results(*wide, *way, "--tile", tile)
                self.assertEqual([report[what] for what in ("weights_hash", "losses", "accuracies")], [whole[what] for what in ("weights_hash", "losses", "accuracies")], (tile, way))
                self.assertEqual([layer["bands"] for layer in report["layers"]], bands, tile)
                self.assertEqual(report["tile"], {"bytes": {"1K": 1024, "8K": 8192, "1M": 1 << 20}[tile], "passed_bytes_per_step": 8 * passed})

    @needs_processes
    def test_processes_know_the_tile(self):
        """Which their results do not show: they have the same bits."""
        cluster = start(*ENDLESS, "--nodes", 2, "--tile", "2K")
        try:
            commands = [pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in node_processes(cluster).values()]
        finally:
            kill_with_nodes(cluster)
            cluster.communicate()
        self.assertTrue(commands)
        for words in commands:
            self.assertEqual(words[words.index("--tile") + 1], "2048")

    @unittest.skipIf(SANITIZED, "nine nodes take long")
    def test_many_nodes_in_process_equal_serial(self):
        """On a GPU the nodes of a process share its streams: three each, of 31."""
        for nodes in (7, 9):
            self.assertEqual(self.weights(nodes, "--in-process", "--link", "p2p"), self.weights(nodes, "--serial"), nodes)

    @unittest.skipUnless(os.environ.get("GPUSOCK_CPU_SHAPE") == "gpu", "the CPU device has as many streams as one likes")
    def test_more_nodes_than_streams_are_refused_before_they_begin(self):
        status, out, err = run(*SMALL, "--nodes", 12, "--in-process")
        self.assertEqual(status, 1, out + err)
        self.assertRegex(err, r"(?s)^param_sync: 10 nodes fit in one process here, and 12 were asked for: give --nodes 10")
        self.assertNotIn("step", out + err)

    @unittest.skipIf(SANITIZED, "it is about how many launches are queued")
    def test_many_launches_in_a_step_equal_serial(self):
        """A step of thirteen layers of factors is 66 launches: 32 steps ahead would be more than a stream has room for."""
        many = ["--data", SMALL[1], "--hidden", ",".join(12 * ["8"]), "--batch", 4, "--epochs", 1, "--nodes", 2]
        reference = results(*many, "--serial")["weights_hash"]
        self.assertEqual(results(*many, "--in-process", "--scheme", "sfb")["weights_hash"], reference)

    @needs_processes
    def test_processes_equal_serial_on_every_link(self):
        for nodes in (2,) if SANITIZED else (2, 4):
            reference = self.weights(nodes, "--serial")
            for link in (*LINKS_BETWEEN_PROCESSES, "auto"):
                self.assertEqual(self.weights(nodes, "--link", link), reference, f"{nodes} nodes, {link}")

    @unittest.skipIf(DEVICE == "cuda" or SANITIZED, "in the shape of a GPU: the CPU device, and once is enough")
    def test_processes_on_gpus_get_the_host_rings_that_they_need(self):
        rings = {"GPUSOCK_CPU_SHAPE": "gpu", "GPUSOCK_HOST_RINGS": f"param-sync-{os.getpid()}"}
        with unittest.mock.patch.dict(os.environ, rings):  # more connections than the 16 that a name has by default
            self.assertEqual(self.weights(4, "--link", "p2p"), self.weights(4, "--serial"))

    def test_schemes_in_rank_order_equal_serial(self):
        reference = self.weights(3, "--serial")
        for scheme in OTHERS_IN_RANK_ORDER[:1] if SANITIZED else OTHERS_IN_RANK_ORDER:
            for link in ("p2p", "tcp"):
                self.assertEqual(self.weights(3, "--in-process", "--scheme", scheme, "--link", link), reference, scheme)

    def test_factors_equal_serial(self):
        reference = self.weights(3, "--serial")
        for scheme in SCHEMES_OF_FACTORS[2:] if SANITIZED else SCHEMES_OF_FACTORS:
            for link in ("p2p", "tcp"):
                self.assertEqual(self.weights(3, "--in-process", "--scheme", scheme, "--link", link), reference, (scheme, link))
        if not SANITIZED:
            self.assertEqual(self.weights(3, "--in-process", "--scheme", scheme, "--link", "p2p", "--no-overlap"), reference)

    def test_a_choice_by_layer_gives_the_weights_of_the_schemes_that_it_names(self):
        for choice in ("hybrid", "auto", "auto,hybrid,ring"):
            report = self.report(3, "--in-process", "--scheme", choice, "--link", "p2p")
            schemes = [layer["scheme"] for layer in report["layers"]]
            chosen = [part in ("hybrid", "auto") for part in choice.split(",")] * (1 if "," in choice else 3)
            self.assertEqual([layer["why"] != "" for layer in report["layers"]], chosen, choice)
            named = self.report(3, "--in-process", "--scheme", ",".join(schemes), "--link", "tcp")
            self.assertEqual(named["weights_hash"], report["weights_hash"], (choice, schemes))

    @needs_processes
    def test_measured_prices_are_the_same_on_all_nodes_and_can_be_given_again(self):
        common = [*SMALL, "--limit", 300, "--nodes", 2, "--scheme", "auto", "--prices"]
        status, out, err = run(*common, "measured")
        self.assertEqual(status, 0, out + err)
        prices = re.match(r"measured on this machine: --prices (\S+)\n", out)[1]
        with tempfile.NamedTemporaryFile() as file:
            status, again, err = run(*common, prices, "--in-process", "--json", file.name)
            self.assertEqual(status, 0, again + err)
            self.assertEqual(json.load(file)["prices"], prices)
        self.assertEqual([line for line in again.splitlines() if "auto: " in line], [line for line in out.splitlines() if "auto: " in line])

    def test_other_schemes_give_the_same_bits_on_all_nodes_and_links_and_nearly_those_of_serial(self):
        wanted = self.report(3, "--serial")
        for scheme in ("ring", "butterfly"):
            runs = [self.report(3, "--in-process", "--scheme", scheme, "--link", link) for link in ("p2p", "tcp")]
            self.assertEqual(runs[0]["weights_hash"], runs[1]["weights_hash"], scheme)
            for report in runs:
                for loss, reference in zip(report["losses"], wanted["losses"], strict=True):
                    self.assertAlmostEqual(loss, reference, delta=1e-4, msg=scheme)

    def test_neither_fusion_nor_order_nor_overlap_change_the_weights(self):
        reference = self.weights(3, "--serial")
        layers = [4 * 37 * 16, 4 * 17 * 8, 4 * 9 * 3]
        for options in (["--fuse", layers[1] + layers[2]], ["--fuse", "1M"], ["--no-priority"], ["--no-overlap", "--fuse", sum(layers)]):
            for scheme in ("ps:even", "chain"):
                self.assertEqual(self.weights(3, "--in-process", "--scheme", scheme, "--link", "p2p", *options), reference, (scheme, options))

    def test_fused_layers_share_messages(self):
        steps, nodes, header = 2 * (300 // 30), 3, 32
        floats = 37 * 16 + 17 * 8 + 9 * 3
        for options, tensors in (([], 3), (["--fuse", 4 * (17 * 8 + 9 * 3)], 2), (["--fuse", 4 * floats], 1)):
            report = self.report(nodes, "--in-process", "--scheme", "ps:even", "--link", "p2p", *options)
            self.assertEqual(sum(layer["pushed_bytes"] for layer in report["layers"]),
                             steps * (nodes - 1) * (4 * floats + tensors * header * nodes))

    def trace(self, *options, names_of="process_name"):
        """The spans of a trace, by (step, rank), and the processes, or threads, that it names."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            status, out, err = run(*SMALL, "--limit", 300, "--nodes", 3, "--trace", file, "--trace-steps", 4, *options)
            self.assertEqual(status, 0, out + err)
            events = json.loads(file.read_text())["traceEvents"]
        spans = {}
        for event in events:
            if event["ph"] == "X":
                spans.setdefault((event["args"]["step"], event["pid"]), []).append(event)
        names = sorted(event["args"]["name"] for event in events if event["name"] == names_of)
        return spans, names

    def test_a_trace_shows_what_each_layer_and_lane_does(self):
        for mode in (["--in-process"], *([] if DEVICE == "cuda" or SANITIZED else [[]])):
            spans, names = self.trace("--scheme", "ps:even", *mode)
            self.assertEqual(names, ["rank 0", "rank 1", "rank 2"])
            self.assertEqual(sorted(spans), [(step, rank) for step in (1, 2, 3, 4) for rank in range(3)])
            for events in spans.values():
                for layer in range(3):
                    kinds = collections.Counter(event["cat"] for event in events if event["args"].get("first_layer") == layer)
                    self.assertEqual(kinds, {"forward wait": 1, "forward": 1, "backward": 1, "push": 2, "reduce": 2, "apply": 1,
                                             "publish": 2, "pull": 2})
                lanes = {event["tid"] for event in events if event["cat"] == "push"}
                self.assertEqual(len(lanes), 3, "each layer has a lane that pushes")

    def test_a_trace_shows_what_becomes_of_factors(self):
        spans, threads = self.trace("--in-process", "--scheme", "sfb,adam-fc,ps:even", names_of="thread_name")
        self.assertEqual({name.rsplit(",", 1)[0] for name in threads}, {"compute", "layer 0, sfb", "layer 1, adam-fc", "layer 2, ps:even"})
        computed = {"forward wait": 1, "forward": 1, "backward": 1}
        rebuilt = {"factor wait": 1, "rebuild": 1}
        for (_, rank), events in spans.items():
            kinds = [collections.Counter(event["cat"] for event in events if event["args"].get("first_layer") == layer) for layer in (0, 1)]
            self.assertEqual(kinds[0], {**computed, **rebuilt, "push": 2, "gather": 2})
            self.assertEqual(kinds[1], {**computed, **rebuilt, "gather": 2, "publish": 2} if rank == 1 else {**computed, "push": 1, "pull": 1})

    def test_without_overlap_no_layer_is_pushed_before_all_backward_passes_have_ended(self):
        """With overlap a lane waits for its own layer's gradients only: that is a test of the executor."""
        for scheme in (*SCHEMES, "sfb"):
            spans, _ = self.trace("--in-process", "--no-overlap", "--scheme", scheme)
            for events in spans.values():
                ends = max(event["ts"] + event["dur"] for event in events if event["cat"] == "backward")
                pushes = [event["ts"] for event in events if event["cat"] == "push"]
                self.assertGreaterEqual(min(pushes), ends - 0.001, "microseconds, rounded in the file")

    def test_no_more_communication_is_called_hidden_than_the_trace_shows(self):
        """That is what is sent while the same node's kernels compute: without overlap little, as each waits for what was sent.

        With overlap, communication begins when the first gradients may be sent, after the first backward kernel. Lanes
        may begin later: they share threads with kernels that compute."""
        def together(first, second):
            return sum(max(0, min(end, other_end) - max(begin, other)) for begin, end in first for other, other_end in second)

        computes_much = [*SMALL, "--hidden", "256,128", "--batch", 100, "--limit", 600, "--epochs", 10, "--nodes", 3]
        for options in (["--no-overlap"], []):
            with tempfile.TemporaryDirectory() as folder:
                report, trace = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "trace.json"
                status, out, err = run(*computes_much, "--in-process", "--trace", trace, "--trace-steps", 20,
                                       "--json", report, *options)
                self.assertEqual(status, 0, out + err)
                events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
                hidden_share = json.loads(report.read_text())["hidden_share"]
            communicating, computing = [], []
            for rank in range(3):
                mine = [event for event in events if event["pid"] == rank]
                computing.append([(event["ts"], event["ts"] + event["dur"]) for event in mine if event["cat"] in ("forward", "loss", "backward")])
                communicating.append([])
                for step in range(1, 21):
                    lanes = [event for event in mine if event["args"]["step"] == step and event["cat"] not in
                             ("forward wait", "forward", "loss", "backward")]
                    begins = [event["ts"] for event in lanes if event["cat"] == "push"]
                    if not options:
                        begins.append(min(event["ts"] + event["dur"] for event in mine
                                          if event["args"]["step"] == step and event["cat"] == "backward"))
                    communicating[-1].append((min(begins), max(event["ts"] + event["dur"] for event in lanes)))
            all_us = sum(end - begin for rank in communicating for begin, end in rank)
            shown = sum(together(*rank) for rank in zip(communicating, computing, strict=True)) / all_us
            self.assertLessEqual(hidden_share, shown + 0.15, options)
            if options:
                untraced = results(*computes_much, "--in-process", *options)
                self.assertLessEqual(untraced["hidden_share"], shown + 0.3)

    def test_with_one_credit_an_owner_gets_one_message_at_a_time(self):
        """Of all layers together; the weights are the same."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            spans, _ = self.trace("--in-process", "--scheme", "ps:even", "--credits", 1, "--json", file)
            self.assertEqual(json.loads(file.read_text())["weights_hash"], self.weights(3, "--serial"))
        for (step, owner), events in spans.items():
            begins = sorted(event["ts"] for rank in range(3) for event in spans[step, rank]
                            if event["cat"] == "push" and event["args"]["to"] == owner)
            ends = sorted(event["ts"] + event["dur"] for event in events if event["cat"] == "reduce")
            self.assertEqual((len(begins), len(ends)), (6, 6), "three layers of two other nodes")
            for end, begin in zip(ends, begins[1:]):
                self.assertGreaterEqual(begin, end - 0.001, "microseconds, rounded in the file")

    def test_a_budget_holds_on_any_link_and_the_model_learns_all_the_same(self):
        """What is withheld of a step is sent in later ones, so the loss falls nearly as without a budget."""
        budget, nodes = 1000, 3
        arguments = ("--in-process", "--scheme", "ps:even", "--link")
        unlimited = self.sent_bytes(self.report(nodes, *arguments, "tcp"))
        reports = [self.report(nodes, *arguments, link, "--budget", budget) for link in ("p2p", "tcp")]
        self.assertEqual(reports[0]["weights_hash"], reports[1]["weights_hash"])
        for report in reports:
            steps = report["steps"]
            for sent, all_bytes in zip(self.sent_bytes(report), unlimited, strict=True):
                self.assertGreater(all_bytes / steps, 4 * budget)
                self.assertLessEqual(sent, budget * (steps - 1) + all_bytes / steps, "the last step sends what is left")
                self.assertGreater(sent, 0.9 * budget * (steps - 1))
            self.assertGreater(report["accuracy"], 0.9)

    def sent_bytes(self, report):
        """Gradients and weights, by node."""
        return [sum(layer["pushed_bytes"] + layer["published_bytes"] for layer in node["layers"]) for node in report["node_reports"]]

    def test_one_node_trains_by_any_scheme(self):
        reference = self.weights(1, "--serial")
        for scheme in ("ring", *SCHEMES_OF_FACTORS[:2]):  # and the default above
            self.assertEqual(self.weights(1, "--in-process", "--scheme", scheme), reference, scheme)

    @needs_processes
    def test_processes_of_a_scheme_equal_serial(self):
        reference = self.weights(2, "--serial")
        self.assertEqual(self.weights(2, "--scheme", "sfb,adam-fc,auto"), reference)

    def test_another_seed_gives_other_weights(self):
        self.assertNotEqual(self.weights(2, "--serial"), self.weights(2, "--serial", "--seed", 2))

    def test_a_warm_up_equals_serial_in_all_ways(self):
        """And is longer than an epoch, to see that steps are counted on."""
        warmup = ("--warmup", 15)
        self.assertNotEqual(self.weights(3, "--serial", *warmup), self.weights(3, "--serial"))
        for exchange in ((), ("--scheme", "sfb,ps,adam-fc"), ("--sync", "bsp"), ("--sync", "bsp", "--device-pool", "1M")):
            self.assertEqual(self.weights(3, "--in-process", *exchange, *warmup), self.weights(3, "--serial", *warmup), exchange)
        for sync in ("every:4", "pipeline:1"):
            self.assertEqual(self.weights(3, "--in-process", "--sync", sync, *warmup), self.weights(3, "--serial", "--sync", sync, *warmup), sync)

    def test_a_warm_up_begins_with_its_share_of_the_rate(self):
        """A quarter after the first step, and nothing else: a quarter is exact in floats."""
        slow = self.report(3, "--serial", "--momentum", 0, "--lr", 0.02)["losses"]
        warm = self.report(3, "--serial", "--momentum", 0, "--lr", 0.08, "--warmup", 4)["losses"]
        self.assertEqual(warm[:2], slow[:2])
        self.assertNotEqual(warm[2], slow[2])
        self.assertEqual(self.weights(3, "--serial", "--warmup", 1), self.weights(3, "--serial"))

    def test_the_rate_follows_the_number_of_nodes(self):
        self.assertEqual(self.weights(2, "--serial", "--lr", 0.05, "--elastic-lr", 4), self.weights(2, "--serial", "--lr", 0.025))
        self.assertEqual(self.weights(2, "--in-process", "--lr", 0.05, "--elastic-lr", 1), self.weights(2, "--serial", "--lr", 0.1))

    def test_saved_weights_are_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / mode for mode in ("serial", "in-process")]
            for file in files:
                self.assertEqual(run(*SMALL, "--nodes", 2, f"--{file.name}", "--save-weights", file)[0], 0)
            first, second = (file.read_bytes() for file in files)
            self.assertEqual(first, second)
            tensors, about = support.read_safetensors(files[0])
            self.assertEqual({name: len(values) for name, values in tensors.items()}, LAYERS_OF_SMALL)
            self.assertEqual(list(about), ["crc32"])

    @needs_processes
    def test_nodes_started_by_hand_equal_serial(self):
        peers = ",".join(support.own_addresses(2))
        count = (("--nodes", 2), ())  # left out: as many as there are peers
        nodes = [start(*SMALL, "--limit", 300, *count[rank], "--rank", rank, "--peers", peers) for rank in (1, 0)]
        outputs = [node.communicate(timeout=support.PATIENCE_S) for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], outputs)
        reference = self.weights(2, "--serial")
        for out, _ in outputs:
            self.assertIn(f"weights {reference}", out)
            self.assertIn("listening on 127.", out)

    def test_every_gradient_went_over_the_link(self):
        layers = [37 * 16, 17 * 8, 9 * 3]
        steps, nodes, header = 2 * (300 // 30), 3, 32
        for link, other in (("p2p", "tcp"), ("tcp", "p2p")):
            report = self.report(nodes, "--in-process", "--link", link)
            for layer, parameters in zip(report["layers"], layers):
                # Each owner gets its shard's gradients from all others, and sends its weights to all others.
                wanted = steps * (nodes - 1) * (4 * parameters + header * nodes)
                self.assertEqual((layer["pushed_bytes"], layer["pulled_bytes"]), (wanted, wanted))
            pushed_and_published = 2 * sum(layer["pushed_bytes"] for layer in report["layers"])
            self.assertGreaterEqual(report[f"{link}_tx_bytes"], pushed_and_published)
            self.assertEqual(report[f"{other}_tx_bytes"], 0)

    def test_every_byte_of_a_schedule_is_counted(self):
        layers = [37 * 16, 17 * 8, 9 * 3]
        steps, nodes, header = 2 * (300 // 30), 3, 32
        for scheme, share in (("ps:even", 1), ("ring", 2)):  # a ring sends sums as it sends gradients
            report = self.report(nodes, "--in-process", "--scheme", scheme, "--link", "tcp")
            for layer, parameters in zip(report["layers"], layers):
                wanted = share * steps * (nodes - 1) * (4 * parameters + header * nodes)
                self.assertEqual((layer["pushed_bytes"], layer["pulled_bytes"]), (wanted, wanted), scheme)
                self.assertLessEqual(layer["in_place_bytes"], wanted // share)
            self.assertGreater(sum(layer["in_place_bytes"] for layer in report["layers"]), 0, scheme)
            pushed_and_published = 2 // share * sum(layer["pushed_bytes"] for layer in report["layers"])
            self.assertGreaterEqual(report["tcp_tx_bytes"], pushed_and_published)

    def test_every_byte_of_factors_is_counted(self):
        widths = [36, 16, 8, 3]
        steps, nodes, batch, header = 2 * (300 // 30), 3, 10, 32
        for scheme, senders in (("sfb", nodes), ("adam-fc", 1)):
            report = self.report(nodes, "--in-process", "--scheme", scheme, "--link", "tcp")
            for layer, inputs, outputs in zip(report["layers"], widths, widths[1:]):
                factors = steps * (nodes - 1) * senders * (4 * batch * (inputs + outputs) + header)
                chunks = max((inputs + 1) * outputs // 256, 1)
                weights = steps * (nodes - 1) * (4 * (inputs + 1) * outputs + chunks * header)
                self.assertEqual((layer["pushed_bytes"], layer["published_bytes"]), (factors, 0 if scheme == "sfb" else weights), scheme)

    def test_hybrid_sends_no_more_than_the_cheaper_of_factors_and_parameter_server(self):
        """Of each layer, by the bytes that were counted; and each of the two is the cheaper one of some layer."""
        sent, reports = {}, {}
        for scheme in ("sfb", "ps:even", "hybrid"):
            reports[scheme] = results(*SMALL, "--batch", 5, "--limit", 75, "--nodes", 3, "--in-process", "--scheme", scheme)
            sent[scheme] = [layer["pushed_bytes"] + layer["published_bytes"] for layer in reports[scheme]["layers"]]
        self.assertEqual(sent["hybrid"], [min(both) for both in zip(sent["sfb"], sent["ps:even"], strict=True)])
        self.assertEqual({layer["scheme"] for layer in reports["hybrid"]["layers"]}, {"sfb", "ps:even"})
        self.assertRegex(reports["hybrid"]["layers"][0]["why"], r"hybrid: a node sends \d+\.\d KB in a step by sfb, \d+\.\d KB by ps:even")

    def test_the_report_holds_what_the_summary_says(self):
        report = self.report(2, "--in-process", "--link", "p2p")
        self.assertEqual(len(report["losses"]), report["steps"])
        self.assertLess(report["losses"][-1], report["losses"][0])
        self.assertGreater(report["accuracy"], 0.9, "three easily told classes")
        self.assertEqual(report["staleness"], 0)
        self.assertTrue(0 <= report["hidden_share"] <= 1)
        self.assertAlmostEqual(report["proxy_wakeups_per_step"] * 2 * report["steps"], report["proxy_wakeups"])

    def test_the_host_launches_ten_kernels_a_step_and_does_nothing_else(self):
        calls, steps, nodes = [], [], 3
        for limit in (300, 600):  # as many evaluations, and never 32 steps without one, after which the host would wait
            report = results(*SMALL, "--nodes", nodes, "--in-process", "--scheme", "ps:even", "--limit", limit)
            calls.append(sum(node["host_api_calls"] for node in report["node_reports"]))
            steps.append(report["steps"])
        self.assertEqual(calls[1] - calls[0], nodes * ((steps[1] - steps[0]) * (3 * 3 + 1)))


if __name__ == "__main__":
    support.main()
