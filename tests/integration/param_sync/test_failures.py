"""What param_sync promises when nodes die, hang, or do not come. Run by ctest."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import support
from support import ENDLESS, LINKS_BETWEEN_PROCESSES, SCHEMES, SMALL, Runs, needs_processes


@needs_processes
class Failures(Runs):
    """A run that cannot end well ends, says why, and leaves nothing behind."""

    def test_a_node_that_hangs_is_given_up_and_named(self):
        """It alone, though all others wait for each other, too, and each may give up another of its waits first."""
        stopped = []
        for scheme in (*SCHEMES, "rhd", "sfb,adam-fc,ps"):  # each cluster only waits while the next one starts
            cluster, nodes = self.training_cluster("--timeout", 2, "--scheme", scheme)
            os.kill(nodes[1], signal.SIGSTOP)
            stopped.append((scheme, cluster, nodes))
        for scheme, cluster, nodes in stopped:
            status, _, err = self.end(cluster)
            self.assertEqual(status, 1, scheme)
            self.assertRegex(err, r"\Aparam_sync: rank 1 has made no progress for 2 s: rank [023] waited for rank 1's "
                                  r"(gradients|new weights) of step \d+; raise --timeout if it is only slow\n\Z", scheme)
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    def test_a_node_started_by_hand_says_for_whom_it_waited(self):
        peers = ",".join(support.own_addresses(2))
        nodes = [self.start(*ENDLESS, "--nodes", 2, "--rank", rank, "--peers", peers, "--timeout", 2) for rank in (0, 1)]
        support.wait_for_line(nodes[0], r"step \d+/")
        nodes[1].send_signal(signal.SIGSTOP)
        status, _, err = self.end(nodes[0])
        self.assertEqual(status, 1)
        self.assertRegex(err, r"\Aparam_sync: rank 0: waited 2 s in vain for rank 1's (gradients|new weights) of step \d+\. ")

    def test_nodes_started_by_hand_say_no_rank_to_be_lost_that_lives(self):
        for sent, timeout in ((signal.SIGKILL, 30), (signal.SIGSTOP, 4)):
            runs = {}
            for link in LINKS_BETWEEN_PROCESSES:  # side by side
                peers = ",".join(support.own_addresses(3))
                runs[link] = [self.start(*ENDLESS, "--rank", rank, "--peers", peers, "--timeout", timeout, "--link", link, "--scheme", "ring") for rank in range(3)]
            for nodes in runs.values():
                for node in nodes:
                    support.wait_for_line(node, r"step \d+/")
                nodes[1].send_signal(sent)
            for link, nodes in runs.items():
                for rank in (0, 2):
                    status, _, err = self.end(nodes[rank])
                    self.assertEqual(status, 1)
                    self.assertRegex(err, f"lost rank 1: |the lost rank is unknown|waited {timeout} s in vain", (sent, link))
                    self.assertNotRegex(err, "lost rank [02]: ", (sent, link))

    def test_interrupting_a_cluster_ends_all_its_nodes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            cluster, nodes = self.training_cluster()
            cluster.send_signal(number)
            status, _, err = self.end(cluster)
            self.assertEqual((status, err), (1, "param_sync: interrupted\n"))
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    def test_a_node_that_sees_the_others_end_first_is_interrupted_all_the_same(self):
        cluster, nodes = self.training_cluster("--link", "tcp")
        os.kill(nodes[2], signal.SIGSTOP)
        try:
            cluster.send_signal(signal.SIGTERM)
            self.wait_for_the_end_of(nodes[rank] for rank in (0, 1, 3))
        finally:  # nobody could wait for its end otherwise
            with contextlib.suppress(ProcessLookupError):
                os.kill(nodes[2], signal.SIGCONT)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))

    def test_killing_the_cluster_ends_its_nodes(self):
        cluster, nodes = self.training_cluster()
        cluster.kill()
        self.end(cluster)
        self.wait_for_the_end_of(nodes.values())

    def starting_cluster(self, *options):
        """A cluster of two whose nodes wait for their data, which comes once somebody writes it into the pipe; and its nodes."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for file in support.DATA.folder.iterdir():
            (pathlib.Path(folder.name) / file.name).symlink_to(file)
        self.pipe = pathlib.Path(folder.name) / "train-images-idx3-ubyte"
        self.pipe.unlink()
        os.mkfifo(self.pipe)
        cluster = self.start(*ENDLESS, "--data", folder.name, "--nodes", 2, *options, env=dict(os.environ, GPUSOCK_OBSERVE=folder.name))
        nodes = {}
        while len(nodes) < 2:
            nodes = support.node_processes(cluster)
        return cluster, nodes

    def test_a_signal_to_a_node_that_starts_is_told(self):
        cluster, nodes = self.starting_cluster()
        os.kill(nodes[1], signal.SIGTERM)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 1 was killed by signal 15 (Terminated)\n"))

    def test_a_signal_to_a_node_that_waits_for_another_to_start_is_told(self):
        cluster, nodes = self.starting_cluster()
        os.kill(nodes[0], signal.SIGSTOP)
        try:
            while not support.is_stopped(nodes[0]):  # until then it may take what is for the other one
                pass
            self.pipe.write_bytes((support.DATA.folder / self.pipe.name).read_bytes())
            deadline = time.monotonic() + support.PATIENCE_S
            while not list(self.pipe.parent.glob(f"gpusock-{nodes[1]}-*")):  # it has a context
                self.assertLess(time.monotonic(), deadline)
            os.kill(nodes[1], signal.SIGTERM)
            self.wait_for_the_end_of([nodes[1]])
        finally:
            with contextlib.suppress(ProcessLookupError):  # where the cluster has ended it
                os.kill(nodes[0], signal.SIGCONT)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 1 was killed by signal 15 (Terminated)\n"))

    def test_a_signal_to_a_node_that_trains_is_told(self):
        cluster, nodes = self.training_cluster()
        os.kill(nodes[3], signal.SIGTERM)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertIn("param_sync: rank 3 was killed by signal 15 (Terminated)\n", err)
        self.assertRegex(err, r"rank 0: lost rank 3: ")

    def test_a_node_that_waits_for_its_peers_can_be_interrupted(self):
        addresses = support.own_addresses(2)
        node = self.start(*SMALL, "--nodes", 2, "--rank", 0, "--peers", ",".join(addresses))
        support.wait_for_line(node, "listening on")
        node.send_signal(signal.SIGTERM)
        status, _, err = self.end(node)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))

    def test_a_peer_that_never_comes_is_named(self):
        addresses = support.own_addresses(2)
        node = self.start(*SMALL, "--rank", 0, "--peers", ",".join(addresses), "--timeout", 0.5)  # as many nodes as --peers lists
        status, _, err = self.end(node)
        self.assertEqual(status, 1)
        self.assertIn(f"rank 1 at {addresses[1]} has not connected: connection timed out", err)

    def test_a_peer_that_cannot_be_reached_is_named(self):
        addresses = support.own_addresses(2)
        node = self.start(*SMALL, "--rank", 1, "--peers", ",".join(addresses), "--timeout", 0.5)
        status, _, err = self.end(node)
        self.assertEqual(status, 1)
        self.assertIn(f"cannot reach rank 0 at {addresses[0]}: connection refused", err)

    def test_memory_that_cannot_be_shared_ends_a_run_at_once(self):
        """It was tried again until --timeout."""
        began = time.monotonic()
        status, _, err = self.end(self.start(*SMALL, "--nodes", 2, "--link", "p2p", "--timeout", 60, env={**os.environ, "GPUSOCK_CPU_SHAPE": "gpu", "GPUSOCK_HOST_RINGS": "off"}))
        self.assertEqual(status, 1)
        self.assertIn("the same GPUSOCK_HOST_RINGS=NAME", err)
        self.assertLess(time.monotonic() - began, 30, err)

    def test_a_stopped_node_is_given_up_in_time_when_all_start(self):
        cluster, nodes = self.starting_cluster("--timeout", 1)
        began = time.monotonic()
        os.kill(nodes[0], signal.SIGSTOP)
        status, _, err = self.end(cluster)
        self.assertEqual((status, err), (1, "param_sync: rank 0 was stopped by a signal, and not continued for 1 s (--timeout)\n"))
        self.assertLess(time.monotonic() - began, 25)  # not kStartSecondsMin

    def test_a_loopback_interface_that_is_down_is_named(self):
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user may make no network namespace")
        cluster = self.start(*SMALL, "--nodes", 2, before=unshare)
        status, _, err = self.end(cluster)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"cannot reach rank \d at 127.0.0.1:\d+: network is unreachable \(ENETUNREACH\): .*`ip link set lo up`")

    def test_other_settings_are_refused_by_name(self):
        for option, value, name in (("--seed", 2, "--seed: "), ("--hidden", "16,9", "model"), ("--batch", 20, "--batch|--epochs"),
                                    ("--scheme", "ps,ring,ps", r"--scheme \(or --prices.*\): layer 36 x 16 has ps(:even)? there, ps(:even)? here"), ("--budget", "10K", "--budget"), ("--lr", 0.01, "--lr"), ("--warmup", 5, "--lr, --warmup, --elastic-lr or --momentum"), ("--limit", 500, "--limit"), ("--epochs", 3, "--epochs")):
            peers = ",".join(support.own_addresses(2))
            common = [*SMALL, "--nodes", 2, "--peers", peers, *(["--scheme", "ps"] if option == "--budget" else [])]
            nodes = [self.start(*common, "--rank", 0), self.start(*common, "--rank", 1, option, value)]
            ends = [self.end(node) for node in nodes]
            self.assertEqual([status for status, _, _ in ends], [1, 1], ends)
            for rank, (_, _, err) in enumerate(ends):
                self.assertRegex(err, f"rank {rank}: rank {1 - rank} was started with another .*({name})")

    def test_strangers_at_the_door_do_not_count(self):
        """One speaks another language; more than there is time for say nothing, one after the other."""
        addresses = support.own_addresses(2)
        peers = ",".join(addresses)
        common = [*SMALL, "--nodes", 2, "--link", "tcp", "--peers", peers]
        first = self.start(*common, "--rank", 0)
        support.wait_for_line(first, "listening on")
        host, port = addresses[0].split(":")
        with contextlib.ExitStack() as doors:
            strangers = [doors.enter_context(socket.create_connection((host, int(port)))) for _ in range(20)]
            strangers[0].sendall(b"GET / HTTP/1.1\r\nHost: somebody else\r\n\r\n".ljust(200))
            second = self.start(*common, "--rank", 1)
            for node in (first, second):
                self.assertEqual(self.end(node)[0], 0)


if __name__ == "__main__":
    support.main()
