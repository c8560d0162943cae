"""What param_sync promises of convolutions (--model lenet). Run by ctest."""
import json
import pathlib
import random
import re
import shutil
import struct
import tempfile
import unittest

import support
from support import LINKS_BETWEEN_PROCESSES, SANITIZED, Runs, needs_processes, results, run, write_idx

# The tensors of the model, for images of 12 x 12.
TENSORS = {"layers.0.weight": [5, 5, 1, 6], "layers.0.bias": [6], "layers.1.weight": [5, 5, 6, 16], "layers.1.bias": [16], "layers.2.weight": [16, 120],
           "layers.2.bias": [120], "layers.3.weight": [120, 84], "layers.3.bias": [84], "layers.4.weight": [84, 3], "layers.4.bias": [3]}


class Figures:
    """A line of five pixels, upright or along a diagonal, anywhere in an image of 12 x 12, in noise."""

    SIDE, SHAPES = 12, ([(i, 2) for i in range(5)], [(i, i) for i in range(5)], [(i, 4 - i) for i in range(5)])

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="param_sync_figures."))
        rng = random.Random(1)
        for prefix, count in (("train", 900), ("t10k", 300)):
            labels = bytes(rng.randrange(3) for _ in range(count))
            write_idx(self.folder / f"{prefix}-images-idx3-ubyte", (count, self.SIDE, self.SIDE), b"".join(self.image(rng, label) for label in labels))
            write_idx(self.folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)

    def image(self, rng, label):
        pixels = bytearray(rng.randrange(80) for _ in range(self.SIDE**2))
        top, left = rng.randrange(self.SIDE - 4), rng.randrange(self.SIDE - 4)
        for row, column in self.SHAPES[label]:
            pixels[(top + row) * self.SIDE + left + column] = 200
        return bytes(pixels)


class Convolutions(Runs):
    @classmethod
    def setUpClass(cls):
        cls.data = Figures()
        cls.addClassCleanup(shutil.rmtree, cls.data.folder, ignore_errors=True)
        cls.lenet = ["--data", cls.data.folder, "--model", "lenet", "--batch", 10, "--epochs", 1]
        cls.serial = results(*cls.lenet, "--nodes", 3, "--serial")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="param_sync_convolutions."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def expect_serial(self, *mode):
        report = results(*self.lenet, "--nodes", 3, *mode)
        for what in ("weights_hash", "losses", "accuracy"):
            self.assertEqual(report[what], self.serial[what], mode)
        return report

    def test_schemes_equal_serial(self):
        runs = (("ps:even", "p2p"), ("ps:even", "tcp"), ("ps,chain,sfb,adam-fc,mesh", "p2p"), ("hybrid", "tcp"))
        for scheme, link in runs[2:] if SANITIZED else runs:
            report = self.expect_serial("--in-process", "--scheme", scheme, "--link", link)
        self.assertEqual([layer["name"] for layer in report["layers"]], ["conv 5 x 5 x 6", "conv 5 x 5 x 16", "16 x 120", "120 x 84", "84 x 3"])
        self.assertEqual([layer["why"] for layer in report["layers"]][:2], 2 * ["hybrid: the layer has no factors"])
        self.expect_serial("--in-process", "--fuse", "64K", "--no-overlap", "--link", "p2p")

    def test_a_ring_gives_the_same_bits_on_all_links_and_of_two_nodes_those_of_serial(self):
        ring = [*self.lenet, "--in-process", "--scheme", "ring", "--nodes"]
        self.assertEqual(results(*ring, 3, "--link", "p2p")["losses"], results(*ring, 3, "--link", "tcp")["losses"])
        self.assertEqual(results(*ring, 2)["weights_hash"], results(*self.lenet, "--nodes", 2, "--serial")["weights_hash"])

    def test_stores_equal_serial(self):
        for link in ("p2p", "tcp"):
            self.expect_serial("--in-process", "--sync", "bsp", "--link", link)

    @needs_processes
    @unittest.skipIf(SANITIZED, "processes do as the nodes of one process")
    def test_processes_equal_serial(self):
        for link in LINKS_BETWEEN_PROCESSES:
            self.expect_serial("--link", link)

    def test_a_resumed_run_ends_with_the_same_weights(self):
        arguments = [*self.lenet, "--nodes", 3, "--in-process", "--checkpoint", self.folder, "--every", 8]
        self.assertEqual(results(*arguments)["weights_hash"], self.serial["weights_hash"])
        report = results(*arguments, "--resume", 16)
        self.assertEqual((report["weights_hash"], report["first_step"]), (self.serial["weights_hash"], 16))
        file = (self.folder / "rank-0-step-24.safetensors").read_bytes()
        header = json.loads(file[8:8 + struct.unpack_from("<Q", file)[0]])
        self.assertEqual({name: header[name]["shape"] for name in TENSORS}, TENSORS)
        status, _, err = run(*arguments, "--model", "mlp", "--resume", 16)
        self.assertEqual(status, 1)
        self.assertIn("is of a run with another model (--model", err)

    @unittest.skipIf(SANITIZED, "more than a moment of training")
    def test_figures_are_found_wherever_they_are(self):
        """What convolutions are for: the weights of a place in the image serve all places."""
        training = ["--data", self.data.folder, "--nodes", 2, "--serial", "--batch", 10, "--epochs", 2, "--lr", 0.02]
        self.assertGreater(results(*training, "--model", "lenet")["accuracy"], 0.95)
        self.assertLess(results(*training, "--model", "mlp")["accuracy"], 0.9)

    def test_batch_norm_equals_serial_in_all_ways(self):
        """And each node has its own part of the batch: two nodes are not one with twice the batch."""
        norm = ("--batch-norm", "node")
        serial = results(*self.lenet, "--nodes", 3, "--serial", *norm)
        for mode in (("--scheme", "ps,mesh,ps,chain,sfb,adam-fc,ps:even"), ("--sync", "bsp"), ("--fuse", "64K", "--no-overlap")):
            report = results(*self.lenet, "--nodes", 3, "--in-process", *norm, *mode)
            for what in ("weights_hash", "losses", "accuracy", "test_loss"):
                self.assertEqual(report[what], serial[what], mode)
        self.assertEqual([layer["name"] for layer in report["layers"]][:4], ["conv 5 x 5 x 6", "batch norm 6", "conv 5 x 5 x 16", "batch norm 16"])
        averages = ("--sync", "every:4")
        self.assertEqual(*(results(*self.lenet, "--nodes", 3, mode, *norm, *averages)["weights_hash"] for mode in ("--serial", "--in-process")))

    def test_batch_norm_of_all_nodes_equals_serial_in_all_ways(self):
        norm = ("--batch-norm", "all")
        serial = results(*self.lenet, "--nodes", 3, "--serial", *norm)
        mixed = ("--scheme", "ps,mesh,ps,chain,sfb,adam-fc,ps:even")
        for mode in ((*mixed, "--link", "p2p"), (*mixed, "--link", "tcp"), ("--fuse", "64K", "--no-overlap"), ("--no-priority",)):
            report = results(*self.lenet, "--nodes", 3, "--in-process", *norm, *mode)
            for what in ("weights_hash", "losses", "accuracy", "test_loss"):
                self.assertEqual(report[what], serial[what], mode)
        arguments = [*self.lenet, "--nodes", 3, "--in-process", *norm, "--checkpoint", self.folder, "--every", 8]
        self.assertEqual(results(*arguments)["weights_hash"], serial["weights_hash"])
        self.assertEqual(results(*arguments, "--resume", 16)["weights_hash"], serial["weights_hash"])

    def test_nodes_that_share_batch_norm_are_one_node_with_the_whole_batch(self):
        """But for the rounding of sums, which have other orders. By themselves they are not: that would be plain to see."""
        def losses(nodes, norm):
            return results(*self.lenet, "--nodes", nodes, "--batch", 30 // nodes, "--serial", "--batch-norm", norm)["losses"]

        one, all_nodes, each = losses(1, "all"), losses(3, "all"), losses(3, "node")
        self.assertEqual(losses(1, "node"), one)
        self.assertLess(max(abs(a - b) for a, b in zip(one, all_nodes, strict=True)), 1e-5)
        self.assertGreater(max(abs(a - b) for a, b in zip(one, each, strict=True)), 1e-2)

    @needs_processes
    @unittest.skipIf(SANITIZED, "processes do as the nodes of one process")
    def test_processes_share_batch_norm(self):
        norm = ("--nodes", 2, "--batch-norm", "all")
        self.assertEqual(results(*self.lenet, *norm)["weights_hash"], results(*self.lenet, *norm, "--serial")["weights_hash"])

    @unittest.skipIf(SANITIZED, "more than a moment of training")
    def test_batch_norm_learns_faster_and_its_averages_serve_the_test_set(self):
        training = [*self.lenet, "--epochs", 2, "--nodes", 2, "--serial"]
        plain, normalized = (results(*training, "--batch-norm", norm) for norm in ("none", "node"))
        self.assertLess(sum(normalized["losses"]), 0.7 * sum(plain["losses"]))
        self.assertGreater(normalized["accuracy"], 0.97)

    def test_what_does_not_go_with_it_is_refused_in_one_sentence(self):
        for message, *arguments in (("--hidden is for --model mlp: the layers of lenet have fixed widths", "--hidden", "8"),
                                    ("--hidden is for --model mlp", "--hidden", ""),
                                    ("--model lenet takes images of at least 12 x 12 pixels; these have 6 x 6: take other data, or --model mlp", "--data", support.DATA.folder),
                                    ("--scheme: 'sfb' sends factors, and layer 1 of the model (conv 5 x 5 x 6) has none: give that layer another scheme", "--scheme", "sfb"),
                                    ("--scheme: 'ps,ring' has 2 schemes, but the model has 5 layers", "--scheme", "ps,ring"),
                                    ("--batch-norm is for --model lenet", "--model", "mlp", "--batch-norm", "node"),
                                    ("--batch-norm all and --sync exclude each other", "--batch-norm", "all", "--sync", "bsp"),
                                    ("--batch-norm all and --budget exclude each other", "--batch-norm", "all", "--scheme", "ps", "--budget", "50K"),
                                    ("--device-pool and --batch-norm exclude each other", "--batch-norm", "node", "--sync", "bsp", "--device-pool", "4M"),
                                    ("--model", "--model", "alexnet")):
            status, out, err = run(*self.lenet, *arguments)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn(message, err)
            self.assertEqual(len(re.findall(r"\n", err.split("\nRun with")[0].rstrip())), 0, err)

    @needs_processes
    def test_a_node_with_another_model_is_told_which_setting_it_is(self):
        common = ["--data", self.data.folder, "--batch", 10, "--nodes", 2, "--peers", ",".join(support.own_addresses(2))]
        nodes = [self.start(*common, "--rank", rank, "--model", model) for rank, model in ((0, "mlp"), (1, "lenet"))]
        for rank, (status, _, err) in enumerate([self.end(node) for node in nodes]):
            self.assertEqual(status, 1)
            self.assertRegex(err, rf"rank {rank}: rank {1 - rank} was started with another .*model \(--model")


if __name__ == "__main__":
    support.main()
