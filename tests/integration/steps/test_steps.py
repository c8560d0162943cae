#!/usr/bin/env python3
"""Promises of scripts/steps.sh: each step has a verdict, none outlives its program, and a step may have steps of its own.

usage: test_steps.py SOURCE_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

LIMIT_S = 60
PROGRAM = """set -euo pipefail
cd "$SOURCE"
. scripts/common.sh
. scripts/steps.sh
out=$OUT
mkdir -p "$out/logs"
"""

# timeout(1) as it is where a signal comes before its fork() has returned: it ends, and its command goes on.
TIMEOUT_WITHOUT_COMMAND = """#!/usr/bin/env python3
import os, signal, subprocess, sys
if sys.argv[1].startswith("--signal"):
    os.execv("/usr/bin/timeout", sys.argv)
os.setpgid(0, 0)
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(143))
sys.exit(subprocess.call(sys.argv[3:]))
"""


class Steps(unittest.TestCase):
    source = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, body):
        program = self.folder / "program.sh"
        program.write_text(PROGRAM + body)
        environment = dict(os.environ, SOURCE=self.source, OUT=str(self.folder / "out"), PROGRAM=str(program))
        return subprocess.Popen(["bash", str(program)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, program):
        said, _ = program.communicate(timeout=LIMIT_S)
        return said

    def test_each_step_has_a_verdict_and_its_figure(self):
        said = self.finish(self.start("""
step good 10 echo 'figure: 7 of 7'
step bad 10 false
step skipped 10 sh -c 'exit 77'
step late 1 sleep 60
"""))
        words = [line.split()[:5:3] for line in said.splitlines()]
        self.assertEqual(words, [["PASS", "good"], ["FAIL-1", "bad"], ["SKIP", "skipped"], ["FAIL-time", "late"]], said)
        self.assertIn("good  (7 of 7)", said)

    def test_a_step_may_be_a_program_that_has_steps(self):
        said = self.finish(self.start("""
if [ $# -gt 0 ]; then "$@"; exit; fi
step outer 10 bash "$PROGRAM" step inner 10 true
step next 10 true
"""))
        self.assertEqual([line.split()[0] for line in said.splitlines()], ["PASS", "PASS"], said)

    def test_a_step_does_not_get_how_its_figure_is_read(self):
        said = self.finish(self.start("""
if [ $# -gt 0 ]; then "$@"; exit; fi
figure_of='s/.*inner *(\\(.*\\))/\\1/p' step outer 10 bash "$PROGRAM" step inner 10 echo 'figure: 7 of 7'
"""))
        self.assertRegex(said, r"outer  \(7 of 7\)")

    def end_with(self, number, status):
        """Ends a program that has a step by a signal; returns when the step is gone."""
        program = self.start('mkfifo "$out/alive"\nstep endless 600 sh -c \'exec 3>"$0/alive"; echo started; sleep 600\' "$out" &\nwait\n')
        alive = self.folder / "out" / "alive"
        logs = alive.parent / "logs"
        while not (alive.exists() and any(logs.glob("endless.*.pid"))) and program.poll() is None:
            pass
        with open(alive, encoding="utf-8") as held:  # until the step has opened it as well
            program.send_signal(number)
            self.assertTrue(select.select([held], [], [], LIMIT_S)[0], "the step goes on")
            self.assertEqual(held.read(), "")  # the end: the step is gone
        self.finish(program)
        self.assertEqual(program.returncode, status)
        alive.unlink()

    def test_who_ends_the_program_ends_its_steps(self):
        self.end_with(signal.SIGTERM, 143)
        self.end_with(signal.SIGINT, 130)

    def test_a_step_ends_even_if_timeout_ends_without_it(self):
        timeout = self.folder / "timeout"
        timeout.write_text(TIMEOUT_WITHOUT_COMMAND)
        timeout.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"):
            self.end_with(signal.SIGTERM, 143)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(2)
    Steps.source = sys.argv.pop(1)
    unittest.main()
