"""What param_sync says to arguments and files that are wrong. Run by ctest."""
import itertools
import pathlib
import tempfile
import unittest

import support
from support import DEVICE, SMALL, run


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
        self.refused("--credits is for --scheme ps and ps:even", "--scheme", "ps,sfb,ps", "--credits", 1)
        self.refused("--budget is for --scheme ps and ps:even", "--scheme", "hybrid", "--budget", "10K")
        self.refused("--prices is for --scheme auto", "--scheme", "hybrid", "--prices", "1,2,3,4,5")
        self.refused("--prices measured is for nodes that this command starts", "--serial", "--scheme", "auto", "--prices", "measured")
        for prices in ("1,2,3,4", "1,2,3,4,5x", "1,2,3,4,"):
            self.refused("is neither measured nor five numbers", "--scheme", "auto", "--prices", prices)
        for prices in ("0,0,1e9,1e9,1e-9", "1e300,0,1,1,1", "1e999,0,1,1,1", "0,0,1,1,nan"):
            self.refused("the first two numbers are from 0 to 1e+12, the last three from 0.001 to 1e+12", "--scheme", "auto", "--prices", prices)
        self.refused("--tile: Value 1023 not in range 1024 to", "--tile", 1023)
        self.refused("--fuse", "--scheme", "ps", "--fuse", "2G")
        self.refused("--credits is for --scheme ps and ps:even", "--scheme", "ring", "--credits", 1)
        self.refused("--credits 4: of --nodes 4 only 3 send", "--scheme", "ps", "--credits", 4)
        self.refused("--serial exchanges nothing", "--serial", "--trace", "/tmp/trace.json")
        self.refused("--warmup", "--warmup", -1)
        self.refused("--warmup 121: the training has only 120 steps, so", *SMALL, "--nodes", 1, "--warmup", 121)
        self.refused("--trace-steps needs --trace FILE", "--trace-steps", 3)
        self.refused("--budget is for --scheme ps and ps:even", "--scheme", "ring", "--budget", "10K")
        self.refused("--budget and --credits exclude", "--scheme", "ps", "--budget", "10K", "--credits", 1)
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

    def test_a_run_that_fails_makes_no_file_and_keeps_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            made, before = pathlib.Path(folder, "made"), pathlib.Path(folder, "before")
            before.write_text("results", encoding="ascii")
            for option in ("--json", "--series", "--save-weights", "--trace"):
                for file in (made, before):
                    status, _, err = run(*SMALL, "--in-process", "--data", folder, option, file)
                    self.assertEqual(status, 1, err)
                self.assertFalse(made.exists(), option)
                self.assertEqual(before.read_text(encoding="ascii"), "results", option)

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


if __name__ == "__main__":
    support.main(needs_gpu=False)
