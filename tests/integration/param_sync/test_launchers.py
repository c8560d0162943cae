"""What param_sync, and groups of other programs, promise to those who start their ranks with a launcher. Run by ctest."""
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import support
from support import SMALL

WITH_PMIX = os.environ["PARAM_SYNC_PMIX"] == "1"
LAUNCHERS = ("GPUSOCK_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")


def without_launcher(**variables):
    """The environment without what a launcher may have set, and with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**kept, **{name: str(value) for name, value in variables.items()}}


class Launchers(unittest.TestCase):
    reference = None

    @classmethod
    def setUpClass(cls):
        cls.reference = support.results(*SMALL, "--nodes", 3, "--serial")["weights_hash"]

    def start(self, *arguments, **variables):
        process = support.start(*SMALL, *arguments, env=without_launcher(**variables))
        self.addCleanup(lambda: process.poll() is not None or (process.kill(), process.communicate()))
        return process

    def start_group(self, *command, **variables):
        """A rank of the example all_reduce."""
        process = subprocess.Popen([*command, os.environ["ALL_REDUCE"], "--floats", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=without_launcher(**variables))
        self.addCleanup(lambda: process.poll() is not None or (process.kill(), process.communicate()))
        return process

    def expect_sum(self, ranks, starts):
        """They sum 1 + 2 + ... + `ranks`, which rank 0 tells."""
        ends = [self.end(rank) for rank in starts]
        self.assertEqual([status for status, _, _ in ends], [0] * len(ends), ends)
        self.assertEqual("".join(out for _, out, _ in ends), f"{ranks} ranks: the sum is {ranks * (ranks + 1) / 2:.6f}\n")

    def end(self, process):
        out, err = process.communicate(timeout=support.PATIENCE_S)
        return process.returncode, out, err

    def train(self, nodes):
        """All must end with the reference's weights; only rank 0 tells more than those."""
        ends = [self.end(node) for node in nodes]
        for rank, (status, out, err) in enumerate(ends):
            self.assertEqual(status, 0, f"rank {rank}: {out}{err}")
            self.assertIn(f"weights {self.reference}", out)
            self.assertEqual("test accuracy" in out, rank == 0, out)

    def refused(self, words, *arguments, **variables):
        status, _, err = self.end(self.start(*arguments, **variables))
        self.assertEqual(status, 2, err)
        self.assertIn(words, err)
        self.assertIn("give --nodes", err)

    def torch(self, rank, address, size=3, arguments=(), **more):
        host, port = address.split(":")
        return self.start(*arguments, RANK=rank, WORLD_SIZE=size, MASTER_ADDR=host, MASTER_PORT=port, **more)

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    @unittest.skipUnless(WITH_PMIX, "built without PMIx")
    def test_mpirun_starts_nodes_that_meet_by_pmix(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "out.json"
            forgiven = pathlib.Path(folder) / "forgiven"
            forgiven.write_text("leak:libpmix\n")  # keeps a few bytes of its own
            status, out, err = self.end(subprocess.Popen(
                ["mpirun", "-n", "3", "--allow-run-as-root", "--oversubscribe", support.PROGRAM, *SMALL, "--scheme", "ps:even",
                 "--json", results],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=without_launcher(TMPDIR=folder,
                                     LSAN_OPTIONS=f"suppressions={forgiven}:print_suppressions=0")))
            self.assertEqual(status, 0, f"{out}{err}")
            self.assertEqual(out.count(f"weights {self.reference}"), 3, out)
            for rank in (1, 2):
                self.assertIn(f"rank {rank}: weights {self.reference}", out)
            # mpirun gives each process a terminal of its own, and here a pipe gets what comes from it.
            self.assertNotRegex(out + err, r"[\x00-\x08\x0b-\x1f\x7f]", "control characters in a log")
            self.assertTrue(results.exists())

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    @unittest.skipUnless(WITH_PMIX, "built without PMIx")
    def test_a_group_of_ranks_that_mpirun_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            forgiven = pathlib.Path(folder) / "forgiven"
            forgiven.write_text("leak:libpmix\n")
            self.expect_sum(3, [self.start_group("mpirun", "-n", "3", "--allow-run-as-root", "--oversubscribe", TMPDIR=folder,
                                                 LSAN_OPTIONS=f"suppressions={forgiven}:print_suppressions=0")])

    def test_a_group_of_ranks_that_meet_or_know_each_other(self):
        address, = support.own_addresses(1)
        host, port = address.split(":")
        self.expect_sum(3, [self.start_group(RANK=rank, WORLD_SIZE=3, MASTER_ADDR=host, MASTER_PORT=port) for rank in range(3)])
        peers = ",".join(support.own_addresses(3))
        self.expect_sum(3, [self.start_group(GPUSOCK_RANK=rank, GPUSOCK_SIZE=3, GPUSOCK_PEERS=peers) for rank in range(3)])

    def test_a_group_without_a_launcher_is_one_rank(self):
        self.expect_sum(1, [self.start_group()])

    def test_a_group_takes_the_link_of_gpusock_link(self):
        """One that there is not here, so that ranks do not find another one."""
        peers = ",".join(support.own_addresses(2))
        ranks = [self.start_group(GPUSOCK_RANK=rank, GPUSOCK_SIZE=2, GPUSOCK_PEERS=peers, GPUSOCK_LINK="fabric",
                                  GPUSOCK_FABRIC_PROVIDER="none") for rank in range(2)]
        status, _, err = self.end(ranks[1])
        self.assertEqual(status, 1)
        self.assertRegex(err, "cannot connect to rank 0 .*: .*(ENODEV|EPROTONOSUPPORT)")

    def test_a_group_says_which_variable_is_wrong(self):
        for words, variables in (("GPUSOCK_RANK is set, but not GPUSOCK_SIZE", {"GPUSOCK_RANK": 0}),
                                 ("RANK=2 contradicts WORLD_SIZE=2", {"RANK": 2, "WORLD_SIZE": 2, "MASTER_ADDR": "a", "MASTER_PORT": 1}),
                                 ("the port is missing", {"GPUSOCK_RANK": 1, "GPUSOCK_SIZE": 2, "GPUSOCK_RENDEZVOUS": "127.0.0.1"})):
            status, _, err = self.end(self.start_group(**variables))
            self.assertEqual(status, 1, err)
            self.assertIn(words, err)
            self.assertNotIn("--nodes", err)  # an option of another program

    def test_pmix_without_its_launcher_is_a_failure_that_says_so(self):
        gone = {"PMIX_RANK": 0, "PMIX_NAMESPACE": "gone", "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}
        status, out, err = self.end(self.start(**gone))
        self.assertNotEqual(status, 0, out)
        self.assertIn("no way to its launcher" if WITH_PMIX else "nothing where the others are", err)
        self.assertIn("--nodes", err)

    def test_torchruns_variables(self):
        address, = support.own_addresses(1)
        nodes = {rank: self.torch(rank, address, arguments=("--scheme", "chain")) for rank in (2, 1, 0)}
        self.train([nodes[rank] for rank in range(3)])

    def test_a_port_that_torchrun_keeps_for_itself(self):
        address, = support.own_addresses(1)
        host, port = address.split(":")
        with socket.create_server((host, int(port))):
            self.train([self.torch(rank, address, TORCHELASTIC_USE_AGENT_STORE="True") for rank in range(3)])

    def test_sruns_variables(self):
        while True:  # a job whose port is free
            job = random.randrange(1, 10000)
            try:
                socket.create_server(("127.0.0.1", 20000 + job)).close()
                break
            except OSError:
                pass
        step = {"SLURM_NTASKS": 3, "SLURM_JOB_NODELIST": "node[07]", "SLURM_JOB_ID": job}
        self.train([self.start("--scheme", "mesh", SLURM_PROCID=rank, **step) for rank in range(3)])

    def test_our_variables_with_a_list(self):
        peers = ",".join(support.own_addresses(3))
        self.train([self.start(GPUSOCK_RANK=rank, GPUSOCK_SIZE=3, GPUSOCK_PEERS=peers) for rank in range(3)])

    def test_our_variables_with_an_address_to_meet_and_a_secret(self):
        address, = support.own_addresses(1)
        run = {"GPUSOCK_SIZE": 3, "GPUSOCK_RENDEZVOUS": address, "GPUSOCK_SECRET": "all know"}
        self.train([self.start(GPUSOCK_RANK=rank, **run) for rank in range(3)])

    def test_options_mean_more_than_the_environment(self):
        status, out, err = self.end(self.start("--nodes", 3, "--serial", GPUSOCK_RANK=5, RANK="nonsense"))
        self.assertEqual(status, 0, err)
        self.assertIn(self.reference, out)

    def test_variables_that_cannot_be_are_misuse(self):
        self.refused("GPUSOCK_RANK is set, but not GPUSOCK_SIZE", GPUSOCK_RANK=0)
        self.refused("contradicts", GPUSOCK_RANK=3, GPUSOCK_SIZE=3, GPUSOCK_PEERS="a:1,b:1,c:1")
        self.refused("the port is missing", GPUSOCK_RANK=0, GPUSOCK_SIZE=2, GPUSOCK_PEERS="127.0.0.1,127.0.0.1:1")
        self.refused("127.0.0.1:0 has no port", GPUSOCK_RANK=0, GPUSOCK_SIZE=2, GPUSOCK_PEERS="127.0.0.1:0,127.0.0.1:1")
        self.refused("the port is missing", GPUSOCK_RANK=0, GPUSOCK_SIZE=2, GPUSOCK_RENDEZVOUS="127.0.0.1")
        self.refused("127.0.0.1:0 has no port", GPUSOCK_RANK=0, GPUSOCK_SIZE=2, GPUSOCK_RENDEZVOUS="127.0.0.1:0")

    def test_a_node_that_never_comes_is_named(self):
        address, = support.own_addresses(1)
        status, _, err = self.end(self.torch(0, address, arguments=("--timeout", 0.5)))
        self.assertEqual(status, 1)
        self.assertIn(f"not all ranks came to {address}: no word from rank 1, 2", err)
        status, _, err = self.end(self.torch(1, address, arguments=("--timeout", 0.5)))
        self.assertEqual(status, 1)
        self.assertIn(f"rank 1 cannot reach rank 0 at {address}", err)

    def test_nodes_that_disagree_are_refused(self):
        soon = {"arguments": ("--timeout", 10)}  # where the first node has refused one before the other comes, that one finds nobody
        for others in ({"size": 2}, {"size": 3}):  # the run has another size; rank 1 comes twice
            address, = support.own_addresses(1)
            nodes = [self.torch(0, address, **soon), self.torch(1, address, **soon), self.torch(1, address, **soon, **others)]
            ends = [self.end(node) for node in nodes]
            self.assertNotIn(0, [status for status, _, _ in ends])
            self.assertIn(f"a rank came that says it is rank 1 of {others['size']}", ends[0][2])

    def test_strangers_do_not_count(self):
        """One speaks another language; more than there is time for say nothing, one after the other."""
        address, = support.own_addresses(1)
        host, port = address.split(":")
        nodes = [self.torch(rank, address) for rank in (0, 1)]
        strangers = []
        while len(strangers) < 20:
            try:
                strangers.append(socket.create_connection((host, int(port))))
                self.addCleanup(strangers[-1].close)
            except ConnectionRefusedError:
                self.assertIsNone(nodes[0].poll())
        with strangers[0] as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n".ljust(200))
            self.train([*nodes, self.torch(2, address)])

    def test_other_hosts_need_a_secret(self):
        status, _, err = self.end(self.torch(1, "192.0.2.1:7000"))
        self.assertEqual(status, 1)
        self.assertIn("GPUSOCK_SECRET", err)

    def test_a_node_that_waits_for_the_others_can_be_interrupted(self):
        address, = support.own_addresses(1)
        host, port = address.split(":")
        node = self.torch(0, address)
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                self.assertIsNone(node.poll())
        node.send_signal(signal.SIGTERM)
        status, _, err = self.end(node)
        self.assertEqual((status, err), (1, "param_sync: interrupted\n"))


if __name__ == "__main__":
    support.main(needs_gpu=False)
