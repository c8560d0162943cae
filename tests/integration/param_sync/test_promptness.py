"""How soon param_sync ends when a node dies. Run by ctest."""
import contextlib
import os
import pathlib
import signal
import tempfile
import time

import support
from support import LINKS_BETWEEN_PROCESSES, Runs, needs_processes

SURVIVORS = (0, 1, 3)
LOSSES = [f"rank {rank}: lost rank 2: " for rank in SURVIVORS]
LIMIT_S = 4.5  # the cluster kills nodes that still run after five seconds: one that hangs is too late


@needs_processes
class Promptness(Runs):
    """How soon a run ends; alone on the machine."""

    def test_a_killed_node_ends_all_others_within_five_seconds(self):
        for link, scheme in [*((link, "ps:even") for link in LINKS_BETWEEN_PROCESSES), *(("tcp", scheme) for scheme in ("ring", "chain", "rhd", "sfb,adam-fc,ps"))]:
            cluster, nodes = self.training_cluster("--link", link, "--scheme", scheme)
            self.assertEqual(sorted(nodes), [0, 1, 2, 3])
            support.kill_at_once(nodes[2])
            lost_at = time.monotonic()
            err = support.read_errors(cluster, LOSSES)
            while not all(support.is_ending(nodes[rank]) for rank in SURVIVORS):
                pass
            self.assertLess(time.monotonic() - lost_at, LIMIT_S, (link, scheme, err))
            status, _, rest = self.end(cluster)
            err += rest
            self.assertEqual(status, 1)
            self.assertIn("rank 2 was killed by signal 9", err)
            for loss in LOSSES:
                self.assertIn(loss, err, (link, scheme))
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])

    def test_nodes_report_a_loss_before_the_lost_process_is_freed(self):
        """On a busy machine that may take longer than nodes have for their reports. slow_endings.cpp makes it take until the file is opened."""
        with tempfile.TemporaryDirectory() as folder:
            gate = pathlib.Path(folder) / "gate"
            os.mkfifo(gate)
            environment = {**os.environ, "LD_PRELOAD": os.environ["PARAM_SYNC_SLOW_ENDINGS"], "SLOW_ENDINGS_GATE": str(gate)}
            cluster, nodes = self.training_cluster("--link", LINKS_BETWEEN_PROCESSES[0], env=environment)
            os.kill(nodes[2], signal.SIGKILL)
            err = support.read_errors(cluster, LOSSES)
            for loss in LOSSES:
                self.assertIn(loss, err)
            opened = self.open_when_awaited(gate)
            try:
                status, _, rest = self.end(cluster)
            finally:
                os.close(opened)
            self.assertEqual(status, 1)
            self.assertIn("rank 2 was killed by signal 9", err + rest)

    def open_when_awaited(self, gate):
        """Opens the file once somebody waits for that."""
        deadline = time.monotonic() + support.PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # nobody reads it yet
                return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        raise AssertionError("the cluster has waited for no node's process")


if __name__ == "__main__":
    support.main()
