"""What param_sync promises of checkpoints. Run by ctest."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import zlib

import support
from support import ENDLESS, LAYERS_OF_SMALL, SMALL, Runs, needs_processes, results, run


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
        self.assertEqual((self.steps_of(0), self.steps_of(1)), ([42, 49, 56], [42, 49, 56]))
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

    def test_a_resumed_run_goes_on_with_its_warm_up(self):
        warmup = ("--warmup", 58)
        weights = self.train(*warmup)
        self.assertEqual(weights, results(*SMALL, "--nodes", 2, "--serial", *warmup)["weights_hash"])
        self.assertEqual(results(*self.arguments("--in-process", *warmup, "--resume", 49))["weights_hash"], weights)
        self.assertIn("another --lr, --warmup, --elastic-lr or --momentum", self.refusal("--warmup", 57, "--resume", 49))

    @needs_processes
    def test_processes_resume_at_the_last_step_that_all_nodes_have(self):
        weights = self.train("--scheme", "ps:even")
        (self.folder / "rank-1-step-56.safetensors").unlink()  # as where it was lost before it had written
        report = results(*self.arguments("--scheme", "ps:even", "--resume", "latest"))
        self.assertEqual((report["weights_hash"], report["first_step"]), (weights, 49))

    @needs_processes
    def test_a_node_that_is_killed_costs_no_more_than_the_steps_between_three_checkpoints(self):
        """One may be written by some nodes only, and all have the one before."""
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
        self.assertLessEqual(max(self.steps_of(0) + self.steps_of(1)) - common, 2 * 5)
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
    def test_files_of_no_common_step_are_no_beginning(self):
        for options in ((), ("--sync", "bsp")):
            results(*self.arguments(*options))
            for rank, others in ((0, (42,)), (1, (49, 56))):
                for step in others:
                    for file in self.folder.rglob(f"rank-{rank}-step-{step}.safetensors"):
                        file.unlink()
            status, _, err = run(*self.arguments(*options, "--resume", "latest"))
            self.assertEqual(status, 1)
            self.assertRegex(err, "no checkpoint in .* has the files of all ranks: to begin anew, remove the files")
            shutil.rmtree(self.folder)

    @needs_processes
    def test_nodes_that_go_on_from_different_steps_are_told(self):
        self.train()
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*self.arguments("--rank", rank, "--peers", peers, "--resume", step)) for rank, step in ((0, 49), (1, 56))]
        errors = [self.end(node)[2] for node in nodes]
        self.assertTrue(any("another step to go on from" in err for err in errors), errors)


class StoreCheckpoints(Runs):
    """Those of --sync bsp: any number of nodes goes on from them, as a serial run whose nodes change after that step."""

    BSP = (*SMALL, "--sync", "bsp")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="param_sync_checkpoints."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def files(self):
        return sorted(str(file.relative_to(self.folder)) for file in self.folder.rglob("*.safetensors"))

    def expect_serial(self, report, nodes, *changes):
        serial = results(*self.BSP, "--serial", "--nodes", nodes, *(("--nodes-after", ",".join(changes)) if changes else ()))
        self.assertEqual((report["weights_hash"], report["accuracy"]), (serial["weights_hash"], serial["accuracy"]))
        self.assertTrue(report["same_weights"])

    @needs_processes
    def test_any_number_of_nodes_goes_on(self):
        report = results(*self.BSP, "--nodes", 2, "--checkpoint", self.folder, "--every", 7)
        self.expect_serial(report, 2)
        self.assertEqual([node["checkpoints"] for node in report["node_reports"]], [8, 8])
        self.assertTrue(all(node["checkpoint_stall_ns"] > 0 for node in report["node_reports"]))
        written = [f"nodes-2/rank-{rank}-step-{step}.safetensors" for rank in (0, 1) for step in (42, 49, 56)]
        self.assertEqual(self.files(), written)
        for nodes, resume, step in ((2, "latest", 56), (3, 49, 49), (1, "latest", 56)):
            report = results(*self.BSP, "--nodes", nodes, "--checkpoint", self.folder, "--every", 1000, "--resume", resume)
            self.assertEqual(report["first_step"], step * 2 // nodes)
            self.expect_serial(report, 2, *(() if nodes == 2 else (f"{step}:{nodes}",)))
        self.assertEqual(self.files(), written, "those runs have written none")

    @needs_processes
    def test_more_nodes_are_lost_than_have_replicas(self):
        """What the nodes have written that are left is not whole: it takes a checkpoint of all."""
        run_of = (*self.BSP, "--replicas", 2, "--timeout", 20, "--checkpoint", self.folder, "--every", 4)
        status, _, err = run(*run_of, "--nodes", 4, "--fail-at", "1@13:push,2@21:pull,3@21:pull")
        self.assertEqual(status, 1)
        self.assertIn("the same arguments and --resume latest", err)
        for file in (self.folder / "nodes-3").glob("rank-1-*"):
            file.unlink()  # as if it had been killed before it had written
        resumed = results(*run_of, "--nodes", 3, "--resume", "latest")
        steps = [int(file.split("-")[-1].split(".")[0]) for file in self.files()]
        self.assertTrue(all(file.startswith("nodes-3/") for file in self.files()), "the others are removed")
        self.assertEqual(len(steps), 9)
        steps_of_four = {step * 4 // 3: step for step in (4, 8, 12)}
        self.assertIn(resumed["first_step"], steps_of_four)
        self.expect_serial(resumed, 4, f"{steps_of_four[resumed['first_step']]}:3")

    @needs_processes
    def test_each_host_has_a_folder_of_its_own(self):
        results(*self.BSP, "--nodes", 2, "--checkpoint", self.folder / "both", "--every", 7)
        for rank in (0, 1):
            for file in (self.folder / "both").rglob(f"rank-{rank}-*"):
                to = self.folder / str(rank) / "nodes-2" / file.name
                to.parent.mkdir(parents=True, exist_ok=True)
                file.rename(to)
        weights = results(*self.BSP, "--nodes", 2, "--serial")["weights_hash"]
        for steps, said in ((("latest", "latest"), None), ((49, 56), "nodes have different checkpoints, of step 49 of 2 nodes and of step 56 of 2 nodes"),
                            (("latest", None), "was started with another step to go on from")):
            peers = ",".join(support.own_addresses(2))
            nodes = [self.start(*self.BSP, "--rank", rank, "--peers", peers, "--timeout", 20, "--checkpoint", self.folder / str(rank), *(("--resume", step) if step else ()))
                     for rank, step in enumerate(steps)]
            ends = [self.end(node) for node in nodes]
            for status, out, err in ends:
                self.assertEqual(status, 1 if said else 0, err)
                self.assertIn(said or f"weights {weights}", err if said else out)

        peers = ",".join(support.own_addresses(3))  # the third host is new, and has no files
        nodes = [self.start(*self.BSP, "--rank", rank, "--peers", peers, "--timeout", 20, "--checkpoint", self.folder / str(rank), "--resume", 49) for rank in range(3)]
        weights = results(*self.BSP, "--nodes", 2, "--serial", "--nodes-after", "49:3")["weights_hash"]
        for status, out, err in [self.end(node) for node in nodes]:
            self.assertEqual(status, 0, err)
            self.assertIn("went on from the checkpoint of step 49 of 2 node(s)", out)
            self.assertIn(f"weights {weights}", out)
        shutil.rmtree(self.folder / "1")
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*self.BSP, "--rank", rank, "--peers", peers, "--timeout", 20, "--checkpoint", self.folder / str(rank), "--resume", "latest") for rank in (0, 1)]
        for node in nodes:
            status, _, err = self.end(node)
            self.assertEqual(status, 1)
            self.assertIn("the checkpoint of step 56 was written by 2 nodes, and the files of some of them are not here", err)

    def test_what_does_not_fit_is_refused(self):
        folder = ("--checkpoint", self.folder)
        for options, said in ((("--sync", "ssp:1", *folder), "--checkpoint needs --sync bsp"), (("--sync", "bsp", "--codec", "bf16", *folder), "--codec and --checkpoint exclude"),
                              (("--sync", "bsp", "--device-pool", "1M", *folder), "--device-pool and --checkpoint exclude"), (("--sync", "bsp", "--in-process", *folder, "--resume", "latest"), "--in-process and --resume exclude"),
                              (("--sync", "bsp", "--replicas", 2, "--join", "127.0.0.1:1", *folder, "--resume", "latest"), "--join and --resume exclude")):
            status, out, err = run(*SMALL, *(() if "--join" in options else ("--nodes", 2)), *options)
            self.assertEqual((status, out), (2, ""), options)
            self.assertIn(said, err)
        status, _, err = run(*self.BSP, "--nodes", 2, *folder, "--resume", 5)
        self.assertEqual(status, 1)
        self.assertRegex(err, "no node has a checkpoint of step 5 in its .*param_sync_checkpoints")
        results(*self.BSP, "--nodes", 2, *folder, "--every", 7)
        status, _, err = run(*self.BSP, "--nodes", 2, *folder, "--resume", "latest", "--momentum", 0.5)
        self.assertEqual(status, 1)
        self.assertRegex(err, "is of a run with another --lr")


if __name__ == "__main__":
    support.main()
