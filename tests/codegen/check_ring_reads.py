#!/usr/bin/env python3
"""Checks that no kernel reads a ring past the caches that are kept up to date.

usage: check_ring_reads.py PTX_FILE...

A GPU may keep what ld.global.nc reads until the kernel ends: for memory that nobody writes meanwhile. A ring's bytes are written anew while
kernels read them. nvcc takes this load by itself where a parameter is `const T* __restrict`. So none of the kernels of ring_reads.cu may hold
it, nor a function that they call, but for the one that shows it.
Exit status: 0 as promised, 1 not, 2 misuse.
"""
import re
import sys
import unittest

KERNELS = ("run_lanes", "run_exchanges", "run_server", "reads_by_recv", "reads_by_peek", "reads_by_reader", "reads_by_exchange")
SHOWS = "shows_what_is_sought"

BODY = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\([^)]*\))?[^;{]*^\{.*?^\}", re.DOTALL | re.MULTILINE)
CACHED = re.compile(r"^\s*(?:@!?%\w+\s+)?(ld\.global(?:\.\w+(?:::\w+)*)*\.nc\b\S*|ldu\.\S+|tex\.\S+)", re.MULTILINE)


class RingReads(unittest.TestCase):
    files = []

    def bodies(self):
        for file in self.files:
            with open(file, encoding="utf-8") as text:
                yield file, {match[1]: match[0] for match in BODY.finditer(text.read())}

    def test_all_kernels_are_there(self):
        for file, bodies in self.bodies():
            for kernel in (*KERNELS, SHOWS):
                self.assertTrue(any(kernel in name for name in bodies), f"{file}: no {kernel}")

    def test_the_load_is_recognized(self):
        for file, bodies in self.bodies():
            self.assertTrue(CACHED.search(bodies[SHOWS]), f"{file}: {SHOWS} has no such load")

    def test_no_kernel_that_reads_rings_has_it(self):
        for file, bodies in self.bodies():
            found = {name: CACHED.findall(body) for name, body in bodies.items() if name != SHOWS}
            self.assertEqual({name: loads for name, loads in found.items() if loads}, {}, file)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    RingReads.files = sys.argv[1:]
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1)
