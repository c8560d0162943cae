#!/usr/bin/env python3
"""The example split_layer: a layer of which each rank has a part learns as the whole one, and sends activations instead of gradients.

usage: test_split_layer.py SPLIT_LAYER

Exit status: 0 kept, 1 broken, 2 misuse, 77 the program cannot run here (it needs a GPU).
"""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server import LIMIT_S, main  # noqa: E402

WIDTH, BATCH = 256, 8
SAID = re.compile(r"split by (\w+): (\d+) ranks, each with (\d+) of (\d+) weights of the layer\n"
                  r"loss (\S+), after \d+ steps (\S+); (exactly|not) the weights of a layer that is not split\n"
                  r"ranks send (\d+) bytes in a step; (\d+) if the layer is not split\n")


class SplitLayer(unittest.TestCase):
    def run_with(self, *options):
        return subprocess.run([self.program, *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def said(self, *options):
        done = self.run_with(*options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        found = SAID.fullmatch(done.stdout)
        self.assertTrue(found, done.stdout)
        return found.groups()

    def test_a_split_layer_learns_as_the_whole_one(self):
        for split, ranks, threads, steps in (("columns", 4, 32, 40), ("rows", 4, 1, 5), ("columns", 2, 7, 5), ("rows", 2, 32, 5)):
            _, _, own, of, first, last, exactly, *_ = self.said("--split", split, "--ranks", ranks, "--threads", threads, "--steps", steps)
            self.assertEqual((int(own), int(of)), (WIDTH * WIDTH // ranks, WIDTH * WIDTH))
            self.assertEqual(exactly, "exactly")
            if steps == 40:
                self.assertLess(float(last), float(first) / 2)

    def test_activations_go_over_the_network_instead_of_gradients(self):
        ranks, sums = 4, 4  # of activations, of the layer's sums, and of the errors of both
        ends = WIDTH * (16 + 4) + 1  # the gradients of the other layers
        for batch in (BATCH, 4 * BATCH):
            split, whole = map(int, self.said("--batch", batch, "--steps", 5)[-2:])
            expected = (ends + sums * ranks * batch * WIDTH) / (ends + WIDTH * WIDTH)
            self.assertAlmostEqual(split / whole / expected, 1, delta=0.1)  # small sums have more headers
            self.assertEqual(split < whole, batch == BATCH)  # it pays as long as the batch is small beside the layer

    def test_it_says_why_it_learns_nothing(self):
        done = self.run_with("--lr", 10, "--steps", 20, "--ranks", 1)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("the loss is no number after 20 steps: take a smaller --lr", done.stderr)

    def test_parts_are_equal(self):
        done = self.run_with("--ranks", 3)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--width 256 is no multiple of --ranks 3: each rank has an equal part of the layer", done.stderr)


def take_program(path):
    SplitLayer.program = path


if __name__ == "__main__":
    sys.exit(main(__doc__, take_program))
