#!/usr/bin/env python3
"""Writes the errors that the docstrings of the socket calls list, as lines of C++: LISTED(call, error).

usage: listed_errors.py HEADER OUTPUT

A call's docstring lists its errors after "Errors"; every call of class Net must have such a list.
Exit status: 0 written, 1 a call without errors, 2 misuse.
"""
import pathlib
import re
import sys


def listed(header):
    """A call's name -> the errors that its docstring lists."""
    calls = {}
    for comment, name in re.findall(r"((?:^  ///.*\n)+)(?:  template .*\n)?  GPUSOCK_FN (?:\S+ )+?(\w+)\(", header, re.MULTILINE):
        calls[name] = re.findall(r"-(E[A-Z]+)", comment.partition("Errors")[2])
    return calls


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    calls = listed(pathlib.Path(sys.argv[1]).read_text())
    silent = sorted(name for name, errors in calls.items() if not errors)
    if silent or not calls:
        sys.exit(f"{sys.argv[1]}: no errors listed for {', '.join(silent) or 'any call'}")
    lines = [f"LISTED({name}, {error})" for name, errors in calls.items() for error in dict.fromkeys(errors)]
    output, text = pathlib.Path(sys.argv[2]), "\n".join(lines) + "\n"
    output.parent.mkdir(exist_ok=True)
    if not output.exists() or output.read_text() != text:  # else what includes it would be compiled again
        output.write_text(text)
