"""Studies: a page, a picture and raw results, and what each one claims. Run by ctest with the folder of the studies and param_sync."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

FOLDER, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(FOLDER))
import prediction  # noqa: E402
import study  # noqa: E402


class Studies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def run_study(self, *arguments):
        return subprocess.run([sys.executable, "-B", FOLDER / "study.py", *arguments], capture_output=True, text=True)

    def results_of(self, name):
        done = self.run_study(PROGRAM, self.results, name, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = self.results / name
        page = (made / "page.md").read_text()
        self.assertIn(page, done.stdout)
        for part in ("](picture.svg)", "**Assumptions.**", f"./run study {name}"):
            self.assertIn(part, page)
        texts = {text.firstChild.data for text in xml.dom.minidom.parse(str(made / "picture.svg")).getElementsByTagName("tspan") if text.firstChild}
        self.assertTrue(any("(" in text for text in texts), texts)  # axes with units
        return json.loads((made / "results.json").read_text())

    def test_staleness_costs_steps_and_momentum_more(self):
        times = {(row["optimizer"], row["hidden_layers"]): row["times"]["8"] for row in self.results_of("depth")}
        self.assertGreater(min(times.values()), 1.5)
        self.assertGreater(times["momentum", 3], times["SGD", 3])
        self.assertGreater(times["momentum", 3], times["momentum", 1])

    def test_the_largest_changes_teach_most(self):
        found = {row["order"]: row for row in self.results_of("budget")}
        self.assertLess(1.4 * found["largest"]["loss"], min(found["random"]["loss"], found["oldest"]["loss"]))
        for order in ("random", "oldest"):
            self.assertAlmostEqual(found[order]["bytes"], found["largest"]["bytes"], delta=0.05 * found["largest"]["bytes"])

    def test_averages_send_fewer_bytes(self):
        found = {(row["way"], row["steps"]): row for row in self.results_of("intervals")}
        self.assertLess(7 * found["average", 8]["bytes"], found["average", 1]["bytes"])
        self.assertLess(abs(found["average", 8]["test_loss"] - found["bsp", 1]["test_loss"]), 0.1)

    def test_fewer_bytes_teach_as_much(self):
        found = {row["codec"]: row for row in self.results_of("compression")}
        for codec, share in (("bf16", 0.51), ("int8", 0.27), ("top:0.01", 0.03)):
            self.assertLess(found[codec]["bytes"], share * found["fp32"]["bytes"])
            self.assertGreater(found[codec]["accuracy"], found["fp32"]["accuracy"] - 0.01, codec)
        for codec in ("top:0.01", "random:0.01"):
            self.assertLess(1.2 * found[codec]["loss"], found[f"{codec}, others lost"]["loss"])

    def test_late_pushes_that_are_corrected_do_less_harm(self):
        found = {row["way"]: row["loss"] for row in self.results_of("lateness")}
        for correction in ("--stale-lr", "--delay-compensation 0.5"):
            self.assertLess(1.3 * found[correction], found["async"], correction)

    def test_who_does_not_wait_does_more_steps(self):
        found = {row["sync"]: row for row in self.results_of("stragglers")}
        self.assertGreater(found["async"]["steps"], found["ssp:4"]["steps"])
        self.assertGreater(found["ssp:4"]["steps"], 1.3 * found["bsp"]["steps"])
        self.assertEqual([found[sync]["most"] for sync in ("bsp", "ssp:1", "ssp:4")], [0, 1, 4])
        self.assertLess(found["ssp:4"]["loss"], found["bsp"]["loss"])

    def test_weights_that_are_passed_on_cost_what_their_mean_staleness_costs(self):
        """And not what their greatest one costs: less than if all were a step older than the mean."""
        found = {(row["way"], row["depth"]): row for row in self.results_of("trees")}
        chain, star, pipeline = found["tree", 15], found["tree", 1], found["pipeline", 8]
        self.assertEqual([(row["copies"], row["staleness"]) for row in (star, chain, pipeline)], [(15, 1), (1, 15), (15, 8)])
        self.assertLess(chain["mean_staleness"], pipeline["mean_staleness"])
        self.assertLess(star["test_loss"], chain["test_loss"])
        self.assertLess(chain["test_loss"], pipeline["test_loss"])

    def test_the_first_iterations_say_what_follows(self):
        """Better than if nothing changed; also on more nodes than were seen."""
        found = self.results_of("prediction")
        for row in found:
            self.assertLess(row["together"]["most"], 0.1, row)
            self.assertLess(row["together"]["most"], row["unchanged"]["most"], row)
            self.assertAlmostEqual(row["predicted"]["median"], row["measured"]["median"], delta=0.35 * row["measured"]["median"])
        self.assertEqual([row["nodes"] for row in found if not row["was_seen"]], [8, 8])
        predicted, measured = (min(found, key=lambda row: row[what]["median"]) for what in ("predicted", "measured"))
        self.assertEqual((predicted["way"], predicted["nodes"]), (measured["way"], measured["nodes"]))

    def test_models_are_fitted_to_what_they_are(self):
        losses = [0.3 + 2 / i for i in range(1, 51)]
        self.assertAlmostEqual(prediction.curve(losses)(100), 0.32)
        self.assertEqual(prediction.when(prediction.curve(losses), 0.351, 1000), 40)
        time = prediction.step_time({nodes: 1 + 0.5 * nodes for nodes in (1, 2, 4)})
        self.assertAlmostEqual(time(16), 9)
        falling = prediction.step_time({1: 3, 2: 2, 4: 1})  # no number is negative: it does not go on falling below 0
        self.assertGreater(falling(1000), 0)

    def test_studies_are_listed(self):
        listed = self.run_study()
        self.assertEqual((listed.returncode, [line.split()[0] for line in listed.stdout.splitlines()]), (0, list(study.STUDIES)))
        other = self.run_study(PROGRAM, self.results, "other")
        self.assertEqual((other.returncode, other.stdout), (2, ""))
        self.assertIn('there is no study "other": take one of depth, ', other.stderr)

    def test_a_training_that_fails_is_told(self):
        done = self.run_study("false", self.results, "budget", "--quick")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("study: false", done.stderr)

    def test_steps_to_a_target(self):
        self.assertEqual(study.steps_to([3, 2, 1, 1, 1], 1, window=2), 4)
        self.assertEqual(study.steps_to([1], 1, window=2), None)
        self.assertEqual(study.steps_to([3, None, 1, 1], 1, window=2), None)
        self.assertEqual([study.median([3, None, 1]), study.median([None, 1, None])], [3, None])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
