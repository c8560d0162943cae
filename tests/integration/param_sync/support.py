"""What the tests of param_sync share: a small data set, running the program, addresses that nobody else uses."""
import contextlib
import json
import math
import os
import pathlib
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "support"))
from addresses import own_addresses  # noqa: E402,F401  of these tests, too

PROGRAM = os.environ["PARAM_SYNC"]
DEVICE = os.environ.get("PARAM_SYNC_DEVICE", "cpu")
SANITIZED = os.environ.get("PARAM_SYNC_SANITIZED", "")
# The links between processes of one host: a GPU's kernels do not reach the memory of another process.
LINKS_BETWEEN_PROCESSES = tuple(os.environ.get("PARAM_SYNC_LINKS", "p2p tcp").split())  # on GPUs tcp alone
PATIENCE_S = 120  # only a hang takes this long


def write_idx(path, shape, data):
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", size) for size in shape) + data)


class SmallData:
    """Three kinds of noisy 6 x 6 images in MNIST's four files."""

    PIXELS, CLASSES, TRAIN, TEST = 36, 3, 600, 60

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="param_sync_test."))
        rng = random.Random(1)
        for prefix, count in (("train", self.TRAIN), ("t10k", self.TEST)):
            labels = bytes(rng.randrange(self.CLASSES) for _ in range(count))
            images = bytes(rng.randrange(100) + (150 if i % self.CLASSES == label else 0)
                           for label in labels for i in range(self.PIXELS))
            write_idx(self.folder / f"{prefix}-images-idx3-ubyte", (count, 6, 6), images)
            write_idx(self.folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


DATA = SmallData()
SMALL = ["--data", str(DATA.folder), "--hidden", "16,8", "--batch", "10", "--epochs", "2"]
# Small batches: as many steps with fewer samples, whose order each node computes before it begins.
ENDLESS = ["--data", str(DATA.folder), "--hidden", "16,8", "--batch", "2", "--epochs", "2000"]
# Parameter servers, and a scheme whose nodes do not all meet.
SCHEMES = ("ps:even", "ring")
# The tensors of SMALL's model, and how many numbers each has.
LAYERS_OF_SMALL = {"layers.0.weight": 36 * 16, "layers.0.bias": 16, "layers.1.weight": 16 * 8, "layers.1.bias": 8, "layers.2.weight": 8 * 3,
                   "layers.2.bias": 3}


def read_safetensors(file):
    """The tensors of a safetensors file, each a tuple of floats, and its metadata."""
    whole = pathlib.Path(file).read_bytes()
    length, = struct.unpack_from("<Q", whole)
    header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    about, end, tensors = header.pop("__metadata__"), 0, {}
    for name, tensor in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
        begin, stop = tensor["data_offsets"]
        count = math.prod(tensor["shape"])
        assert (begin, stop, tensor["dtype"]) == (end, begin + 4 * count, "F32"), (name, tensor)  # no hole, no overlap
        tensors[name], end = struct.unpack(f"<{count}f", data[begin:stop]), stop
    assert end == len(data) and length % 8 == 0
    return tensors, about


def start(*arguments, before=(), stdout=subprocess.PIPE, **more):
    """Starts the program; `before` is a command that starts it, as unshare."""
    command = [*before, PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, **more)


def run(*arguments):
    """Exit status, stdout, stderr."""
    process = start(*arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def results(*arguments):
    """The JSON of a run that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "out.json"
        status, out, err = run(*arguments, "--json", file)
        assert status == 0, f"{arguments}: exit status {status}\n{out}{err}"
        return json.loads(file.read_text())


def wait_for_line(process, pattern):
    """Reads stdout up to a line that matches."""
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"no line matches {pattern}; stderr: {process.stderr.read()}")


def node_processes(cluster):
    """The process ids of a cluster's nodes, by rank."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        children = pathlib.Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
        ranks = {}
        for child in children:
            words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--rank" in words:
                ranks[int(words[words.index("--rank") + 1])] = int(child)
        if ranks:
            return ranks
    raise AssertionError("the cluster has no nodes")


def kill_with_nodes(cluster):
    """Also nodes that are stopped: of a killed cluster, these end only when they are continued, and hold its pipes open."""
    children = pathlib.Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children")
    for child in children.read_text().split() if children.exists() else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    cluster.kill()


def state(pid):
    """As in /proc: R runs, S sleeps, T is stopped, Z has ended."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def is_stopped(pid):
    return state(pid) == "T"


def is_running(pid):
    try:
        return state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while, it was read
        return False


def is_ending(pid):
    """True once all its threads are on their way out: its program runs no more. What is left of it may stay for seconds on a busy machine, while the
    operating system waits for locks of its own."""
    exiting = 4  # PF_EXITING of Linux
    try:
        stats = [(task / "stat").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return not is_running(pid) or is_ending(pid)  # a thread has gone meanwhile
    return all(int(stat.rsplit(")", 1)[1].split()[6]) & exiting for stat in stats)


def kill_at_once(pid):
    """Kills a process, and returns when the operating system has ended it: it ends the process's connections only after it has freed its memory. That
    takes milliseconds, but seconds on a busy machine."""
    process = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        ended, _, _ = select.select([process], [], [], PATIENCE_S)
        assert ended, f"process {pid} was killed, and has not ended for {PATIENCE_S} s"
    finally:
        os.close(process)


def read_errors(process, texts):
    """Reads stderr until all of these texts have come, or until its end."""
    deadline, err = time.monotonic() + PATIENCE_S, ""
    while not all(text in err for text in texts):
        ready, _, _ = select.select([process.stderr], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"not all of {texts} in {err!r}"
        some = os.read(process.stderr.fileno(), 65536)
        if not some:
            break
        err += some.decode()
    return err


def stop_now_and_then(cluster, pauses_s=lambda: (0, 0)):
    """Stops the cluster's nodes one after the other, each for a moment, until the cluster has ended. `pauses_s`: how long the next one goes on before
    that, and how long it is stopped."""
    nodes = node_processes(cluster)
    while cluster.poll() is None:
        for pid in nodes.values():
            before, while_stopped = pauses_s()
            time.sleep(before)
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended
                os.kill(pid, signal.SIGSTOP)
                while is_running(pid) and not is_stopped(pid):
                    pass
                time.sleep(while_stopped)
                os.kill(pid, signal.SIGCONT)


# Processes share one GPU only by turns, and their kernels wait for each other.
needs_processes = unittest.skipIf(DEVICE == "cuda", "several processes do not run at once on one GPU")


class Runs(unittest.TestCase):
    """What the suites share that end runs before their time."""

    def tearDown(self):
        for process in getattr(self, "processes", []):
            kill_with_nodes(process)
            process.communicate(timeout=PATIENCE_S)

    def start(self, *arguments, **more):
        process = start(*arguments, **more)
        self.processes = getattr(self, "processes", []) + [process]
        return process

    def end(self, process):
        out, err = process.communicate(timeout=PATIENCE_S)
        self.processes.remove(process)
        return process.returncode, out, err

    def wait_for_the_end_of(self, pids):
        deadline = time.monotonic() + PATIENCE_S
        for pid in pids:
            while is_running(pid):
                self.assertLess(time.monotonic(), deadline, "a node that was to end runs on")

    def training_cluster(self, *arguments, **more):
        cluster = self.start(*ENDLESS, "--nodes", 4, *arguments, **more)
        wait_for_line(cluster, r"step \d+/")
        return cluster, node_processes(cluster)


def main(needs_gpu=True):
    """Runs the tests of the program that calls. Exit status: 0 kept, 1 broken, 77 there is no GPU, and they need one."""
    if needs_gpu and DEVICE == "cuda" and not os.path.exists("/dev/nvidiactl"):
        print("no GPU here: skipped")
        sys.exit(77)
    try:
        unittest.main(verbosity=2)
    finally:
        DATA.remove()
