"""PyTorch's torch.distributed on gpusock: torch.distributed.init_process_group("gpusock").

Importing torch registers the back end, once this package is installed. docs/pytorch.md says what it does.
"""

import atexit
import os
import secrets
import socket
from datetime import timedelta

__version__ = "0.1.0"
__all__ = ["Options", "abort", "register"]

_END_PATIENCE = timedelta(seconds=5)  # how long a program's end waits for operations that nobody has waited for


def _host():
    """What two ranks share if they reach each other by loopback: the running system, and its network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + " " + os.readlink("/proc/self/ns/net")


def _address_to_others():
    """This host's address on the way to the ranks' meeting point, or to distant hosts. Nothing is sent."""
    for target in (os.environ.get("MASTER_ADDR"), "192.0.2.1"):
        try:
            family, kind, _, _, to = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(to)
                address = probe.getsockname()[0]
        except (OSError, TypeError):
            continue
        if not address.startswith("127.") and address != "::1":
            return address
    return socket.gethostbyname(socket.gethostname())


def _make(given, options):
    """Makes the back end of a process group. PyTorch calls it (register_backend, extended_api)."""
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


def _end():
    import sys

    if module := sys.modules.get(__name__ + "._gpusock"):
        module.end_all(_END_PATIENCE)


def register():
    """Registers the back end "gpusock". PyTorch calls it when it is imported; a second call does nothing."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "GPUSOCK"):
        dist.Backend.register_backend("gpusock", _make, extended_api=True, devices=["cpu"])
        atexit.register(_end)


def __getattr__(name):
    if name in ("Options", "abort"):
        from . import _gpusock

        return getattr(_gpusock, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()
