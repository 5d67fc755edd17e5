"""A slow network between two processes of one machine: two network namespaces joined by a limited pair of veth."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

RATES = {"10gbit": 1e10, "1gbit": 1e9, "100mbit": 1e8}  # bits a second, by name
DELAYS = {"10gbit": "50us", "1gbit": "100us", "100mbit": "500us"}  # of each way, where the kernel has netem
QUEUE = "50ms"  # what waits longer for the rate is dropped; TCP keeps less than that on the way
CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000  # of Linux


class LinkError(RuntimeError):
    """The machine does not let us make the network."""


@dataclass(frozen=True)
class Place:
    """Where a process of the pair lives.

    Attributes
    ----------
    namespace : str
        Name of its network namespace; empty for the machine's own.
    address : str
        IPv4 address at which the other one reaches it.
    """

    namespace: str
    address: str


LOOPBACK = (Place("", "127.0.0.1"), Place("", "127.0.0.1"))


def places(owner: int) -> tuple[Place, Place]:
    """The two ends of the network of a process, by its id; nobody else has namespaces of these names."""
    return Place(f"sparkdl-{owner}-a", "10.213.7.1"), Place(f"sparkdl-{owner}-b", "10.213.7.2")


def bucket(rate: float) -> int:
    """Bytes that may go at once: those of 0.1 ms, but enough for some packets; what is saved up is sent for free."""
    return max(16 << 10, round(rate / 8 * 1e-4))


def commands(ends: tuple[Place, Place], name: str) -> list[list[str]]:
    """What makes the network called so in `RATES`."""
    devices = [f"veth-{end.namespace[-1]}" for end in ends]  # a namespace has names of its own
    made = [["ip", "netns", "add", end.namespace] for end in ends]
    first, second = (["netns", end.namespace] for end in ends)
    made.append(["ip", "link", "add", devices[0], *first, "type", "veth", "peer", "name", devices[1], *second])
    for end, device in zip(ends, devices, strict=True):
        inside = ["ip", "-n", end.namespace]
        made.append([*inside, "address", "add", f"{end.address}/30", "dev", device])
        made += [[*inside, "link", "set", up, "up"] for up in ("lo", device)]
        limit = ["rate", f"{RATES[name]:.0f}bit", "burst", str(bucket(RATES[name])), "latency", QUEUE]
        made.append(["tc", "-n", end.namespace, "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", *limit])
    return made


def delays(ends: tuple[Place, Place], name: str) -> list[list[str]]:
    """What adds the network's delay."""
    netem = ["parent", "1:1", "netem", "delay", DELAYS[name], "limit", "10000"]
    return [["tc", "-n", end.namespace, "qdisc", "add", "dev", f"veth-{end.namespace[-1]}", *netem] for end in ends]


def removal(ends: tuple[Place, Place]) -> list[list[str]]:
    """What removes the network; the pair of veth goes with its namespaces."""
    return [["ip", "netns", "delete", end.namespace] for end in ends]


@contextmanager
def link(name: str) -> Iterator[tuple[Place, Place]]:
    """The two ends of a network of this rate; it is gone afterwards, whatever happened.

    Raises
    ------
    LinkError
        It cannot be made here, for want of rights or programs.
    """
    ends = places(os.getpid())
    try:
        for command in commands(ends, name):
            _run(command)
        try:
            for command in delays(ends, name):
                _run(command)
        except LinkError as error:
            print(f"{name}: rate alone, no delay: {error}")
        yield ends
    finally:
        for command in removal(ends):
            with suppress(LinkError):  # it was not made, or the other one is still to be removed
                _run(command)


def enter(place: Place) -> None:
    """Move this thread, and those it starts from now on, there; before anything opens a socket.

    gloo listens at whatever the machine's name resolves to, so the name becomes the address, in a namespace of its own.
    """
    if not place.namespace:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{place.namespace}") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) or libc.unshare(CLONE_NEWUTS):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the namespace {place.namespace}: {os.strerror(number)}")
    socket.sethostname(place.address)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip()}")
