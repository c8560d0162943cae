"""The package depends on the PyTorch that it is built with, and on no other version: PyTorch's C++ interface may change
with each. scikit-build-core asks for this when it writes a wheel's metadata."""

import importlib.metadata


def dynamic_metadata(field, settings):
    """The value of the field `dependencies` in pyproject.toml."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return []  # the package is built without the back end: sockets need no PyTorch
    return ["torch==" + version.partition("+")[0]]  # pip then takes any build of this version: for GPUs, or for the CPU
