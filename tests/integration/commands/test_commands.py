#!/usr/bin/env python3
"""Promises of ./run: it takes what the machine has, says what it lacks, and a command that is refused loses nothing.

usage: test_commands.py SOURCE_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import errno
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 60
# In the place of param_sync: refuses --foo, fails with --fail, else writes the files that it is to write.
PARAM_SYNC = """#!/bin/bash
echo "called: $*"
case " $* " in *" --foo "*) exit 2 ;; *" --fail "*) exit 1 ;; *" --help "*) exit 0 ;; esac
while [ $# -gt 0 ]; do
  case "$1" in --json | --series) echo new >"$2" ;; esac
  shift
done
"""
# What gpusock-bench would measure.
MEASURED = {"benchmark": "lat", "date": "2026-01-02T03:04:05Z", "commit": "0", "device": {"kind": "cpu", "name": "Imaginary"}, "server": "",
            "machine": {"cpu_model": "Imaginary", "cores": 2, "kernel": "Linux", "compiler": "g++", "load_before": 0},
            "options": {"link": "tcp", "between": "kernels", "group": "thread", "sockets": 1, "ring_bytes": 0, "duration_s": 0.05, "iterations": 0, "repeat": 1},
            "contestants": [{"name": name, "description": name} for name in ("gpusock", "raw TCP")],
            "sizes": [{"bytes": 64, "group": "thread", **{
                "medians": {name: {"p50_ns": 9, "p99_ns": 9} for name in ("gpusock", "raw TCP")}, "histograms": {name: [[9, 1]] for name in ("gpusock", "raw TCP")},
                "rounds": [{name: {"p50_ns": 9, "p99_ns": 9} for name in ("gpusock", "raw TCP")}]}}]}


def stand_in(command, functions):
    """./run COMMAND as bash has it, with these functions in the place of what takes time."""
    return f"""set -euo pipefail
cd "$SOURCE"
root=$PWD invoked_from=$PWD
. scripts/common.sh
. scripts/{command}.sh
{functions}
main "$@"
"""


BUNDLE = stand_in("bundle", """
require_packages() { :; }
build_programs() { echo "build $preset"; }
fill_bundle() { mkdir -p "$1"; echo "fill $1 $2 $3 in ${build_folder:-its folder} with ${build_options[*]:-nothing}"; }
""")
TEST = stand_in("test", """
require_packages() { case " $* " in *" clang "*) echo "installs clang" ;; esac; }
build() { echo "build $1, $tests_wanted"; }
begin_tests() { echo "test $1"; }
print_skipped() { :; }
test_python() { echo "test the package"; }
""")
SOAK = stand_in("soak", """
require_packages() { :; }
build() { echo "build $*, $tests_wanted" >&2; exit 1; }
""")


class Commands(unittest.TestCase):
    source = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tools = self.folder / "tools"
        self.tools.mkdir()

    def tool(self, name, text="#!/bin/sh\n"):
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def gpu(self, there):
        self.tool("nvidia-smi", "#!/bin/sh\n" + ("echo 'GPU 0: Imaginary 9000'\n" if there else "exit 9\n"))

    def attempt(self, *command, **environment):
        path = f"{self.tools}:{os.environ['PATH']}"
        variables = dict(os.environ, PATH=path, SOURCE=self.source, **environment)
        return subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
                              check=False, cwd=self.folder)

    def run_bundle(self, *arguments, **environment):
        return self.attempt("bash", "-c", BUNDLE, "bundle", *arguments, str(self.folder / "made"), **environment)

    def fill(self, preset):
        """A bundle whose programs are the ones above."""
        bundle = self.folder / "bundle"
        (bundle / "bin").mkdir(parents=True)
        shutil.copytree(pathlib.Path(self.source) / "scripts", bundle / "scripts")
        shutil.copy(pathlib.Path(self.source) / "run", bundle / "run")
        (bundle / "BUNDLE").write_text("0\n")
        (bundle / "BUNDLE.preset").write_text(preset + "\n")
        for name, writes in (("param_sync", "new"), ("gpusock-bench", json.dumps(MEASURED))):
            (bundle / "bin" / name).write_text(PARAM_SYNC.replace("echo new", f"echo '{writes}'"))
            (bundle / "bin" / name).chmod(0o755)
        return bundle

    def test_a_bundle_is_for_what_the_demo_could_run_on(self):
        nvcc = str(self.tool("nvcc", "#!/bin/sh\necho sm_80 sm_90\n"))
        for gpu, options, preset in ((False, [], "host"), (True, [], "cuda"), (True, ["--device", "cpu"], "host"),
                                     (False, ["--device=cuda"], "cuda"), (False, ["--device", "cuda"], "cuda")):
            with self.subTest(gpu=gpu, options=options):
                self.gpu(gpu)
                done = self.run_bundle(*options, CUDACXX=nvcc)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn(f"build {preset}\n", done.stdout)
                how = "in build/cuda-90 with -DGPUSOCK_CUDA_ARCHITECTURES=90-real" if preset == "cuda" else "in its folder with nothing"
                self.assertIn(f"fill {self.folder}/made {preset} part {how}\n", done.stdout)
        self.gpu(False)
        self.assertIn("./run bundle --device cuda", self.run_bundle(CUDACXX=nvcc).stdout)

    def test_tests_run_once_or_in_the_builds_that_are_named(self):
        nvcc = str(self.tool("nvcc"))
        for gpu, options, builds, left_out in (
                (False, [], ["host"], "sanitizers"), (True, [], ["host", "cuda"], "sanitizers"), (False, ["--all"], ["host", "asan", "tsan", "cuda"], "RDMA"),
                (False, ["--only", "asan,tsan"], ["asan", "tsan"], None), (True, ["--only=tsan", "--all"], ["tsan"], None), (True, ["--only", "host"], ["host"], None),
                (False, ["--only", "clang"], ["clang"], None)):
            with self.subTest(gpu=gpu, options=options):
                self.gpu(gpu)
                done = self.attempt("bash", "-c", TEST, "test", *options, CUDACXX=nvcc)
                self.assertEqual(done.returncode, 0, done.stdout)
                share = "all" if "--all" in options else "share"
                self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("build ")], [f"build {build}, {share}" for build in builds])
                self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("test ")], [f"test {build}" for build in builds])
                self.assertIn(f"all tests passed: {' '.join(builds)}\n", done.stdout)
                self.assertEqual("installs clang" in done.stdout, bool({"asan", "tsan", "clang"} & set(builds)))
                self.assertEqual("not run here" in done.stdout, left_out is not None)
                self.assertIn(left_out or "", done.stdout)

    def test_soak_builds_what_the_tests_leave_out(self):
        self.assertIn("build host simulation, all\n", self.attempt("bash", "-c", SOAK, "soak").stdout)

    def test_builds_that_have_no_tests_are_refused_before_anything_is_built(self):
        for options in (["--only"], ["--only", "fuzz"], ["--only", "host,python"], ["--only", "host,,tsan"], ["--only=,"], ["--only="], ["tsan"]):
            with self.subTest(options=options):
                done = self.attempt("bash", "-c", TEST, "test", *options)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertNotIn("build host", done.stdout)
        self.assertIn("test the package", self.attempt("bash", "-c", TEST, "test", "--only", "python").stdout)

    def test_a_bundle_that_cannot_be_is_refused_before_anything_is_built(self):
        for options, status, says in ((["--device", "tpu"], 2, "--device is cpu or cuda"), (["--device=tpu"], 2, "--device is cpu or cuda"),
                                      (["--speed"], 2, "--speed"), (["--device", "cuda"], 1, "needs nvcc"), (["here"], 2, "one folder"),
                                      (["--data", "some"], 2, "--data is part"), (["--device", "cpu", "--arch", "90"], 2, "--arch is for")):
            with self.subTest(options=options):
                done = self.run_bundle(*options, CUDACXX="/nowhere/nvcc")
                self.assertEqual(done.returncode, status, done.stdout)
                self.assertIn(says, done.stdout)
                self.assertNotIn("build", done.stdout.replace("./run bundle", ""))

    def test_a_bundle_for_chosen_gpus_is_built_apart(self):
        nvcc = str(self.tool("nvcc", "#!/bin/sh\nprintf '%s\\n' sm_80 sm_90 sm_90a\n"))
        done = self.run_bundle("--device", "cuda", "--arch", "80,90a", "--data", "none", CUDACXX=nvcc)
        self.assertIn("cuda none in build/cuda-80-90a with -DGPUSOCK_CUDA_ARCHITECTURES=80-real;90a-real\n", done.stdout)
        self.assertIn("cuda part in build/cuda-90 with -DGPUSOCK_CUDA_ARCHITECTURES=90-real\n", self.run_bundle("--device", "cuda", CUDACXX=nvcc).stdout)
        for wrong, status, says in (("91", 1, "makes no code for sm_91; it makes: sm_80 sm_90"), ("sm_90", 2, "numbers as in 80,90")):
            done = self.run_bundle("--device", "cuda", "--arch", wrong, CUDACXX=nvcc)
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertIn(says, done.stdout)

    def test_a_bundle_is_unpacked_once_and_says_where_it_cannot_be(self):
        bundle = self.fill("host")
        packed = self.folder / "packed"
        (packed / "bin").mkdir(parents=True)
        (packed / "tests").mkdir()
        (packed / "bin" / "seldom").write_text("new")
        subprocess.run(["tar", "-C", str(packed), "-czf", str(bundle / "packed.tar.gz"), "bin", "tests"], check=True)
        for _ in range(2):
            done = self.attempt(bundle / "run", "unpack")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual((bundle / "bin" / "seldom").read_text(), "new")
            (bundle / "bin" / "seldom").write_text("new")
        self.assertEqual([path.name for path in bundle.glob("unpacked*")], [])
        (bundle / "packed.tar.gz").write_text("cut off")
        (bundle / "tests").rmdir()
        done = self.attempt(bundle / "run", "unpack")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("cannot unpack", done.stdout)
        self.assertEqual([path.name for path in bundle.glob("unpacked*")], [])

    def test_a_bundle_for_gpus_says_so_where_there_is_none(self):
        if list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            self.skipTest("there is a GPU here")
        bundle = self.fill("cuda")
        self.gpu(False)
        for command in ("demo", "bench"):
            done = self.attempt(bundle / "run", command)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("this machine has none", done.stdout)
            self.assertIn("./run bundle --device cpu", done.stdout)
            self.assertNotIn("called", done.stdout)
            self.assertEqual(self.attempt(bundle / "run", command, "--help").returncode, 0)
        self.gpu(True)
        done = self.attempt(bundle / "run", "demo")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_bandwidth_is_measured_by_many_threads_of_a_gpu_and_by_one_of_the_cpu_device(self):
        self.gpu(True)
        for preset, calls in (("cuda", "--group block --block-threads 512 --sockets 8"), ("host", "--group thread")):
            bundle = self.fill(preset)
            done = self.attempt(bundle / "run", "bench")
            self.assertEqual(done.returncode, 0, done.stdout)
            for what, link, threads in (("bw", "p2p", calls), ("bw", "tcp", calls), ("lat", "p2p", "--group thread")):
                self.assertRegex(done.stdout, rf"called: {what} --link {link} --between kernels --size [\dKM,]+ {threads} --json")
            shutil.rmtree(bundle)

    def test_the_usual_benchmarks_end_with_a_page_of_them(self):
        bundle = self.fill("host")
        done = self.attempt(bundle / "run", "bench")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("page: out/bench/index.html", done.stdout)
        page = (bundle / "out/bench/index.html").read_text()
        results = list((bundle / "out/bench").glob("*.json"))
        self.assertEqual(page.count("<h2>"), 1 + len(results))  # one for all of them
        self.assertEqual(done.stdout.count("called: "), len(results))
        (bundle / "bin/gpusock-bench").write_text("#!/bin/sh\nexit 1\n")
        self.assertEqual(self.attempt(bundle / "run", "bench").returncode, 1)
        shutil.rmtree(bundle / "out")
        self.assertEqual(self.attempt(bundle / "run", "bench", "lat").returncode, 1)
        self.assertFalse((bundle / "out").exists())

    @staticmethod
    def read_all(terminal):
        """What was written to a terminal that nobody has open any more: it comes in pieces, then an error."""
        said = b""
        try:
            while piece := os.read(terminal, 4096):
                said += piece
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return said.decode()

    def test_packages_are_installed_after_a_yes_and_nothing_after_a_no(self):
        self.tool("dpkg-query")
        self.tool("id", "#!/bin/sh\necho 0\n")
        self.tool("apt-get", "#!/bin/sh\necho apt-get was called >&2\n")
        script = 'cd "$SOURCE"; . scripts/common.sh; assume_yes=$1; . scripts/packages.sh; require_packages imaginary'
        for assumed, typed, status in (("no", b"n\n", 1), ("no", b"\4", 1), ("no", b"\n", 0), ("no", b"yes\n", 0), ("yes", b"", 0)):
            with self.subTest(assumed=assumed, typed=typed):
                ours, theirs = pty.openpty()
                variables = dict(os.environ, PATH=f"{self.tools}:{os.environ['PATH']}", SOURCE=self.source)
                os.write(ours, typed)
                done = subprocess.run(["bash", "-c", script, "-", assumed], env=variables, stdin=theirs, stdout=theirs,
                                      stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
                os.close(theirs)
                said = self.read_all(ours)
                os.close(ours)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn("installing 1 packages: imaginary", said)
                self.assertEqual("apt-get was called" in done.stderr, status == 0, done.stderr)
                self.assertEqual("[Y/n]" in said + done.stderr, assumed == "no")
        self.assertIn("apt-get was called", self.attempt("bash", "-c", script, "-", "no").stdout)  # nobody to ask

    def test_a_demo_without_results_keeps_those_of_the_last_one(self):
        bundle = self.fill("host")
        results = bundle / "out" / "demo"
        done = self.attempt(bundle / "run", "demo")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("results: out/demo/param_sync.json", done.stdout)
        (results / "param_sync.json").write_text("old\n")
        for option, status in (("--foo", 2), ("--fail", 1), ("--help", 0)):
            done = self.attempt(bundle / "run", "demo", option)
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertNotIn("results:", done.stdout)
            self.assertEqual((results / "param_sync.json").read_text(), "old\n", option)
        self.assertEqual(self.attempt(bundle / "run", "demo", "--hosts", "2", "--nodes", "2").returncode, 2)
        self.assertEqual((results / "param_sync.json").read_text(), "old\n")
        self.attempt(bundle / "run", "demo")
        self.assertEqual((results / "param_sync.json").read_text(), "new\n")
        left = sorted(path.name for path in results.iterdir() if path.suffix != ".svg")
        self.assertEqual(left, ["param_sync.json", "param_sync.tsv"])

    def test_a_gpu_check_that_cannot_be_keeps_the_results_of_the_last_one(self):
        bundle = self.fill("host")
        self.gpu(True)
        (bundle / "gpu-check").mkdir()
        (bundle / "gpu-check" / "results.txt").write_text("PASS\n")
        done = self.attempt(bundle / "run", "gpu-check")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("built without nvcc", done.stdout)
        self.assertEqual((bundle / "gpu-check" / "results.txt").read_text(), "PASS\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(2)
    Commands.source = sys.argv.pop()
    unittest.main()
