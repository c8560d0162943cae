#!/usr/bin/env python3
"""Seconds of processor time of each compilation and each test of a build, to standard output as JSON, the dearest first.

usage: costs.py BUILD_FOLDER

BUILD_FOLDER: a build that ./run test has made from nothing, on a quiet machine. Ninja's log has the seconds of each compilation (of wall
time; with one compiler for each processor about the same). The tests are run one after the other.
Whether tests pass is not asked here. Exit status: 0; 2 misuse.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

NOT_RUN = re.compile("^(rdma|gpu_shape|double)$")  # labels of tests that ./run test leaves out
LIMIT_S = 300


def compilations(build):
    """The last line of an output is the one that holds."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            seconds[output] = round((int(end) - int(begin)) / 1000, 1)
    return dict(sorted(seconds.items(), key=lambda entry: -entry[1]))


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(test, build):
    properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
    if any(NOT_RUN.match(label) for label in properties.get("LABELS", [])) or "command" not in test:
        return None
    environment = {**os.environ, "GPUSOCK_TEST_SCALE": "1", **dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))}
    before = processor_s()
    try:
        subprocess.run(test["command"], cwd=properties.get("WORKING_DIRECTORY", build), env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{test['name']} took more than {LIMIT_S} s", file=sys.stderr)
    return test["name"], round(processor_s() - before, 2)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    listed = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, stdout=subprocess.PIPE, check=True).stdout)["tests"]
    tests = [result for result in (run(test, build) for test in listed) if result is not None]
    json.dump({"compilations": compilations(build), "tests": dict(sorted(tests, key=lambda result: -result[1]))}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
