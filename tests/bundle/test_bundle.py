#!/usr/bin/env python3
"""Promises of ./run bundle: its programs need nothing of this machine but glibc.

usage: test_bundle.py SOURCE_FOLDER BUILD_FOLDER PRESET WORK_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
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
    source = build = work = preset = bundle = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(cls.work, ignore_errors=True)
        cls.work.mkdir(parents=True)
        cls.bundle = cls.work / "bundle"
        filled = attempt(cls.source / "scripts" / "fill_bundle.sh", cls.bundle, cls.build, cls.preset)
        if filled.returncode != 0:
            raise AssertionError(filled.stdout)

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
        size = sum(file.stat().st_size for file in self.bundle.rglob("*") if file.is_file())
        self.assertLess(size, 100 * MEBIBYTE)


def main():
    if len(sys.argv) != 5:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    Bundle.source, Bundle.build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    Bundle.preset, Bundle.work = sys.argv[3], pathlib.Path(sys.argv[4]).resolve()
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
