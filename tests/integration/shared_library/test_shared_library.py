#!/usr/bin/env python3
"""A shared library with gpusock in it can be loaded by a process that runs, and its kernels have all their shared memory.

usage: test_shared_library.py LIBRARY
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import ctypes
import errno
import sys
import threading
import unittest

WORDS = (64 << 10) // 4


class SharedLibrary(unittest.TestCase):
    path = None

    @classmethod
    def setUpClass(cls):
        cls.library = ctypes.CDLL(cls.path)

    def call(self, function, *arguments):
        """The errno, and what happened."""
        why = ctypes.create_string_buffer(1000)
        return function(*arguments, why, ctypes.c_size_t(len(why))), why.value.decode()

    def pass_through(self):
        length, total = ctypes.c_uint64(), ctypes.c_uint64()
        error = self.call(self.library.pass_through_shared_memory, ctypes.byref(length), ctypes.byref(total))
        return error, length.value, total.value

    def test_kernels_pass_64_KiB_of_shared_memory_through_sockets(self):
        self.assertEqual(self.pass_through(), ((0, ""), 4 * WORDS, WORDS * (WORDS - 1) // 2))

    def test_threads_of_the_process_may_call_it(self):
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.pass_through())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [((0, ""), 4 * WORDS, WORDS * (WORDS - 1) // 2)] * 3)

    def test_a_kernel_that_fails_is_reported(self):
        error, why = self.call(self.library.write_to_nothing)
        self.assertEqual(error, errno.EFAULT)
        self.assertIn("write_to", why)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    SharedLibrary.path = sys.argv[1]
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1)
