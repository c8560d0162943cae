#!/usr/bin/env python3
"""What tests skipped, and why, from the results that ctest writes (--output-junit).

usage: skipped.py PRESET=FILE...

Prints a line for each reason, with the tests that give it and the presets in which they do; nothing where none was skipped.
"""
import re
import sys
import xml.etree.ElementTree

GTEST = re.compile(r"^(\S+):\d+: Skipped\n(.*)$", re.MULTILINE)
UNITTEST = re.compile(r"^(\w+) \(.*\.\.\. skipped (['\"])(.*)\2$", re.MULTILINE)
WHOLE_TEST = "SKIP_RETURN_CODE"  # ctest's word for a test that ended with the status it has for that
NO_REASON = "it does not say why"


def skips(path):
    """Pairs of test and reason. GoogleTest names the source of a test that skips, unittest the test itself."""
    for test in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name, output = test.get("name"), test.findtext("system-out") or ""
        skipped = test.find("skipped")
        if skipped is not None and WHOLE_TEST in skipped.get("message", ""):
            said = [line.strip() for line in output.splitlines() if line.strip()]
            yield name, said[-1].removeprefix("skipped: ") if said else NO_REASON
            continue
        for source, reason in GTEST.findall(output):
            yield f"{name} ({source.rsplit('/', 1)[-1]})", reason.strip() or NO_REASON
        for method, _, reason in UNITTEST.findall(output):
            yield f"{name} ({method})", reason or NO_REASON


def main(arguments):
    if not arguments or not all("=" in argument for argument in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    presets = {}  # by reason, then by test
    for argument in arguments:
        preset, path = argument.split("=", 1)
        for test, reason in skips(path):
            there = presets.setdefault(reason, {}).setdefault(test, [])
            if preset not in there:
                there.append(preset)
    for reason, tests in presets.items():
        print(f"{', '.join(f'{test} in {chr(32).join(there)}' for test, there in tests.items())}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
