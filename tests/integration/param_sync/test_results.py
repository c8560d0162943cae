"""What param_sync promises of its summary, reports and files. Run by ctest."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import support
from support import DEVICE, SMALL, Runs, needs_processes


class Results(Runs):
    """A finished run is told, and nobody who reads it late, or never, keeps it from being ended."""

    MODES = (("--serial",), ("--in-process",)) + (() if DEVICE == "cuda" else ((),))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def wait_for_contents(self, file):
        deadline = time.monotonic() + support.PATIENCE_S
        while not file.exists() or file.stat().st_size == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @needs_processes
    def test_the_data_may_go_once_it_was_read(self):
        data = self.folder / "data"
        shutil.copytree(support.DATA.folder, data)
        cluster = self.start(*SMALL, "--nodes", 2, "--epochs", 8, "--data", data)
        support.wait_for_line(cluster, r"step \d+/")
        shutil.rmtree(data)
        status, out, err = self.end(cluster)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("36 x 16", out)

    def test_a_pipe_gets_the_results(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.processes = [reader]
            status, _, err = self.end(self.start(*SMALL, "--nodes", 2, "--serial", "--json", pipe))
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(json.loads(reader.communicate(timeout=support.PATIENCE_S)[0])["nodes"], 2)

    def test_a_pipe_that_nobody_reads_can_be_given_up(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for mode in self.MODES:
            weights = self.folder / "weights"
            process = self.start(*SMALL, "--nodes", 2, *mode, "--json", pipe, "--save-weights", weights)
            self.wait_for_contents(weights)
            process.send_signal(signal.SIGTERM)
            status, _, _ = self.end(process)
            self.assertIn(status, (1, -signal.SIGTERM), "interrupted by then, or ended while it writes")
            weights.unlink()

    def test_output_that_nobody_reads_can_be_given_up(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        for mode in self.MODES:
            results_file = self.folder / "results"
            process = self.start(*SMALL, "--nodes", 2, *mode, "--json", results_file, stdout=writing)
            self.wait_for_contents(results_file)  # training waited for no reader
            process.send_signal(signal.SIGTERM)
            status, _, _ = self.end(process)
            self.assertEqual(status, -signal.SIGTERM)
            results_file.unlink()


if __name__ == "__main__":
    support.main()
