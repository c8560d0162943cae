#!/usr/bin/env python3
"""Promises of ./run gpu-check in a bundle whose programs are stand-ins: what it runs, what it keeps of what fails, and what it needs.

usage: test_gpu_check.py SOURCE_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

LIMIT_S = 200
NEVER_SILENT_S = "600"  # after how many seconds without a line a test counts as hanging, where none does
TESTS = ("calls_test", "connections_test", "fault_matrix_test", "gpu_memory_test", "gpunet_test", "kernels_test", "param_sync_model_test")
DOCTOR = """#!/bin/sh
echo '  ok    gpu         GPU 0: Imaginary 9000,'
echo '                    sm_90, 0000:01:00.0; dmabuf yes, GPUDirect RDMA yes'
echo '  ok    driver  driver 580.1.2 for CUDA 13.0'
"""
# A bundle may be all there is: these may not be called.
ABSENT = ("apt-get", "sudo", "dpkg-query", "cmake", "ninja", "g++", "c++", "nvcc", "readelf", "curl", "git")


class GpuCheck(unittest.TestCase):
    source = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        for name in ABSENT:
            self.program(self.tools / name, f"#!/bin/sh\necho {name} >>'{self.folder}/called'\nexit 1\n")

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, gpus=1):
        self.program(self.tools / "nvidia-smi", "#!/bin/sh\n[ \"$1\" != -L ] || echo 'GPU 0: Imaginary 9000 (UUID: GPU-1)'\n"
                     f"[ \"$1\" != -L ] || [ {gpus} = 1 ] || echo 'GPU 1: Imaginary 9000 (UUID: GPU-2)'\n")

    def sanitizer(self, does):
        """compute-sanitizer; `does`: what it does with "$@", the program and its arguments."""
        self.program(self.tools / "compute-sanitizer", "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  case $1 in --tool | --error-exitcode) shift 2 ;;\n"
                     f"  *) break ;;\n  esac\ndone\n{does}\n")

    def bundle(self, preset="host", doctor=DOCTOR, code="toolkit 13.0\ncode sm_80 sm_90 compute_80\ntests compute_80\n", **does):
        """`does`: by test program, what its tests do."""
        bundle = self.folder / "bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        (bundle / "bin").mkdir(parents=True)
        (bundle / "tests").mkdir()
        (bundle / "data" / "fashion-mnist").mkdir(parents=True)
        shutil.copytree(self.source / "scripts", bundle / "scripts")
        shutil.copy(self.source / "run", bundle / "run")
        (bundle / "BUNDLE").write_text("0\n")
        (bundle / "BUNDLE.preset").write_text(preset + "\n")
        (bundle / "BUNDLE.cuda").write_text(code)
        for name in ("param_sync", "gpusock-bench"):
            self.program(bundle / "bin" / name, "#!/bin/sh\n[ \"$1\" != serve ] || exec echo 'gpusock-bench serves at here:7; measure'\n"
                         "echo \"rings in $GPUSOCK_RING: $*\"\n"
                         "[ \"$1\" != lat ] || echo '        64          13.199          20.160             0.610             0.801    21.95'\n"
                         "[ \"$1\" != bw ] || echo '     65536         0.256           3913         1.869          28519     0.11'\n"
                         "echo 'test accuracy 69.74 %   test loss 0.8961   5756 samples/s   10 steps in 0.4 s'\n")
        self.program(bundle / "bin" / "gpusock-doctor", doctor)
        for name in TESTS:
            stand_in = (pathlib.Path(__file__).parent / "stand_in_test.py").read_text()
            self.program(bundle / "tests" / name, f"#!{sys.executable} -IS\n{stand_in}")
            if name in does:
                (bundle / "tests" / f"{name}.does").write_text("\n".join(does[name]))
        return bundle

    def start(self, bundle, *arguments, **environment):
        variables = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "GPUSOCK_TEST_SILENCE": NEVER_SILENT_S, **environment}
        return subprocess.Popen([bundle / "run", "gpu-check", *arguments], env=variables, cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def check(self, bundle, *arguments, status=0, **environment):
        """What it prints."""
        program = self.start(bundle, *arguments, **environment)
        said, _ = program.communicate(timeout=LIMIT_S)
        self.assertEqual(program.returncode, status, said)
        return said

    def rehearse(self, bundle, *steps, **options):
        chosen = ["--steps", ",".join(steps)] if steps else []
        return self.check(bundle, "--device", "cpu", *chosen, **options)

    def results(self, bundle, folder="out/gpu-check-cpu"):
        """By step, its verdict."""
        lines = (bundle / folder / "results.txt").read_text().splitlines()
        return {line.split()[3]: line.split()[0] for line in lines}

    def listed(self, bundle):
        return [line.split()[0] for line in self.check(bundle, "--list").splitlines()]

    def test_the_list_names_every_step_in_the_order_of_the_document_and_runs_none(self):
        bundle = self.bundle()
        table = (self.source / "docs" / "testing.md").read_text().partition("| steps of gpu-check |")[2].partition("\n\n")[0]
        documented = [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
        self.assertEqual(self.listed(bundle), documented)
        self.assertFalse((bundle / "gpu-check").exists())
        for seconds in (int(line.split()[1]) for line in self.check(bundle, "--list").splitlines()):
            self.assertLessEqual(seconds, 300)

    def test_figures_come_before_the_tests_that_take_minutes(self):
        lines = [line.split() for line in self.check(self.bundle(), "--list").splitlines()]
        figures = [i for i, (name, *_) in enumerate(lines) if name.startswith(("bench-", "demo"))]
        for i, (name, seconds, *_) in enumerate(lines):
            if name != "load" and i < figures[0]:
                self.assertLessEqual(int(seconds), 90, name)
            if name in ("calls", "connections", "faults", "echo-server") or name.startswith("memcheck-"):
                self.assertGreater(i, figures[-1], name)

    def test_what_to_measure_first_is_run_in_that_order(self):
        listed = self.listed(self.bundle())
        text = (self.source / "docs" / "performance.md").read_text().partition("## What to measure first on a GPU")[2]
        items = re.split(r"^\d+\. ", text.partition("\n**")[0], flags=re.MULTILINE)[1:]
        self.assertGreaterEqual(len(items), 5)
        firsts = []
        for item in items:
            steps = [name for name in re.findall(r"`([\w-]+)`", item) if name in listed]
            measured = [name for name in steps if name.startswith(("bench-", "demo"))]
            self.assertTrue(measured, f"no step of gpu-check measures: {item}")
            self.assertEqual(re.findall(r"`((?:bench-|demo)[\w-]*)`", item), measured, "a step that gpu-check does not have")
            firsts.append(listed.index(measured[0]))
        self.assertEqual(firsts, sorted(firsts))

    def test_misuse_is_told_before_anything_runs(self):
        bundle = self.bundle()
        for arguments, says in ((["--steps", "bus,nothing"], 'no step "nothing"; there are: load memory'), (["--steps"], "takes a value"),
                                (["--steps", ","], "names no step"), (["--minutes", "0"], "above 0"), (["--minutes", "soon"], "above 0"),
                                (["--device", "tpu"], "cuda or cpu"), (["--fast"], "--fast")):
            self.assertIn(says, self.check(bundle, "--device", "cpu", *arguments, status=2))
        self.assertFalse((bundle / "out").exists())

    def test_where_there_is_one_gpu_what_needs_two_is_skipped(self):
        self.gpu()
        bundle = self.bundle("cuda")
        said = self.check(bundle, "--steps", "two-gpus,two-gpu-processes,bench-lat-p2p-kernels-device-other-gpu-process,bench-lat-p2p-kernels")
        self.assertEqual(list(self.results(bundle, "gpu-check").values()), ["PASS", "SKIP", "SKIP", "SKIP"], said)
        self.assertIn("there is one GPU", said)

    def test_a_bundle_checks_everything_with_nothing_but_what_it_holds(self):
        self.gpu(2)
        bundle = self.bundle("cuda")
        self.sanitizer('"$@"; status=$?; echo "========= ERROR SUMMARY: 0 errors"; exit $status')
        (bundle / "tests" / "integration" / "echo").mkdir(parents=True)
        (bundle / "tests" / "integration" / "echo" / "test_echo.py").write_text("")
        said = self.check(bundle)
        self.assertIn("sm_90, driver for CUDA 13.0", said)
        results = self.results(bundle, "gpu-check")
        needs_gdrcopy = results.pop("bench-lat-tcp-kernels-device-words")
        self.assertEqual(needs_gdrcopy, "PASS" if pathlib.Path("/dev/gdrdrv").exists() else "SKIP", said)
        self.assertEqual(set(results.values()), {"PASS"}, said)
        results = self.results(bundle, "gpu-check")
        self.assertEqual(list(results), self.listed(bundle))
        self.assertFalse((self.folder / "called").exists(), "a tool that may not be there was called")
        for name in ("summary.txt", "machine.txt", "doctor.txt", "logs/bus.log"):
            self.assertTrue((bundle / "gpu-check" / name).exists(), name)
        page = (bundle / "gpu-check" / "summary.txt").read_text()
        self.assertIn("Imaginary 9000", page)
        for figure in ("bench-lat-p2p-kernels  (round trip p50 13.199 us, p99 20.160 us; raw p50 0.610 us)", "bench-bw-p2p-kernels  (0.256 GB/s; raw 1.869 GB/s)",
                       "demo  (test accuracy 69.74 %   test loss 0.8961   5756 samples/s)", "load  (kernels_test "):
            self.assertIn(figure, page)
        with tarfile.open(bundle / "gpu-check.tar.gz") as archive:
            self.assertLessEqual({f"gpu-check/{name}" for name in ("summary.txt", "results.txt", "machine.txt", "doctor.txt", "logs/bus.log")},
                                 set(archive.getnames()))
            self.assertEqual(archive.extractfile("gpu-check/summary.txt").read().decode(), page)
        for name, says in (("bench-lat-p2p-kernels", "rings in host: lat --link p2p --size 64 "), ("bench-bw-tcp-kernels", "rings in auto: bw --link tcp "),
                           ("bench-bw-p2p-kernels", " --group block --block-threads 512 --sockets 8 "),
                           ("bench-lat-p2p-kernels-device", "rings in device: lat --link p2p --size 64 "), ("demo-serial", "--serial "),
                           ("bench-lat-p2p-kernels-other-process", " --to here:7"),
                           ("bench-lat-p2p-kernels-device-other-process", " --to here:7"), ("bench-lat-p2p-kernels-device-other-gpu", " --answer-gpu 1"),
                           ("bench-lat-p2p-kernels-device-other-gpu-process", " --to here:7")):
            self.assertIn(says, (bundle / "gpu-check" / "logs" / f"{name}.log").read_text())

    def test_a_rehearsal_says_what_it_cannot_show(self):
        bundle = self.bundle()
        said = self.rehearse(bundle, "memory", "bus", "memcheck-bus")
        self.assertEqual(self.results(bundle), {"memory": "SKIP", "bus": "PASS", "memcheck-bus": "SKIP"})
        self.assertIn("memory  (it asks a GPU)", said)
        self.assertIn("nothing here is about a GPU", said)

    def test_a_program_that_is_missing_is_a_failure(self):
        bundle = self.bundle()
        (bundle / "tests" / "gpunet_test").unlink()
        self.assertIn("there is no gpunet_test", self.rehearse(bundle, "compat", status=1))
        self.assertEqual(self.results(bundle), {"compat": "FAIL"})

    def test_programs_are_loaded_first_whatever_their_tests_say(self):
        bundle = self.bundle(gpunet_test=["A.Fails fail", "A.Hangs hang"])
        self.rehearse(bundle, "load")
        page = (bundle / "out" / "gpu-check-cpu" / "summary.txt").read_text()
        self.assertRegex(page, r"PASS +\d+ s  load  \(kernels_test \d+ s, .*gpunet_test \d+ s \(ended with 1\), gpusock-bench \d+ s, param_sync \d+ s\)")

    def test_a_sanitizer_that_may_not_attach_is_skipped_with_its_reason(self):
        self.gpu()
        bundle = self.bundle("cuda")
        self.sanitizer("echo asked >>\"$0.asked\"; echo '========= Error: Target application terminated before first instrumented API call'; exit 1")
        said = self.check(bundle, "--steps", "memcheck-kernels,memcheck-bus")
        self.assertEqual(self.results(bundle, "gpu-check"), {"memcheck-kernels": "SKIP", "memcheck-bus": "SKIP"})
        self.assertIn("compute-sanitizer cannot check a program here: Error: Target application terminated before", said)
        self.assertEqual((self.tools / "compute-sanitizer.asked").read_text(), "asked\n")

    def in_scripts(self, script, *arguments, **environment):
        """What bash prints that has sourced scripts, in the source folder."""
        return subprocess.run(["bash", "-euc", f"cd '{self.source}'; root=$PWD invoked_from=$PWD; . scripts/common.sh; {script}", "_", *map(str, arguments)],
                              text=True, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment}).stdout

    def test_the_gpus_stay_open_for_as_long_as_gpu_check_runs(self):
        for name in ("nvidia0", "nvidia1", "nvidiactl"):
            (self.folder / name).write_text("")
        held = self.in_scripts(". scripts/gpu_machine.sh; hold_gpus \"$1\"; readlink /proc/$$/fd/* || true", self.folder).splitlines()
        self.assertEqual([name for name in held if name.startswith(str(self.folder))], [str(self.folder / name) for name in ("nvidia0", "nvidia1")])

    def test_tests_after_one_that_does_not_pass_are_run_and_it_is_named(self):
        does = ["A.Good pass", "A.Hangs hang", "B.Crashes crash", "B.Leaves exit", "B.Fails fail", "C.Skips skip", "C.Last pass"]
        for silence_s in (1, 4, 16):  # a busy machine makes other tests silent for some time, too
            bundle = self.bundle(gpunet_test=does)
            said = self.rehearse(bundle, "compat", "model", status=1, GPUSOCK_TEST_SILENCE=str(silence_s))
            page = (bundle / "out" / "gpu-check-cpu" / "summary.txt").read_text()
            if page.count("hangs") == page.count("A.Hangs (hangs") == 1:
                break
        self.assertEqual(self.results(bundle), {"compat": "FAIL-1", "model": "PASS"})
        for words in ("2 passed, 1 skipped: no NIC here, 4 not: ", f"A.Hangs (hangs: silent for {silence_s} s)", "B.Crashes (ended by signal 11)",
                      "B.Leaves (ended its process with 3)", "B.Fails"):
            self.assertIn(words, page)
        self.assertIn("some steps failed", said)

    def test_a_broken_machine_is_not_tried_for_ever(self):
        bundle = self.bundle(gpunet_test=[f"A.Fails{i} fail" for i in range(30)])
        self.assertIn("0 passed, 10 not: ", self.rehearse(bundle, "compat", status=1))

    def test_a_program_that_fails_beside_its_tests_fails(self):
        self.sanitizer('"$@"; echo "========= ERROR SUMMARY: 1 error"; exit 1')
        bundle = self.bundle("cuda")
        self.gpu()
        said = self.check(bundle, "--steps", "memcheck-bus", status=1)
        self.assertIn("ended with 1 though no test had failed", said)

    def test_what_is_found_stays_when_the_time_is_over(self):
        for minutes in ("0.07", "0.3", "1.2"):  # a busy machine may not come to the test that hangs in the first
            bundle = self.bundle(gpunet_test=["A.Good pass", "A.Hangs hang"])
            said = self.check(bundle, "--device", "cpu", "--steps", "bus,compat,host-rings,faults", "--minutes", minutes, status=1)
            if "A.Hangs (began" in said:
                break
        self.assertEqual(self.results(bundle), {"bus": "PASS", "compat": "CUT"})
        self.assertIn("1 passed, 1 not: A.Hangs (began and did not end)", said)
        self.assertIn("no time was left for: compat host-rings faults", said)
        self.assertIn("./run gpu-check --steps compat,host-rings,faults", said)

    def test_what_is_found_stays_when_it_is_ended(self):
        bundle = self.bundle(gpunet_test=["A.Hangs hang"])
        program = self.start(bundle, "--device", "cpu", "--steps", "bus,compat")
        log = bundle / "out" / "gpu-check-cpu" / "logs" / "compat.log"
        while program.poll() is None and "A.Hangs" not in (log.read_text() if log.exists() else ""):
            pass
        program.send_signal(signal.SIGTERM)
        said, _ = program.communicate(timeout=LIMIT_S)  # to the end of its output, which a test that is left over would hold
        self.assertEqual(program.returncode, 143, said)
        self.assertEqual(self.results(bundle), {"bus": "PASS"})
        self.assertIn("running: compat, since ", (bundle / "out" / "gpu-check-cpu" / "summary.txt").read_text())

    def test_chosen_steps_leave_the_results_of_others(self):
        bundle = self.bundle(gpunet_test=["A.Fails fail"])
        self.rehearse(bundle, "bus", "compat", status=1)
        (bundle / "tests" / "gpunet_test.does").write_text("A.Good pass")
        self.rehearse(bundle, "compat")
        self.assertEqual(self.results(bundle), {"bus": "PASS", "compat": "PASS"})
        (bundle / "BUNDLE").write_text("1\n")
        self.rehearse(bundle, "compat")
        self.assertEqual(self.results(bundle), {"compat": "PASS"}, "results of other programs are none of these")

    def test_a_machine_without_a_gpu_is_told_so(self):
        if shutil.which("nvidia-smi") or list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            self.skipTest("there may be a GPU here")
        self.assertIn("no NVIDIA GPU here", self.check(self.bundle("cuda"), status=77))
        self.assertIn("run on GPUs", self.check(self.bundle("cuda"), "--device", "cpu", status=1))

    def test_a_driver_that_cannot_run_the_programs_is_told_at_once(self):
        self.gpu()
        old = self.bundle("cuda", doctor=DOCTOR.replace("13.0", "12.4"))
        said = self.check(old, status=1)
        self.assertIn("the driver is for CUDA 12.4, and the programs were built with CUDA 13.0", said)
        self.assertEqual(self.results(old, "gpu-check"), {})
        none = self.bundle("cuda", doctor="#!/bin/sh\necho 'fix gpu the CUDA driver does not start'\nexit 1\n")
        self.assertIn("the CUDA driver does not start", self.check(none, status=1))

    def why_not(self, *arguments):
        return self.in_scripts(". scripts/gpu_machine.sh; why_not \"$@\"", *arguments)

    def test_which_drivers_run_which_programs(self):
        both = ("sm_80", "sm_90", "compute_80")
        for fine in (("13.0", "13.0", "90", *both), ("13.1", "13.0", "90", *both), ("13.0", "13.2", "90", *both), ("13.0", "13.0", "100", *both),
                     ("13.0", "12.9", "86", "sm_80"), ("13.0", "13.0", "90", "compute_80"), ("14.0", "13.0", "120", *both)):
            self.assertEqual(self.why_not(*fine), "", fine)
        for wrong, says in ((("12.9", "13.0", "90", *both), "need a driver for CUDA 13.0"), (("13.0", "13.0", "75", *both), "sm_75"),
                            (("13.0", "13.2", "100", *both), "cannot translate the PTX"), (("13.0", "13.1", "90", "compute_80"), "PTX"),
                            (("13.0", "13.0", "80", "sm_90"), "--arch 80"), (("13.0", "13.0", "100", "sm_90"), "--arch 100")):
            self.assertIn(says, self.why_not(*wrong), wrong)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    GpuCheck.source = pathlib.Path(sys.argv.pop())
    unittest.main()
