"""What param_sync promises of --replicas: training goes on with the nodes that are left. Run by ctest."""
import os
import pathlib
import re
import signal
import tempfile

import support
from support import LINKS_BETWEEN_PROCESSES, SMALL, Runs, needs_processes, node_processes, own_addresses, results, run, start

PHASES = ("compute", "push", "pull", "take")
LONG = (*SMALL, "--epochs", 1000)  # longer than a test
SURVIVES = ("--sync", "bsp", "--timeout", 20)


class Survival(Runs):
    def as_serial(self, report, *arguments):
        """The weights and losses are those of a serial run that has lost nodes after the same steps."""
        lost = ",".join(str(loss["step"]) for loss in report["lost"])
        serial = results(*SMALL, *arguments, "--sync", "bsp", "--serial", "--lost", lost)
        self.assertEqual(report["weights_hash"], serial["weights_hash"], report["lost"])
        self.assertTrue(report["same_weights"])
        self.assertEqual(report["losses"], serial["losses"][-len(report["losses"]):])
        self.assertEqual(report["accuracy"], serial["accuracy"])

    @needs_processes
    def test_replicas_change_no_bit(self):
        serial = results(*SMALL, "--nodes", 3, "--serial")
        for replicas in (2, 3):
            report = results(*SMALL, "--nodes", 3, *SURVIVES, "--replicas", replicas)
            self.assertEqual((report["weights_hash"], report["lost"]), (serial["weights_hash"], []))

    @needs_processes
    def test_a_lost_node_costs_no_step(self):
        for number, phase in enumerate(PHASES):
            rank, step, link = number % 4, 4 + 3 * number, LINKS_BETWEEN_PROCESSES[number % len(LINKS_BETWEEN_PROCESSES)]
            report = results(*SMALL, "--nodes", 4, *SURVIVES, "--replicas", 2, "--fail-at", f"{rank}@{step}:{phase}", "--link", link)
            with self.subTest(phase=phase):
                (loss,) = report["lost"]
                self.assertEqual((loss["rank"], loss["nodes"]), (rank, 3))
                # Others may have ended the step if this node had pushed all of its gradients, and may not have ended the one before, which it had ended.
                self.assertIn(loss["step"], range(step - 1, step + 2))
                self.as_serial(report, "--nodes", 4)

    @needs_processes
    def test_two_nodes_are_lost_one_after_the_other(self):
        report = results(*SMALL, "--nodes", 4, *SURVIVES, "--replicas", 2, "--fail-at", "0@5:pull,2@12:push")
        self.assertEqual([(loss["rank"], loss["nodes"]) for loss in report["lost"]], [(0, 3), (2, 2)])
        self.as_serial(report, "--nodes", 4)

    @needs_processes
    def test_another_node_is_lost_when_the_first_one_goes_on(self):
        """Then some of those that are left may have begun anew, and others not."""
        addresses = ",".join(own_addresses(4))
        nodes = [self.start(*LONG, "--sync", "bsp", "--timeout", 20, "--replicas", 3, "--rank", rank, "--peers", addresses) for rank in range(4)]
        support.wait_for_line(nodes[0], r"step \d+/")
        nodes[3].send_signal(signal.SIGKILL)
        support.wait_for_line(nodes[0], r"rank 3 was lost after step \d+: 3 node")
        nodes[1].send_signal(signal.SIGKILL)
        support.wait_for_line(nodes[0], r"rank 1 was lost after step \d+: 2 node")
        support.wait_for_line(nodes[0], r"step \d+/")

    @needs_processes
    def test_another_node_is_lost_while_they_agree(self):
        report = results(*SMALL, "--nodes", 5, *SURVIVES, "--replicas", 3, "--fail-at", "1@5:push,3@1:view")
        self.assertEqual(sorted(loss["rank"] for loss in report["lost"]), [1, 3])
        self.as_serial(report, "--nodes", 5)

    @needs_processes
    def test_a_loss_in_the_last_step_is_no_failure(self):
        steps = results(*SMALL, "--nodes", 3, "--serial")["steps"]
        for phase in ("push", "take"):
            report = results(*SMALL, "--nodes", 3, *SURVIVES, "--replicas", 2, "--fail-at", f"1@{steps - 1}:{phase}")
            if report["lost"]:
                self.as_serial(report, "--nodes", 3)

    @needs_processes
    def test_what_no_replica_has_is_named(self):
        """Two of five are silent at the same time, and of what the first one owns the other one has the replica."""
        cluster = self.start(*LONG, "--nodes", 5, "--sync", "bsp", "--timeout", 1, "--replicas", 2)
        support.wait_for_line(cluster, r"step \d+/")
        nodes = node_processes(cluster)
        for rank in (1, 2):
            os.kill(nodes[rank], signal.SIGSTOP)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertRegex(err, "more ranks were lost than have replicas")

    @needs_processes
    def test_too_few_do_not_go_on(self):
        """Rank 0 is stopped, and the other one cannot know that rank 0 does not go on, too."""
        cluster = self.start(*LONG, "--nodes", 2, "--sync", "bsp", "--timeout", 1, "--replicas", 2)
        support.wait_for_line(cluster, r"step \d+/")
        os.kill(node_processes(cluster)[0], signal.SIGSTOP)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertIn("only 1 of 2", err)

    @needs_processes
    def test_a_node_that_was_silent_is_refused(self):
        addresses = ",".join(own_addresses(3))
        nodes = [self.start(*LONG, "--sync", "bsp", "--timeout", 1, "--replicas", 2, "--rank", rank, "--peers", addresses)
                 for rank in range(3)]
        support.wait_for_line(nodes[0], r"step \d+/")
        nodes[2].send_signal(signal.SIGSTOP)
        support.wait_for_line(nodes[0], r"rank 2 was lost after step \d+: 2 node")
        nodes[2].send_signal(signal.SIGCONT)
        status, _, err = self.end(nodes[2])
        self.assertEqual(status, 1)
        self.assertIn("rank 2 cannot go on", err)
        for _ in range(2):
            support.wait_for_line(nodes[0], r"step \d+/")  # the others were not disturbed

    @needs_processes
    def test_the_first_node_saves_the_weights_whoever_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "weights.safetensors"
            status, out, err = run(*SMALL, "--nodes", 3, *SURVIVES, "--replicas", 2, "--fail-at", "0@6:push", "--save-weights", file)
            self.assertEqual(status, 0, err)
            self.assertIn("rank 0 was killed by signal 9", err)
            self.assertRegex(out, r"rank 0 was lost after step \d+: 2 node")
            tensors, _ = support.read_safetensors(file)
            self.assertEqual({name: len(values) for name, values in tensors.items()}, support.LAYERS_OF_SMALL)

    def test_misuse(self):
        for message, arguments in (("--replicas needs --sync bsp", ("--replicas", 2)),
                                   ("--replicas needs --sync bsp", ("--replicas", 2, "--sync", "async")),
                                   ("at most as many replicas as nodes", ("--replicas", 3, "--sync", "bsp", "--nodes", 2)),
                                   ("--replicas and --in-process exclude", ("--replicas", 2, "--sync", "bsp", "--in-process")),
                                   ("--replicas and --codec exclude", ("--replicas", 2, "--sync", "bsp", "--codec", "bf16")),
                                   ("--lost needs --serial --sync bsp", ("--lost", 3)),
                                   ("is no list of steps", ("--lost", "3,x", "--serial", "--sync", "bsp")),
                                   ("none is left", ("--lost", "3,4", "--serial", "--sync", "bsp", "--nodes", 2)),
                                   ("PHASE is one of compute, push", ("--fail-at", "1@5", "--sync", "bsp")),
                                   ("PHASE is one of compute, push", ("--fail-at", "1@5:never", "--sync", "bsp")),
                                   ("--fail-at: there is no rank 4 of 4", ("--fail-at", "4@5:push", "--sync", "bsp")),
                                   ("--fail-at is for nodes", ("--fail-at", "1@5:push"))):
            status, _, err = run(*SMALL, *arguments)
            self.assertEqual(status, 2, (arguments, err))
            self.assertRegex(err, re.escape(message))


if __name__ == "__main__":
    support.main()
