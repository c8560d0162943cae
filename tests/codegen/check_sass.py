#!/usr/bin/env python3
"""Checks that the machine code of the socket calls keeps the budgets of docs/machine-code.md.

usage: check_sass.py BUDGETS TOOLKIT FOLDER BUILD...

BUDGETS is docs/machine-code.md, TOOLKIT nvcc's version, FOLDER where it lies, and each BUILD a path without its endings: BUILD.cubin is
socket_calls.cu as ptxas made it, BUILD.log what `ptxas -v` said. nvdisasm is looked for in FOLDER, in build/nvdisasm, where pip has put it, and in
PATH; where there is none, accesses are not checked.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sass

# What each call passes, in order, where it finds what it looks for: (function, access). "" is the call itself, which nvcc puts into the kernel.
LOAD_SYS, LOAD_GPU = r"LDG?\..*STRONG\.SYS", r"LDG?\..*STRONG\.GPU"
STORE_SYS, STORE_GPU = r"STG?\..*STRONG\.SYS", r"STG?\..*STRONG\.GPU"
ADD, SWAP, COMPARE = r"ATOMG?\.E\.ADD", r"ATOMG?\.E\.EXCH", r"ATOMG?\.E\.CAS"
ENTER = [("enter", LOAD_GPU), ("enter", ADD)]  # is it this connection; counted in
LEAVE = [("count_out", ADD)]
ENTER_OWNED = ENTER[:1]  # an OwnedSocket is counted once for all its calls
SENDABLE = [("wait_writable", LOAD_GPU), ("wait_writable", LOAD_GPU)]  # the socket's flags; is a reservation open
LOOKED_AT = [("look_at_status", LOAD_SYS), ("check_committable", LOAD_GPU)]
COMMIT = [("", STORE_GPU), ("", STORE_SYS)]  # the half's own copy of the position, and the position
COMMIT_ON_DEVICE = COMMIT + [("", STORE_SYS)]  # the position is in device memory: its copy for the host follows
READABLE = [("wait_readable", LOAD_GPU), ("wait_readable", LOAD_GPU)]  # the socket's flags; is a peek open
TAKE = [("take_connection", LOAD_SYS), ("take_connection", LOAD_GPU),  # status; closed
        ("take_connection", LOAD_GPU), ("take_connection", LOAD_SYS), ("take_connection", LOAD_SYS), ("take_connection", COMPARE),  # the queue
        ("take_connection", SWAP), ("take_connection", LOAD_GPU), ("take_connection", ADD), ("take_connection", STORE_GPU),  # claim
        ("take_connection", LOAD_GPU), ("write_request", SWAP), ("write_request", STORE_SYS), ("write_request", STORE_GPU)]
WAYS = {
    "send, room known": ("send", ENTER + SENDABLE + COMMIT + LEAVE),
    "send, room looked up": ("send", ENTER + LOOKED_AT + [("wait_writable", LOAD_GPU), ("wait_writable", LOAD_SYS)] + COMMIT + LEAVE),
    "recv, data known": ("recv", ENTER + READABLE + COMMIT + LEAVE),
    "recv, data looked up": ("recv", ENTER + READABLE + [("wait_readable", LOAD_SYS)] + COMMIT + LEAVE),
    "send, room known, words on device": ("send", ENTER + SENDABLE + COMMIT_ON_DEVICE + LEAVE),
    "recv, data looked up, words on device": ("recv", ENTER + READABLE + [("wait_readable", LOAD_SYS)] + COMMIT_ON_DEVICE + LEAVE),
    "send, room known, owned": ("send", ENTER_OWNED + SENDABLE + COMMIT),
    "recv, data looked up, owned": ("recv", ENTER_OWNED + READABLE + [("wait_readable", LOAD_SYS)] + COMMIT),
    "poll, one socket with data": ("poll", ENTER + [("look_at_status", LOAD_SYS), ("events_of", LOAD_GPU), ("events_of", LOAD_SYS),
                                                    ("events_of", LOAD_GPU)] + LEAVE),
    "accept, a connection waits": ("accept", ENTER + TAKE + LEAVE),
}
GROUPS = ("thread", "block")
LOG = re.compile(r"Compiling entry function '(\w+)' for 'sm_\d+'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
                 r".*?Used (\d+) registers", re.DOTALL)
# One more access of the system in a function that every call passes.
MORE = "        /*0000*/                   MEMBAR.ALL.SYS ;\n"


def table(text, first):
    """The rows of the Markdown table whose first column has this head: by the row's name, a dictionary by column."""
    lines = iter(text.splitlines())
    for line in lines:
        heads = [cell.strip() for cell in line.strip("|").split("|")]
        if heads[0] == first:
            next(lines)
            rows = {}
            for row in lines:
                if not row.startswith("|"):
                    break
                cells = [cell.strip() for cell in row.strip("|").split("|")]
                rows[cells[0]] = dict(zip(heads[1:], cells[1:]))
            return rows
    raise ValueError(f"no table with the head {first!r}")


def counts_of(kernels, way, group):
    call, landmarks = WAYS[way]
    return kernels[f"{call}_by_{group}"].way(landmarks)


class MachineCode(unittest.TestCase):
    budgets, toolkit, nvdisasm, builds = "", "", "", []
    listings = {}

    def kernels(self, build, more_in=""):
        """`more_in`: a function that gets one more access."""
        if not self.nvdisasm:
            self.skipTest("no nvdisasm here: accesses were not counted (python3 -m pip install --no-deps --target build/nvdisasm nvidia-cuda-nvdisasm)")
        if build not in self.listings:
            self.listings[build] = subprocess.run([self.nvdisasm, "-c", f"{build}.cubin"], check=True, text=True, stdout=subprocess.PIPE).stdout
        text = self.listings[build]
        if more_in:
            text, times = re.subn(rf"^(\$\w+\$_ZN\w*?\d+{more_in}E\w*:\n)", r"\1" + MORE, text, flags=re.MULTILINE)
            self.assertGreater(times, 0)
        return sass.read(text)

    def test_no_call_has_more_accesses_than_its_budget(self):
        budgets = table(self.budgets, "call")
        self.assertEqual(set(budgets), set(WAYS))
        for build in self.builds:
            kernels = self.kernels(build)
            for way, group in ((way, group) for way in WAYS for group in GROUPS):
                counts, steps = counts_of(kernels, way, group)
                for kind in sass.KINDS:
                    allowed = int(budgets[way][kind]) if kind != "barriers" or group == "block" else 0
                    with self.subTest(build=pathlib.Path(build).name, way=way, group=group, kind=kind):
                        self.assertLessEqual(counts[kind], allowed, "\n".join(f"{step.function or 'the call'}: {step.name}" for step in steps))
                print(f"{pathlib.Path(build).name}: {way}, {group}: {dict(counts)}")

    def test_one_more_access_on_the_way_is_seen(self):
        build = self.builds[0]
        kernels, more = self.kernels(build), self.kernels(build, more_in="enter")
        for way in WAYS:
            fences = [counts_of(which, way, "thread")[0]["fences of the system"] for which in (kernels, more)]
            self.assertEqual(fences[1], fences[0] + 1, way)

    def test_no_kernel_needs_more_than_its_budget(self):
        version = re.search(r"CUDA (\d+\.\d+)", self.budgets)[1]
        if version != self.toolkit:
            self.skipTest(f"registers and stack are those of CUDA {version}, and this is {self.toolkit}")
        for build in self.builds:
            architecture = re.search(r"sm_\d+", pathlib.Path(build).name)[0]
            budgets = table(self.budgets, "kernel")
            found = {name: numbers for name, *numbers in LOG.findall(pathlib.Path(f"{build}.log").read_text())}
            self.assertEqual(set(found), set(budgets))
            for name, (stack, stores, loads, registers) in found.items():
                with self.subTest(kernel=name, build=architecture):
                    self.assertLessEqual(int(registers), int(budgets[name][f"registers, {architecture}"]))
                    self.assertLessEqual(int(stack), int(budgets[name]["stack bytes"]))
                    self.assertEqual((int(stores), int(loads)), (0, 0), "spilled")


class Reader(unittest.TestCase):
    """Of the machine code itself: a listing whose ways are known."""

    LISTING = """
.text.kernel:
        /*0000*/                   BSSY B0, `(.L_x_1) ;
        /*0010*/              @!P0 BRA `(.L_x_0) ;
        /*0020*/                   CALL.REL.NOINC `($kernel$_ZN7gpusock6detail5enterERKi) ;
        /*0030*/                   ST.E.64.STRONG.SYS [R2.64], R4 ;
        /*0040*/                   BSYNC B0 ;
        /*0050*/                   MEMBAR.ALL.GPU ;
.L_x_0:
        /*0060*/                   BSYNC B0 ;
        /*0070*/                   MEMBAR.ALL.GPU ;
.L_x_1:
        /*0080*/                   EXIT ;
$kernel$_ZN7gpusock6detail5enterERKi:
        /*0090*/              @P1  BRA `(.L_x_2) ;
        /*00a0*/                   LD.E.64.STRONG.SYS R2, [R2.64] ;
.L_x_2:
        /*00b0*/                   ATOM.E.ADD.64.STRONG.GPU P0, R6, [R4.64], R6 ;
        /*00c0*/                   RET.REL.NODEC R2 `(kernel) ;
.L_x_3:
        /*00d0*/                   BRA `(.L_x_3) ;
"""

    def way(self, *landmarks):
        counts, _ = sass.read(self.LISTING)["kernel"].way(landmarks)
        return {kind: number for kind, number in counts.items() if kind != "instructions"}

    def test_the_cheapest_way_is_taken(self):
        self.assertEqual(self.way(), {})  # around the call, and over what comes after a BSYNC but is not where its threads go on

    def test_landmarks_lead_it_into_functions_and_back(self):
        self.assertEqual(self.way(("enter", "ATOM"), ("", "ST")), {"atomics": 1, "stores to the system": 1})
        self.assertEqual(self.way(("enter", "LD"), ("", "ST")), {"atomics": 1, "stores to the system": 1, "loads of the system": 1})

    def test_a_way_that_is_not_there_is_said_so(self):
        with self.assertRaises(ValueError):
            self.way(("", "ST"), ("enter", "LD"))


def find_nvdisasm(folder):
    root = pathlib.Path(__file__).resolve().parents[2]
    folders = [folder, *map(str, root.glob("build/nvdisasm/nvidia/*/bin")), os.environ.get("PATH", "")]
    return shutil.which("nvdisasm", path=os.pathsep.join(folders))


def main():
    if len(sys.argv) < 5:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    MachineCode.budgets = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    MachineCode.toolkit, MachineCode.nvdisasm, MachineCode.builds = sys.argv[2], find_nvdisasm(sys.argv[3]), sys.argv[4:]
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
