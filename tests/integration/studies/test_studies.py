"""Studies: a page, a picture and raw results, and what each one claims. Run by ctest with the folder of the studies and that of the build; with --share without what takes long."""
import importlib
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

DOCS = pathlib.Path(sys.argv[1]).parent / "docs"
FOLDER, BUILD = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(FOLDER))
import completion  # noqa: E402
import forecast  # noqa: E402
import fusion  # noqa: E402
import goodput  # noqa: E402
import naming  # noqa: E402
import paths  # noqa: E402
import prediction  # noqa: E402
import scheduling  # noqa: E402
import study  # noqa: E402
import techniques  # noqa: E402
import tiles  # noqa: E402


def long(test):
    """A test that trains or measures for seconds: in `./run test --all`, and so in `./run prove`."""
    test.is_long = True
    return test


class Studies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def run_study(self, *arguments):
        return subprocess.run([sys.executable, "-B", FOLDER / "study.py", *arguments], capture_output=True, text=True)

    def results_of(self, name):
        done = self.run_study(BUILD, self.results, name, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = self.results / name
        page = (made / "page.md").read_text()
        self.assertIn(page, done.stdout)
        for part in ("](picture.svg)", "**Assumptions.**", f"./run study {name}"):
            self.assertIn(part, page)
        texts = {text.firstChild.data for text in xml.dom.minidom.parse(str(made / "picture.svg")).getElementsByTagName("tspan") if text.firstChild}
        context = importlib.import_module(name).CONTEXT
        self.assertIn(context, texts)
        self.assertTrue(any("(" in text for text in texts - {context}), texts)  # axes with units
        self.assert_read_in_black_and_white((made / "picture.gp").read_text())
        self.assertIn(f"[{name}]({name}/page.md)", (self.results / "index.md").read_text())
        return json.loads((made / "results.json").read_text())

    def assert_read_in_black_and_white(self, picture):
        """The lines of a plot differ in dashes or points."""
        for plot in picture.split("\nplot ")[1:]:
            drawn = [tuple((re.findall(rf" {what} (\S+)", line) or [""])[0] for what in ("dt", "pt")) for line in plot.splitlines() if " title " in line]
            self.assertEqual(len(set(drawn)), len(drawn), plot)

    def test_lines_differ_in_grey(self):
        """Those with the same dashes in luminance, all in marks, and neighbours in a mark that is filled or open."""
        luminances = [sum(share * int(colour[at:at + 2], 16) / 255 for share, at in ((0.299, 1), (0.587, 3), (0.114, 5))) for colour in study.COLOURS]
        self.assertLess(max(luminances), 0.6)
        self.assertEqual(len(set(study.POINTS)), len(study.COLOURS))
        for one, luminance in enumerate(luminances):
            for other in range(one + len(study.DASHES), len(luminances), len(study.DASHES)):
                self.assertGreater(abs(luminance - luminances[other]), 0.1, (one, other))
        filled = [point in (5, 7, 9, 11, 13) for point in study.POINTS]  # gnuplot's
        self.assertEqual(filled, [number % 2 == 0 for number in range(len(filled))])

    def test_tables_of_the_docs_are_those_of_the_raw_results(self):
        text = (DOCS / "studies.md").read_text()
        for name in study.STUDIES:
            with self.subTest(name):
                module = importlib.import_module(name)
                *_, newest = sorted((DOCS / "measurements").glob(f"*-studies/{name}.json"))
                lab = study.Lab(BUILD, self.results, False, module.CONTEXT)
                lab.plot = lambda *_, **__: None
                rows = [line for line in module.page(lab, json.loads(newest.read_text())).split("\n") if line.startswith("|")]
                self.assertGreater(len(rows), 4)
                self.assertEqual([row for row in rows if row not in text], [])

    def test_results_that_were_kept_are_drawn_again(self):
        """Without a build, and equal results give an equal picture."""
        kept = DOCS / "measurements/2026-11-27-studies/fusion.json"
        pictures = []
        for _ in range(2):
            done = self.run_study(self.results / "no build", self.results, "fusion", "--from", kept)
            self.assertEqual(done.returncode, 0, done.stderr)
            pictures.append((self.results / "fusion/picture.svg").read_text())
        self.assertEqual(*pictures)
        self.assertIn("| 4M | 84.6 % (best) |", (self.results / "fusion/page.md").read_text())
        self.assertEqual(json.loads((self.results / "fusion/results.json").read_text()), json.loads(kept.read_text()))
        for file in (self.results / "missing", __file__):
            done = self.run_study(BUILD, self.results, "fusion", "--from", file)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"study: {file} has no raw results: ", done.stderr)
        done = self.run_study(BUILD, self.results, "all", "--from", kept)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("has the results of one study", done.stderr)

    def test_places_of_the_objective(self):
        """Of a run that has ended: its last objective."""
        self.assertEqual([scheduling.gap([3, 2], number, 2) for number in (0, 1, 5)], [0.5, 0, 0])
        curve = scheduling.curve([({"objectives": [4, 2]}, 2), ({"objectives": [4, 3, 2]}, 2), ({"objectives": [None] * 3}, 2)])
        self.assertEqual(curve, [(0, 1.0), (1, 0.5), (2, 0.0)])

    @long
    def test_staleness_costs_steps_and_momentum_more(self):
        times = {(row["optimizer"], row["hidden_layers"]): row["times"]["8"] for row in self.results_of("depth")}
        self.assertGreater(min(times.values()), 1.5)
        self.assertGreater(times["momentum", 3], times["SGD", 3])
        self.assertGreater(times["momentum", 3], times["momentum", 1])

    @long
    def test_the_largest_changes_teach_most(self):
        found = {row["order"]: row for row in self.results_of("budget")}
        self.assertLess(1.4 * found["largest"]["loss"], min(found["random"]["loss"], found["oldest"]["loss"]))
        for order in ("random", "oldest"):
            self.assertAlmostEqual(found[order]["bytes"], found["largest"]["bytes"], delta=0.05 * found["largest"]["bytes"])

    def test_averages_send_fewer_bytes(self):
        found = {(row["way"], row["steps"]): row for row in self.results_of("intervals")}
        self.assertLess(7 * found["average", 8]["bytes"], found["average", 1]["bytes"])
        self.assertLess(abs(found["average", 8]["test_loss"] - found["bsp", 1]["test_loss"]), 0.1)

    @long
    def test_fewer_bytes_teach_as_much(self):
        found = {row["codec"]: row for row in self.results_of("compression")}
        for codec, share in (("bf16", 0.51), ("int8", 0.27), ("top:0.01", 0.03)):
            self.assertLess(found[codec]["bytes"], share * found["fp32"]["bytes"])
            self.assertGreater(found[codec]["accuracy"], found["fp32"]["accuracy"] - 0.01, codec)
        for codec in ("top:0.01", "random:0.01"):
            self.assertLess(1.2 * found[codec]["loss"], found[f"{codec}, others lost"]["loss"])

    @long
    def test_late_pushes_that_are_corrected_do_less_harm(self):
        found = {row["way"]: row["loss"] for row in self.results_of("lateness")}
        for correction in ("--stale-lr", "--delay-compensation 0.5"):
            self.assertLess(1.3 * found[correction], found["async"], correction)

    @long
    def test_who_does_not_wait_does_more_steps(self):
        found = {row["sync"]: row for row in self.results_of("stragglers")}
        self.assertGreater(found["async"]["steps"], found["ssp:4"]["steps"])
        self.assertGreater(found["ssp:4"]["steps"], 1.3 * found["bsp"]["steps"])
        self.assertEqual([found[sync]["most"] for sync in ("bsp", "ssp:1", "ssp:4")], [0, 1, 4])
        self.assertLess(found["ssp:4"]["loss"], found["bsp"]["loss"])

    @long
    def test_backups_and_codes_keep_steps_short(self):
        """Where those of all nodes are three times as long."""
        found = {(row["delays"], row["sync"]): row for row in self.results_of("backups")}
        for sync in ("backup:1", "backup:2", "coded:1"):
            row, plain = found["stalls:0.002:8", sync], found["stalls:0.002:8", "bsp"]
            self.assertGreaterEqual(plain["p99"], 3 * plain["p50"])
            self.assertLessEqual(row["p99"], 1.3 * row["p50"])
            slow = found["slow:4", sync]
            self.assertGreaterEqual(found["slow:4", "bsp"]["p50"], 3)  # times a step without delays
            self.assertLessEqual(slow["p99"], 1.3 * (2 if sync == "coded:1" else 1))
        self.assertEqual({row["batches"] // row["pushes"] for (_, sync), row in found.items() if sync == "coded:1"}, {2})

    @long
    def test_weights_that_are_passed_on_cost_what_their_mean_staleness_costs(self):
        """And not what their greatest one costs: less than if all were a step older than the mean."""
        found = {(row["way"], row["depth"]): row for row in self.results_of("trees")}
        chain, star, pipeline = found["tree", 15], found["tree", 1], found["pipeline", 8]
        self.assertEqual([(row["copies"], row["staleness"]) for row in (star, chain, pipeline)], [(15, 1), (1, 15), (15, 8)])
        self.assertLess(chain["mean_staleness"], pipeline["mean_staleness"])
        self.assertLess(star["test_loss"], chain["test_loss"])
        self.assertLess(chain["test_loss"], pipeline["test_loss"])

    @long
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

    def test_scheduled_sets_do_not_diverge_as_those_by_chance_do(self):
        found = {(row["way"], row["size"]): row for row in self.results_of("scheduling")}
        self.assertEqual([found[way, 16]["diverged"] for way in ("strads", "uniform", "random")], [0, 0, 1])
        self.assertLess(2 * found["strads", 16]["rounds"], found["strads", 1]["rounds"])
        self.assertLess(2 * found["strads", 16]["rounds"], found["serial", 1]["rounds"])
        self.assertLess(found["strads", 1]["updates"], found["uniform", 1]["updates"])

    def test_threads_without_locks_learn_as_one_does(self):
        found = {row["way"]: row for row in self.results_of("hogwild")}
        serial = found["one thread"]
        for row in found.values():
            self.assertLess(abs(row["rmse"][0] / serial["rmse"][0] - 1), 0.02, row)
            self.assertGreater(min(row["speed"]["4 factors"]), 0)
        self.assertLess(serial["curve"][-1][1], 0.2 * serial["curve"][0][1])

    def test_ranks_that_do_not_wait_learn_as_much_from_a_batch(self):
        found = {row["clock"]: row for row in self.results_of("completion")}
        (_, first, start), *_, (_, _, end) = found["bsp"]["curve"]
        self.assertLess(end, 0.95 * start)
        self.assertLess(abs(found["ssp:2"]["rmse"] / found["bsp"]["rmse"] - 1), 0.1)
        self.assertGreater(first, 5 * 1.5 * 0.02)  # of 5 batches, in each of which all wait for the one of 4 that sleeps longest: 2.1 times 20 ms on average

    def test_places_between_epochs(self):
        self.assertAlmostEqual(completion.epochs_to(1.5, [3, 2, 1]), 1.5)
        self.assertIsNone(completion.epochs_to(0.5, [3, 2, 1]))
        self.assertEqual([completion.between([10, 20, 40], at) for at in (0, 1.5, 2)], [10, 30, 40])

    @long
    def test_large_batches_learn_as_well_with_a_larger_rate_and_a_warm_up(self):
        found = {row["way"]: row["accuracy"] for row in self.results_of("batches")}
        one, same_rate, at_once, warmed_up = found.values()
        self.assertGreater(warmed_up, one - 0.01)
        self.assertGreater(warmed_up, max(same_rate + 0.005, at_once + 0.015))

    def test_iterations_that_were_seen_say_what_the_next_ones_are(self):
        (row,) = self.results_of("forecast")
        self.assertGreater(row["within_tenth"], 0.9)
        self.assertLess(10 * row["most"], row["unchanged_most"])

    def test_forecasts_are_fitted_to_what_they_are(self):
        exponential, roots = ([5 * math.exp(-0.1 * place(i)) for i in range(1, 31)] for place in (float, math.sqrt))
        self.assertAlmostEqual(forecast.forecast(exponential, "line", 6)(10), 5 * math.exp(-4))
        self.assertAlmostEqual(forecast.forecast([0.99 ** (i * i) for i in range(20)], "parabola", 10)(3), 0.99 ** (22 * 22))
        self.assertAlmostEqual(forecast.forecast(exponential, "from the last", 5)(10), 5 * math.exp(-4))
        self.assertAlmostEqual(forecast.forecast(roots, "from the last, over roots", 5)(19), 5 * math.exp(-0.7))
        self.assertAlmostEqual(forecast.forecast([2.0] * 20 + [1.0], "from the last", 1e-3)(2), 0.25)  # only the last fall counts
        self.assertEqual(forecast.above([5, 3, 2, 1], 1, 1), [4, 2])
        found = forecast.errors([2.0] * (forecast.SEEN + forecast.AHEAD), None)
        self.assertEqual(found, {ahead: [0] for ahead in range(1, forecast.AHEAD + 1)})

    def test_bands_are_made_of_what_was_seen(self):
        """So they do not hold for what is unlike it."""
        seen = [2.0 + i % 2 for i in range(forecast.SEEN)]
        alike, other = ([differs <= may * 1.01 for may, differs in forecast.bands(seen + after, ("from the last", 1e6))] for after in ([2.0 + i % 2 for i in range(forecast.AHEAD)], [9.0] * forecast.AHEAD))
        self.assertEqual((sum(alike), sum(other)), (forecast.AHEAD, 0))

    def test_futures_are_judged_by_their_median(self):
        curve = [math.exp(-0.1 * i) for i in range(forecast.SEEN + forecast.AHEAD)]
        ahead = curve[forecast.SEEN:]
        drawn = [ahead, [2 * one for one in ahead], ahead, [3 * one for one in ahead], [one / 2 for one in ahead]]
        self.assertEqual(forecast.of_futures([curve], ("line", 6), [{forecast.SEEN: drawn}]), {"predictions": forecast.AHEAD, "fitted": 1, "known": 1})
        self.assertEqual(forecast.of_futures([curve], ("line", 6), [{forecast.SEEN: drawn[3:4]}])["known"], 0)
        self.assertIsNone(forecast.of_futures([curve], ("line", 6), [{}]))

    @long
    def test_fifty_iterations_name_a_schedule(self):
        found = self.results_of("naming")
        chosen, fastest = (min(found, key=lambda row: row[what]["median"] or math.inf) for what in ("predicted", "measured"))
        self.assertEqual((chosen["way"], fastest["way"]), ("strads", "strads"))
        self.assertLess(chosen["measured"]["median"], 1.3 * fastest["measured"]["median"])
        for row in found:
            if row["was_seen"]:
                self.assertAlmostEqual(row["predicted"]["median"] / row["measured"]["median"], 1, delta=0.3, msg=row)
        self.assertEqual([row["size"] for row in found if not row["was_seen"]], [8, 8, 8])

    def test_rounds_are_predicted_from_what_was_seen(self):
        def result(size, rate, rounds=2000):
            updates = [size * i for i in range(rounds)]
            return {"objectives": [1 + math.exp(-rate * math.sqrt(one / naming.UPDATES)) for one in updates], "updates": updates}

        runs = {size: result(size, 0.5) for size in (1, 2, 4)}  # near enough after (log(0.02) / 0.5)^2 = 61.2 iterations, whatever the size
        self.assertEqual(naming.iterations_to(naming.TARGET, naming.seen_iterations(runs[2], 1)[0]), 62)
        found = naming.predicted_rounds({size: {what: of[:1 + naming.SEEN * naming.UPDATES // size] for what, of in run.items()} for size, run in ((1, result(1, 0.5, 4000)), (2, runs[2]))}, 4, 1)
        for size in (1, 2, 4):
            self.assertAlmostEqual(found[size], 62 * naming.UPDATES / size)
        grown = {"objectives": [2, 1.5, None], "updates": [0, 4, 8]}
        self.assertEqual(naming.predicted_rounds({2: runs[2], 4: grown}, 8, 1), {2: 62 * naming.UPDATES / 2, 4: None, 8: None})
        self.assertEqual([naming.measured_rounds(one, 1) for one in (grown, {"objectives": [2, 1.02], "updates": [0, 4]})], [None, 1])

    @long
    def test_cohorts_answer_more_requests(self):
        one, many = self.results_of("cohorts")
        self.assertEqual((one["cohort"], many["cohort"]), (1, 16))
        self.assertGreater(many["closed_per_s"], 1.5 * one["closed_per_s"])  # five times as many, where nothing else runs

    def test_techniques_add_up(self):
        found = {row["way"]: row["efficiency"] for row in self.results_of("techniques") if row["nodes"] == 4}
        after, overlap, priorities, fused, factors = (found[way] for way in techniques.WAYS)
        self.assertLess(after, overlap)
        self.assertLess(overlap, priorities)
        self.assertGreaterEqual(fused, 0.99 * priorities)
        self.assertGreater(factors, 0.95)

    def test_layers_go_together_up_to_a_size(self):
        at = {(row["fuse"], row["overhead_us"]): row["efficiency"] for row in self.results_of("fusion")}
        for overhead in fusion.OVERHEADS:
            self.assertGreater(at["4M", overhead], max(at["none", overhead], at["256M", overhead]))

    @long
    def test_tiles_pass_on_what_they_cut_and_change_no_bit(self):
        def passed(steps, columns):
            """Sums of a product that a step passes on: a block has 256 columns."""
            height = size // (4 * min(columns, 256))
            return 0 if 4 * steps * columns <= size else tiles.BATCH * columns * (-(-steps // height) - 1)

        found = {row["tile"]: row for row in self.results_of("tiles")["rows"]}
        for name, bands in (("4K", 256), ("128K", 8)):
            size = tiles.bytes_of(name)
            sums = passed(tiles.INPUTS, 1024) + 2 * passed(1024, 1024) + passed(1024, 2) + passed(2, 1024)
            self.assertEqual((found[name]["bands"], found[name]["passed_bytes"]), (bands, 8 * sums))
            self.assertTrue(found[name]["same_weights"])
        self.assertEqual((found[None]["bands"], found[None]["passed_bytes"]), (1, 0))

    def test_caches_are_those_of_a_core(self):
        for index, about in enumerate((("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "32M"))):
            folder = self.results / f"index{index}"
            folder.mkdir()
            for what, text in zip(("level", "type", "size"), about):
                (folder / what).write_text(text + "\n")
        self.assertEqual(tiles.caches(self.results), {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20})
        self.assertEqual(tiles.caches(self.results / "none"), {})

    @long
    def test_a_loss_takes_no_restart_with_replicas(self):
        """And no step that a node had ended. Without them the others end, and all begin again."""
        found = {row["way"]: row for row in self.results_of("goodput")["measured"]}
        for way, runs in (("restart", 2), ("replicas", 1)):
            row = found[way]
            self.assertEqual((row["runs"], [rank for _, rank in row["kills"]], len(row["messages"])), (runs, [1], runs - 1), row)
            self.assertGreater(row["accuracy"], 0.7)
        self.assertEqual([(loss["rank"], loss["nodes"]) for loss in found["replicas"]["lost"]], [(1, 2)])
        self.assertLessEqual(found["replicas"]["steps_taken_back"], 1)

    COSTS = {"checkpoint_s": 0.02, "restart_s": 2, "recovery_s": 0.5, "replicas_share": 0, "step_s": 0.01}

    def surviving(self, failures, nodes=8, replicas=2, work=100):
        return goodput.surviving(failures, nodes, replicas, work, self.COSTS, lambda left: left / nodes)

    def test_what_losses_take_in_virtual_time(self):
        none = goodput.Schedule([])
        self.assertEqual(goodput.restarting(none, 8, 1e15, 100, self.COSTS), (100, 0, 0))
        self.assertEqual(self.surviving(none), (100, 0, 0))
        every = {**self.COSTS, "every_s": 10}
        at_35 = goodput.Schedule([(35, 0)])  # after three checkpoints
        seconds, losses, again = goodput.restarting(at_35, 8, 1e15, 100, every)
        self.assertEqual(losses, 1)
        self.assertAlmostEqual(again, 35 - 30.06)
        self.assertAlmostEqual(seconds, 35 + 2 + 70 + 6 * 0.02)
        seconds, losses, anew = self.surviving(goodput.Schedule([(50, 3)]))
        self.assertEqual((losses, anew), (1, 0))
        self.assertAlmostEqual(seconds, 50.5 + (50 + 0.01) * 8 / 7)

    def test_what_has_no_replica_left_begins_anew(self):
        for nodes, replicas, anew in (((3, 4), 2, 1), ((3, 4), 3, 0), ((3, 5), 2, 0), ((0, 7), 2, 1), ((3, 4, 5), 3, 1)):
            self.assertEqual(self.surviving(goodput.Schedule([(50 + 0.1 * i, node) for i, node in enumerate(nodes)]), replicas=replicas)[2], anew, nodes)
        apart = goodput.Schedule([(50, 3), (51, 4)])  # the first loss has ended when the second one comes
        self.assertEqual(self.surviving(apart)[2], 0)
        self.assertEqual([goodput.is_lost([2, 3], [0, 1], 3), goodput.is_lost([0, 1], [2, 3], 3), goodput.is_lost([4], [0, 2], 3)], [True, False, True])  # most are left, or half with the lowest

    def test_virtual_time_is_what_formulas_expect(self):
        for nodes, mtbf in ((8, 600), (100, 6000)):
            times = [goodput.restarting(goodput.Random(mtbf, seed), nodes, mtbf, 3600, self.COSTS)[0] for seed in range(20)]
            self.assertAlmostEqual(sum(times) / 20 / goodput.expected_restarting(nodes, mtbf, 3600, self.COSTS), 1, delta=0.02)
        free = {**self.COSTS, "recovery_s": 0, "step_s": 0}
        seconds, losses, _ = goodput.surviving(goodput.Random(200, 1), 2000, 2, 100, free, lambda left: left / 2000)
        self.assertAlmostEqual(seconds / goodput.expected_surviving(200, 100), 1, delta=0.03)
        self.assertAlmostEqual(losses, 1000, delta=100)  # half of the nodes

    def test_goodput_falls_from_1_to_0_with_failures_and_not_with_replicas(self):
        for mtbf, least, most in ((1e12, 0.999, 1), (0.1, 0, 0.01)):
            for seconds in (goodput.restarting(goodput.Random(mtbf, 1), 8, mtbf, 100, self.COSTS)[0], self.surviving(goodput.Random(mtbf, 1))[0]):
                self.assertGreaterEqual(100 / seconds, least)
                self.assertLessEqual(100 / seconds, most)
        by_replicas = [sum(100 / self.surviving(goodput.Random(mtbf, seed), 20, replicas)[0] for mtbf in (200, 500) for seed in range(40)) for replicas in (1, 2, 3)]
        self.assertLess(2 * by_replicas[0], by_replicas[1])
        self.assertLessEqual(by_replicas[1], by_replicas[2])

    def test_what_a_training_shows_of_a_loss(self):
        shown = [(10 + 0.1 * i, 10 * i, 100) for i in range(4)] + [(11.0 + 0.1 * i, 50 + 10 * i, 120) for i in range(4)]
        self.assertEqual(goodput.pace(shown[:4]), (30 - 0) / (shown[3][0] - 10))
        (seconds,) = goodput.recovery(shown, 10.35, 0)  # after 35 of 100 steps, which are 42 of 120
        self.assertAlmostEqual(seconds, 0.65 - 0.08)
        self.assertEqual(goodput.recovery(shown[:4], 10.35, 0), [])
        self.assertEqual([goodput.taken_back(shown, [{"step": step, "nodes": 5}, {"step": 80, "nodes": 4}], 6) for step in (25, 30, 31)], [5, 0, 0])
        for name in ("rank-0-step-20", "rank-0-step-30", "rank-1-step-20"):
            (self.results / f"{name}.safetensors").touch()
        self.assertEqual([goodput.newest(self.results), goodput.newest(self.results / "none")], [20, 0])

    def test_models_are_fitted_to_what_they_are(self):
        losses = [0.3 + 2 / i for i in range(1, 51)]
        self.assertAlmostEqual(prediction.curve(losses)(100), 0.32)
        self.assertEqual(prediction.when(prediction.curve(losses), 0.351, 1000), 40)
        time = prediction.step_time({nodes: 1 + 0.5 * nodes for nodes in (1, 2, 4)})
        self.assertAlmostEqual(time(16), 9)
        falling = prediction.step_time({1: 3, 2: 2, 4: 1})  # no number is negative: it does not go on falling below 0
        self.assertGreater(falling(1000), 0)

    def test_codes_do_not_wait_for_a_slow_path(self):
        """Seconds of plain are what the slow path must take at least; of codes they are not compared, but what they take of it."""
        if "--without-isal" in sys.argv:
            self.skipTest("coded_transfer is built without ISA-L (libisal-dev)")
        found = {(row["code"], row["factor"]): row for row in self.results_of("paths")}
        quick = paths.BYTES / 8
        self.assertGreater(found["plain", 16]["seconds"][0], 16 * (quick / 5 - paths.CHUNK) / paths.RATE)
        self.assertEqual(found["plain", paths.LOST]["seconds"], None)
        for code in ("rs:1", "lt"):
            self.assertLess(found[code, 16]["slow_share"][0], 0.5 * found["plain", 16]["slow_share"][0])
            self.assertGreater(found[code, paths.LOST]["seconds"][0], 0)
        self.assertAlmostEqual(paths.ideal(1), 0.2)
        self.assertAlmostEqual(paths.ideal(paths.LOST), 0.25)

    def test_studies_are_listed(self):
        listed = self.run_study()
        self.assertEqual((listed.returncode, [line.split()[0] for line in listed.stdout.splitlines()]), (0, list(study.STUDIES)))
        other = self.run_study(BUILD, self.results, "other")
        self.assertEqual((other.returncode, other.stdout), (2, ""))
        self.assertIn('there is no study "other": take one of depth, ', other.stderr)

    def test_a_study_says_which_programs_it_needs(self):
        for name, programs in (("depth", "param_sync"), ("scheduling", "scheduled_lasso"), ("all", "coded_transfer matrix_completion param_sync scheduled_lasso sparse_regression")):
            done = self.run_study("--programs", name)
            self.assertEqual((done.returncode, done.stdout), (0, programs + "\n"), done.stderr)
        self.assertEqual(self.run_study("--programs", "other").returncode, 2)

    def test_a_training_that_fails_is_told(self):
        program = self.results / study.PROGRAMS["param_sync"]
        program.parent.mkdir(parents=True)
        program.symlink_to("/bin/false")
        done = self.run_study(self.results, self.results, "budget", "--quick")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"study: {program}", done.stderr)

    def test_steps_to_a_target(self):
        self.assertEqual(study.steps_to([3, 2, 1, 1, 1], 1, window=2), 4)
        self.assertEqual(study.steps_to([1], 1, window=2), None)
        self.assertEqual(study.steps_to([3, None, 1, 1], 1, window=2), None)
        self.assertEqual([study.median([3, None, 1]), study.median([None, 1, None])], [3, None])


def suite(with_long):
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Studies)
    return unittest.TestSuite(test for test in tests if with_long or not hasattr(getattr(test, test._testMethodName), "is_long"))


if __name__ == "__main__":
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite("--share" not in sys.argv)).wasSuccessful())
