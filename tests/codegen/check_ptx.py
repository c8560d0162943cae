#!/usr/bin/env python3
"""Checks that shared words are accessed by exactly the instructions that the ordering tables promise.

usage: check_ptx.py PTX_FILE...

Every kernel of shared_words.cu has an entry in PROMISED: its strong memory accesses (those with an order and a scope),
in program order, and how many plain loads and stores it may hold besides. More, fewer, weaker or stronger ones fail:
a lost acquire is a bug, and an unasked-for fence costs every message.
The litmus kernels (tests/conformance/bus_litmus.cuh) have an entry in PASSING: their accesses and barriers in order, in
which the plain accesses between two others, of the message's bytes, are one "bytes".
Exit status: 0 all as promised, 1 not, 2 misuse.
"""
import re
import sys
import unittest

# (nvcc repeats a spin's first look.)
LOCK = ["atom.exch.acquire.gpu", "atom.exch.acquire.gpu"]
# Who closes a socket wakes the set that watches for that: the slot's watch under the lock T7, T8, then W1 under the set's.
TELL = [*LOCK, "ld.relaxed.gpu", "st.release.gpu", *LOCK, "ld.relaxed.sys", "ld.relaxed.sys", "st.release.sys", "st.release.gpu"]
# Its plain loads: the watch, under the slot's lock, and the view of the sets, which never changes.
WATCH = ["ld"] * 9
# It tells the proxy: T1 under the lock.
CLOSE = [*TELL, *LOCK, "ld.relaxed.gpu", "st.release.sys", "st.release.gpu"]
# The last one out of a closed socket does both: T9, T15.
LEAVE = ["atom.add.release.gpu", "ld.acquire.gpu", *CLOSE]

# The strong accesses of each kernel as "operation.order.scope", and its plain accesses ("ld", "st") to memory.
PROMISED = {
    # ringbuf/byte_ring.hpp
    # (a half's position is stored for others of its device, which may look at it; and the copy of a word in device memory)
    "ring_P1": (["st.relaxed.gpu", "st.release.sys", "st.relaxed.sys"], []),
    "ring_P2": (["ld.acquire.sys"], ["st"]),
    "ring_C1": (["ld.acquire.sys"], ["st"]),
    "ring_C2": (["st.relaxed.gpu", "st.release.sys", "st.relaxed.sys"], []),
    # ringbuf/handle_queue.hpp: the entry itself is relaxed, Q1/Q2 order it
    "queue_Q1": (["st.relaxed.sys", "st.release.sys"], []),
    "queue_Q2_Q3_Q4": (["ld.acquire.gpu", "ld.acquire.sys", "ld.relaxed.sys", "atom.cas.acq_rel.gpu"], ["st"]),
    "queue_empty": (["ld.relaxed.sys", "ld.relaxed.gpu"], ["st"]),
    # socket_table/socket_table.hpp: T1 is published under the lock T7, T8 (nvcc repeats a spin's first look)
    "table_T1_T7_T8": (["atom.exch.acquire.gpu", "atom.exch.acquire.gpu", "ld.relaxed.gpu", "st.release.sys", "st.release.gpu"],
                       ["ld", "st"]),
    "records_T10_T11": (["atom.exch.acquire.gpu", "atom.exch.acquire.gpu", "st.release.gpu"], []),
    # socket_table/poll_set.hpp: W1 under the same lock. The plain loads are of the view, which never
    # changes; one of them finds the words of kernels' sets, which may be in device memory
    "sets_W1_T7_T8": (["atom.exch.acquire.gpu", "atom.exch.acquire.gpu", "ld.relaxed.sys", "ld.relaxed.sys", "st.release.sys",
                       "st.release.gpu"], [*["ld"] * 6, "st"]),
    "sets_W2": (["ld.acquire.sys", "ld.acquire.sys"], [*["ld"] * 5, "st"]),
    # tests/support/mlx5/send_queue.hpp: an entry's words are plain, and so is what is read of a completion after G3
    "nic_G1_G2": (["st.release.sys", "st.release.sys"], [*["st"] * 5, "ld", *["st"] * 3]),
    "nic_G3_G4": (["ld.acquire.sys", "st.release.sys"], [*["st"] * 3, "ld", *["st"] * 3]),
    # (T6 beside the status only where statuses are in device memory)
    "table_T6_T4": (["ld.relaxed.sys", "ld.acquire.sys"], ["st"]),
    "table_T6": (["ld.relaxed.sys"], ["st"]),
    "slot_enter_leave": (["ld.relaxed.gpu", "atom.add.relaxed.gpu", *LEAVE, *LEAVE], ["ld", "ld", *WATCH, "st", "st", "ld", *WATCH, "st"]),
    "slot_close": (["ld.relaxed.gpu", "ld.relaxed.gpu", "atom.cas.acq_rel.gpu", *CLOSE], ["ld", *WATCH, "st", "st"]),
}

# The half's own copy of the position, the position, and the host's copy of it if it is in device memory.
PUBLISH = ["st.relaxed.gpu", "st.release.sys", "st.relaxed.sys"]
# Of each message: the position is seen, for a block a barrier hands it on, the bytes are copied, a barrier gathers what all
# threads have done, the position is published. (The receivers then compare what they have copied.)
PASSING = {
    "litmus_thread_sends": ["ld.acquire.sys", "bytes", *PUBLISH],
    "litmus_block_sends": ["ld.acquire.sys", "barrier", "bytes", "barrier", *PUBLISH],
    "litmus_thread_receives": ["ld.acquire.sys", "bytes", *PUBLISH, "bytes"],
    "litmus_block_receives": ["ld.acquire.sys", "barrier", "bytes", "barrier", *PUBLISH, "bytes", "barrier"],
    # The sender's warp, then the receiver's.
    "litmus_warps_pass": ["ld.acquire.sys", "barrier", "bytes", "barrier", *PUBLISH,
                          "ld.acquire.sys", "barrier", "bytes", "barrier", *PUBLISH, "bytes", "barrier"],
}


def fenced(steps):
    """With PTX's fence between accesses of one page by two addresses: after each look at the other side's position."""
    return [each for step in steps for each in ([step, "fence.proxy.alias"] if step == "ld.acquire.sys" else [step])]


PASSING |= {f"{kernel}_fenced": fenced(steps) for kernel, steps in PASSING.items()}

ORDERS = ("relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")
OPERATIONS = ("add", "and", "cas", "dec", "exch", "inc", "max", "min", "or", "xor")
MEMORY = re.compile(r"^\s*(?:@!?%\w+\s+)?((?:ld|st|atom|red|fence|membar|cp)\.[\w.:]+)")
BARRIER = re.compile(r"^\s*(?:bar|barrier)(?:\.cta|\.warp)?\.sync")
ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)^\}", re.DOTALL | re.MULTILINE)


def describe(instruction):
    """'st.release.sys.b64' -> ('st.release.sys', True); toolkits differ in the order of the parts and in the type's name."""
    parts = instruction.split(".")
    if instruction.startswith("fence.proxy"):
        return instruction, True
    order = [part for part in parts if part in ORDERS]
    scope = [part for part in parts if part in SCOPES]
    operation = [part for part in parts[1:] if part in OPERATIONS]
    strong = bool(order or scope) or parts[0] in ("atom", "red", "fence", "membar")
    if strong and parts[0] in ("ld", "st", "atom") and not re.fullmatch(r"[bu]64", parts[-1]):
        return instruction, True  # a torn word: named in full, so that it matches no promise
    return ".".join([parts[0], *operation, *order, *scope]), strong


def accesses(body):
    """The strong and the plain memory accesses of one kernel, in program order, kernel parameters and locals left out."""
    strong, plain = [], []
    for line in body.splitlines():
        match = MEMORY.match(line)
        if not match or ".param" in match[1] or ".local" in match[1]:
            continue
        name, is_strong = describe(match[1])
        (strong if is_strong else plain).append(name)
    return strong, plain


def passing(body):
    """What a litmus kernel does with a message, in program order. Its counter of errors is left out, and what is on the chip."""
    steps = []
    for line in body.splitlines():
        match = MEMORY.match(line)
        if BARRIER.match(line):
            steps.append("barrier")
        elif match and not re.match(r"\w+\.(param|local|shared)|atom\.(global\.)?add", match[1]):
            name, strong = describe(match[1])
            if strong or steps[-1:] != ["bytes"]:
                steps.append(name if strong else "bytes")
    return steps


class Ptx(unittest.TestCase):
    files = []

    def check_passing(self, kernel):
        for file, kernels in self.files:
            with self.subTest(ptx=file):
                self.assertIn(kernel, kernels, "the kernel is missing from the PTX")
                self.assertEqual(passing(kernels[kernel]), PASSING[kernel], "a message is not passed as docs/memory-model.md argues")

    def check(self, kernel):
        self.assertTrue(self.files)
        for file, kernels in self.files:
            with self.subTest(ptx=file):
                self.assertIn(kernel, kernels, "the kernel is missing from the PTX")
                strong, plain = accesses(kernels[kernel])
                self.assertEqual(strong, PROMISED[kernel][0], "strong accesses differ from the ordering table")
                self.assertEqual(plain, PROMISED[kernel][1], "plain accesses beside the shared words")

    def test_every_kernel_has_a_promise(self):
        for file, kernels in self.files:
            self.assertEqual(sorted(kernels), sorted([*PROMISED, *PASSING]), file)


def add_tests():
    for kernel in PROMISED:
        setattr(Ptx, f"test_{kernel}", lambda self, kernel=kernel: self.check(kernel))
    for kernel in PASSING:
        setattr(Ptx, f"test_{kernel}", lambda self, kernel=kernel: self.check_passing(kernel))


def main():
    files = sys.argv[1:]
    if not files or files[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if files else 2
    for file in files:
        with open(file, encoding="utf-8") as stream:
            Ptx.files.append((file, dict(ENTRY.findall(stream.read()))))
    add_tests()
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=1).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
