#!/usr/bin/env python3
"""A promise of scripts/packages.sh: what tests look for, and skip without, is in the tests' packages. What no system has is tested nowhere.

usage: test_packages.py SOURCE_FOLDER

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import subprocess
import sys
import unittest

# By program, the package that has it; nothing for what no package can bring.
PACKAGES = {"curl": "curl", "gnuplot": "gnuplot-nox", "mpirun": "openmpi-bin", "nc": "netcat-openbsd", "nvcc": None, "nvidia-smi": None,
            "redis-server": "redis-server", "wrk": "wrk"}


class Packages(unittest.TestCase):
    source = None

    def test_what_tests_look_for_is_in_their_packages(self):
        listed = subprocess.run(["bash", "-c", f". '{self.source}/scripts/packages.sh'; echo ${{test_packages[*]}}"], text=True, check=True,
                                stdout=subprocess.PIPE).stdout.split()
        looked_for = {}
        for file in sorted((self.source / "tests").rglob("*.py")):
            for program in re.findall(r'\bwhich\("([^"]+)"\)', file.read_text()):
                looked_for.setdefault(program, file.relative_to(self.source))
        self.assertIn("gnuplot", looked_for)
        for program, file in looked_for.items():
            self.assertIn(program, PACKAGES, f"{file} looks for it: name its package here")
            if PACKAGES[program]:
                self.assertIn(PACKAGES[program], listed, f"{file} looks for {program}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Packages.source = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main()
