#!/usr/bin/env python3
"""Promises of docs/deploy: its files do what they say, with stand-ins for Slurm and Kubernetes.

usage: test_deploy.py SOURCE_FOLDER PARAM_SYNC

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:  # another Python than the system's, to which the package belongs
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "support"))
from addresses import own_addresses  # noqa: E402

LIMIT_S = 60
SMALL = ["--epochs", "1", "--limit", "1280", "--hidden", "32"]
DATA = "/usr/share/datasets/fashion-mnist"
# Starts a task for each node of the job on this host, as srun does on several.
SRUN = """#!/usr/bin/env bash
set -eu
while [ "${1#-}" != "$1" ]; do shift; done
tasks=()
for ((rank = 0; rank < NODES; rank++)); do
  SLURM_PROCID=$rank SLURM_NTASKS=$NODES SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=0 "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task"; done
"""


class Settings:
    source = param_sync = None


def call(*command, **options):
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False, **options)


def clean_environment(**variables):
    mine = ("GPUSOCK_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(mine)}, **variables}


def weights(nodes):
    alone = call(Settings.param_sync, "--serial", "--nodes", nodes, *SMALL, env=clean_environment())
    return re.search(r"^weights ([0-9a-f]{16})", alone.stdout, re.MULTILINE)[1]


class Deploy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def files(self):
        return [file for file in (Settings.source / "docs" / "deploy").iterdir() if file.is_file()]

    def test_the_options_they_name_exist(self):
        offered = call(Settings.param_sync, "--help").stdout
        named = {}
        for file in self.files():
            for line in file.read_text().splitlines():
                if "param_sync" in line and not line.lstrip().startswith("#"):
                    for option in re.findall(r"(?<=\s)--[a-z-]+", line.split("param_sync", 1)[1]):
                        named[option] = file.name
        self.assertGreater(len(named), 2)
        for option, file in named.items():
            self.assertRegex(offered, rf"{option}\b", f"{file} names an option that param_sync has not")

    def test_the_variables_they_name_are_read(self):
        sources = "".join(file.read_text() for folder in ("apps", "gpusock", "host_proxy", "plain_types")
                          for file in (Settings.source / folder).rglob("*.cpp"))
        for file in self.files():
            for variable in re.findall(r"\bGPUSOCK_(?!WITH_)[A-Z]+\b", file.read_text()):
                self.assertIn(f'"{variable}"', sources, f"{file.name} sets a variable that nothing reads")

    def test_the_batch_file_trains_on_all_nodes_of_a_job(self):
        nodes = 3
        while True:  # a job whose port is free
            job = random.randrange(1, 1 << 20)
            try:
                socket.create_server(("127.0.0.1", 20000 + job % 10000 * 16 % 10000)).close()
                break
            except OSError:
                pass
        self.program("srun", SRUN)
        batch = Settings.source / "docs" / "deploy" / "param_sync.sbatch"
        environment = clean_environment(PATH=f"{self.folder}:{os.environ['PATH']}", NODES=str(nodes), SLURM_JOB_ID=str(job),
                                        PARAM_SYNC=str(Settings.param_sync))
        done = call("bash", batch, *SMALL, cwd=self.folder, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count(f"weights {weights(nodes)}"), nodes, done.stdout)
        self.assertTrue((self.folder / f"param_sync-{job}.json").exists())
        directives = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", batch.read_text(), re.MULTILINE))
        self.assertEqual(directives["ntasks-per-node"], "1")

    def manifest(self):
        text = (Settings.source / "docs" / "deploy" / "param_sync.yaml").read_text()
        return {part["kind"]: part for part in yaml.safe_load_all(text)}

    def test_the_manifests_parts_fit_each_other(self):
        parts = self.manifest()
        service, pods, secret = parts["Service"], parts["StatefulSet"], parts["Secret"]
        template = pods["spec"]["template"]
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(pods["spec"]["serviceName"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"], template["metadata"]["labels"])
        self.assertEqual(pods["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
        variables = {entry["name"]: entry for entry in template["spec"]["containers"][0]["env"]}
        self.assertEqual(int(variables["GPUSOCK_SIZE"]["value"]), pods["spec"]["replicas"])
        first = f"{pods['metadata']['name']}-0.{service['metadata']['name']}"
        self.assertTrue(variables["GPUSOCK_RENDEZVOUS"]["value"].startswith(first + ":"))
        key = variables["GPUSOCK_SECRET"]["valueFrom"]["secretKeyRef"]
        self.assertEqual(key["name"], secret["metadata"]["name"])
        self.assertIn(key["key"], secret["stringData"])

    def test_the_manifests_command_trains_on_all_pods(self):
        pods = self.manifest()["StatefulSet"]["spec"]
        container = pods["template"]["spec"]["containers"][0]
        self.program("sleep", "#!/bin/sh\necho done, and waits\n")
        script, = container["args"]
        script = script.replace("/opt/gpusock/bin/param_sync", f"{Settings.param_sync} {' '.join(SMALL)}")
        script = script.replace("/opt/gpusock/data/fashion-mnist", DATA).replace(" --epochs 10", "")
        meet, = own_addresses(1)
        running = []
        for rank in range(pods["replicas"]):
            environment = clean_environment(GPUSOCK_RANK=str(rank), GPUSOCK_RENDEZVOUS=meet, GPUSOCK_SECRET="pods",
                                            PATH=f"{self.folder}:{os.environ['PATH']}")
            environment.update({entry["name"]: entry["value"] for entry in container["env"] if entry["name"] == "GPUSOCK_SIZE"})
            running.append(subprocess.Popen([*container["command"], script], env=environment, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT, text=True))
        for pod in running:
            self.addCleanup(pod.stdout.close)
            self.addCleanup(pod.wait)
            self.addCleanup(pod.kill)
        expected = weights(pods["replicas"])
        for pod in running:
            printed = pod.communicate(timeout=LIMIT_S)[0]
            self.assertEqual(pod.returncode, 0, printed)
            self.assertIn(f"weights {expected}", printed)
            self.assertIn("done, and waits", printed)


class Bare(unittest.TestCase):
    """Of ./run bare, what makes no system."""

    def test_misuse_is_explained(self):
        for words, *arguments in (("takes a command",), ("bookworm or trixie, not \"woody\"", "--release", "woody", "true"),
                                  ("--release takes", "--release"), ("does not take \"--fast\"", "--fast", "true")):
            done = call(Settings.source / "run", "bare", *arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stdout)
        self.assertEqual(call(Settings.source / "run", "bare", "--help").returncode, 0)


class RdmaTest(unittest.TestCase):
    """Of ./run rdma-test, what needs no virtual machine."""

    def test_misuse_is_explained(self):
        for words, *arguments in (("put -- before a command", "true"), ("--limit is a number", "--limit", "soon"),
                                  ("--kernel takes a value", "--kernel")):
            done = call(Settings.source / "run", "rdma-test", *arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stdout)
        self.assertEqual(call(Settings.source / "run", "rdma-test", "--help").returncode, 0)

    def test_every_test_of_the_machine_gets_its_line(self):
        said = """Test project /somewhere
1/5 Test #1: a.b.passes .......................   Passed    1.90 sec
2/5 Test #22: Suite/fails/0 ...................***Failed    0.00 sec
3/5 Test #3: has no device ...................***Skipped   0.01 sec
4/5 Test #4: hangs ...***Timeout  12.00 sec
5/5 Test #5: dies .......................Subprocess aborted***Exception:   0.20 sec
Total Test time (real) =   1.02 sec
"""
        with tempfile.TemporaryDirectory() as out:
            script = Settings.source / "scripts" / "inside_rdma_guest.sh"
            done = call("bash", script, out, "test_verdicts", "host", input=said,
                        env=dict(os.environ, RDMA_VM_DEVICES="rxe0 rxe1", RDMA_VM_ADDRS="10.77.0.1 10.77.0.2"))
        self.assertEqual([line.split() for line in done.stdout.splitlines()],
                         [["PASS", "1", "s", "host:", "a.b.passes"], ["FAIL", "0", "s", "host:", "Suite/fails/0"],
                          ["SKIP", "0", "s", "host:", "has", "no", "device"], ["FAIL-time", "12", "s", "host:", "hangs"],
                          ["FAIL", "0", "s", "host:", "dies"]])


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    Settings.source, Settings.param_sync = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
