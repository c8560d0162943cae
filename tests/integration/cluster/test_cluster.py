"""Promises of ./run cluster and ./run demo --hosts: hosts that are network namespaces.

usage: test_cluster.py SOURCE_FOLDER BUILD_FOLDER SUITE

Exit status: 0 kept, 1 broken, 2 misuse, 77 where no namespaces can be made.
"""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT_S = 60  # only a hang takes this long
NOBODY = 65534


def cluster(*arguments, **more):
    """A cluster that runs. Its signals are as a terminal's user has them, whatever ran this test."""
    restore = lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGQUIT)]  # noqa: E731
    return subprocess.Popen([Settings.run, "cluster", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, text=True, preexec_fn=restore, **more)


def result(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def by_rank(text):
    """The lines of each rank."""
    lines = {}
    for line in text.splitlines():
        rank, rest = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        lines.setdefault(int(rank), []).append(rest)
    return lines


class Settings:
    run = build = None


class Hosts(unittest.TestCase):
    """What a command finds on its host."""

    def lines(self, *arguments, **more):
        status, out, err = result(cluster(*arguments, **more))
        self.assertEqual((status, err), (0, ""), out)
        return by_rank(out)

    def test_each_knows_rank_size_peers_and_secret(self):
        ask = "echo $GPUSOCK_RANK $GPUSOCK_SIZE $GPUSOCK_PEERS; echo $GPUSOCK_SECRET; echo {rank} {size} {address} {peers}"
        lines = self.lines(3, "--", "sh", "-c", ask)
        peers = "10.78.0.1:7000,10.78.0.2:7000,10.78.0.3:7000"
        secrets = set()
        for rank in range(3):
            self.assertEqual(lines[rank][0], f"{rank} 3 {peers}")
            self.assertEqual(lines[rank][2], f"{rank} 3 10.78.0.{rank + 1} {peers}")
            secrets.add(lines[rank][1])
        self.assertEqual(len(secrets), 1)
        self.assertGreaterEqual(len(secrets.pop()), 32)

    def test_a_secret_that_is_set_stays(self):
        environment = dict(os.environ, GPUSOCK_SECRET="mine")
        self.assertEqual(self.lines(1, "--", "sh", "-c", "echo $GPUSOCK_SECRET", env=environment)[0], ["mine"])

    def test_each_has_a_name_and_an_address_and_they_reach_each_other(self):
        meet = """
import socket, sys
rank, size = int(sys.argv[1]), int(sys.argv[2])
if rank == 0:
    with socket.create_server(("10.78.0.1", 7000)) as server:
        for _ in range(size - 1):
            client, (host, _) = server.accept()
            client.sendall(f"you are {host}".encode())
            client.close()
else:
    while True:
        try:
            print(socket.gethostname(), socket.create_connection(("host0", 7000)).recv(100).decode())
            break
        except ConnectionRefusedError:
            pass
"""
        lines = self.lines(3, "--", sys.executable, "-c", meet, "{rank}", "{size}")
        self.assertEqual(lines, {1: ["host1 you are 10.78.0.2"], 2: ["host2 you are 10.78.0.3"]})

    def test_loopback_and_shared_memory_are_each_hosts_own(self):
        look = "touch /dev/shm/mine{rank}; ls /dev/shm; ls /sys/class/net | tr '\\n' ' '; cat /proc/net/dev | grep -c :"
        for rank, lines in self.lines(2, "--", "sh", "-c", look).items():
            self.assertEqual(lines[0], f"mine{rank}")
            self.assertEqual(lines[-1].split()[-1], "2", "loopback and eth0")

    def test_gpusock_bench_measures_between_two_hosts(self):
        bench = Settings.build / "microbench" / "gpusock-bench"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        few = "--between threads --iterations 5 --repeat 1 --sockets 2"
        lines = self.lines(2, "--", "sh", "-c", f"""
if [ {{rank}} = 0 ]; then exec {bench} serve --at {{address}}:7100 --once; fi
until {bench} bw --link tcp --to host0:7100 {few} 2>problem.{{rank}}; do
  grep -q 'Connection refused' problem.{{rank}} || {{ cat problem.{{rank}}; exit 1; }}  # it does not listen yet
  sleep 0.02
done
""", cwd=folder.name)
        self.assertIn("10.78.0.1:7100", lines[0][0])
        self.assertIn("raw TCP GB/s", "\n".join(lines[1]))

    def test_several_clusters_run_at_once(self):
        clusters = [cluster(2, "--", "sh", "-c", "ip -brief address show eth0") for _ in range(4)]
        for running in clusters:
            status, out, err = result(running)
            self.assertEqual(status, 0, err)
            for rank, lines in by_rank(out).items():
                self.assertIn(f"10.78.0.{rank + 1}/24", lines[0])

    def test_links_are_shaped_or_it_says_why_not(self):
        status, out, err = result(cluster(2, "--rate", "1gbit", "--delay", "2ms", "--", "tc", "qdisc", "show", "dev", "eth0"))
        self.assertEqual(status, 0, err)
        for what, shaped in (("bandwidth is not limited", "rate 1Gbit"), ("packets are not delayed", "delay 2ms")):
            self.assertNotEqual(what in err, all(shaped in " ".join(lines) for lines in by_rank(out).values()), f"{out}{err}")

    def test_the_command_runs_where_it_was_started(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.lines(1, "--", "pwd", cwd=folder)[0], [os.path.realpath(folder)])

    @unittest.skipUnless(os.geteuid() == 0, "only root may enter a chroot")
    def test_in_a_chroot_whose_root_is_no_mount_point(self):
        """As in a system that was unpacked into a folder. Here the folder has all that is in / as mounts."""
        with tempfile.TemporaryDirectory() as folder:
            script = """
                set -eu
                for entry in /*; do
                  if [ -L "$entry" ]; then cp -P "$entry" "$1$entry"
                  elif [ -d "$entry" ]; then mkdir -p "$1$entry"; mount --rbind "$entry" "$1$entry"
                  fi
                done
                exec chroot "$1" bash -c 'cd "$1" && exec "$2" cluster 2 -- sh -c "pwd; cat /etc/hosts"' - "$2" "$3"
                """
            # The tests may run in such a system, too.
            in_own_root = ["unshare", "--mount", "--propagation=unchanged", "bash", str(pathlib.Path(Settings.run).parent / "scripts" / "inside_own_root.sh")]
            done = subprocess.run([*in_own_root, "bash", "-c", script, "-", folder, os.getcwd(), Settings.run], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = by_rank(done.stdout)
            self.assertEqual(set(lines), {0, 1})
            for rank in range(2):
                self.assertEqual(lines[rank][0], os.getcwd())
                self.assertIn("10.78.0.2 host1", lines[rank])

    @unittest.skipUnless(os.geteuid() == 0, "this is no root already")
    def test_needs_no_root_where_users_may_have_namespaces(self):
        as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if subprocess.run([*as_nobody, "unshare", "--map-root-user", "--net", "test", "-x", Settings.run], check=False,
                          stderr=subprocess.DEVNULL, cwd="/").returncode != 0:
            self.skipTest("users may have no namespaces here, or not read the project's folder")
        done = subprocess.run([*as_nobody, Settings.run, "cluster", "2", "--", "hostname"], check=False, text=True, cwd="/",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        self.assertEqual(by_rank(done.stdout), {0: ["host0"], 1: ["host1"]})


class Endings(unittest.TestCase):
    """However a cluster ends, its status says how, and nothing is left."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.go = pathlib.Path(folder.name) / "go"
        self.lock = open(pathlib.Path(folder.name) / "lock", "w", encoding="ascii")
        self.addCleanup(self.lock.close)

    def running(self, size, command, more=""):
        """A cluster whose hosts all hold the lock and go on with the command."""
        wait = f"{more} echo up; until [ -e {self.go} ]; do sleep 0.01; done; "
        process = cluster(size, "--", "flock", "--shared", self.lock.name, "sh", "-c", wait + command)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for _ in range(size):
            self.assertIn("up", process.stdout.readline())
        self.go.touch()
        return process

    def nothing_is_left(self):
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self.assertLess(time.monotonic(), deadline, "processes outlive their cluster")
                time.sleep(0.01)

    def test_all_well_is_status_0(self):
        self.assertEqual(result(cluster(2, "--", "true")), (0, "", ""))

    def test_the_first_failure_ends_all_and_is_the_status(self):
        status, _, err = result(self.running(3, "if [ {rank} = 1 ]; then exit 5; fi; exec sleep 1000"))
        self.assertEqual((status, err), (5, "run: cluster: rank 1 ended with status 5; ending the others\n"))
        self.nothing_is_left()

    def test_a_killed_command_is_named(self):
        status, _, err = result(self.running(2, "if [ {rank} = 0 ]; then kill -KILL $PPID $$; fi; exec sleep 1000"))
        self.assertEqual((status, err), (137, "run: cluster: rank 0 ended with status 137 (signal KILL); ending the others\n"))
        self.nothing_is_left()

    def test_signals_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = self.running(2, "exec sleep 1000")
            process.send_signal(number)
            status, _, err = result(process)
            self.assertNotEqual(status, 0)
            self.assertEqual(err, "")
            self.nothing_is_left()
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    def test_a_command_that_ends_well_when_told_to_is_no_failure(self):
        process = self.running(2, "while :; do sleep 0.01; done", more="trap 'exit 0' TERM;")
        process.send_signal(signal.SIGTERM)
        # The lock's holder passes no signal on, but all processes of a host get it.
        self.assertIn(result(process)[0], (0, 143))
        self.nothing_is_left()

    def test_what_does_not_hear_is_killed(self):
        process = self.running(1, "while :; do sleep 1000; done", more="trap '' TERM;")
        process.send_signal(signal.SIGTERM)
        self.assertNotEqual(result(process)[0], 0)
        self.nothing_is_left()

    def test_what_a_command_leaves_behind_ends_with_it(self):
        status, _, err = result(self.running(2, "setsid sleep 1000 & exit 0"))
        self.assertEqual((status, err), (0, ""))
        self.nothing_is_left()

    def test_a_program_that_is_not_there_is_a_failure(self):
        status, _, err = result(cluster(1, "--", "no-such-program"))
        self.assertEqual(status, 127)
        self.assertIn("no-such-program", err)

    def test_misuse_is_explained(self):
        for words, *arguments in (("number of hosts", "0", "true"), ("number of hosts", "x", "true"), ("a command", "2"),
                                  ("--rate", "2", "--rate", "fast", "true"), ("--delay", "2", "--delay", "1", "true"),
                                  ("--frobnicate", "2", "--frobnicate", "true"), ("--rate takes a value", "--rate")):
            status, _, err = result(cluster(*arguments))
            self.assertEqual(status, 2, err)
            self.assertIn(words, err)
        status, out, _ = result(cluster("--help"))
        self.assertEqual(status, 0)
        self.assertIn("GPUSOCK_PEERS", out)


class Training(unittest.TestCase):
    """./run demo --hosts, and launchers' nodes on several hosts: the same training, across hosts."""

    @classmethod
    def setUpClass(cls):
        """The demo of what is built, without building: a bundle that holds it."""
        cls.folder = tempfile.TemporaryDirectory()
        cls.bundle = pathlib.Path(cls.folder.name)
        (cls.bundle / "BUNDLE").write_text("a test\n")
        (cls.bundle / "BUNDLE.preset").write_text("host\n")
        shutil.copytree(Settings.run.parent / "scripts", cls.bundle / "scripts")
        shutil.copy(Settings.run, cls.bundle / "run")
        (cls.bundle / "bin").mkdir()
        (cls.bundle / "bin" / "param_sync").symlink_to(Settings.build / "apps" / "param_sync" / "param_sync")
        (cls.bundle / "data").mkdir()
        (cls.bundle / "data" / "fashion-mnist").symlink_to("/usr/share/datasets/fashion-mnist")
        shutil.copy(Settings.run.parent / "tools" / "schedule_lab" / "figures" / "plot.gp", cls.bundle / "data")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def call(self, *command):
        done = subprocess.run([*map(str, command)], check=False, text=True, cwd=self.bundle, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def test_four_hosts_end_with_the_weights_of_one(self):
        small = ["--epochs", "1", "--limit", "1280", "--hidden", "32"]
        status, alone = self.call("bin/param_sync", "--serial", "--nodes", "4", "--data", "data/fashion-mnist", *small)
        self.assertEqual(status, 0, alone)
        weights = re.search(r"^weights ([0-9a-f]{16})", alone, re.MULTILINE)[1]
        status, across = self.call("./run", "demo", "--hosts", "4", *small)
        self.assertEqual(status, 0, across)
        self.assertEqual(sorted(re.findall(r"^\[(\d)\] weights", across, re.MULTILINE)), ["0", "1", "2", "3"])
        self.assertEqual(set(re.findall(r"weights ([0-9a-f]{16})", across)), {weights})
        self.assertIn(f"the same weights on all 4 hosts: {weights}", across)
        self.assertRegex(across, r"p2p 0\.00 MB, tcp (?!0\.00)", "hosts share no memory")
        self.assertTrue((self.bundle / "out" / "demo" / "param_sync.json").exists())

    def test_what_srun_and_torchrun_set_works_across_hosts(self):
        small = "--epochs 1 --limit 1280 --hidden 32 --data data/fashion-mnist"
        status, alone = self.call("bin/param_sync", "--serial", "--nodes", "3", *small.split())
        self.assertEqual(status, 0, alone)
        weights = re.search(r"^weights [0-9a-f]{16}", alone, re.MULTILINE)[0]
        for variables in ("SLURM_PROCID={rank} SLURM_NTASKS=3 SLURM_JOB_NODELIST=host[0-2] SLURM_JOB_ID=7",
                          "RANK={rank} WORLD_SIZE=3 MASTER_ADDR=host0 MASTER_PORT=29500"):
            node = f"unset GPUSOCK_RANK GPUSOCK_SIZE GPUSOCK_PEERS; {variables} exec bin/param_sync {small}"
            status, printed = self.call("./run", "cluster", "3", "--", "sh", "-c", node)
            self.assertEqual(status, 0, printed)
            self.assertEqual(printed.count(weights), 3, printed)

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    @unittest.skipUnless(os.environ.get("PARAM_SYNC_PMIX") == "1", "built without PMIx")
    def test_mpirun_starts_nodes_on_several_hosts(self):
        """Rank 0's mpirun enters the other hosts instead of calling ssh; then PMIx alone tells the nodes of each other."""
        (self.bundle / "enter").write_text(f"""#!/bin/sh
host=$1; shift
exec nsenter --target "$(cat {self.bundle}/$host)" --net --uts --mount --root sh -c "$*"
""")
        (self.bundle / "host").write_text("""#!/bin/sh
echo $$ >new.$(hostname) && mv new.$(hostname) $(hostname)
if [ $GPUSOCK_RANK != 0 ]; then until [ -e done ]; do sleep 0.02; done; exit 0; fi
until [ -e host1 ] && [ -e host2 ]; do sleep 0.02; done
unset GPUSOCK_RANK GPUSOCK_SIZE GPUSOCK_PEERS
mpirun --allow-run-as-root --host host0,host1,host2 --mca plm_rsh_agent $PWD/enter -x GPUSOCK_SECRET -n 3 "$@"
status=$?
touch done
exit $status
""")
        for script in ("enter", "host"):
            (self.bundle / script).chmod(0o755)
        small = ["--epochs", "1", "--limit", "1280", "--hidden", "32", "--data", self.bundle / "data" / "fashion-mnist"]
        status, alone = self.call("bin/param_sync", "--serial", "--nodes", "3", *small)
        self.assertEqual(status, 0, alone)
        weights = re.search(r"^weights [0-9a-f]{16}", alone, re.MULTILINE)[0]
        status, printed = self.call("./run", "cluster", "3", "--", "./host", self.bundle / "bin" / "param_sync", *small)
        self.assertEqual(status, 0, printed)
        self.assertEqual(printed.count(weights), 3, printed)
        self.assertRegex(printed, r"p2p 0\.00 MB, tcp (?!0\.00)", "hosts share no memory")

    def test_a_node_that_cannot_reach_another_one_is_left_out(self):
        """Rank 2 loses its way to rank 1. Both reach rank 0, which goes on with the lower one."""
        (self.bundle / "cut_host").write_text("""#!/bin/bash
rank=$GPUSOCK_RANK peers=$GPUSOCK_PEERS
unset GPUSOCK_RANK GPUSOCK_SIZE GPUSOCK_PEERS
[ $rank != 2 ] || { rm -f cut others_end; mkfifo others_end; }
bin/param_sync --rank $rank --nodes 3 --peers $peers "$@" 2>&1 | while read -r line; do
  echo "$line"
  [[ $rank != 2 || $line != *step* || -e cut ]] || { ip route add unreachable 10.78.0.2; touch cut; }
done
case $rank in 0) echo >others_end ;; 2) read -r <others_end ;; esac
""")
        (self.bundle / "cut_host").chmod(0o755)
        small = ["--sync", "bsp", "--epochs", "40", "--limit", "960", "--hidden", "8", "--data", "data/fashion-mnist"]
        for silence_s in ("2", "20"):  # on a busy machine a node that nothing has happened to may be silent for 2 s, too
            status, printed = self.call("./run", "cluster", "3", "--", "./cut_host", *small, "--replicas", "2", "--timeout", silence_s)
            if not re.search(r"rank [01] was lost", printed):
                break
        self.assertEqual(status, 0, printed)
        self.assertRegex(printed, r"\[2\] .*rank 2: cannot connect to rank 1 .*EHOSTUNREACH.*the others have gone on without rank 2, as ranks 0, 1")
        lost = re.search(r"rank 2 was lost after step (\d+): 2 node", printed)
        self.assertTrue(lost, printed)
        status, alone = self.call("bin/param_sync", *small, "--serial", "--nodes", "3", "--lost", lost[1])
        self.assertEqual(status, 0, alone)
        weights = re.search(r"^weights [0-9a-f]{16}", alone, re.MULTILINE)[0]
        self.assertEqual(sorted(re.findall(r"^\[(\d)\] " + weights, printed, re.MULTILINE)), ["0", "1"], printed)

    def test_a_node_that_fails_fails_the_demo(self):
        status, printed = self.call("./run", "demo", "--hosts", "2", "--data", "/nonexistent")
        self.assertEqual(status, 1, printed)
        self.assertIn("/nonexistent", printed)

    def test_options_that_do_not_go_with_hosts_are_refused(self):
        for words, *arguments in (("--nodes", "2", "--nodes", "3"), ("number of hosts", "0"), ("--serial", "2", "--serial")):
            status, printed = self.call("./run", "demo", "--hosts", *arguments)
            self.assertEqual(status, 2, printed)
            self.assertIn(words, printed)


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    Settings.run, Settings.build = source / "run", build
    status, _, why = result(cluster(1, "--", "true"))
    if status == 77:
        print(f"skipped: {why.strip()}")
        return 77
    program = unittest.main(argv=[sys.argv[0], sys.argv[3]], exit=False, verbosity=2)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
