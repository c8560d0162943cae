"""Sockets whose peers are GPU kernels, and PyTorch's torch.distributed on them: init_process_group("gpusock").

Context, Socket and Listener need no PyTorch, and do not import it (docs/python.md). Importing torch registers the back
end, once this package is installed (docs/pytorch.md).
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions
    from torch.distributed import ProcessGroup

    from ._gpusock import Options as Options, abort as abort
    from ._sockets import Context as Context, Listener as Listener, Socket as Socket
    from .error_feedback import ErrorFeedback as ErrorFeedback, ddp_hook as ddp_hook

__version__ = "0.1.0"
__all__ = [
    "Context",
    "ErrorFeedback",
    "Listener",
    "Options",
    "Socket",
    "Traffic",
    "abort",
    "ddp_hook",
    "register",
    "traffic",
]

_END_PATIENCE = timedelta(seconds=5)  # how long a program's end waits for operations that nobody has waited for


def _host() -> str:
    """What two ranks share if they reach each other by loopback: the running system, and its network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + " " + os.readlink("/proc/self/ns/net")


def _address_to_others() -> str:
    """This host's address on the way to the ranks' meeting point, or to distant hosts. Nothing is sent."""
    for target in (os.environ.get("MASTER_ADDR"), "192.0.2.1"):
        try:
            family, kind, _, _, to = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(to)
                address: str = probe.getsockname()[0]
        except (OSError, TypeError):
            continue
        if not address.startswith("127.") and address != "::1":
            return address
    return socket.gethostbyname(socket.gethostname())


def _make(given: _DistributedBackendOptions, options: Options | None) -> Backend:
    """Makes the back end of a process group. PyTorch calls it (register_backend, extended_api)."""
    _refuse_other_pytorch()
    from . import _gpusock

    if options is None:
        options = _gpusock.Options()
    elif not isinstance(options, _gpusock.Options):
        raise TypeError(f"gpusock: pg_options is {type(options).__name__}: give gpusock.Options, or none")
    options._timeout = given.timeout
    store, rank, size = given.store, given.group_rank, given.group_size
    if rank == 0:
        store.set("secret", secrets.token_hex(16))
    store.set(f"host/{rank}", _host())
    hosts = [store.get(f"host/{other}") for other in range(size)]
    address = "127.0.0.1" if len(set(hosts)) == 1 else _address_to_others()
    return _gpusock.make(
        store, rank, size, options, address, store.get("secret").decode(), list(given.global_ranks_in_group)
    )


def _refuse_other_interpreters() -> None:
    """Raises ImportError, unless this is the process's main interpreter.

    The modules in C++ are for that one. pybind11 says so from Python 3.12 on; before that it would wait forever.
    """
    if sys.version_info < (3, 12):
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            return
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError("gpusock: sockets are for a process's main interpreter: use them there")


def _refuse_other_pytorch() -> None:
    """Raises ImportError, unless this is the PyTorch that the back end was built with.

    PyTorch's C++ interface may change with each version. The module in C++ would fail somewhere, or crash.
    """
    import torch

    from ._built import TORCH

    here = torch.__version__.partition("+")[0]
    if TORCH is None:
        raise ImportError(
            "gpusock: this package was built without PyTorch, so it has sockets and no back end: install a package "
            f"that was built with PyTorch {here}"
        )
    if here != TORCH:
        raise ImportError(
            f"gpusock: this package was built with PyTorch {TORCH}, and here is PyTorch {here}: pip install "
            f"torch=={TORCH}, or install a package that was built with PyTorch {here}"
        )


def _end() -> None:
    if module := sys.modules.get(__name__ + "._gpusock"):
        module.end_all(_END_PATIENCE)


class Traffic(NamedTuple):
    """Bytes that a process group's connections have carried so far, with the headers of gpusock's messages."""

    sent: int
    received: int


def traffic(group: ProcessGroup | None = None) -> Traffic:
    """The bytes that this rank has sent to other ranks and received in a group; None: in the whole program's group.

    Raises ValueError for a group that was destroyed, or whose back end for the CPU is not gpusock.
    """
    import torch
    import torch.distributed as dist

    _refuse_other_pytorch()
    from . import _gpusock

    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("gpusock: traffic: there is no process group: call init_process_group() first")
    return Traffic(*_gpusock.traffic(group._get_backend(torch.device("cpu"))))


def register() -> None:
    """Registers the back end "gpusock". PyTorch calls it when it is imported; a second call does nothing."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "GPUSOCK"):
        dist.Backend.register_backend("gpusock", _make, extended_api=True, devices=["cpu"])
        atexit.register(_end)


if not TYPE_CHECKING:  # type checkers have seen the names above

    def __getattr__(name):
        if name in ("Context", "Listener", "Socket"):
            _refuse_other_interpreters()
            from . import _sockets

            return getattr(_sockets, name)
        if name in ("Options", "abort"):
            register()  # imports torch, whose libraries the module needs
            _refuse_other_pytorch()
            from . import _gpusock

            return getattr(_gpusock, name)
        if name in ("ErrorFeedback", "ddp_hook"):
            from . import error_feedback

            return getattr(error_feedback, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "torch" in sys.modules:  # else torch calls register() when it is imported
    register()
