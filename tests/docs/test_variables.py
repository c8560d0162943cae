#!/usr/bin/env python3
"""Promise of host_proxy/base/variables.cpp: it names each environment variable that the code and the scripts read and the documents
name, and no other. (A program warns of those that it does not name.)

usage: test_variables.py SOURCE_FOLDER

GPUSOCK_TEST_... are the tests' own. Names of CMake variables and of macros are no environment variables.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import sys
import unittest

NAME = r"GPUSOCK_[A-Z0-9_]*[A-Z0-9]"


class Variables(unittest.TestCase):
    root = None

    def texts(self, *patterns):
        for pattern in patterns:
            for path in self.root.glob(pattern):
                if path.is_file():
                    yield path.read_text(errors="replace")

    def names(self, pattern, *files):
        found = {name for text in self.texts(*files) for name in re.findall(pattern, text)}
        return {name for name in found if not name.startswith("GPUSOCK_TEST_")}

    def test_the_table_names_what_is_read_and_what_is_documented(self):
        sources = [f"{folder}/**/*.{kind}" for folder in ("plain_types", "gpusock", "host_proxy", "program", "param_sync", "apps", "tools", "examples", "microbench", "cpu_device", "rdma")
                   for kind in ("cpp", "hpp", "cu", "cuh", "inl")]
        table = self.names(f'"({NAME})"', "host_proxy/base/variables.cpp")
        read = self.names(rf'(?:getenv|environment|environment_of|variable|text|number)\((?:variable, )?"({NAME})"', *sources)
        read |= self.names(rf'Names k\w+\{{"({NAME})"', *sources) | self.names(rf'Names k\w+\{{"{NAME}", "({NAME})"', *sources)
        read |= self.names(rf"\$\{{?({NAME})", "run", "scripts/*")
        cmake = self.names(f"({NAME})", "CMakeLists.txt", "**/CMakeLists.txt", "cmake/*", "CMakePresets.json")
        macros = self.names(rf"#\s*define ({NAME})", *sources, "ringbuf/**/*.hpp", "tests/**/*.hpp", "tests/**/*.cuh", "tests/**/*.cpp")
        documented = self.names(rf"({NAME})(?!\*|_)", "README.md", "docs/**/*.md", "docs/deploy/*", "examples/**/*.md", "apps/**/*.md") - cmake - macros
        self.assertGreater(len(read), 10)
        self.assertEqual(read - table, set(), "read, and not in the table")
        self.assertEqual(documented - table, set(), "documented, and not in the table")
        self.assertEqual(table - read - documented, set(), "in the table, but nothing reads it")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Variables.root = pathlib.Path(sys.argv[1])
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1)
