"""How soon param_sync ends when a node dies. Run by ctest."""
import os
import signal
import time

import support
from support import LINKS_BETWEEN_PROCESSES, Runs, needs_processes


@needs_processes
class Promptness(Runs):
    """How soon a run ends; alone on the machine."""

    def test_a_killed_node_ends_all_others_within_five_seconds(self):
        for link, scheme in [*((link, "ps:even") for link in LINKS_BETWEEN_PROCESSES), *(("tcp", scheme) for scheme in ("ring", "chain", "rhd", "sfb,adam-fc,ps"))]:
            cluster, nodes = self.training_cluster("--link", link, "--scheme", scheme)
            self.assertEqual(sorted(nodes), [0, 1, 2, 3])
            killed_at = time.monotonic()
            os.kill(nodes[2], signal.SIGKILL)
            status, _, err = self.end(cluster)
            self.assertLess(time.monotonic() - killed_at, 5, (link, scheme))
            self.assertEqual(status, 1)
            self.assertIn("rank 2 was killed by signal 9", err)
            for rank in (0, 1, 3):
                self.assertIn(f"rank {rank}: lost rank 2: ", err, (link, scheme))
            self.assertFalse([pid for pid in nodes.values() if support.is_running(pid)])


if __name__ == "__main__":
    support.main()
