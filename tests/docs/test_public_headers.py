#!/usr/bin/env python3
"""Promise of the public headers, those that docs/api/Doxyfile lists: what they declare for programs names nothing of an internal namespace.

usage: test_public_headers.py SOURCE_FOLDER WORK_FOLDER

Declarations are as doxygen reads them: types, parameters, template parameters, constraints and bases, and of variables their values. Function bodies, private members, friends
and macros may use internal names. What a header hides from the reference (@cond INTERNAL) is examined, too.
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree

INTERNAL = ("detail", "compat", "table", "proxy", "rdma", "ringbuf", "cpu_device")  # namespaces
NAMED = re.compile(rf"\b(?:{'|'.join(INTERNAL)})\s*::")
PARTS = ("type", "templateparamlist", "param", "argsstring", "requiresclause", "initializer")


def listed(doxyfile):
    """The public headers: those among doxygen's inputs."""
    inputs = re.search(r"^INPUT\s*=((?:.*\\\n)*.*)$", doxyfile, re.MULTILINE)[1]
    return [name for name in inputs.split() if name.endswith((".hpp", ".cuh")) or re.fullmatch(r"param_sync/\w+", name)]  # a folder: all of its headers


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def leaks(doxyfile, source, work, headers):
    """What these headers declare with a name of an internal namespace, a line for each."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # Internal namespaces are no part of the reference; what is hidden in others is read here.
    settings = {"INPUT": " ".join(map(str, headers)), "OUTPUT_DIRECTORY": work, "GENERATE_HTML": "NO", "GENERATE_XML": "YES", "XML_PROGRAMLISTING": "NO",
                "ENABLED_SECTIONS": "INTERNAL", "EXTRACT_ALL": "YES", "WARN_AS_ERROR": "NO", "WARNINGS": "NO", "USE_MDFILE_AS_MAINPAGE": ""}
    subprocess.run(["doxygen", "-"], cwd=source, text=True, check=True, stdout=subprocess.DEVNULL,
                   input=doxyfile + "".join(f"\n{name} = {value}" for name, value in settings.items()) + "\n")
    found = set()
    for file in (work / "xml").glob("*.xml"):
        for compound in xml.etree.ElementTree.parse(file).getroot().iter("compounddef"):
            name = compound.findtext("compoundname")
            found |= {f"{name}: {text}" for tag in ("basecompoundref", "templateparamlist", "requiresclause") for part in compound.findall(tag)
                      if NAMED.search(text := text_of(part))}
            for member in compound.iter("memberdef"):
                if member.get("prot") == "private" or member.get("kind") in ("friend", "define"):
                    continue
                found |= {f"{member.findtext('qualifiedname') or member.findtext('name')}: {text}" for tag in PARTS for part in member.findall(tag)
                          if NAMED.search(text := text_of(part))}
    return sorted(found)


PLANTED = """#pragma once
/// @file A header.
namespace gpusock {
namespace detail {
struct Side {};
}
/// A class.
class Net : public detail::Side {
 public:
  /// @cond INTERNAL
  explicit Net(const detail::Side& side) : side_(side) {}
  /// @endcond
  /// A function with a body.
  int body() const { return detail::answer(side_); }
 private:
  friend class detail::Wait;
  detail::Side of() const;
  detail::Side side_;
};
/// A function.
template <class T> requires detail::Fits<T> proxy::Time later(T t);
/// A structure.
struct Handle {
  table::Words* words = nullptr;  ///< words
};
}
"""


class PublicHeaders(unittest.TestCase):
    source = work = None

    def test_what_they_declare_names_no_internal_namespace(self):
        doxyfile = (self.source / "docs/api/Doxyfile").read_text()
        headers = listed(doxyfile)
        self.assertGreater(len(headers), 25)
        self.assertEqual(leaks(doxyfile, self.source, self.work / "headers", headers), [])

    def test_planted_names_are_found(self):
        header = self.work / "planted.hpp"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(PLANTED)
        found = leaks((self.source / "docs/api/Doxyfile").read_text(), self.source, self.work / "planted", [header])
        self.assertEqual({line.partition(": ")[0] for line in found},
                         {"gpusock::Net", "gpusock::Net::Net", "gpusock::later", "gpusock::Handle::words"}, found)
        self.assertIn("gpusock::later: detail::Fits< T >", [line.replace("<T>", "< T >") for line in found])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    PublicHeaders.source, PublicHeaders.work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
