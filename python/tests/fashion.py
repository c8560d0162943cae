"""Fashion-MNIST (the Debian package dataset-fashion-mnist), a small net for it, and a training by DDP."""

import gzip
import pathlib
import struct

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
MISSING = "Fashion-MNIST is not here: apt-get install dataset-fashion-mnist, or ./run install-deps"
STEPS = 200
BATCH = 64  # of all ranks together
RATE, MOMENTUM = 0.05, 0.9


def is_here():
    return (FOLDER / "train-images-idx3-ubyte.gz").exists()


def samples(name, count):
    """The first `count` images and labels of "train" or "t10k", as MNIST's files have them."""
    with gzip.open(FOLDER / f"{name}-images-idx3-ubyte.gz") as file:
        magic, _, rows, columns = struct.unpack(">4i", file.read(16))
        assert (magic, rows, columns) == (2051, 28, 28), (magic, rows, columns)
        images = torch.frombuffer(bytearray(file.read(count * 784)), dtype=torch.uint8)
    with gzip.open(FOLDER / f"{name}-labels-idx1-ubyte.gz") as file:
        assert struct.unpack(">2i", file.read(8))[0] == 2049
        labels = torch.frombuffer(bytearray(file.read(count)), dtype=torch.uint8)
    return images.view(count, 784).float() / 255, labels.long()


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(rank, settings={}, register=None):
    """Trains on this rank's part of each batch. Returns the weights, and the share of test images that are right.

    register(model) may register a hook.
    """
    ranks = dist.get_world_size()
    model = DistributedDataParallel(network(), **settings)
    if register:
        register(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    images, labels = samples("train", STEPS * BATCH)
    for step in range(STEPS):
        part = slice(step * BATCH + rank * BATCH // ranks, step * BATCH + (rank + 1) * BATCH // ranks)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
    images, labels = samples("t10k", 10_000)
    with torch.no_grad():
        right = (model.module(images).argmax(1) == labels).float().mean().item()
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).numpy(), right
