"""What param_sync promises of --sync: gradients go through a store. Run by ctest."""
import collections
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile

import support
from support import LINKS_BETWEEN_PROCESSES, SMALL, Runs, needs_processes, results, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from store_oracle import objections  # noqa: E402

CLOCKS = ("bsp", "ssp:2", "async")


class Sync(Runs):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.history = pathlib.Path(folder.name) / "history.jsonl"

    def histories(self, nodes):
        """Of each rank, in its order."""
        events = [json.loads(line) for line in self.history.read_text().splitlines()]
        return [[event for event in events if event["worker"] == rank] for rank in range(nodes)]

    def test_bsp_equals_serial(self):
        for nodes in (2, 3):
            serial = results(*SMALL, "--nodes", nodes, "--serial")
            self.assertEqual(results(*SMALL, "--nodes", nodes, "--serial", "--sync", "bsp")["losses"], serial["losses"])
            for clock, link in (("bsp", "p2p"), ("ssp:0", "tcp")):
                report = results(*SMALL, "--nodes", nodes, "--sync", clock, "--in-process", "--link", link)
                self.assertEqual(report["weights_hash"], serial["weights_hash"], (nodes, clock, link))
                self.assertEqual(report["losses"], serial["losses"])
                self.assertEqual((report["staleness"], report["same_weights"], report["accuracy"]), (0, True, serial["accuracy"]))

    def test_averages_equal_serial(self):
        """Also where the last steps are fewer than there are between two averages."""
        for nodes, steps in ((2, 4), (3, 7), (3, 1000), (2, 2**64 - 1)):
            sync = ("--sync", f"every:{steps}")
            serial = results(*SMALL, "--nodes", nodes, "--serial", *sync)
            report = results(*SMALL, "--nodes", nodes, "--in-process", *sync)
            for what in ("weights_hash", "losses", "accuracies"):
                self.assertEqual(report[what], serial[what], (nodes, steps, what))
            self.assertTrue(report["same_weights"])

    def test_an_outer_optimizer_equals_serial(self):
        hashes = set()
        for outer in ((), ("--outer", "nesterov"), ("--outer", "nesterov:0.7,0.9"), ("--outer", "nesterov:1,0")):
            sync = ("--nodes", 3, "--sync", "every:4", *outer)
            serial = results(*SMALL, *sync, "--serial")
            self.assertEqual(results(*SMALL, *sync, "--in-process")["weights_hash"], serial["weights_hash"], outer)
            hashes.add(serial["weights_hash"])
        self.assertIn(len(hashes), (2, 3))  # steps of length 1 without momentum are averages, but for rounding

    def test_streaming_averages_equal_serial(self):
        """Whatever comes late, and however few steps there are."""
        hashes = set()
        for nodes, sync, *options in ((2, "streaming:4,0"), (3, "streaming:4,1"), (4, "streaming:7,6"), (3, "streaming:4,1", "--outer", "nesterov"), (3, "streaming:2,1"),
                                      (3, "streaming:30,29"), (2, f"streaming:{2**64 - 1},{2**64 - 2}")):
            sync = ("--nodes", nodes, "--sync", sync, *options)
            serial = results(*SMALL, *sync, "--serial")
            for link in ("p2p", "tcp"):
                report = results(*SMALL, *sync, "--in-process", "--link", link)
                for what in ("weights_hash", "losses", "accuracies"):
                    self.assertEqual(report[what], serial[what], (sync, link, what))
                self.assertEqual((report["same_weights"], report["staleness"]), (True, 0))
            delayed = results(*SMALL, *sync, "--serial", "--delays", "exponential,slow:3")
            self.assertEqual(delayed["weights_hash"], serial["weights_hash"], sync)
            hashes.add(serial["weights_hash"])
        self.assertEqual(len(hashes), 7)

    def test_streaming_with_one_fragment_is_averaging(self):
        """If nothing overlaps. Layers of offset 0 alone are there if averages come after each step, or the model has one layer."""
        for sync, model in (((1, "1,0"), ()), ((5, "5,0"), ("--hidden", ""))):
            for how in ("--serial", "--in-process"):
                one, other = (results(*SMALL, *model, "--nodes", 3, "--sync", text, how) for text in (f"every:{sync[0]}", f"streaming:{sync[1]}"))
                self.assertEqual((one["weights_hash"], one["losses"], one["accuracies"]), (other["weights_hash"], other["losses"], other["accuracies"]), (sync, how))

    def test_streaming_moves_a_layer_at_a_time(self):
        """About as often as averages of all layers. The history has the order: the last layer comes first."""
        report = results(*SMALL, "--nodes", 2, "--sync", "streaming:6,2", "--serial", "--history", self.history)
        first = [event["keys"][0] for event in self.histories(2)[0] if event["op"] == "push"]
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(first[:6], sorted(first[:3], reverse=True) * 2)
        self.assertEqual(objections(self.histories(2), "bsp")[:3], [])
        real = results(*SMALL, "--nodes", 2, "--sync", "streaming:6,2", "--in-process", "--history", self.history)
        self.assertEqual(objections(self.histories(2), "bsp")[:3], [])
        moved = {sync: [layer["pushed_bytes"] for layer in results(*SMALL, "--nodes", 2, "--in-process", "--sync", sync)["layers"]] for sync in ("every:6", "streaming:6,2")}
        self.assertEqual([layer["pushed_bytes"] for layer in real["layers"]], moved["streaming:6,2"])
        times = [1 + (report["steps"] - 1 - 2 + 2 * layer) // 6 for layer in range(3)]  # after the last step, and whenever what comes of it is there before that
        self.assertEqual(moved["streaming:6,2"], [layer * count * 6 // report["steps"] for layer, count in zip(moved["every:6"], times)])

    def test_streaming_changes_one_node_only_by_what_comes_late(self):
        """The average of one node is itself, as it was when it pushed."""
        alone, at_once, late = (results(*SMALL, "--nodes", 1, "--momentum", 0, "--serial", *sync)["losses"] for sync in ((), ("--sync", "streaming:4,0"), ("--sync", "streaming:4,2")))
        difference = [max(abs(one - other) for one, other in zip(alone, losses)) for losses in (at_once, late)]
        self.assertLess(difference[0], 1e-4)
        self.assertGreater(difference[1], 1e-3)

    def test_an_overlap_hides_waits_for_slow_steps(self):
        """In virtual time with random delays."""
        def seconds(sync):
            return results(*SMALL, "--nodes", 4, "--epochs", 8, "--serial", "--sync", sync, "--delays", "exponential")["node_reports"][0]["step_times_ns"][-1] / 1e9

        self.assertLess(seconds("streaming:6,5"), seconds("streaming:6,0"))

    def equals_serial(self, sync, staleness):
        """Nodes in this process, on each link, and in virtual time however long steps take. Returns the last results."""
        serial = results(*SMALL, *sync, "--serial")
        delayed = results(*SMALL, *sync, "--serial", "--delays", "exponential,slow:3")
        self.assertEqual(delayed["weights_hash"], serial["weights_hash"], sync)
        for link in ("p2p", "tcp"):
            report = results(*SMALL, *sync, "--in-process", "--link", link)
            for what in ("weights_hash", "losses", "accuracies"):
                self.assertEqual(report[what], serial[what], (sync, link, what))
            self.assertEqual((report["staleness"], serial["staleness"]), (staleness, staleness))
        return report

    def test_pipelines_equal_serial(self):
        """Whichever owner is ahead of the others, and however long steps take."""
        for nodes, depth in ((1, 1), (3, 1), (4, 2), (3, 16)):
            sync = ("--nodes", nodes, "--sync", f"pipeline:{depth}", "--momentum", 0.3)
            self.equals_serial(sync, depth if nodes != 1 else 0)
        self.assertEqual(len({results(*SMALL, "--serial", *sync)["weights_hash"] for sync in ((), ("--sync", "pipeline:1"), ("--sync", "pipeline:2"))}), 3)

    def test_trees_equal_serial(self):
        """Each range's weights are as old as the node's place in its owner's tree is deep, and the lags say so."""
        for nodes, depth, deepest in ((1, 2, 1), (2, 3, 1), (4, 2, 2), (4, 16, 3)):
            sync = ("--nodes", nodes, "--sync", f"tree:{depth}", "--momentum", 0.3)
            report = self.equals_serial(sync, deepest if nodes != 1 else 0)
            if depth != 16:
                continue
            ranges, reads = 3, report["steps"] - 1  # of each owner; a chain: one owner's weights are a step old, and its neighbour's, ...
            lags = collections.Counter(min(clock + 1, max(1, level)) for level in range(4) for clock in range(1, reads + 1) for _ in range(ranges * (nodes - 1)))
            for node in report["node_reports"]:
                self.assertEqual(node["staleness"], [lags[lag] for lag in range(4)])
        both = [results(*SMALL, "--nodes", 3, "--serial", "--sync", sync)["weights_hash"] for sync in ("tree:1", "pipeline:1", "tree:2")]
        self.assertEqual((both[0] == both[1], both[1] == both[2]), (True, False))

    def test_downpour_pushes_and_pulls_as_often_as_it_says(self):
        moved = {}
        for sync in ("downpour:1,1", "downpour:3,3", "downpour:3,12"):
            report = results(*SMALL, "--nodes", 2, "--limit", 480, "--in-process", "--sync", sync)
            self.assertEqual(report["steps"] % 12, 0)
            self.assertTrue(report["same_weights"])
            moved[sync] = [sum(layer[what] for layer in report["layers"]) for what in ("pushed_bytes", "pulled_bytes")]
        self.assertEqual(moved["downpour:1,1"][0], 3 * moved["downpour:3,3"][0])
        self.assertEqual(moved["downpour:3,12"][0], moved["downpour:3,3"][0])
        self.assertLess(moved["downpour:3,12"][1], 0.7 * moved["downpour:3,3"][1])  # the last weights are pulled until all is in them

    def test_slots_move_their_share_of_the_bytes(self):
        """Each node ends with the same weights, which have learned."""
        pushed, nodes = {}, 4
        for sync in ("downpour:1,1", "slots:1", "slots:2"):
            report = results(*SMALL, "--nodes", nodes, "--limit", 480, "--in-process", "--sync", sync)
            self.assertEqual(report["steps"] % nodes, 0)
            self.assertTrue(report["same_weights"])
            self.assertGreater(report["accuracy"], 0.9)
            pushed[sync] = [layer["pushed_bytes"] for layer in report["layers"]]
        self.assertEqual(pushed["downpour:1,1"], [4 * layer for layer in pushed["slots:1"]])
        self.assertEqual(pushed["slots:2"], [2 * layer for layer in pushed["slots:1"]])

    def test_slots_in_virtual_time(self):
        """Equal settings give equal runs. The seed decides who has a slot when; all have one if there are as many as nodes."""
        slots = (*SMALL, "--nodes", 4, "--serial", "--history", self.history, "--sync")
        report = results(*slots, "slots:1")
        self.assertLessEqual(report["staleness"], 1)  # without delays each node has as many slots behind it as the others, or one less
        for events in self.histories(4):
            self.assertEqual([event["clock"] for event in events if event["op"] == "push"], list(range(1, -(-report["steps"] // 4) + 1)))
        self.assertEqual(results(*slots, "slots:1")["weights_hash"], report["weights_hash"])
        self.assertEqual(results(*slots, "slots:4")["weights_hash"], results(*slots, "downpour:1,1")["weights_hash"])
        delayed = (*slots, "slots:2", "--delays", "exponential,slow:3")
        self.assertEqual(results(*delayed)["weights_hash"], results(*delayed)["weights_hash"])

    def test_virtual_time_keeps_clocks(self):
        """The oracle judges the simulated store, too. Equal settings give equal runs."""
        for clock, delays in itertools.product(("bsp", "ssp:2", "ssp:5", "async"), ((), ("exponential",), ("slow:9",), ("slow:9,exponential",))):
            run = (*SMALL, "--nodes", 3, "--sync", clock, "--serial", "--history", self.history, *(("--delays", *delays) if delays else ()))
            report = results(*run)
            histories = self.histories(3)
            self.assertEqual(sum(event["op"] == "push" for events in histories for event in events), 3 * report["steps"])
            self.assertEqual(objections(histories, clock)[:3], [], (clock, delays))
            if clock == "async" and "slow:9" in delays:
                self.assertTrue(objections(histories, "ssp:5"))
            self.assertEqual(results(*run)["weights_hash"], report["weights_hash"])

    def test_virtual_time_is_that_of_the_slowest_where_all_wait(self):
        def seconds(sync, *delays):
            return results(*SMALL, "--nodes", 3, "--serial", "--sync", sync, "--delays", *delays)["node_reports"][0]["step_times_ns"][-1] / 1e9

        steps = results(*SMALL, "--nodes", 3, "--serial")["steps"]
        self.assertEqual(seconds("bsp", "slow:5"), 5 * steps)
        self.assertEqual(seconds("bsp", "slow:1"), steps)
        self.assertLess(seconds("every:8", "exponential"), seconds("bsp", "exponential"))
        self.assertLess(seconds("ssp:3", "exponential"), seconds("bsp", "exponential"))

    def test_coded_nodes_train_as_their_groups_do(self):
        """Whoever is late: a group of two with the same samples is a node with twice the batch, bit for bit."""
        for nodes, stragglers in ((4, 1), (6, 2)):
            groups = results(*SMALL, "--serial", "--nodes", nodes // (stragglers + 1), "--batch", 16 * (stragglers + 1), "--sync", "bsp")
            for delays in ("slow:1", "slow:9", "exponential", "stalls:0.1:20"):
                coded = results(*SMALL, "--serial", "--nodes", nodes, "--batch", 16, "--sync", f"coded:{stragglers}", "--delays", delays)
                for what in ("weights_hash", "losses", "accuracy"):
                    self.assertEqual(coded[what], groups[what], (nodes, delays, what))
                self.assertGreater(coded["node_reports"][0]["computed_batches"], nodes * coded["steps"])

    def test_a_slow_node_is_not_waited_for(self):
        """Nor one that stalls. Its late gradients are dropped, and it takes part again when it is not late."""
        def report(sync, delays):
            return results(*SMALL, "--nodes", 4, "--serial", "--sync", sync, "--delays", delays)["node_reports"][0]

        steps = results(*SMALL, "--nodes", 4, "--serial")["steps"]
        for sync, unit in (("backup:1", 1), ("coded:1", 2)):
            slow = report(sync, "slow:9")
            self.assertEqual(slow["step_times_ns"][-1], unit * steps * 10**9, sync)
            self.assertEqual(slow["dropped_pushes"], (steps - 1) // 9, sync)
        self.assertEqual(report("bsp", "slow:9")["dropped_pushes"], 0)
        stalls = report("backup:1", "stalls:0.01:8")
        self.assertLess(stalls["step_times_ns"][-1], report("bsp", "stalls:0.01:8")["step_times_ns"][-1])
        self.assertGreater(stalls["pushes"], 3 * steps)
        self.assertNotEqual(results(*SMALL, "--nodes", 4, "--serial", "--sync", "backup:1")["weights_hash"], results(*SMALL, "--nodes", 4, "--serial")["weights_hash"])

    def test_coded_nodes_have_the_bits_of_virtual_time(self):
        """Whoever is late. The last node takes part in few steps, and ends with the others' weights."""
        serial = results(*SMALL, "--serial", "--nodes", 4, "--sync", "coded:1")
        slow = ("--step-ms", 2, "--delays", "slow:100")
        for how in ((), ("--in-process",), slow, ("--in-process", *slow)):
            coded = results(*SMALL, "--nodes", 4, "--sync", "coded:1", *how)
            for what in ("weights_hash", "losses", "accuracy"):
                self.assertEqual(coded[what], serial[what], (how, what))
            self.assertTrue(coded["same_weights"], how)
            nodes = coded["node_reports"]
            for node in nodes:
                self.assertEqual((node["computed_batches"], node["losses"].count(None)), (2 * node["pushes"], node["steps"] - node["pushes"]))
                self.assertEqual(node["step_times_ns"], sorted(node["step_times_ns"]))
            if "--delays" in how:
                self.assertLess(nodes[3]["pushes"], coded["steps"], how)

    def test_backup_nodes_do_not_wait_for_a_slow_one(self):
        """Its steps take so long that each of them is late: no sum has its gradients."""
        slow = (*SMALL, "--nodes", 3, "--sync", "backup:1", "--delays", "slow:900")
        report = results(*slow, "--step-ms", 2)
        serial = results(*slow, "--serial")
        for what in ("weights_hash", "accuracy"):
            self.assertEqual(report[what], serial[what], what)
        self.assertTrue(report["same_weights"])
        pushes = [node["pushes"] for node in report["node_reports"]]
        self.assertEqual(pushes[:2], [report["steps"]] * 2)
        self.assertLess(pushes[2], report["steps"] / 2)
        self.assertGreaterEqual(report["node_reports"][0]["step_times_ns"][-1], 2e6 * (report["steps"] - 1))

    def test_a_grace_has_what_comes_a_little_later(self):
        """In virtual time a step lasts a second. Of nodes that are all there nothing is dropped."""
        bsp = results(*SMALL, "--nodes", 3, "--serial")
        for how in (("--sync", "backup:1,50", "--serial"), ("--sync", "backup:1,60000"), ("--sync", "backup:2,60000", "--in-process")):
            self.assertEqual(results(*SMALL, "--nodes", 3, *how)["weights_hash"], bsp["weights_hash"], how)
        slow = results(*SMALL, "--nodes", 3, "--serial", "--sync", "backup:1,500", "--delays", "slow:9")["node_reports"][0]
        steps = bsp["steps"]
        # The slow node ends its steps at times 9 k. A version that has waited until then does not drop it.
        self.assertEqual(slow["step_times_ns"][0], 15 * 10**8)
        self.assertGreaterEqual(slow["step_times_ns"][-1], 10**8 * (15 * steps - 5 * steps // 9 - 15))
        self.assertGreater(slow["dropped_pushes"], 0)

    def test_late_pushes_are_corrected(self):
        """A correction changes what is late, and nothing else. Real nodes take it, too."""
        late = (*SMALL, "--nodes", 3, "--sync", "async", "--serial", "--delays", "slow:9")
        hashes = [results(*late, *correction)["weights_hash"] for correction in ((), ("--stale-lr",), ("--delay-compensation", 0.5))]
        self.assertEqual(len(set(hashes)), 3)
        for correction in (("--stale-lr",), ("--delay-compensation", 0.5)):
            alone = (*SMALL, "--nodes", 1, "--sync", "async")
            self.assertEqual(results(*alone, *correction, "--serial")["weights_hash"], results(*alone, "--serial")["weights_hash"])
            self.assertTrue(results(*SMALL, "--nodes", 3, "--sync", "ssp:3", *correction, "--in-process")["same_weights"])

    def test_momentum_is_as_strong_where_no_push_is_late(self):
        """Without delays each rank misses at most one push of each other rank."""
        by = {sync: results(*SMALL, "--nodes", 2, "--serial", "--sync", sync, "--lr", 0.01)["losses"] for sync in ("bsp", "async")}
        last = [sum(losses[-10:]) / 10 for losses in by.values()]
        self.assertLess(abs(last[0] - last[1]), 0.1 * max(last))

    def test_averages_cut_bytes_by_the_steps_between_them(self):
        pushed = {}
        for steps in (1, 3):
            report = results(*SMALL, "--nodes", 2, "--limit", 480, "--in-process", "--sync", f"every:{steps}")
            self.assertEqual(report["steps"] % 3, 0)
            pushed[steps] = [layer["pushed_bytes"] for layer in report["layers"]]
        self.assertEqual(pushed[1], [3 * layer for layer in pushed[3]])

    def test_without_local_steps_averages_are_what_gradients_make(self):
        """Without momentum, an average after each step differs from bsp by rounding alone."""
        by = {sync: results(*SMALL, "--nodes", 3, "--momentum", 0, "--serial", "--sync", sync)["losses"] for sync in ("bsp", "every:1", "every:2")}
        for one, other in zip(by["bsp"], by["every:1"]):
            self.assertAlmostEqual(one, other, delta=1e-4)
        self.assertGreater(max(abs(one - other) for one, other in zip(by["bsp"], by["every:2"])), 1e-3)

    def test_codecs_move_the_bytes_that_they_promise(self):
        """On any link, and all ranks have the same weights. With bsp they are the same in each run. Where few floats are
        chosen they may be those of the push before: then their numbers are not sent."""
        words = {"fp32": lambda n: n, "bf16": lambda n: -(-n // 2), "fp16": lambda n: -(-n // 2), "int8": lambda n: -(-n // 64) + -(-n // 4),
                 "top:0.05": lambda n: 2 * max(1, int(0.05 * n)), "random:0.05": lambda n: 2 * max(1, int(0.05 * n))}
        nodes, hashes = 3, []
        for push, pull in (("fp32", "fp32"), ("bf16", "fp32"), ("fp16", "bf16"), ("int8", "int8"), ("top:0.05", "fp32"), ("random:0.05", "fp16")):
            codec = ("--nodes", nodes, "--sync", "bsp", "--codec", f"{push},{pull}", "--in-process")
            report = results(*SMALL, *codec)
            self.assertTrue(report["same_weights"])
            self.assertEqual(results(*SMALL, *codec, "--link", "tcp")["losses"], report["losses"], codec)
            hashes.append(report["weights_hash"])
            for layer in report["layers"]:
                size = layer["parameters"]
                parts = [size * (i + 1) // nodes - size * i // nodes for i in range(nodes)]
                times = report["steps"] * nodes
                spared = times * sum(24 + 4 * words[push](part) for part in parts) - layer["pushed_bytes"]
                few = ":" in push and words[push](parts[0]) < 40
                self.assertIn(spared, range(0, times * sum(2 * words[push](part) for part in parts), 4) if few else [0], codec)
                self.assertEqual(layer["pulled_bytes"], times * sum(24 + 8 * nodes + 4 * words[pull](part) for part in parts), codec)
        self.assertEqual(len(set(hashes)), len(hashes))
        self.assertEqual(hashes[0], results(*SMALL, "--nodes", nodes, "--serial")["weights_hash"])
        lossy = ("--nodes", nodes, "--sync", "bsp", "--codec", "top:0.05", "--no-error-feedback", "--in-process")
        self.assertNotEqual(results(*SMALL, *lossy)["weights_hash"], hashes[4])

    def test_a_rate_limits_the_bytes_of_a_second(self):
        """All layers have their share, and requests are not counted."""
        rate, nodes = 100 * 1024, 2
        for sync in ("bsp", "async"):
            report = results(*SMALL, "--nodes", nodes, "--limit", 4800, "--sync", sync, "--codec", f"top:{rate // 1024}K/s", "--in-process")
            requests = 24 * nodes * len(report["layers"]) * report["steps"]
            pushed = sum(layer["pushed_bytes"] for layer in report["layers"]) / nodes
            self.assertLess(pushed, rate * max(node["train_s"] for node in report["node_reports"]) + requests)
            for layer in report["layers"]:
                self.assertGreater(layer["pushed_bytes"], 24 * nodes * nodes * report["steps"])
            self.assertTrue(report["same_weights"])

    @needs_processes
    def test_processes_equal_serial(self):
        serial = results(*SMALL, "--nodes", 3, "--serial")
        for link in LINKS_BETWEEN_PROCESSES:
            report = results(*SMALL, "--nodes", 3, "--sync", "bsp", "--link", link)
            self.assertEqual((report["weights_hash"], report["same_weights"]), (serial["weights_hash"], True), link)

    def test_a_model_larger_than_its_pool_has_the_same_bits(self):
        """On any link and with any number of nodes. The pool takes the place of all device memory of the model's size."""
        deep = (*SMALL, "--hidden", "16,16,16,16")
        layers = [37 * 16, 17 * 16, 17 * 16, 17 * 16, 17 * 3]
        model, least = 4 * sum(layers), 4 * layers[0]
        for nodes, link in ((1, "p2p"), (3, "tcp")):
            whole = results(*deep, "--nodes", nodes, "--sync", "bsp", "--in-process")
            self.assertEqual(whole["weights_hash"], results(*deep, "--nodes", nodes, "--serial")["weights_hash"])
            self.assertIsNone(whole["device_pool"])
            for pool, copied_twice in ((least, [1, 2]), (least + 4 * layers[1], [1]), (2 * model + 80, []))[:nodes]:
                report = results(*deep, "--nodes", nodes, "--sync", "bsp", "--in-process", "--link", link, "--device-pool", pool)
                for what in ("weights_hash", "losses", "accuracies", "same_weights"):
                    self.assertEqual(report[what], whole[what], (nodes, pool, what))
                counted = report["device_pool"]
                self.assertEqual((counted["bytes"], counted["staged_bytes_per_step"]), (pool, model + 4 * sum(layers[layer] for layer in copied_twice)))
                self.assertTrue(0 < counted["copying_share"] < 1 and 0 < counted["stall_share"] < 1, counted)
                # Without it each node has weights, gradients and velocities, and its part of the store's weights, velocities and pushes.
                saved = [sum(node["device_bytes"] for node in run["node_reports"]) for run in (whole, report)]
                few = 3000  # what kernels share to use the pool
                self.assertLess(saved[1], saved[0] - (4 * nodes + 2) * model + nodes * (pool + few), (nodes, pool))

    def test_any_clock_goes_with_a_pool(self):
        """One node computes the same with all of them; its pushes and pulls are those of nodes without a pool."""
        alone = results(*SMALL, "--nodes", 1, "--serial")["weights_hash"]
        for clock, *options in (("ssp:1",), ("async", "--stale-lr"), ("bsp", "--codec", "bf16")):
            pool = ("--sync", clock, *options, "--device-pool", 3000, "--in-process", "--history", self.history)
            one = results(*SMALL, *pool, "--nodes", 1)
            if "--codec" not in options:
                self.assertEqual(one["weights_hash"], alone, clock)
            report = results(*SMALL, *pool, "--nodes", 3)
            self.assertEqual((report["same_weights"], report["device_pool"]["staged_bytes_per_step"]), (True, one["device_pool"]["staged_bytes_per_step"]))
            self.assertEqual(objections(self.histories(3), clock)[:3], [], clock)
            if clock == "bsp":
                without = results(*SMALL, "--sync", clock, *options, "--in-process", "--nodes", 3)
                self.assertEqual(report["weights_hash"], without["weights_hash"])

    @needs_processes
    def test_processes_with_pools(self):
        """They end together, whatever the reason."""
        hashes = [results(*SMALL, "--nodes", 2, "--sync", "bsp", *pool)["weights_hash"] for pool in ((), ("--device-pool", 2500))]
        self.assertEqual(hashes[0], hashes[1])
        cluster, nodes = self.training_cluster("--sync", "bsp", "--device-pool", 2500)
        os.kill(nodes[2], signal.SIGKILL)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        for rank in (0, 1, 3):
            self.assertRegex(err, rf"rank {rank}: a store lost rank 2\b")

    def test_runs_keep_their_clock(self):
        for clock in CLOCKS:
            report = results(*SMALL, "--nodes", 3, "--sync", clock, "--in-process", "--history", self.history)
            histories = self.histories(3)
            ranges = 3 * len(report["layers"])
            for events in histories:
                self.assertEqual(sum(event["op"] == "push" for event in events), ranges * report["steps"])
            self.assertEqual(objections(histories, clock)[:3], [], clock)
            self.assertEqual((report["consistency"], report["same_weights"]), (clock, True))
            lags = (event["clock"] - count for events in histories for event in events if event["op"] == "read" and event["clock"] < report["steps"]
                    for count in event["seen"])
            self.assertEqual(report["staleness"], max(0, *lags))

    @needs_processes
    def test_nodes_that_are_stopped_now_and_then_keep_the_clock(self):
        for clock in CLOCKS:
            cluster = self.start(*SMALL, "--nodes", 3, "--sync", clock, "--history", self.history)
            support.stop_now_and_then(cluster)
            status, _, err = self.end(cluster)
            self.assertEqual((status, err), (0, ""), clock)
            self.assertEqual(objections(self.histories(3), clock)[:3], [], clock)

    @needs_processes
    def test_a_node_that_is_killed_is_named(self):
        for clock, link in (*itertools.product(CLOCKS, LINKS_BETWEEN_PROCESSES), ("pipeline:2", "tcp"), ("downpour:2,4", "tcp"), ("slots:1", "tcp"), ("streaming:4,2", "tcp"), ("tree:3", "tcp")):
            cluster, nodes = self.training_cluster("--sync", clock, "--link", link)
            os.kill(nodes[2], signal.SIGKILL)
            status, _, err = self.end(cluster)
            self.assertEqual(status, 1, (clock, link))
            self.assertIn("param_sync: rank 2 was killed by signal 9 (Killed)\n", err)
            for rank in (0, 1, 3):
                self.assertRegex(err, rf"rank {rank}: a store lost rank 2\b", (clock, link))

    @needs_processes
    def test_a_node_that_is_stopped_is_named(self):
        for clock in CLOCKS:
            cluster, nodes = self.training_cluster("--sync", clock, "--timeout", 1)
            os.kill(nodes[1], signal.SIGSTOP)
            status, _, err = self.end(cluster)
            self.assertEqual(status, 1, clock)
            self.assertRegex(err, r"\Aparam_sync: rank 1 was stopped by a signal, and ", clock)

    @needs_processes
    def test_a_signal_ends_all_nodes(self):
        cluster, nodes = self.training_cluster("--sync", "ssp:1")
        cluster.send_signal(signal.SIGTERM)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))
        self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    @needs_processes
    def test_other_settings_are_refused_by_name(self):
        for one, other, what in ((("--sync", "bsp"), ("--sync", "ssp:1"), "--sync"), (("--sync", "ssp:1"), ("--sync", "ssp:1", "--stale-lr"), "--sync"), (("--sync", "coded:1"), ("--sync", "backup:1"), "--sync"), (("--sync", "bsp"), ("--sync", "bsp", "--codec", "bf16"), "--sync"), (("--seed", 1), ("--seed", 2), "--seed")):
            peers = ",".join(support.own_addresses(2))
            nodes = [self.start(*SMALL, "--sync", "bsp", *options, "--rank", rank, "--peers", peers, "--timeout", 10)
                     for rank, options in enumerate((one, other))]
            for rank, node in enumerate(nodes):
                status, _, err = self.end(node)
                self.assertEqual(status, 1)
                self.assertRegex(err, rf"rank {rank}: rank {1 - rank} was started with another {what}", what)

    @needs_processes
    def test_a_node_without_a_store_is_told_so(self):
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*SMALL, *sync, "--rank", rank, "--peers", peers, "--timeout", 10) for rank, sync in enumerate((("--sync", "bsp"), ()))]
        for node, said in zip(nodes, ("Start all nodes with the same --sync", "rank 1: rank 0 was started with another --sync")):
            status, _, err = self.end(node)
            self.assertEqual(status, 1)
            self.assertIn(said, err)

    def test_one_clock_has_several_names(self):
        if support.DEVICE != "cuda":
            peers = ",".join(support.own_addresses(2))
            nodes = [self.start(*SMALL, "--sync", sync, "--rank", rank, "--peers", peers) for rank, sync in enumerate(("bsp", "ssp:0"))]
            self.assertEqual([self.end(node)[0] for node in nodes], [0, 0])

    def test_lags_are_counted_as_the_history_has_them(self):
        """Also long ones, which the table of lags does not tell apart."""
        report = results(*SMALL[:2], "--hidden", 4, "--batch", 1, "--nodes", 2, "--sync", "async", "--in-process", "--history", self.history)
        lags = [event["clock"] - min(count, event["clock"]) for events in self.histories(2) for event in events
                if event["op"] == "read" and event["clock"] < report["steps"] for rank, count in enumerate(event["seen"]) if rank != event["worker"]]
        self.assertEqual(report["staleness"], max(lags))
        self.assertEqual(sum(node["staleness_sum"] for node in report["node_reports"]), sum(lags))
        self.assertEqual(sum(sum(node["staleness"]) for node in report["node_reports"]), len(lags))

    def test_a_history_that_cannot_be_written_is_noticed_before_the_training(self):
        status, out, err = run(*SMALL, "--nodes", 2, "--sync", "bsp", "--history", "/nonexistent/h")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("cannot write /nonexistent/h", err)

    def test_what_does_not_fit_is_refused(self):
        for options, said in ((("--sync", "ssp"), "'ssp' is none of bsp, ssp:S"), (("--sync", "every:0"), "'every:0' is none of"), (("--sync", ""), "'' is no clock"),
                              (("--sync", "bsp", "--history", "h", "--epochs", 10000), "--history would keep"),
                              (("--sync", "downpour:2,3"), "'downpour:2,3' is none of"), (("--sync", "downpour:2"), "is none of"), (("--sync", "streaming:4,4"), "'streaming:4,4' is none of"), (("--sync", "streaming:0,0"), "is none of"), (("--sync", "streaming:4"), "is none of"), (("--sync", "slots:0"), "'slots:0' is none of"), (("--sync", "slots:3"), "--sync slots:3 gives more slots than there are nodes, 2"), (("--sync", "pipeline:17"), "from 1 to 16"), (("--sync", "tree:17"), "'tree:17' is none of"), (("--sync", "tree:0"), "is none of"), (("--sync", "tree:2", "--codec", "bf16,bf16"), "passes weights on as fp32"),
                              (("--sync", "pipeline:1", "--serial", "--history", "h"), "--serial has no --history of a pipeline"),
                              (("--sync", "bsp", "--delays", "exponential"), "--delays needs --serial, or --sync and --step-ms MS"), (("--step-ms", 1), "--step-ms is for real nodes with --sync"), (("--sync", "bsp", "--serial", "--step-ms", 1), "--step-ms is for real nodes"), (("--serial", "--delays", "slow:0"), "'slow:0' is neither"),
                              (("--sync", "backup:1", "--codec", "bf16"), "--sync backup:B or coded:K and --codec exclude"), (("--sync", "coded:1", "--publish", "127.0.0.1:0"), "and --publish exclude"), (("--sync", "backup:1", "--device-pool", "1M"), "and --device-pool exclude"), (("--sync", "coded:1", "--serial", "--nodes", 3), "--sync coded:1 makes groups of 2 ranks, and 3 is no multiple"),
                              (("--sync", "backup:2", "--serial"), "--sync backup:2 of 2 ranks leaves none"), (("--sync", "backup:x", "--serial"), "'backup:x' is none of"), (("--sync", "backup:1,x", "--serial"), "'backup:1,x' is none of"),
                              (("--sync", "backup:1", "--serial", "--stale-lr"), "drop late pushes: leave out"), (("--sync", "backup:1", "--serial", "--history", "h"), "--history is of pushes that all count"),
                              (("--serial", "--delays", "stalls:2:8"), "'stalls:2:8' is neither"), (("--serial", "--delays", "stalls:8"), "'stalls:8' is neither"),
                              (("--sync", "bsp", "--stale-lr"), "--stale-lr needs"), (("--sync", "downpour:1,1", "--delay-compensation", 1), "--delay-compensation needs"),
                              (("--sync", "ssp:1", "--outer", "nesterov"), "--outer needs"), (("--sync", "every:2", "--outer", "nesterov:0,0"), "nesterov:0,0' is neither"),
                              (("--sync", "bsp", "--scheme", "ring"), "--sync and --scheme"), (("--sync", "bsp", "--no-overlap"), "--sync and --no-overlap"),
                              (("--codec", "bf16"), "--codec needs --sync"), (("--sync", "bsp", "--codec", "int4"), "'int4' is neither PUSH nor PUSH,PULL"),
                              (("--sync", "bsp", "--codec", "top:0.5"), "'top:0.5' is neither"), (("--sync", "bsp", "--codec", "top:2M"), "'top:2M' is neither"), (("--sync", "bsp", "--codec", "random:0/s"), "'random:0/s' is neither"), (("--sync", "bsp", "--codec", "bf16,top:0.1"), "'bf16,top:0.1' is neither"),
                              (("--sync", "bsp", "--codec", "bf16", "--serial"), "so it takes no --codec"),
                              (("--sync", "bsp", "--codec", "bf16", "--no-error-feedback"), "--no-error-feedback needs"), (("--no-error-feedback",), "--no-error-feedback needs"),
                              (("--device-pool", "1M"), "--device-pool needs --sync bsp, ssp:S or async"), (("--sync", "every:2", "--device-pool", "1M"), "--device-pool needs"),
                              (("--sync", "downpour:1,1", "--device-pool", "1M"), "--device-pool needs"), (("--sync", "slots:1", "--device-pool", "1M"), "--device-pool needs"),
                              (("--sync", "pipeline:1", "--device-pool", "1M"), "--device-pool needs"), (("--sync", "bsp", "--serial", "--device-pool", "1M"), "--serial has none"),
                              (("--sync", "bsp", "--codec", "top:0.1", "--device-pool", "1M"), "--device-pool and --codec top"),
                              (("--sync", "bsp", "--device-pool", "2367"), "--device-pool of 2367 bytes has no room for layer 36 x 16, which takes 2368 bytes"),
                              (("--sync", "bsp", "--trace", "t"), "--sync and --trace"), (("--history", "h"), "--history needs --sync"),
                              (("--sync", "bsp", "--history", "h", "--json", "h"), "--json and --history name the same file")):
            status, out, err = run(*SMALL, "--nodes", 2, *options)
            self.assertEqual((status, out), (2, ""), options)
            self.assertIn(said, err)


if __name__ == "__main__":
    support.main()
