"""Addresses for tests whose programs are told where to listen before they do."""
import errno
import os
import pathlib
import random
import socket


def own_addresses(count):
    """HOST:PORT that only this test uses: a loopback address of its own, with ports that are free on it. They are none of those that the
    system chooses: else another program that listens on all addresses could get one before this test's program does."""
    pid = os.getpid()
    host = f"127.{1 + pid % 250}.{1 + pid // 250 % 250}.{random.randrange(1, 250)}"
    first, last = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [*range(10000, first), *range(last + 1, 65536)] or [*range(10000, 65536)]  # some systems choose among all
    random.shuffle(ports)
    found = []
    for port in ports:
        if len(found) == count:
            return found
        try:
            with socket.create_server((host, port)):
                found.append(f"{host}:{port}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise RuntimeError(f"{host} has no {count} ports that are free")
