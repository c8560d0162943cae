"""What param_sync promises to its users. Run by ctest, one suite at a time."""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import zlib

import support
from support import DEVICE, ENDLESS, LINKS_BETWEEN_PROCESSES, SANITIZED, SMALL, results, run, start

# Processes share one GPU only by turns, and their kernels wait for each other.
needs_processes = unittest.skipIf(DEVICE == "cuda", "several processes do not run at once on one GPU")


# Parameter servers, and a scheme whose nodes do not all meet.
SCHEMES = ("ps:even", "ring")
# Their sums are in the order of ranks, for any number of nodes; as those of ps:even, the default.
OTHERS_IN_RANK_ORDER = ("chain", "ps", "mesh", "byteps")
# All nodes' gradients are made of their factors, in the order of ranks; and layers with schemes of their own.
SCHEMES_OF_FACTORS = ("sfb", "adam-fc", "sfb,ps:even,adam-fc")


# The tensors of SMALL's model, and how many numbers each has.
LAYERS_OF_SMALL = {"layers.0.weight": 36 * 16, "layers.0.bias": 16, "layers.1.weight": 16 * 8, "layers.1.bias": 8, "layers.2.weight": 8 * 3,
                   "layers.2.bias": 3}


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

    def test_in_process_equals_serial(self):
        for nodes in (3,) if SANITIZED else (1, 2, 3):
            reference = self.weights(nodes, "--serial")
            for link in ("p2p", "tcp"):
                self.assertEqual(self.weights(nodes, "--in-process", "--link", link), reference, f"{nodes} nodes, {link}")

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
        """That is what is sent while the same node's kernels compute: without overlap little, as each waits for what was sent."""
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
                    communicating[-1].append((min(event["ts"] for event in lanes if event["cat"] == "push"),
                                              max(event["ts"] + event["dur"] for event in lanes)))
            all_us = sum(end - begin for rank in communicating for begin, end in rank)
            shown = sum(together(*rank) for rank in zip(communicating, computing, strict=True)) / all_us
            self.assertLessEqual(hidden_share, shown + 0.15, options)
            if options:
                untraced = results(*computes_much, "--in-process", *options)
                self.assertLessEqual(untraced["hidden_share"], shown + 0.3)

    def test_with_one_slot_an_owner_gets_one_message_at_a_time(self):
        """Of all layers together; the weights are the same."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            spans, _ = self.trace("--in-process", "--scheme", "ps:even", "--slots", 1, "--json", file)
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


class Runs(unittest.TestCase):
    """What the suites share that end runs before their time."""

    def tearDown(self):
        for process in getattr(self, "processes", []):
            support.kill_with_nodes(process)
            process.communicate(timeout=support.PATIENCE_S)

    def start(self, *arguments, **more):
        process = start(*arguments, **more)
        self.processes = getattr(self, "processes", []) + [process]
        return process

    def end(self, process):
        out, err = process.communicate(timeout=support.PATIENCE_S)
        self.processes.remove(process)
        return process.returncode, out, err

    def wait_for_the_end_of(self, pids):
        deadline = time.monotonic() + support.PATIENCE_S
        for pid in pids:
            while support.is_running(pid):
                self.assertLess(time.monotonic(), deadline, "a node that was to end runs on")

    def training_cluster(self, *arguments):
        cluster = self.start(*ENDLESS, "--nodes", 4, *arguments)
        support.wait_for_line(cluster, r"step \d+/")
        return cluster, support.node_processes(cluster)


@needs_processes
class Promptness(Runs):
    """How soon a run ends; alone on the machine."""

    def test_a_killed_node_ends_all_others_within_five_seconds(self):
        for link, scheme in [*((link, "ps:even") for link in LINKS_BETWEEN_PROCESSES), *(("tcp", scheme) for scheme in ("ring", "chain", "rhd", "sfb,adam-fc,ps"))]:
            cluster, nodes = self.training_cluster("--link", link, "--scheme", scheme)
            self.assertEqual(sorted(nodes), [0, 1, 2, 3])
            killed_at = time.monotonic()
            os.kill(nodes[2], signal.SIGKILL)
            status, _, err = self.end(cluster)
            self.assertLess(time.monotonic() - killed_at, 5)
            self.assertEqual(status, 1)
            self.assertIn("rank 2 was killed by signal 9", err)
            for rank in (0, 1, 3):
                self.assertIn(f"rank {rank}: lost rank 2: ", err, (link, scheme))
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])


@needs_processes
class Failures(Runs):
    """A run that cannot end well ends, says why, and leaves nothing behind."""

    def test_a_node_that_hangs_is_given_up_and_named(self):
        """It alone, though all others wait for each other, too, and each may give up another of its waits first."""
        stopped = []
        for scheme in (*SCHEMES, "rhd", "sfb,adam-fc,ps"):  # each cluster only waits while the next one starts
            cluster, nodes = self.training_cluster("--timeout", 2, "--scheme", scheme)
            os.kill(nodes[1], signal.SIGSTOP)
            stopped.append((scheme, cluster, nodes))
        for scheme, cluster, nodes in stopped:
            status, _, err = self.end(cluster)
            self.assertEqual(status, 1, scheme)
            self.assertRegex(err, r"\Aparam_sync: rank 1 has made no progress for 2 s: rank [023] waited for rank 1's "
                                  r"(gradients|new weights) of step \d+; raise --timeout if it is only slow\n\Z", scheme)
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    def test_a_node_started_by_hand_says_for_whom_it_waited(self):
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*ENDLESS, "--nodes", 2, "--rank", rank, "--peers", peers, "--timeout", 2) for rank in (0, 1)]
        support.wait_for_line(nodes[0], r"step \d+/")
        nodes[1].send_signal(signal.SIGSTOP)
        status, _, err = self.end(nodes[0])
        self.assertEqual(status, 1)
        self.assertRegex(err, r"\Aparam_sync: rank 0: waited 2 s in vain for rank 1's (gradients|new weights) of step \d+\. ")

    def test_nodes_started_by_hand_say_no_rank_to_be_lost_that_lives(self):
        for sent, timeout in ((signal.SIGKILL, 30), (signal.SIGSTOP, 4)):
            runs = {}
            for link in LINKS_BETWEEN_PROCESSES:  # side by side
                peers = ",".join(support.own_addresses(3))
                runs[link] = [self.start(*ENDLESS, "--rank", rank, "--peers", peers, "--timeout", timeout, "--link", link, "--scheme", "ring") for rank in range(3)]
            for nodes in runs.values():
                for node in nodes:
                    support.wait_for_line(node, r"step \d+/")
                nodes[1].send_signal(sent)
            for link, nodes in runs.items():
                for rank in (0, 2):
                    status, _, err = self.end(nodes[rank])
                    self.assertEqual(status, 1)
                    self.assertRegex(err, f"lost rank 1: |the lost rank is unknown|waited {timeout} s in vain", (sent, link))
                    self.assertNotRegex(err, "lost rank [02]: ", (sent, link))

    def test_interrupting_a_cluster_ends_all_its_nodes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            cluster, nodes = self.training_cluster()
            cluster.send_signal(number)
            status, _, err = self.end(cluster)
            self.assertEqual((status, err), (1, "param_sync: interrupted\n"))
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    def test_a_node_that_sees_the_others_end_first_is_interrupted_all_the_same(self):
        cluster, nodes = self.training_cluster("--link", "tcp")
        os.kill(nodes[2], signal.SIGSTOP)
        try:
            cluster.send_signal(signal.SIGTERM)
            self.wait_for_the_end_of(nodes[rank] for rank in (0, 1, 3))
        finally:  # nobody could wait for its end otherwise
            with contextlib.suppress(ProcessLookupError):
                os.kill(nodes[2], signal.SIGCONT)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))

    def test_killing_the_cluster_ends_its_nodes(self):
        cluster, nodes = self.training_cluster()
        cluster.kill()
        self.end(cluster)
        self.wait_for_the_end_of(nodes.values())

    def starting_cluster(self, *options):
        """A cluster of two whose nodes wait for their data, which comes once somebody writes it into the pipe; and its nodes."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for file in support.DATA.folder.iterdir():
            (pathlib.Path(folder.name) / file.name).symlink_to(file)
        self.pipe = pathlib.Path(folder.name) / "train-images-idx3-ubyte"
        self.pipe.unlink()
        os.mkfifo(self.pipe)
        cluster = self.start(*ENDLESS, "--data", folder.name, "--nodes", 2, *options, env=dict(os.environ, GPUSOCK_OBSERVE=folder.name))
        nodes = {}
        while len(nodes) < 2:
            nodes = support.node_processes(cluster)
        return cluster, nodes

    def test_a_signal_to_a_node_that_starts_is_told(self):
        cluster, nodes = self.starting_cluster()
        os.kill(nodes[1], signal.SIGTERM)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 1 was killed by signal 15 (Terminated)\n"))

    def test_a_signal_to_a_node_that_waits_for_another_to_start_is_told(self):
        cluster, nodes = self.starting_cluster()
        os.kill(nodes[0], signal.SIGSTOP)
        try:
            while not support.is_stopped(nodes[0]):  # until then it may take what is for the other one
                pass
            self.pipe.write_bytes((support.DATA.folder / self.pipe.name).read_bytes())
            deadline = time.monotonic() + support.PATIENCE_S
            while not list(self.pipe.parent.glob(f"gpusock-{nodes[1]}-*")):  # it has a context
                self.assertLess(time.monotonic(), deadline)
            os.kill(nodes[1], signal.SIGTERM)
            self.wait_for_the_end_of([nodes[1]])
        finally:
            with contextlib.suppress(ProcessLookupError):  # where the cluster has ended it
                os.kill(nodes[0], signal.SIGCONT)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 1 was killed by signal 15 (Terminated)\n"))

    def test_a_signal_to_a_node_that_trains_is_told(self):
        cluster, nodes = self.training_cluster()
        os.kill(nodes[3], signal.SIGTERM)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertIn("param_sync: rank 3 was killed by signal 15 (Terminated)\n", err)
        self.assertRegex(err, r"rank 0: lost rank 3: ")

    def test_a_node_that_waits_for_its_peers_can_be_interrupted(self):
        addresses = support.own_addresses(2)
        node = self.start(*SMALL, "--nodes", 2, "--rank", 0, "--peers", ",".join(addresses))
        support.wait_for_line(node, "listening on")
        node.send_signal(signal.SIGTERM)
        status, _, err = self.end(node)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))

    def test_a_peer_that_never_comes_is_named(self):
        addresses = support.own_addresses(2)
        node = self.start(*SMALL, "--rank", 0, "--peers", ",".join(addresses), "--timeout", 0.5)  # as many nodes as --peers lists
        status, _, err = self.end(node)
        self.assertEqual(status, 1)
        self.assertIn(f"cannot reach rank 1 at {addresses[1]}: connection refused", err)

    def test_memory_that_cannot_be_shared_ends_a_run_at_once(self):
        """It was tried again until --timeout."""
        began = time.monotonic()
        status, _, err = self.end(self.start(*SMALL, "--nodes", 2, "--link", "p2p", "--timeout", 60, env={**os.environ, "GPUSOCK_CPU_SHAPE": "gpu", "GPUSOCK_HOST_RINGS": "off"}))
        self.assertEqual(status, 1)
        self.assertIn("the same GPUSOCK_HOST_RINGS=NAME", err)
        self.assertLess(time.monotonic() - began, 30, err)

    def test_a_stopped_node_is_given_up_in_time_when_all_start(self):
        cluster, nodes = self.starting_cluster("--timeout", 1)
        began = time.monotonic()
        os.kill(nodes[0], signal.SIGSTOP)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 0 was stopped by a signal, and not continued for 1 s (--timeout)\n"))
        self.assertLess(time.monotonic() - began, 25)  # not kStartSecondsMin

    def test_a_loopback_interface_that_is_down_is_named(self):
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user may make no network namespace")
        cluster = self.start(*SMALL, "--nodes", 2, before=unshare)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"cannot reach rank \d at 127.0.0.1:\d+: network is unreachable \(ENETUNREACH\): .*`ip link set lo up`")

    def test_other_settings_are_refused_by_name(self):
        for option, value, name in (("--seed", 2, "--seed: "), ("--hidden", "16,9", "model"), ("--batch", 20, "--batch|--epochs"),
                                    ("--scheme", "ps,ring,ps", r"--scheme \(or --prices.*\): layer 36 x 16 has ps(:even)? there, ps(:even)? here"), ("--budget", "10K", "--budget"), ("--lr", 0.01, "--lr"), ("--limit", 500, "--limit"), ("--epochs", 3, "--epochs")):
            peers = ",".join(support.own_addresses(2))
            common = [*SMALL, "--nodes", 2, "--peers", peers, *(["--scheme", "ps"] if option == "--budget" else [])]
            nodes = [self.start(*common, "--rank", 0), self.start(*common, "--rank", 1, option, value)]
            ends = [self.end(node) for node in nodes]
            self.assertEqual([status for status, _, _ in ends], [1, 1], ends)
            for rank, (_, _, err) in enumerate(ends):
                self.assertRegex(err, f"rank {rank}: rank {1 - rank} was started with another .*({name})")

    def test_strangers_at_the_door_do_not_count(self):
        """One speaks another language; more than there is time for say nothing, one after the other."""
        addresses = support.own_addresses(2)
        peers = ",".join(addresses)
        common = [*SMALL, "--nodes", 2, "--link", "tcp", "--peers", peers]
        first = self.start(*common, "--rank", 0)
        support.wait_for_line(first, "listening on")
        host, port = addresses[0].split(":")
        with contextlib.ExitStack() as doors:
            strangers = [doors.enter_context(socket.create_connection((host, int(port)))) for _ in range(20)]
            strangers[0].sendall(b"GET / HTTP/1.1\r\nHost: somebody else\r\n\r\n".ljust(200))
            second = self.start(*common, "--rank", 1)
            for node in (first, second):
                self.assertEqual(self.end(node)[0], 0)


class Checkpoints(Runs):
    """A run that goes on from a checkpoint ends as one that was never interrupted, bit for bit."""

    EVERY = 7
    STEPS = 60  # of two epochs on two nodes

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="param_sync_checkpoints."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def arguments(self, *more, every=EVERY):
        return [*SMALL, "--nodes", 2, "--checkpoint", self.folder, "--every", every, *more]

    def steps_of(self, rank):
        return sorted(int(file.stem.split("-")[-1]) for file in self.folder.glob(f"rank-{rank}-step-*.safetensors"))

    def train(self, *more):
        """The weights of a run that has left checkpoints."""
        report = results(*self.arguments("--in-process", *more))
        self.assertEqual((self.steps_of(0), self.steps_of(1)), ([49, 56], [49, 56]))
        return report["weights_hash"]

    def refusal(self, *more):
        status, _, err = run(*self.arguments("--in-process", *more))
        self.assertEqual(status, 1, err)
        return err

    def test_a_resumed_run_ends_with_the_same_weights(self):
        serial = results(*SMALL, "--nodes", 2, "--serial")["weights_hash"]
        series = self.folder / "series.tsv"
        for scheme, resume, first in (("ps:even", 49, 49), ("ring", "latest", 56),
                                      ("sfb,adam-fc,ps", "latest", 56)):
            weights = self.train("--scheme", scheme)
            self.assertEqual(weights, serial, "checkpoints change nothing, and a sum of two has one order")
            report = results(*self.arguments("--in-process", "--scheme", scheme, "--resume", resume, "--series", series))
            self.assertEqual((report["weights_hash"], report["first_step"]), (weights, first))
            self.assertEqual((report["steps"], len(report["losses"])), (self.STEPS - first, self.STEPS - first))
            rows = [line.split("\t") for line in series.read_text().splitlines() if line[0] != "#"]
            self.assertEqual([int(row[0]) for row in rows], list(range(first + 1, self.STEPS + 1)))
            self.assertEqual([row[2] == "nan" for row in rows], [True] * (len(rows) - 1) + [False])
        self.expect_plot(series)

    def expect_plot(self, series):
        """What ./run demo draws of a run has a title that says which run it is, and shows loss, accuracy, bytes and waiting."""
        if shutil.which("gnuplot") is None:
            return
        script, picture = pathlib.Path(__file__).resolve().parents[3] / "tools/schedule_lab/figures/plot.gp", self.folder / "plot.svg"
        done = subprocess.run(["gnuplot", "-e", f"series='{series}'; picture='{picture}'", script], capture_output=True, text=True,
                              timeout=support.PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        drawn = picture.read_text()
        for text in ("param_sync: ", ", 2 nodes", "training loss", "test accuracy", "gradients pushed", "waited for weights"):
            self.assertIn(text, drawn)

    @needs_processes
    def test_processes_resume_at_the_last_step_that_all_nodes_have(self):
        weights = self.train("--scheme", "ps:even")
        (self.folder / "rank-1-step-56.safetensors").unlink()  # as where it was lost before it had written
        report = results(*self.arguments("--scheme", "ps:even", "--resume", "latest"))
        self.assertEqual((report["weights_hash"], report["first_step"]), (weights, 49))

    @needs_processes
    def test_a_node_that_is_killed_costs_no_more_than_the_steps_between_two_checkpoints(self):
        arguments = [*ENDLESS, "--nodes", 2, "--checkpoint", self.folder, "--every", 5]
        cluster = self.start(*arguments)
        deadline = time.monotonic() + support.PATIENCE_S
        while not (self.steps_of(0) and self.steps_of(1)):
            self.assertLess(time.monotonic(), deadline, "no checkpoint was written")
            time.sleep(0.01)
        os.kill(support.node_processes(cluster)[1], signal.SIGKILL)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertIn("--resume latest", err)
        common = max(set(self.steps_of(0)) & set(self.steps_of(1)))
        self.assertLessEqual(max(self.steps_of(0) + self.steps_of(1)) - common, 5)
        resumed = self.start(*arguments, "--resume", "latest")
        line = support.wait_for_line(resumed, r"step \d+/")
        self.assertGreaterEqual(int(line[0].split()[1].split("/")[0]), common)
        resumed.send_signal(signal.SIGINT)
        self.end(resumed)

    def test_what_cannot_be_resumed_is_refused_with_what_to_do(self):
        self.train()
        self.assertIn("another --seed", self.refusal("--seed", 2, "--resume", "latest"))
        self.assertIn("another --scheme", self.refusal("--scheme", "ps", "--resume", "latest"))
        self.assertIn("step-50.safetensors: No such file", self.refusal("--resume", 50))
        file = self.folder / "rank-1-step-56.safetensors"
        whole = file.read_bytes()
        for damaged in (whole[:-1], whole + b"x", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], b"", b"checkpoint"):
            file.write_bytes(damaged)
            err = self.refusal("--resume", "latest")
            self.assertIn("is damaged", err)
            self.assertNotIn("the same arguments and --resume", err, "that would fail again")
        self.assertIn("cannot write checkpoints in /proc/none", run(*SMALL, "--in-process", "--checkpoint", "/proc/none")[2])
        for misuse in (["--resume", "latest"], ["--every", 100], ["--serial", "--checkpoint", self.folder],
                       ["--checkpoint", self.folder, "--resume", "soon"], ["--checkpoint", self.folder, "--every", 0]):
            self.assertEqual(run(*SMALL, *misuse)[0], 2, misuse)

    def test_a_checkpoint_is_read_as_any_safetensors_file(self):
        """As PyTorch does, with names, shapes and types; its weights are those of a run that ends with its step."""
        run_of_one_epoch = [*SMALL, "--nodes", 2, "--in-process", "--epochs", 1]
        weights_file = self.folder / "weights"
        steps = results(*run_of_one_epoch, "--save-weights", weights_file)["steps"]
        results(*self.arguments("--in-process", every=steps))
        file = self.folder / f"rank-1-step-{steps}.safetensors"
        tensors, about = support.read_safetensors(file)
        self.assertEqual({name: len(values) for name, values in tensors.items()},
                         {prefix + name: values for prefix in ("", "velocity.") for name, values in LAYERS_OF_SMALL.items()})
        self.assertEqual({name: tensors[name] for name in LAYERS_OF_SMALL}, support.read_safetensors(weights_file)[0])
        self.assertEqual((about["rank"], about["step"], about["nodes"]), ("1", str(steps), "2"))
        whole = file.read_bytes()
        self.assertEqual(about["crc32"], f"{zlib.crc32(whole.replace(about['crc32'].encode(), b'0' * 8, 1)):08x}")

    def test_latest_begins_anew_where_there_is_no_checkpoint(self):
        self.assertEqual(results(*self.arguments("--in-process", "--resume", "latest"))["first_step"], 0)

    @needs_processes
    def test_nodes_that_go_on_from_different_steps_are_told(self):
        self.train()
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*self.arguments("--rank", rank, "--peers", peers, "--resume", step)) for rank, step in ((0, 49), (1, 56))]
        errors = [self.end(node)[2] for node in nodes]
        self.assertTrue(any("another step to go on from" in err for err in errors), errors)


class Results(Runs):
    """A finished run is told, and nobody who reads it late, or never, keeps it from being ended."""

    MODES = (("--serial",), ("--in-process",)) + (() if DEVICE == "cuda" else ((),))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def wait_for_contents(self, file):
        deadline = time.monotonic() + support.PATIENCE_S
        while not file.exists() or file.stat().st_size == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @needs_processes
    def test_the_data_may_go_once_it_was_read(self):
        data = self.folder / "data"
        shutil.copytree(support.DATA.folder, data)
        cluster = self.start(*SMALL, "--nodes", 2, "--epochs", 8, "--data", data)
        support.wait_for_line(cluster, r"step \d+/")
        shutil.rmtree(data)
        status, out, err = self.end(cluster)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("36 x 16", out)

    def test_a_pipe_gets_the_results(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.processes = [reader]
            status, _, err = self.end(self.start(*SMALL, "--nodes", 2, "--serial", "--json", pipe))
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(json.loads(reader.communicate(timeout=support.PATIENCE_S)[0])["nodes"], 2)

    def test_a_pipe_that_nobody_reads_can_be_given_up(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for mode in self.MODES:
            weights = self.folder / "weights"
            process = self.start(*SMALL, "--nodes", 2, *mode, "--json", pipe, "--save-weights", weights)
            self.wait_for_contents(weights)
            process.send_signal(signal.SIGTERM)
            status, _, _ = self.end(process)
            self.assertIn(status, (1, -signal.SIGTERM), "interrupted by then, or ended while it writes")
            weights.unlink()

    def test_output_that_nobody_reads_can_be_given_up(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        for mode in self.MODES:
            results_file = self.folder / "results"
            process = self.start(*SMALL, "--nodes", 2, *mode, "--json", results_file, stdout=writing)
            self.wait_for_contents(results_file)  # training waited for no reader
            process.send_signal(signal.SIGTERM)
            status, _, _ = self.end(process)
            self.assertEqual(status, -signal.SIGTERM)
            results_file.unlink()


class Misuse(unittest.TestCase):
    """Exit status 2 and a message that says what to do."""

    def refused(self, message, *arguments):
        status, _, err = run(*arguments)
        self.assertEqual(status, 2, err)
        self.assertIn(message, err)

    def test_arguments_that_cannot_be(self):
        self.refused("--nodes", "--nodes", 0)
        self.refused("--nodes", "--nodes", 65)
        self.refused("--link", "--link", "carrier-pigeon")
        self.refused("--epochs", "--epochs", 0)
        self.refused("--hidden", "--hidden", "0")
        self.refused("'' is no width", "--hidden", "128,")
        self.refused("--frobnicate", "--frobnicate")
        self.refused("--scheme: 'carrier-pigeon' is no scheme; there are: ps", "--scheme", "carrier-pigeon")
        self.refused("--scheme: '' is no scheme", "--scheme", "ps,,ring")
        self.refused("--scheme: 'ps,ring' has 2 schemes, but the model has 3 layers", "--scheme", "ps,ring")
        self.refused("--scheme: 'direct' is no scheme; there are: ps", "--scheme", "direct")
        self.refused("--slots is for --scheme ps and ps:even", "--scheme", "ps,sfb,ps", "--slots", 1)
        self.refused("--budget is for --scheme ps and ps:even", "--scheme", "hybrid", "--budget", "10K")
        self.refused("--prices is for --scheme auto", "--scheme", "hybrid", "--prices", "1,2,3,4,5")
        self.refused("--prices measured is for nodes that this command starts", "--serial", "--scheme", "auto", "--prices", "measured")
        for prices in ("1,2,3,4", "1,2,3,4,5x", "1,2,3,4,"):
            self.refused("is neither measured nor five numbers", "--scheme", "auto", "--prices", prices)
        for prices in ("0,0,1e9,1e9,1e-9", "1e300,0,1,1,1", "1e999,0,1,1,1", "0,0,1,1,nan"):
            self.refused("the first two numbers are from 0 to 1e+12, the last three from 0.001 to 1e+12", "--scheme", "auto", "--prices", prices)
        self.refused("--fuse", "--scheme", "ps", "--fuse", "2G")
        self.refused("--slots is for --scheme ps and ps:even", "--scheme", "ring", "--slots", 1)
        self.refused("--slots 4: of --nodes 4 only 3 send", "--scheme", "ps", "--slots", 4)
        self.refused("--serial exchanges nothing", "--serial", "--trace", "/tmp/trace.json")
        self.refused("--trace-steps needs --trace FILE", "--trace-steps", 3)
        self.refused("--budget is for --scheme ps and ps:even", "--scheme", "ring", "--budget", "10K")
        self.refused("--budget and --slots exclude", "--scheme", "ps", "--budget", "10K", "--slots", 1)
        self.refused("--budget and --checkpoint exclude", "--scheme", "ps", "--budget", "10K", "--checkpoint", "/tmp/none")

    def test_two_results_in_one_file_are_refused_by_the_names_of_their_options(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "results")
            options = ("--json", "--series", "--trace", "--save-weights")
            for option, other in itertools.combinations(options, 2):
                self.refused(f"{option} and {other} name the same file, {folder}/./results: ",
                             *SMALL, option, file, other, f"{folder}/./results")
            self.assertFalse(file.exists())
        self.assertEqual(run(*SMALL, "--nodes", 1, "--series", "/dev/null", "--save-weights", "/dev/null")[0], 0)

    def test_modes_exclude_each_other(self):
        self.refused("exclude each other", "--in-process", "--serial")

    def test_peers_must_be_one_for_each_node(self):
        self.refused("--peers lists 2 addresses, but there are --nodes 3", "--nodes", 3, "--rank", 0, "--peers", "h:1,h:2")
        self.refused("--peers lists 0 addresses", "--nodes", 2, "--rank", 0)
        self.refused("--peers", "--nodes", 2, "--rank", 0, "--peers", "127.0.0.1:7000,nonsense")
        self.refused("--peers gives ranks 0 and 2 the same address, h:1: each", "--nodes", 3, "--rank", 0, "--peers", "h:1,h:2,h:1")
        self.refused("has no port", "--nodes", 2, "--rank", 0, "--peers", "127.0.0.1:7000,127.0.0.1:0")

    def test_a_rank_must_be_below_the_number_of_nodes(self):
        self.refused("ranks are 0 to 1", "--nodes", 2, "--rank", 2, "--peers", "127.0.0.1:1,127.0.0.1:2")

    def test_help_is_no_misuse(self):
        status, out, _ = run("--help")
        self.assertEqual(status, 0)
        self.assertIn("--peers", out)

    def test_a_file_that_cannot_be_written_is_a_failure_before_anything_is_trained(self):
        for option in ("--json", "--series", "--save-weights", "--trace"):
            status, out, err = run("--nodes", 2, "--scheme", "ps:even", "--epochs", 10_000, option, "/nonexistent/file")
            self.assertEqual((status, out), (1, ""))
            self.assertIn("cannot write /nonexistent/file: No such file or directory", err)

    def test_a_budget_without_room_for_headers_is_misuse_that_says_how_much_is_needed(self):
        for mode in ("--in-process", "--nodes=2"):
            status, _, err = run(*SMALL, "--nodes", 2, "--scheme", "ps:even", "--budget", 191, mode)
            self.assertEqual((status, err.count("\n")), (2, 1), err)
            self.assertIn("rank 0 sends 6 messages in a step, whose headers alone have 192 bytes", err)

    @unittest.skipIf(DEVICE == "cuda", "looks at the data only where there is a GPU")
    def test_missing_data_is_a_failure_that_says_what_to_do(self):
        for mode in ("--serial", "--in-process", "--nodes=2"):
            status, _, err = run("--data", "/nonexistent", mode)
            self.assertEqual(status, 1)
            self.assertIn("/nonexistent", err)
            self.assertIn("--data", err)

    @unittest.skipIf(DEVICE == "cuda", "looks at the data only where there is a GPU")
    def test_a_step_larger_than_the_data_is_misuse_that_says_what_to_do(self):
        for mode in ("--nodes=2", "--in-process", "--serial"):
            status, _, err = run(*SMALL, "--batch", 400, "--nodes", 2, "--limit", 100, mode)
            self.assertEqual(status, 2)
            self.assertEqual(err, "param_sync: one step takes 800 samples (--nodes times --batch), but there are 100: take fewer nodes, "
                                  "lower --batch or raise --limit\n")


FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


@unittest.skipIf(SANITIZED, "too slow under a sanitizer")
@unittest.skipUnless(FASHION_MNIST.exists(), "dataset-fashion-mnist is not installed")
class Accuracy(unittest.TestCase):
    def test_one_epoch_on_four_nodes_reaches_80_percent(self):
        mode = ["--in-process"] if DEVICE == "cuda" else []
        report = results("--nodes", 4, "--epochs", 1, "--data", FASHION_MNIST, *mode)
        self.assertGreaterEqual(report["accuracy"], 0.80)
        self.assertTrue(report["same_weights"])


def gpu_is_missing():
    return DEVICE == "cuda" and not os.path.exists("/dev/nvidiactl")




if __name__ == "__main__":
    if gpu_is_missing() and "Misuse" not in sys.argv:
        print("no GPU here: skipped")
        sys.exit(77)
    try:
        unittest.main(verbosity=2)
    finally:
        support.DATA.remove()
