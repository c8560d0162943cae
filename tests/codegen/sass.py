"""The machine code of kernels as nvdisasm prints it (nvdisasm -c CUBIN), and the cheapest way through one.

A way is searched in the kernel and the functions that it calls. It must pass landmarks in their order: they stand for what is the case (there
is room, so a commit follows). Of all such ways the one with the fewest counted instructions is taken, then the one with the fewest
instructions. What decides a branch is not known here: where two branches depend on each other the way may be one that never runs, so what is
counted is a lower bound of what runs. Whatever every such way has to pass is counted: what is added to all of them is seen.
"""
import collections
import heapq
import re

SECTION = re.compile(r"^\.text\.(\w+):")
LABEL = re.compile(r"^(\S+):$")
CODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?(\S+?)\s*(?:\s(.*?))?\s*;")
TARGET = re.compile(r"`\((\S+?)\)")

Instruction = collections.namedtuple("Instruction", "guard name operands target function")

# What is counted, by the instruction's name.
KINDS = {
    "loads of the system": re.compile(r"LDG?\..*STRONG\.SYS"),
    "stores to the system": re.compile(r"STG?\..*STRONG\.SYS"),
    "atomics": re.compile(r"(ATOMG?|RED)\."),
    "loads of the GPU": re.compile(r"LDG?\..*STRONG\.GPU"),
    "stores to the GPU": re.compile(r"STG?\..*STRONG\.GPU"),
    "fences of the system": re.compile(r"MEMBAR\.\w+\.SYS"),
    "fences of the GPU": re.compile(r"MEMBAR\.\w+\.GPU"),
    "L1 invalidations": re.compile(r"CCTL\.IVALL"),
    "barriers": re.compile(r"BAR\.SYNC"),
}


def kind_of(name):
    return next((kind for kind, pattern in KINDS.items() if pattern.match(name)), None)


class Kernel:
    """Its instructions, with those of the functions that nvcc put beside it, and where each may go on."""

    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}

    def finish(self):
        self.barriers = self._barriers()
        return self

    def entry(self, label):
        if label not in self.labels:
            raise ValueError(f"{self.name}: no label {label}")
        return self.labels[label]

    def _barriers(self):
        """By BSYNC, the addresses at which threads go on that meet there: the targets of the BSSYs that can come before it."""
        reaching, work = {}, []
        starts = [at for label, at in self.labels.items() if not label.startswith(".L_")]
        for start in {0, *starts}:
            reaching[start] = {}
            work.append(start)
        found = {}
        while work:
            at = work.pop()
            state = {register: set(targets) for register, targets in reaching[at].items()}
            instruction = self.code[at]
            register = (instruction.operands or "").split(",")[0].strip()
            if instruction.name == "BSSY":
                state[register] = {self.entry(instruction.target)}
            elif instruction.name == "BSYNC":
                found[at] = state.get(register, set())
            for after in self._steps(at, found):
                known = reaching.setdefault(after, None)
                if known is None:
                    reaching[after] = state
                    work.append(after)
                    continue
                grown = False
                for key, targets in state.items():
                    if not targets <= known.setdefault(key, set()):
                        known[key] |= targets
                        grown = True
                if grown:
                    work.append(after)
        return found

    def _steps(self, at, barriers):
        """Where execution goes on after `at` within its function; a call comes back."""
        instruction = self.code[at]
        name, always = instruction.name.split(".")[0], instruction.guard is None
        if name in ("EXIT", "RET", "KILL"):
            return [] if always else [at + 1]
        if name == "BRA":
            unconditional = always and instruction.name in ("BRA", "BRA.U") and "P" not in instruction.operands.split("`")[0]
            return [self.entry(instruction.target)] + ([] if unconditional else [at + 1])
        if name == "BSYNC":
            return list(barriers.get(at, ())) or [at + 1]
        if name in ("BRX", "JMX", "JMP", "BRXU"):
            raise ValueError(f"{self.name}: {instruction.name} is not followed")
        return [at + 1]

    def way(self, landmarks):
        """The counts of the cheapest way that passes the landmarks in order: (function, pattern) each, "" for the kernel itself."""
        marks = [(function, re.compile(pattern)) for function, pattern in landmarks]
        start = (self.entry(self.name), (), 0)
        cost = {start: (0, 0)}
        before = {}
        queue = [(0, 0, 0, start)]
        order = 0
        while queue:
            counted, length, _, state = heapq.heappop(queue)
            if (counted, length) > cost[state]:
                continue
            at, calls, passed = state
            instruction = self.code[at]
            name = instruction.name
            if passed < len(marks) and marks[passed][0] == instruction.function and marks[passed][1].match(name):
                passed += 1
            nexts = []
            operation = name.split(".")[0]
            if operation == "EXIT" and passed == len(marks):
                return self._describe(before, state)
            if operation == "CALL":
                nexts.append((self.entry(instruction.target), (*calls, at + 1)))
            elif operation == "RET":
                if calls:
                    nexts.append((calls[-1], calls[:-1]))
                if instruction.guard is not None:
                    nexts.append((at + 1, calls))
            else:
                nexts += [(after, calls) for after in self._steps(at, self.barriers)]
            price = (counted + (kind_of(name) is not None), length + 1)
            for after, stack in nexts:
                if len(stack) > 6:
                    continue
                state_after = (after, stack, passed)
                if price < cost.get(state_after, (1 << 30, 0)):
                    cost[state_after] = price
                    before[state_after] = state
                    order += 1
                    heapq.heappush(queue, (*price, order, state_after))
        raise ValueError(f"{self.name}: no way passes {landmarks}")

    def _describe(self, before, state):
        steps = []
        while state is not None:
            steps.append(self.code[state[0]])
            state = before.get(state)
        counts = collections.Counter(kind for kind in (kind_of(step.name) for step in steps) if kind)
        counts["instructions"] = len(steps)
        return counts, [step for step in reversed(steps) if kind_of(step.name)]


def demangled(label):
    """'$send$_ZN7gpusock6detail5enterERKNS0_4SideEi' -> 'enter'."""
    nested = re.match(r"\$\w+?\$_ZN", label)
    if not nested:
        return ""
    rest, name = label[nested.end():], ""
    while match := re.match(r"(\d+)", rest):
        size = int(match[1])
        name, rest = rest[match.end():match.end() + size], rest[match.end() + size:]
    return name


def read(text):
    """By name, the kernels of what nvdisasm has printed."""
    kernels, kernel, function = {}, None, ""
    for line in text.splitlines():
        if section := SECTION.match(line):
            kernel, function = Kernel(section[1]), ""
            kernels[section[1]] = kernel
            kernel.labels[section[1]] = 0
        elif kernel and (label := LABEL.match(line)):
            kernel.labels[label[1]] = len(kernel.code)
            if label[1].startswith("$"):
                function = demangled(label[1])
        elif kernel and (code := CODE.match(line)):
            target = TARGET.search(code[3] or "")
            kernel.code.append(Instruction(code[1], code[2], code[3] or "", target and target[1], function))
        elif line.startswith("//-----"):
            kernel = None
    return {name: found.finish() for name, found in kernels.items()}
