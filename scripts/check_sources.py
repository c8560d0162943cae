#!/usr/bin/env python3
"""Compiles by Clang each header by itself and each source, and runs clang-tidy on files of the libraries, with the options of a build.

usage: check_sources.py BUILD_FOLDER [--headers-only] FILE...

A source has the options with which the build compiles it, also where the build compiles many sources in one (CMake's unity builds). A
header has those of the nearest source: one of its own folder, else of the folder above; and it may include every header of the project
(the test docs.layers says which ones it should). clang-tidy reads files with the same options together, since what they include takes
most of its time. Files that no build on this machine compiles are left out.
Exit status: 0 no findings, 1 findings, 2 misuse.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("host_proxy", "rdma", "gpusock", "plain_types", "ringbuf", "socket_table")  # those of ./run tidy
LEFT_OUT = ("gpusock/cuda", "tests/codegen",  # need CUDA
            "python",  # needs PyTorch
            "tests/model/shadow")  # stands in for headers of the product
HEADERS = (".hpp", ".cuh", ".h")
INCLUDED_FROM = [ROOT, ROOT / "apps/param_sync", ROOT / "tools/schedule_lab"]
# A header by itself does not use what it declares, and does not know for which kind of device a program is built.
QUIET = ["-Wno-unused-function", "-Wno-unused-parameter", "-Wno-unused-const-variable", "-Wno-pragma-once-outside-header", "-DGPUSOCK_DEVICE_CPU=1"]


def sources_of(entry):
    """The project's sources that an entry of compile_commands.json compiles."""
    file = pathlib.Path(entry["file"])
    if not file.name.startswith("unity_"):
        return [file]
    return [pathlib.Path(name) for name in re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE)]


def options_of(entry):
    """The entry's options, without the names of what it compiles and writes."""
    words, kept = shlex.split(entry["command"]), []
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    skip = False
    for word in words[first:]:
        if not skip and word not in ("-o", "-x", "-c", entry["file"]):
            kept.append(word)
        skip = not skip and word in ("-o", "-x")
    return kept


def nearest(commands, folder):
    """The entry of a source in this folder or below it, else in the folders above."""
    for parent in (folder, *folder.parents):
        for source in sorted(commands, key=lambda path: (len(path.parts), path)):
            if source.is_relative_to(parent):
                return commands[source]
    return None


class Checker:
    def __init__(self, build):
        self.folder = build / "check"
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            for source in sources_of(entry):
                self.commands.setdefault(source.resolve(), entry)

    def entry(self, file):
        if any(file.is_relative_to(ROOT / folder) for folder in LEFT_OUT):
            return None
        return nearest(self.commands, file.parent) if file.suffix in HEADERS else self.commands.get(file)

    def compile(self, file):
        entry = self.entry(file)
        if entry is None:
            return ""
        command = ["clang++", "-fsyntax-only", "-x", "c++", *options_of(entry)]
        if file.suffix in HEADERS:
            # Included, not compiled: `#pragma once` does not count in the file that is compiled, and two headers may include each other.
            command += [*QUIET, *(f"-I{folder}" for folder in INCLUDED_FROM), "-include", file, "/dev/null"]
        else:
            command.append(file)
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
        return done.stderr if done.returncode != 0 else ""

    def units(self, files):
        """Writes a source for each set of options, which includes the files that have them; gives these sources."""
        by_options = {}
        for file in files:
            entry = self.entry(file)
            if entry is not None:
                by_options.setdefault(tuple(options_of(entry)), (entry, []))[1].append(file)
        self.folder.mkdir(exist_ok=True)
        units, entries = [], []
        for options, (entry, members) in by_options.items():
            unit = self.folder / f"unit_{len(units)}.cpp"
            members.sort(key=lambda file: file.suffix not in HEADERS)  # headers first: a source may define what they use
            unit.write_text("".join(f'#include "{file}"\n' for file in members))
            arguments = ["clang++", *options, *QUIET, *(f"-I{folder}" for folder in INCLUDED_FROM), "-c", str(unit)]
            entries.append({"directory": entry["directory"], "file": str(unit), "arguments": arguments})
            units.append(unit)
        (self.folder / "compile_commands.json").write_text(json.dumps(entries))
        return units

    def tidy(self, unit):
        command = ["clang-tidy", "--quiet", "--checks=-bugprone-suspicious-include", f"--config-file={ROOT}/.clang-tidy", "-p", self.folder, unit]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout if done.returncode != 0 else ""


def main(build, files, headers_only):
    checker = Checker(build)
    headers = [file for file in files if file.suffix in HEADERS]
    libraries = [file for file in files if file.suffix != ".inl" and any(file.is_relative_to(ROOT / folder) for folder in LIBRARIES)]
    units = [] if headers_only else checker.units(libraries)
    # What clang-tidy reads, it compiles. Lists of a header (.inl) are compiled with what includes them.
    sources = [] if headers_only else [file for file in files if file.suffix in (".cpp", ".cu") and file not in libraries]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [*pool.map(checker.tidy, units), *pool.map(checker.compile, [*headers, *sources])]
    print("".join(found), end="")
    print(f"== {len(headers)} headers by themselves" +
          ("" if headers_only else f", {len(sources)} sources by Clang, clang-tidy on {len(libraries)} files of the libraries") +
          f": {sum(map(bool, found))} with findings")
    return 1 if any(found) else 0


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--headers-only"]
    if len(arguments) < 1:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(pathlib.Path(arguments[0]).resolve(), [pathlib.Path(name).resolve() for name in arguments[1:]], "--headers-only" in sys.argv))
