"""Stands in for a GoogleTest program. The file NAME.does beside it says what its tests do: a line "Suite.Test word" each."""
import fnmatch
import os
import pathlib
import signal
import sys
import time

program = pathlib.Path(sys.argv[0])
does = program.with_name(program.name + ".does")
tests = [line.split() for line in (does.read_text() if does.exists() else "Suite.Good pass").splitlines()]
options = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
wanted, _, unwanted = options.get("gtest_filter", "*").partition("-")
if does.exists():  # else its one test stands for those of any filter
    tests = [test for test in tests if any(fnmatch.fnmatchcase(test[0], one) for one in (wanted or "*").split(":"))
             and not any(fnmatch.fnmatchcase(test[0], one) for one in unwanted.split(":"))]
if "gtest_list_tests" in options:
    print("Running main() from gtest_main.cc")
    suite = ""
    for name, _ in tests:
        if suite != (suite := name.partition(".")[0] + "."):
            print(f"{suite}  # TypeParam = int")
        print(f"  {name.partition('.')[2]}  # GetParam() = 1")
    sys.exit(0)
for name, word in tests:
    print(f"[ RUN      ] {name}", flush=True)
    if word == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "exit":
        sys.exit(3)
    elif word == "skip":
        print(f"x_test.cpp:1: Skipped\nno NIC here\n\n[  SKIPPED ] {name} (0 ms)")
    elif word == "fail":
        print(f"[  FAILED  ] {name}, where GetParam() = 1 (0 ms)\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] {name}, where GetParam() = 1")
        sys.exit(1)
    else:
        print(f"a line without its end[       OK ] {name} (0 ms)")
