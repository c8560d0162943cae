#!/usr/bin/env python3
"""Promises of the installed package: an outside project finds it, builds the README's kernel and runs it; each public header is there with all that it includes.

usage: test_package.py BUILD_FOLDER WORK_FOLDER [--cuda NVCC]

--cuda: the package has gpusock::cuda too; build the project for GPUs as well (it is run only where there is one).
Exit status: 0 kept, 1 broken, 2 misuse.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from commands import LIMIT_S, attempt, call

CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
DOXYFILE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/api/Doxyfile"  # lists the public headers
TRAINER = pathlib.Path(__file__).resolve().parent.parent.parent / "apps/param_sync"
API = ("gpusock", "param_sync")  # folders that have public headers, and no others


def echoes(program):
    """Runs the program and lets a TCP client talk to its kernel."""
    data = random.Random(7).randbytes(1_000_000)
    with subprocess.Popen([program, "127.0.0.1:0,link=tcp"], stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().split()[-1].rsplit(":", 1)
        with socket.create_connection((address[0], int(address[1])), timeout=LIMIT_S) as client:
            got = bytearray()
            for start in range(0, len(data), 50_000):
                client.sendall(data[start:start + 50_000])
                while len(got) < min(start + 50_000, len(data)):
                    got += client.recv(1 << 16)
            client.shutdown(socket.SHUT_WR)
            end = client.recv(1)
        return got == data and end == b"" and server.wait(LIMIT_S) == 0


def refusal(*command):
    """What a command that must fail says."""
    done = attempt(*command)
    if done.returncode == 0:
        raise AssertionError(f"{command} succeeded:\n{done.stdout}")
    return " ".join(done.stdout.split())


class Package(unittest.TestCase):
    build = work = nvcc = prefix = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(cls.work, ignore_errors=True)
        cls.prefix = cls.work / "prefix"
        call("cmake", "--install", cls.build, "--prefix", cls.prefix)

    def consumer(self, name, *options):
        """The project's folder. How well it is optimized is not asked here."""
        folder = self.work / name
        call("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}",
             "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", *options)
        return folder

    def test_find_package_builds_the_readme_kernel_and_param_syncs_sums(self):
        sums = self.nvcc is None  # else this package's gpusock::param_sync needs a GPU
        folder = self.consumer("cpu", f"-DCONSUMER_SUM={sums}")
        call("cmake", "--build", folder)
        self.assertTrue(echoes(folder / "echo"))
        if sums:
            self.assertEqual(call(folder / "sum"), "sum 1 2\nweights 4.5 4\nin a kernel 14.5 14\n")

    def test_documents_and_the_sources_of_the_examples_are_beside_it(self):
        folder = self.prefix / "share/doc/gpusock"
        for name in ("guide", "semantics", "robust_servers", "glossary", "performance", "package", "cpu_device", "tools"):
            self.assertTrue((folder / f"docs/{name}.md").is_file(), name)
        for name in ("echo_server.cu", "all_to_all.cu", "http_client.cu", "http_server/server.cuh", "redis_client/client.cuh"):
            self.assertTrue((folder / "examples" / name).is_file(), name)
        documents = list(folder.rglob("*.md"))
        links = [(document, link) for document in documents for link in re.findall(r"\]\(([^)#:\s]+)[)#]", document.read_text())]
        lost = [(document.name, link) for document, link in links if not (document.parent / link).exists()]
        self.assertGreater(len(links), 50)
        self.assertEqual(lost, [], "links that lead nowhere")
        guide = (folder / "docs/guide.md").read_text()
        self.assertRegex(guide, r"\[gpusock/io\.cuh\]\([^)]*include/gpusock/gpusock/io\.cuh\)")
        self.assertIn("`tests/fuzz/README.md` in the sources", (folder / "docs/testing.md").read_text(), "what is not installed is text")

    def test_the_examples_compile_against_it_as_a_project_of_their_own(self):
        folder = self.work / "examples"
        device = "cpu" if self.nvcc is None else "cuda"
        options = [] if self.nvcc is None else [f"-DCMAKE_CUDA_COMPILER={self.nvcc}", "-DCMAKE_CUDA_ARCHITECTURES=90"]
        call("cmake", "-G", "Ninja", "-S", self.prefix / "share/doc/gpusock/examples", "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}",
             f"-DGPUSOCK_DEVICE={device}", "-DCMAKE_CXX_FLAGS=-O0", *options)
        there = {line.split(":")[0] for line in call("ninja", "-C", folder, "-t", "targets", "all").splitlines()}
        sources = self.prefix / "share/doc/gpusock/examples"
        programs = {path.stem for path in sources.iterdir() if path.suffix in (".cu", ".cpp")} | {path.parent.name for path in sources.glob("*/main.cu")}
        self.assertGreaterEqual(len(programs), 8)
        self.assertEqual(programs - there, set(), "examples that the project does not build")
        if self.nvcc is not None:
            call("cmake", "--build", folder, "--target", "all_to_all")  # the others' kernels are compiled by the build itself
            return
        # Those that include most of what is installed; the build itself compiles all of them.
        call("cmake", "--build", folder, "--target", "http_server", "all_reduce")
        self.assertIn("--ranks", call(folder / "all_reduce", "--help"))

    def test_nvcc_checks_kernels_without_cmake_also_where_the_package_was_built_without_it(self):
        nvcc = self.nvcc or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.path.exists(nvcc):
            self.skipTest("there is no nvcc")
        call(nvcc, "-std=c++20", "-arch=sm_90", "-DGPUSOCK_DEVICE_CUDA=1", f"-I{next(self.prefix.rglob('include/gpusock'))}", "-c",
             CONSUMER / "echo.cu", "-o", self.work / "echo.o")

    def test_the_trainer_includes_installed_headers_alone(self):
        include = next(self.prefix.rglob("include/gpusock"))
        sources = [path for path in TRAINER.rglob("*") if path.suffix in (".cpp", ".hpp", ".cu", ".cuh")]
        used = {(path.name, name) for path in sources for name in re.findall(r'#include [<"]((?:gpusock|param_sync)/[^">]+)', path.read_text())}
        self.assertGreater(len(used), 50)
        self.assertEqual([(source, name) for source, name in sorted(used) if "detail" in name or not (include / name).is_file()], [])

    def test_each_public_header_is_there_with_all_that_it_includes(self):
        """That each header compiles by itself is what `./run check` shows, in the sources. Here all are compiled at once, and each of them twice."""
        include = next(self.prefix.rglob("include/gpusock"))
        listed = DOXYFILE.read_text()
        public = set(re.findall(r"\b[\w/]+\.(?:hpp|cuh)\b", listed))
        folders = [name for name in re.findall(r"(?<=\s)param_sync/\w+(?=\s)", listed)]
        public |= {str(path.relative_to(include)) for name in folders for path in (include / name).iterdir()}
        public = {name for name in public if name.split("/")[0] in (*API, "plain_types")}
        self.assertGreater(len(public), 25)
        there = {f"{folder}/{path.name}" for folder in API for path in (include / folder).iterdir() if path.is_file()}
        there |= {str(path.relative_to(include)) for path in (include / "param_sync").rglob("*") if path.is_file()}
        self.assertEqual(there - public, set(), "installed as API, and not in the reference")
        lost = {(str(path.relative_to(include)), name) for path in include.rglob("*") if path.is_file()
                for name in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE) if not (include / name).is_file()}
        self.assertEqual(lost, set(), "includes that are not installed")
        source = self.work / "headers.cpp"
        source.write_text("".join(f"#include <{name}>\n" for name in (*sorted(public), *sorted(public))) + "int main() {}\n")
        call("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", f"-I{include}", "-DGPUSOCK_DEVICE_CPU=1", "-fsyntax-only", source)

    def test_the_rivals_of_param_sync_are_beside_it(self):
        built = {path.name for path in self.build.rglob("param_sync-*") if path.is_file() and os.access(path, os.X_OK)}
        installed = {path.name for path in (self.prefix / "bin").glob("param_sync-*")}
        self.assertEqual(installed, built)

    def test_man_pages_are_installed_where_they_can_be_made(self):
        if "GPUSOCK_HELP2MAN:FILEPATH=GPUSOCK_HELP2MAN-NOTFOUND" in (self.build / "CMakeCache.txt").read_text():
            self.skipTest("there was no help2man when this was built")
        for tool in ("gpusock-doctor", "gpusock-top", "gpusock-bench", "param_sync"):
            self.assertTrue((self.prefix / f"share/man/man1/{tool}.1.gz").is_file(), tool)

    def test_the_compiler_says_what_to_write_instead(self):
        source = self.work / "runtime.cu"
        source.write_text("#include <gpusock/gpusock.hpp>\n"
                          "#include <gpusock/device.cuh>\n"
                          "__global__ void kernel(int* numbers, int count) { numbers[0] = count; }\n"
                          "void start(gpusock::Context& context, gpusock::Mapped<int>& mapped, gpusock::DeviceBuffer<int>& buffer) {\n"
                          "  gpusock::launch(context, {}, kernel, mapped, 1);\n"
                          "  gpusock::launch(context, {}, kernel, buffer, 1);\n"
                          "  gpusock::launch(context, {}, kernel, mapped.data());\n"
                          '  gpusock::launch(context, {}, kernel, mapped.data(), "one");\n'
                          "}\n"
                          "int main() { void* p; cudaMalloc(&p, 1); cudaMemcpy(p, p, 1, 0); return cudaDeviceSynchronize(); }\n")
        includes = [f"-I{next(self.prefix.rglob('include/gpusock'))}", "-DGPUSOCK_DEVICE_CPU=1"]
        told = refusal("c++", "-std=c++20", "-fsyntax-only", "-x", "c++", source, *includes)
        for name, instead in (("cudaMalloc", "DeviceBuffer"), ("cudaMemcpy", "copy_in"), ("cudaDeviceSynchronize", "Context::synchronize")):
            self.assertRegex(told, f"no {name}: use [^.]*{instead}")
        self.assertEqual(told.count("static assertion failed: launch: a kernel takes the address of a Mapped or a DeviceBuffer: pass its .data()"), 2, told)
        self.assertEqual(told.count("static assertion failed: launch: give a kernel as many arguments as it has parameters"), 1, told)
        self.assertEqual(told.count("static assertion failed: launch: an argument cannot be converted to the type of the kernel's parameter"), 1, told)
        self.assertNotIn("std::tuple", told)

    def test_a_cuda_project_gets_gpusock_cuda(self):
        if self.nvcc is None:
            self.skipTest("this package was built without nvcc")
        folder = self.consumer("cuda", "-DCONSUMER_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={self.nvcc}", "-DCMAKE_CUDA_ARCHITECTURES=90")
        call("cmake", "--build", folder, "--target", "echo")
        if os.path.exists("/dev/nvidia0"):
            self.assertTrue(echoes(folder / "echo"))
        # pkg-config names the CPU device here, too. (For a package that has nothing else, tests/docs/test_guide.py uses it.)
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next(self.prefix.rglob("pkgconfig"))))
        flags = call("pkg-config", "--cflags", "--libs", "gpusock", env=environment).split()
        program = self.work / "echo_pkg_config"
        call("c++", "-std=c++20", "-x", "c++", CONSUMER / "echo.cu", "-x", "none", *flags, "-o", program)
        self.assertTrue(echoes(program))

    def cuda_project(self, name, body, *options):
        """The command that configures a project that enables CUDA, which need not be here: its compiler is only pretended."""
        folder = self.work / name
        modules = folder / "modules"
        modules.mkdir(parents=True)
        (modules / "CMakeDetermineCUDACompiler.cmake").write_text(
            "set(CMAKE_CUDA_COMPILER /bin/true)\nset(CMAKE_CUDA_COMPILER_ENV_VAR CUDACXX)\n"
            'configure_file("${CMAKE_CURRENT_LIST_DIR}/CMakeCUDACompiler.cmake.in"'
            ' "${CMAKE_PLATFORM_INFO_DIR}/CMakeCUDACompiler.cmake" COPYONLY)\n')
        (modules / "CMakeCUDACompiler.cmake.in").write_text("set(CMAKE_CUDA_COMPILER /bin/true)\nset(CMAKE_CUDA_COMPILER_LOADED 1)\n")
        (modules / "CMakeCUDAInformation.cmake").write_text("set(CMAKE_CUDA_INFORMATION_LOADED 1)\n")
        (modules / "CMakeTestCUDACompiler.cmake").write_text("set(CMAKE_CUDA_COMPILER_WORKS 1 CACHE INTERNAL \"\")\n")
        shutil.copy(CONSUMER / "echo.cu", folder / "echo.cu")
        (folder / "CMakeLists.txt").write_text(
            'cmake_minimum_required(VERSION 3.25)\nproject(consumer LANGUAGES CXX)\n'
            'list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_SOURCE_DIR}/modules")\n' + body)
        return ("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", *options)

    def test_a_cuda_project_is_told_that_the_package_has_the_cpu_device_only(self):
        if self.nvcc is not None:
            self.skipTest("this package has both")
        enabled = "enable_language(CUDA)\nfind_package(gpusock REQUIRED)\n"
        program = "add_executable(echo echo.cu)\n"
        sources = "gpusock_device_sources(echo.cu)\n"
        link = "target_link_libraries(echo PRIVATE gpusock::{})\n"
        told = refusal(*self.cuda_project("sources", enabled + program + sources + link.format("gpusock")))
        self.assertIn("this project has enabled CUDA, but the gpusock in", told)
        self.assertIn("GPUSOCK_DEVICE=cpu", told)
        as_cxx = "set_source_files_properties(echo.cu PROPERTIES LANGUAGE CXX)\n"
        told = refusal(*self.cuda_project("link", enabled + program + as_cxx + link.format("gpusock")))
        self.assertIn("this project has enabled CUDA", told)
        self.assertIn("gpusock::cuda", told)
        late = "find_package(gpusock REQUIRED)\nenable_language(CUDA)\n"
        told = refusal(*self.cuda_project("late", late + program + sources + link.format("gpusock")))
        self.assertIn("after find_package(gpusock)", told)
        call(*self.cuda_project("named", enabled + program + as_cxx + link.format("cpu")))
        call(*self.cuda_project("chosen", enabled + program + sources + link.format("gpusock"), "-DGPUSOCK_DEVICE=cpu"))
        call("cmake", "--build", self.work / "chosen" / "build")

    def test_a_device_that_the_package_lacks_is_refused_by_name(self):
        with self.assertRaises(AssertionError) as refused:
            self.consumer("refused", "-DGPUSOCK_DEVICE=abacus")
        self.assertIn("abacus", str(refused.exception))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--cuda")
    arguments = parser.parse_args()
    Package.build, Package.work, Package.nvcc = arguments.build.resolve(), arguments.work.resolve(), arguments.cuda
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
