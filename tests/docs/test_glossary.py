#!/usr/bin/env python3
"""Promise of docs/glossary.md: it explains each word that the demo, gpusock-doctor and gpusock-top print.

usage: test_glossary.py SOURCE_FOLDER

The words are those of the programs' string literals. Which of them need no explanation is written down: ordinary_words.txt. Names of
variables, of JSON's fields, of files and of packages are none.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import sys
import unittest

PRINTING = ("gpusock/tools/doctor/*.cpp", "gpusock/tools/top/*.cpp", "apps/param_sync/report/progress.cpp", "apps/param_sync/report/report.cpp")
WORD = re.compile(r"(?<![\w./:+-])[A-Za-z][A-Za-z0-9'-]*(?:/s)?(?![\w/]|\.\w)")  # not of a path, an address, name_of_a_variable


def printed(source):
    """The words in a C++ source's literals, in lower case, with the line of each."""
    words = {}
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith(("//", "#include")):
            continue
        line = re.sub(r'\{"[a-z_]+", ', "", line)  # a field of JSON
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
            for word in WORD.findall(re.sub(r"\\.|%[-\d.*]*[a-z]+", " ", literal)):
                words.setdefault(word.lower().removesuffix("'s").rstrip("'-"), number)
    return words


def forms(word):
    """The word, and what it may be a form of."""
    yield word
    for end, instead in (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e")):
        if word.endswith(end):
            yield word.removesuffix(end) + instead


def explained(glossary):
    """The glossary's words: those in bold."""
    words = set()
    for term in re.findall(r"\*\*(.+?)\*\*", glossary):
        words.add(term.lower())
        words.update(re.findall(r"[a-z0-9][\w/'-]*", term.lower()))
    return words | {word.removesuffix("s") for word in words}


def unexplained(sources, glossary, ordinary):
    known = explained(glossary) | ordinary
    return [f"{name}:{line}: {word}" for name, source in sources for word, line in printed(source).items()
            if not any(form in known for form in forms(word))]


class Glossary(unittest.TestCase):
    root = None

    def read(self):
        ordinary = set((pathlib.Path(__file__).parent / "ordinary_words.txt").read_text().split())
        sources = [(path.relative_to(self.root), path.read_text())
                   for pattern in PRINTING for path in sorted(self.root.glob(pattern)) if path.name != "json.cpp"]
        return sources, (self.root / "docs/glossary.md").read_text(), ordinary

    def test_every_printed_word_is_explained_or_ordinary(self):
        sources, glossary, ordinary = self.read()
        self.assertGreater(len(sources), len(PRINTING))
        wrong = unexplained(sources, glossary, ordinary)
        self.assertFalse(wrong, "explain them in docs/glossary.md, or say it in ordinary words (tests/docs/ordinary_words.txt)")

    def test_ordinary_words_are_printed(self):
        sources, _, ordinary = self.read()
        used = {form for _, source in sources for word in printed(source) for form in forms(word)}
        self.assertEqual(sorted(ordinary - used), [], "printed no more: take them out of ordinary_words.txt")

    def test_a_word_that_nobody_explained_is_found(self):
        source = 'print("SLOTS %5d of its nanosplines, in rx_bytes of /proc/self\\n");  // "comment"\n// "and this"\n'
        self.assertEqual(list(printed(source)), ["slots", "of", "its", "nanosplines", "in", "comment"])
        self.assertEqual(unexplained([("a.cpp", source)], "- **slot**: ...", {"of", "its", "in", "comment"}), ["a.cpp:1: nanosplines"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__)
        sys.exit(2)
    Glossary.root = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1)
