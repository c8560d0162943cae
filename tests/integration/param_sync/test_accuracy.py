"""What a training on Fashion-MNIST reaches. Run by ctest."""
import pathlib
import unittest

import support
from support import DEVICE, SANITIZED, results

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


@unittest.skipIf(SANITIZED, "too slow under a sanitizer")
@unittest.skipUnless(FASHION_MNIST.exists(), "dataset-fashion-mnist is not installed")
class Accuracy(unittest.TestCase):
    def test_one_epoch_on_four_nodes_reaches_80_percent(self):
        mode = ["--in-process"] if DEVICE == "cuda" else []
        report = results("--nodes", 4, "--epochs", 1, "--data", FASHION_MNIST, *mode)
        self.assertGreaterEqual(report["accuracy"], 0.80)
        self.assertTrue(report["same_weights"])


if __name__ == "__main__":
    support.main()
