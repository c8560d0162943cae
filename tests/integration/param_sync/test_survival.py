"""What param_sync promises of --replicas: training goes on with the nodes that are left. Run by ctest."""
import json
import os
import pathlib
import re
import signal
import socket
import tempfile

import support
from support import LINKS_BETWEEN_PROCESSES, SMALL, Runs, needs_processes, node_processes, own_addresses, results, run, start

PHASES = ("compute", "push", "pull", "take")
LONG = (*SMALL, "--epochs", 1000, "--step-ms", 2)  # longer than a test, and it leaves the processors to others
MANY = ("--epochs", 40)
SURVIVES = ("--sync", "bsp", "--timeout", 20)


class Survival(Runs):
    def as_serial(self, report, *arguments):
        """The weights and losses are those of a serial run whose nodes have changed after the same steps."""
        if report["joined"]:
            changes = "--nodes-after", ",".join(f"{change['step']}:{change['nodes']}" for change in report["nodes_after"])
        elif report["lost"]:
            changes = "--lost", ",".join(str(loss["step"]) for loss in report["lost"])
        else:
            changes = ()
        serial = results(*SMALL, *arguments, "--sync", "bsp", "--serial", *changes)
        self.assertEqual(report["weights_hash"], serial["weights_hash"], changes)
        self.assertTrue(report["same_weights"])
        self.assertEqual(report["accuracy"], serial["accuracy"])
        if not report["joined"]:  # those have losses of their own, which this report does not have
            self.assertEqual(report["losses"], serial["losses"][-len(report["losses"]):])

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
        rate = ("--nodes", 4, "--elastic-lr", 4)
        report = results(*SMALL, *rate, *SURVIVES, "--replicas", 2, "--fail-at", "0@5:pull,2@12:push")
        self.assertEqual([(loss["rank"], loss["nodes"]) for loss in report["lost"]], [(0, 3), (2, 2)])
        self.as_serial(report, *rate)

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
    def test_a_slow_node_is_no_lost_node(self):
        """Ten times as slow, it costs time alone, and is named."""
        report = results(*SMALL, "--nodes", 3, *SURVIVES, "--replicas", 2, "--step-ms", 4, "--delays", "slow:10")
        self.as_serial(report, "--nodes", 3)
        self.assertEqual((report["lost"], report["slowest"]["rank"]), ([], 2))
        self.assertGreater(report["slowest"]["share_of_steps"], 0.5)

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

    @needs_processes
    def test_a_node_that_is_told_to_end_is_lost_at_once(self):
        run_of = self.begin(3)
        os.kill(run_of.nodes[2], signal.SIGTERM)
        report = self.end_of(run_of)
        self.assertEqual([(loss["rank"], loss["nodes"]) for loss in report["lost"]], [(2, 2)])
        self.as_serial(report, *MANY, "--nodes", 3)

    @needs_processes
    def test_a_node_that_leaves_says_so(self):
        addresses = ",".join(own_addresses(3))
        nodes = [self.start(*LONG, "--sync", "bsp", "--timeout", 60, "--replicas", 2, "--rank", rank, "--peers", addresses) for rank in range(3)]
        support.wait_for_line(nodes[0], r"step \d+/")
        nodes[1].send_signal(signal.SIGTERM)
        status, out, err = self.end(nodes[1])
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))
        self.assertIn("rank 1 was told to end, and leaves the others", out)
        support.wait_for_line(nodes[0], r"rank 1 was lost after step \d+: 2 node")

    # --- Nodes that join ---

    def begin(self, nodes, *arguments, waits_for=r"step \d+/"):
        """A run that trains, with the addresses where its nodes may be joined."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "out.json"
        cluster = self.start(*SMALL, *MANY, "--nodes", nodes, *SURVIVES, "--replicas", 2, "--json", file, *arguments)
        cluster.file = file
        cluster.joins_at = support.wait_for_line(cluster, r"nodes may join at (\S+)")[1].split(",")
        if waits_for:
            support.wait_for_line(cluster, waits_for)
        cluster.nodes = node_processes(cluster)
        return cluster

    def end_of(self, cluster):
        status, out, err = self.end(cluster)
        self.assertEqual(status, 0, (out, err))
        return json.loads(cluster.file.read_text())

    def join(self, cluster, *arguments, at=None, goes_on=True):
        """Starts a node that asks one of the cluster's nodes. Meanwhile rank 0 is stopped, and the others wait for it, so that it does not come too
        late."""
        os.kill(cluster.nodes[0], signal.SIGSTOP)
        joiner = self.start(*SMALL, *MANY, *SURVIVES, "--replicas", 2, "--join", at or cluster.joins_at[1], *arguments)
        support.wait_for_line(joiner, r"asks \S+ to let it join")
        if goes_on:
            os.kill(cluster.nodes[0], signal.SIGCONT)
        return joiner

    def weights_of(self, joiner):
        status, out, err = self.end(joiner)
        self.assertEqual(status, 0, (out, err))
        return re.search(r"weights ([0-9a-f]{16})", out)[1]

    @needs_processes
    def test_a_node_joins(self):
        cluster = self.begin(3)
        joiner = self.join(cluster)
        line = support.wait_for_line(joiner, r"rank (\d+) joined after step (\d+): 4 node")
        report = self.end_of(cluster)
        self.assertEqual(report["joined"], [{"rank": 3, "step": int(line[2]), "nodes": 4}])
        self.assertEqual((report["lost"], report["nodes"]), ([], 4))
        self.assertEqual(self.weights_of(joiner), report["weights_hash"])
        self.as_serial(report, *MANY, "--nodes", 3)

    @needs_processes
    def test_two_nodes_join_and_others_are_lost(self):
        """One of the nodes that are lost is the first one, and one has joined."""
        cluster = self.begin(2)
        first = self.join(cluster)
        support.wait_for_line(first, r"joined after step")
        joins_at = support.wait_for_line(cluster, r"nodes may join at (\S+)")[1].split(",")
        second = self.join(cluster, at=joins_at[2])  # asks the first one that has joined
        support.wait_for_line(second, r"joined after step")
        os.kill(cluster.nodes[0], signal.SIGKILL)
        support.wait_for_line(second, r"rank 0 was lost after step")
        first.send_signal(signal.SIGKILL)
        report = self.end_of(cluster)
        self.assertEqual([(loss["rank"], loss["nodes"]) for loss in report["lost"]], [(0, 3), (2, 2)])
        self.assertEqual([(one["rank"], one["nodes"]) for one in report["joined"]], [(2, 3), (3, 4)])
        self.assertEqual(self.weights_of(second), report["weights_hash"])
        self.as_serial(report, *MANY, "--nodes", 2)

    @needs_processes
    def test_a_node_that_is_killed_while_it_joins_costs_nothing(self):
        shortly = "--timeout", 4  # the others wait so long for its connection
        cluster = self.begin(2, *shortly)
        joiner = self.join(cluster, "--fail-at", "2@1:view", *shortly)
        self.assertEqual(self.end(joiner)[0], -signal.SIGKILL)
        report = self.end_of(cluster)
        self.assertEqual((report["joined"], report["lost"], report["nodes"]), ([], [], 2))
        self.assertEqual(report["weights_hash"], results(*SMALL, *MANY, "--nodes", 2, "--serial", "--sync", "bsp")["weights_hash"])

    @needs_processes
    def test_nodes_that_are_lost_in_their_first_step_cost_nothing(self):
        """Both have joined with the same view, and no other node has what they owned in it."""
        cluster = self.begin(2)
        at_once = "--fail-at", ",".join(f"{rank}@{step}:compute" for rank in (2, 3) for step in range(2000))
        joiners = [self.join(cluster, *at_once, goes_on=False), self.join(cluster, *at_once)]
        for joiner in joiners:
            self.assertEqual(self.end(joiner)[0], -signal.SIGKILL)
        report = self.end_of(cluster)
        # A node that joins may end before the others have begun the view that has let it in: then it is none of its members.
        self.assertEqual((len(report["joined"]), report["nodes"]), (len(report["lost"]), 2))
        self.as_serial(report, *MANY, "--nodes", 2)

    @needs_processes
    def test_nodes_with_other_settings_and_strangers_do_not_join(self):
        cluster = self.begin(2, "--step-ms", 3)  # so that it lasts until all of them have asked
        for other, named in ((("--seed", 7), "--seed: 1 there, 7 here"), (("--replicas", 3), "--replicas"), (("--epochs", 3), "--epochs"), (("--link", "tcp"), "--link")):
            status, _, err = self.end(self.join(cluster, *other))
            self.assertEqual(status, 1)
            self.assertRegex(err, "^param_sync: cannot join: the nodes that train have another .*" + re.escape(named))
        host, port = cluster.joins_at[1].split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with socket.create_connection((host, int(port))):
                report = self.end_of(cluster)
        self.assertEqual((report["joined"], report["lost"]), ([], []))
        self.assertEqual(report["weights_hash"], results(*SMALL, *MANY, "--nodes", 2, "--serial", "--sync", "bsp")["weights_hash"])

    @needs_processes
    def test_a_node_that_asks_in_the_last_step_is_told_that_the_training_has_ended(self):
        """Members look for others after 32 steps, or at the end of an epoch: here only after the last step."""
        slow = "--hidden", "512,512", "--epochs", 1
        cluster = self.begin(2, *slow, waits_for="")
        status, _, err = self.end(self.join(cluster, *slow))
        self.assertEqual(status, 1)
        self.assertRegex(err, "cannot join: .* has ended before it let this node in")
        report = self.end_of(cluster)
        self.assertEqual((report["joined"], report["steps"], len(report["node_reports"])), ([], 30, 2))

    def test_nobody_to_join(self):
        nobody = ",".join(own_addresses(2))
        status, _, err = run(*SMALL, *SURVIVES, "--replicas", 2, "--join", nobody)
        self.assertEqual(status, 1)
        self.assertRegex(err, f"^param_sync: cannot join: {nobody.split(',')[0]}: cannot reach a member .*; {nobody.split(',')[1]}: ")

    def test_serial_runs_count_nodes_that_join(self):
        report = results(*SMALL, "--nodes", 2, "--sync", "bsp", "--serial", "--nodes-after", "10:4,12:3")
        self.assertEqual(report["joined"], 2 * [{"rank": -1, "step": 10, "nodes": 4}])
        self.assertEqual(report["lost"], [{"rank": -1, "step": 12, "nodes": 3}])
        lost = [results(*SMALL, "--nodes", 4, "--sync", "bsp", "--serial", *how)["weights_hash"] for how in (("--lost", "5,5"), ("--nodes-after", "5:2"))]
        self.assertEqual(*lost)

    def test_misuse(self):
        for message, arguments in (("--replicas needs --sync bsp", ("--replicas", 2)),
                                   ("--replicas needs --sync bsp", ("--replicas", 2, "--sync", "async")),
                                   ("at most as many replicas as nodes", ("--replicas", 3, "--sync", "bsp", "--nodes", 2)),
                                   ("--replicas and --in-process exclude", ("--replicas", 2, "--sync", "bsp", "--in-process")),
                                   ("--replicas and --codec exclude", ("--replicas", 2, "--sync", "bsp", "--codec", "bf16")),
                                   ("--lost needs --serial --sync bsp", ("--lost", 3)),
                                   ("--nodes-after needs --serial --sync bsp", ("--nodes-after", "3:2")),
                                   ("--lost and --nodes-after exclude", ("--nodes-after", "3:2", "--lost", 3, "--serial", "--sync", "bsp")),
                                   ("'3:0' is not STEP:NODES", ("--nodes-after", "3:0", "--serial", "--sync", "bsp")),
                                   ("'3' is not STEP:NODES", ("--nodes-after", "3", "--serial", "--sync", "bsp")),
                                   ("--join needs --sync bsp and --replicas", ("--join", "127.0.0.1:7")),
                                   ("--join and --nodes exclude", (*SURVIVES, "--replicas", 2, "--join", "127.0.0.1:7", "--nodes", 3)),
                                   ("--join and --serial exclude", (*SURVIVES, "--join", "127.0.0.1:7", "--serial")),
                                   ("127.0.0.1:0 has no port", (*SURVIVES, "--replicas", 2, "--join", "127.0.0.1:0")),
                                   ("it needs HOST:PORT", (*SURVIVES, "--replicas", 2, "--join", "")),
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
