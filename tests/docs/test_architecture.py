#!/usr/bin/env python3
"""Promises of docs/architecture.md: the functions that it lists exist in the files that it names, and call each other in that order; and
each file that the table "Where to begin" names exists, with what the table says is in it.

usage: test_architecture.py SOURCE_FOLDER

A step of a numbered list is "1. `Class::function` (path): words", or `hooks.name` for a function in a member. The last step may be a system call or a library's function, without a
path. Each step's name occurs in the body of an earlier step of its list.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import sys
import unittest

TCP_STEPS_MAX = 13  # between send and sendmsg
GRADIENT_STEPS_MAX = 12


def lists(document):
    """The numbered lists: each the (function, path or None) of its steps."""
    found = []
    for number, function, path in re.findall(r"^(\d+)\. `([\w:.]+)`(?: \(([\w./]+)\))?:", document, re.MULTILINE):
        if number == "1":
            found.append([])
        if int(number) != len(found[-1]) + 1:
            raise AssertionError(f"step {number} of `{function}` is out of order")
        found[-1].append((function, path or None))
    return found


def bodies(source, function):
    """The text of each definition or declaration of the function in this source, to the line that ends it."""
    hooks = re.findall(rf"^ *{re.escape(function)} = \[.*?\n? *\}};", source, re.MULTILINE | re.DOTALL)
    if hooks:
        return hooks[:1]
    owner, _, name = function.rpartition("::")
    if owner and not re.search(rf"\b{owner.rpartition('::')[2]}\b", source):
        return []
    qualified = rf"{re.escape(owner)}::" if owner and f"{owner}::{name}(" in source else ""
    starts = re.finditer(rf"^( *)(?!return\b|//)[\w:<>&*~\[\], ]*[ &*]{qualified}{name}\(", source, re.MULTILINE)
    return [re.split(rf"\n{start[1]}\}}", source[start.start():], maxsplit=1)[0] for start in starts]


def problems(root, document):
    """What is wrong with the document's lists, a line for each."""
    wrong = []
    for steps in lists(document):
        before = []
        for function, path in steps:
            name = re.split(r"::|\.", function)[-1]
            if before and not any(re.search(rf"\b{name}\b", body) for body in before):
                wrong.append(f"no function before {function} in its list calls it")
            if path is None:
                continue
            file = root / path
            found = bodies(file.read_text(), function) if file.is_file() else []
            if not found:
                wrong.append(f"{path} has no {function}")
            before += found
    return wrong


def first_places(root, document):
    """What is wrong in the table "Where to begin", a line for each: a file that is not there, or has no such word."""
    wrong = []
    for row in re.findall(r"^\| (?!To change|---)(.*) \|$", document.partition("## Where to begin")[2], re.MULTILINE):
        folder = root
        for path in re.findall(r"\b[\w/-]+\.(?:hpp|cpp|cuh|cu|inl|md|py)\b", row):
            if "/" in path:
                folder = (root / path).parent
            if not (root / path).is_file() and not (folder / path).is_file():
                wrong.append(f"there is no {path}")
        for name, path in re.findall(r"`([\w:]+)`[^`|;,]* (?:in|of) ([\w/]+(?:\.\w+)?)", row):
            target = root / path
            files = [target] if target.is_file() else sorted(target.rglob("*.?pp"))
            word = rf"\b{name.rpartition('::')[2]}\b"
            if not any(re.search(word, file.read_text()) for file in files):
                wrong.append(f"{path} has no {name}")
    return wrong


class Architecture(unittest.TestCase):
    source = None

    @classmethod
    def setUpClass(cls):
        cls.document = (cls.source / "docs" / "architecture.md").read_text()

    def test_the_functions_exist_and_call_each_other(self):
        self.assertEqual(problems(self.source, self.document), [])

    def test_there_is_a_walk_for_each_link(self):
        text = " ".join(function for steps in lists(self.document) for function, _ in steps)
        for function in ("TcpLink::progress", "copy_to_peer", "VerbsTransport::write", "FabricTransport::write", "sendmsg", "recvmsg", "Net::recv"):
            self.assertIn(function, text)

    def test_tcp_is_short(self):
        walk = next([function for function, _ in steps] for steps in lists(self.document) if steps[-1][0] == "sendmsg")
        self.assertEqual(walk[0], "Net::send")
        self.assertLessEqual(len(walk) - 2, TCP_STEPS_MAX)

    def test_a_gradients_walk_is_short(self):
        walk = lists(self.document.partition("## From a gradient to the weights\n")[2].partition("\n## ")[0])
        self.assertEqual((walk[0][0][0], walk[-1][-1][0]), ("backward_and_hand_over", "forward_when_ready"))
        self.assertLessEqual(sum(len(steps) for steps in walk), GRADIENT_STEPS_MAX)

    def test_where_to_begin_names_what_there_is(self):
        self.assertEqual(first_places(self.source, self.document), [])
        self.assertEqual(first_places(self.source, self.document.replace("`kSchemes` in", "`kScheme` in")),
                         ["param_sync/schedule/schemes.cpp has no kScheme"])
        self.assertEqual(first_places(self.source, self.document.replace("and json.cpp", "and jason.cpp")), ["there is no jason.cpp"])

    def test_a_function_that_is_gone_and_one_that_is_not_called_are_found(self):
        renamed = self.document.replace("`TcpLink::transmit`", "`TcpLink::transmitted`")
        self.assertEqual(problems(self.source, renamed)[:2], ["no function before TcpLink::transmitted in its list calls it",
                                                              "host_proxy/links/tcp/tcp_link.cpp has no TcpLink::transmitted"])
        swapped = self.document.replace("`Engine::try_step`", "`Engine::stats`")
        self.assertEqual(problems(self.source, swapped)[0], "no function before Engine::stats in its list calls it")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Architecture.source = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
