"""Promises of the wheel: what is in it, what it needs, and that it works where nothing is but Python, pip and PyTorch.

GPUSOCK_TEST_WHEEL is its file. ./run test --only python sets it.
"""

import email
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest
import venv
import zipfile

WHEEL = pathlib.Path(os.environ.get("GPUSOCK_TEST_WHEEL", ""))
HASH = r"-[0-9a-f]{8}\.so(\.\d+)+"  # what auditwheel makes of a library's name
BROUGHT = {"libcrypto": "ssl", "libfmt": "fmt", "libspdlog": "spdlog"}  # others' libraries in it, and licences
if platform.machine() != "x86_64":
    BROUGHT["libboost_context"] = "boost-context"  # cpu_device/fiber.cpp
PYTORCH = {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"}
PLATFORM = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6"}
PLATFORM |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

SOCKETS = """
    import sys, threading
    import gpusock

    for link in ("p2p", "tcp"):
        with gpusock.Context(secret="the same", timeout=30) as context:
            with context.listen("127.0.0.1:0,link=" + link) as listener:
                def answer():
                    peer, _ = listener.accept()
                    with peer:
                        while received := peer.recv(1000):
                            peer.sendall(received[::-1])
                thread = threading.Thread(target=answer)
                thread.start()
                with context.connect(listener.address) as peer:
                    peer.sendall(b"there and back")
                    print(peer.link, peer.recv(14, 0x100))  # MSG_WAITALL
                thread.join()
    assert "torch" not in sys.modules
    print(gpusock.__file__)
"""

SUM = """
    import sys
    import torch
    import torch.distributed as dist

    rank = int(sys.argv[1])
    dist.init_process_group("gpusock", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    tensor = torch.arange(1000.0) * (rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(1000.0) * 3), tensor
    print("sum", tensor[-1].item())
    with open("/proc/self/maps") as maps:
        for file in sorted({line.split()[-1] for line in maps if ".so" in line}):
            print("loaded", file)
    dist.destroy_process_group()
"""


@unittest.skipUnless(WHEEL.name, "GPUSOCK_TEST_WHEEL names no wheel: ./run test --only python makes one")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        with zipfile.ZipFile(WHEEL) as archive:
            cls.names = [name for name in archive.namelist() if not name.endswith("/")]
            archive.extractall(cls.folder / "files")

    def text(self, name):
        [path] = (self.folder / "files").glob("gpusock-*.dist-info/" + name)
        return path.read_text()

    def test_it_has_the_package_its_types_its_libraries_and_licences_alone(self):
        suffix = re.escape(sysconfig.get_config_var("EXT_SUFFIX"))
        description = r"gpusock-[\d.]+\.dist-info/"
        expected = [
            *[r"gpusock/" + name for name in ("__init__.py", "_built.py", "error_feedback.py", "py.typed")],
            *[rf"gpusock/{name}{end}" for name in ("_gpusock", "_sockets") for end in (r"\.pyi", suffix)],
            *[rf"gpusock\.libs/{name}{HASH}" for name in BROUGHT],
            *[description + name for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")],
            *[description + rf"licenses/lib{name}[\w.]+" for name in BROUGHT.values()],
            description + "sboms/auditwheel.cdx.json",
        ]
        for pattern in expected:
            self.assertEqual(len([name for name in self.names if re.fullmatch(pattern, name)]), 1, pattern)
        self.assertEqual(len(self.names), len(expected), self.names)

    def test_its_modules_need_what_it_has_what_each_linux_has_and_pytorch(self):
        files = self.folder / "files"
        modules = list(files.glob("gpusock*/*.so*"))
        self.assertEqual(len(modules), 2 + len(BROUGHT))
        ours = {path.name for path in files.glob("gpusock.libs/*")}
        for module in modules:
            said = subprocess.run(["readelf", "-d", module], text=True, capture_output=True, check=True).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
            self.assertIn("libc.so.6", needed)
            others = PLATFORM | ours | (PYTORCH if module.name.startswith("_gpusock") else set())
            self.assertEqual(needed - others, set(), module.name)
            paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", said)
            self.assertEqual([path for path in paths if not path.startswith("$ORIGIN")], [], module.name)

    def test_it_says_for_which_python_which_linux_and_which_pytorch_it_is(self):
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        tags = email.message_from_string(self.text("WHEEL")).get_all("Tag")
        self.assertRegex(tags[0], rf"^{python}-{python}-manylinux_2_\d+_\w+$")
        self.assertEqual(len(tags), 1)
        self.assertTrue(WHEEL.name.endswith(f"-{tags[0]}.whl"), WHEEL.name)
        required = email.message_from_string(self.text("METADATA")).get_all("Requires-Dist")
        self.assertEqual(required, ["torch==" + importlib.metadata.version("torch").partition("+")[0]])

    def python(self):
        """A new virtual environment with the wheel, and links to PyTorch and the like in this one."""
        folder = self.folder / "environment"
        if not folder.exists():
            venv.create(folder, with_pip=False)
            [new] = folder.glob("lib/python*/site-packages")
            for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
                if not entry.name.startswith("gpusock"):
                    (new / entry.name).symlink_to(entry)
            pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python"]
            # Without the right PyTorch, pip refuses it.
            subprocess.run([*pip, "install", "-q", "--no-index", WHEEL], check=True, timeout=120)
        return folder / "bin/python"

    def begin(self, text, *arguments):
        """Starts a program in that environment. On its path is Python, so there are no compilers, and no CMake."""
        python = self.python()
        return subprocess.Popen(
            [python, "-c", textwrap.dedent(text), *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": str(python.parent), "OMP_NUM_THREADS": "1", "HOME": str(self.folder)},
        )

    def test_sockets_work_in_a_new_environment(self):
        process = self.begin(SOCKETS)
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0, said)
        back = "b'kcab dna ereht'"
        self.assertEqual(said.splitlines()[:-1], [f"p2p {back}", f"tcp {back}"])
        self.assertIn(str(self.folder), said.splitlines()[-1])

    def test_two_processes_sum_tensors_in_a_new_environment(self):
        store = str(self.folder / "store")
        processes = [self.begin(SUM, str(rank), store) for rank in (0, 1)]
        for process in processes:
            said = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, said)
            self.assertIn("sum 2997.0", said)
            loaded = [pathlib.Path(line.split()[1]) for line in said.splitlines() if line.startswith("loaded")]
            ours = [path for path in loaded if self.folder in path.parents and path.parent.name.startswith("gpusock")]
            self.assertEqual(len(ours), 1 + len(BROUGHT), loaded)
            foreign = [path for path in loaded if path not in ours]
            for name in ("libboost", "libfmt", "libspdlog", "libibverbs", "librdmacm", "libfabric", "_gpusock"):
                self.assertEqual([path for path in foreign if path.name.startswith(name)], [])


if __name__ == "__main__":
    unittest.main()
