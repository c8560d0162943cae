#!/usr/bin/env python3
"""Promises of the documents: each link leads to a file and a heading of this project, and each `./run COMMAND` is a command.

usage: test_links.py SOURCE_FOLDER

Links to other sites are not followed. A bundle's own ./run is the same script, so its commands are, too.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import sys
import tempfile
import unittest

LEFT_OUT = {"build", "out", "bundle", "gpu-check", ".git"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r'<img src="([^"]+)"')
COMMAND = re.compile(r"(?<![\w/])\./run ([a-z][a-z-]*)")


def documents(root):
    for path in sorted(root.rglob("*.md")):
        if not LEFT_OUT.intersection(path.relative_to(root).parts):
            yield path


def without_code(text):
    """The text without code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(path):
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ +(.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands(root):
    """What ./run takes."""
    return set(re.search(r"^  (demo \|.*)\) ;;", (root / "run").read_text(), re.MULTILINE)[1].split(" | "))


def dead_links(root):
    dead = []
    for document in documents(root):
        text = without_code(document.read_text())
        for link in LINK.findall(text) + PICTURE.findall(text):
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            target = (document.parent / name).resolve() if name else document
            if not target.exists():
                dead.append(f"{document.relative_to(root)}: {link} leads to no file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                dead.append(f"{document.relative_to(root)}: {link} leads to no heading")
    return dead


def unknown_commands(root):
    known = commands(root)
    return [f"{document.relative_to(root)}: ./run {word} is no command" for document in documents(root)
            if document.name != "CHANGELOG.md" for word in COMMAND.findall(document.read_text()) if word not in known]


class Links(unittest.TestCase):
    source = None

    def test_each_link_leads_somewhere(self):
        self.assertEqual(dead_links(self.source), [])

    def test_each_command_exists(self):
        self.assertEqual(unknown_commands(self.source), [])

    def test_planted_faults_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "run").write_text("case x in\n  demo | test) ;;\nesac\n")
            (root / "README.md").write_text("# One\n\n[a](b.md) [c](README.md#one) [d](#two) `[e](f.md)` <img src=\"g.svg\"> ./run demo, `./run fly`\n")
            self.assertEqual(dead_links(root), ["README.md: b.md leads to no file", "README.md: #two leads to no heading", "README.md: g.svg leads to no file"])
            self.assertEqual(unknown_commands(root), ["README.md: ./run fly is no command"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Links.source = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
