#!/usr/bin/env python3
"""Promises of ./run bundle: its programs need nothing of this machine but glibc.

usage: test_bundle.py SOURCE_FOLDER BUILD_FOLDER PRESET WORK_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import gzip
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from commands import attempt

MEBIBYTE = 1 << 20
# What a bundle leaves to the machine: glibc.
GLIBC = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2",
         "linux-vdso.so.1"}
TRAINING = ["--serial", "--nodes", "2", "--epochs", "1", "--limit", "1280"]


def libraries(program):
    """The libraries that the loader finds for a program, with nothing in the environment: name to path (or None)."""
    found = {}
    for line in attempt("/usr/bin/ldd", program, env={}).stdout.splitlines():
        parts = line.split()
        if "=>" in parts:
            found[parts[0]] = None if parts[2] == "not" else pathlib.Path(parts[2]).resolve()
        elif parts and parts[0].startswith("/"):
            found[pathlib.Path(parts[0]).name] = pathlib.Path(parts[0]).resolve()
    return found


class Bundle(unittest.TestCase):
    source = build = work = preset = bundle = size = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(cls.work, ignore_errors=True)
        cls.work.mkdir(parents=True)
        cls.bundle = cls.work / "bundle"
        filled = attempt(cls.source / "scripts" / "fill_bundle.sh", cls.bundle, cls.build, cls.preset)
        if filled.returncode != 0:
            raise AssertionError(filled.stdout)
        cls.size = sum(file.stat().st_size for file in cls.bundle.rglob("*") if file.is_file())
        unpacked = attempt(cls.bundle / "run", "unpack", cwd="/")
        if unpacked.returncode != 0:
            raise AssertionError(unpacked.stdout)

    def programs(self):
        programs = [file for folder in ("bin", "tests") for file in (self.bundle / folder).iterdir() if file.is_file()]
        self.assertIn(self.bundle / "bin" / "param_sync", programs)
        return programs

    def test_every_library_but_glibc_comes_from_the_bundle(self):
        for program in self.programs():
            for name, path in libraries(program).items():
                if name not in GLIBC:
                    self.assertIsNotNone(path, f"{program.name}: {name} is not found")
                    self.assertTrue(path.is_relative_to(self.bundle.resolve()), f"{program.name}: {name} is {path}")

    def test_every_program_of_gpu_check_is_there(self):
        checked = {program.name for program in (self.bundle / "tests").iterdir() if program.is_file()}
        # gpu_memory_test is about GPUs' memory and NICs.
        self.assertLessEqual({"calls_test", "connections_test", "fault_matrix_test", "gpunet_test", "kernels_test",
                              "param_sync_model_test"}, checked)
        if self.preset == "cuda":
            self.assertRegex((self.bundle / "BUNDLE.cuda").read_text(), r"^toolkit \d+\.\d+\ncode sm_80.*\ntests .*\d\n$")

    def test_programs_run_with_an_empty_environment(self):
        for name in ("param_sync", "echo_server", "gpusock-bench", "gpusock-doctor", "gpusock-top"):
            done = attempt("/usr/bin/env", "-i", self.bundle / "bin" / name, "--help", cwd="/")
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_param_sync_trains_in_a_root_that_holds_nothing_but_glibc(self):
        if self.preset == "cuda":
            self.skipTest("training needs a GPU there")
        root = self.work / "root"
        shutil.copytree(self.bundle, root / "bundle")
        for path in libraries(self.bundle / "bin" / "param_sync").values():
            if not path.is_relative_to(self.bundle.resolve()):
                for folder in ("lib", "lib64"):  # where a loader looks differs between distributions
                    (root / folder).mkdir(exist_ok=True)
                    shutil.copy(path, root / folder)
        (root / "tmp").mkdir()
        enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "chroot"]
        # The loader asks /proc where a program lies; this root has none, so it is told.
        environment = {"PATH": os.environ["PATH"], "LD_ORIGIN_PATH": "/bundle/bin"}
        if attempt(*enter, root, "/bundle/bin/param_sync", "--help", env=environment).returncode in (1, 125):
            self.skipTest("this system lets us enter no other root")
        done = attempt(*enter, root, "/bundle/bin/param_sync", *TRAINING, "--data", "/bundle/data/fashion-mnist", env=environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("test accuracy", done.stdout)

    def test_gpu_check_in_the_bundle_says_where_there_is_no_gpu(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there may be a GPU here")
        done = attempt(self.bundle / "run", "gpu-check", cwd="/")
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn("no NVIDIA GPU", done.stdout)

    def test_is_small_enough_to_copy_around(self):
        self.assertLess(self.size, 64 * MEBIBYTE)

    def test_its_images_are_the_first_of_the_data_set(self):
        for name, header, item, count in (("train-images-idx3-ubyte", 16, 784, 15000), ("train-labels-idx1-ubyte", 8, 1, 15000),
                                          ("t10k-images-idx3-ubyte", 16, 784, 5000), ("t10k-labels-idx1-ubyte", 8, 1, 5000)):
            with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}.gz") as file:
                whole = file.read(header + item * count)
            with gzip.open(self.bundle / "data" / "fashion-mnist" / f"{name}.gz") as file:
                self.assertEqual(file.read(), whole[:4] + count.to_bytes(4, "big") + whole[8:], name)

    def test_gpu_check_rehearses_on_the_cpu_device(self):
        if self.preset == "cuda":
            self.skipTest("its programs need a GPU")
        done = attempt(self.bundle / "run", "gpu-check", "--device", "cpu", "--steps", "kernels,p2p-echo,tcp-echo,device-rings", cwd="/",
                       env={"PATH": os.environ["PATH"], "GPUSOCK_TEST_SCALE": "0.02"})
        self.assertEqual(done.returncode, 0, done.stdout)
        for step in ("kernels", "p2p-echo", "tcp-echo", "device-rings"):
            self.assertRegex(done.stdout, rf"PASS +\d+ s  {step}  \([1-9]\d* passed")


def main():
    if len(sys.argv) != 5:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    Bundle.source, Bundle.build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    Bundle.preset, Bundle.work = sys.argv[3], pathlib.Path(sys.argv[4]).resolve()
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
