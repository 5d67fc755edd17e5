"""A machine that falls silent is noticed within 15 s and named; nobody is who was cut off for a moment or stopped.

Each pair of hosts is two network namespaces joined by a cable; sockets belong to the one whose thread opened them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdl.launch.alarm import DIED, DONE, LOST, RAISED, Alarm

NOTICE_SECONDS = 15.0
CUT_SECONDS = 6.0
PREFIX = f"sparkdl-{os.getpid()}-"  # of the namespaces' names
NOBODY = "02:00:00:00:00:99"  # an Ethernet address
STOPPED = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(sys.argv[3].encode() + bytes([0, 0, 0, 1]))
peer.recv(1)
print(flush=True)
time.sleep(1000)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Cable:
    """Two hosts and what joins them; workers 0 and 2 are on the first, 1 is on the second."""

    def __init__(self, name: str, addresses: tuple[str, str]) -> None:
        self.hosts = [f"{PREFIX}{name}-{end}" for end in "ab"]
        self._addresses = addresses
        for host in self.hosts:
            ip("netns", "add", host)
        ip(
            "link",
            "add",
            "eth0",
            "netns",
            self.hosts[0],
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.hosts[1],
        )
        for host, address in zip(self.hosts, addresses, strict=True):
            six = ":" in address
            ip("-n", host, "addr", "add", address + ("/64" if six else "/24"), "dev", "eth0", *["nodad"] * six)
            for link in ("eth0", "lo"):
                ip("-n", host, "link", "set", link, "up")
        self.alarms = [self._on(host, Alarm, addresses[host]) for host in (0, 1, 0)]
        self.rung = [threading.Event() for _ in self.alarms]
        for rank, host in enumerate((0, 1, 0)):
            self._on(host, self.alarms[rank].watch, rank, 3, self.alarms[0].address, self.rung[rank].set)

    def _on(self, host: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread that is in the host's namespace."""
        result = []

        def call() -> None:
            with Path("/run/netns", self.hosts[host]).open() as namespace:
                assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) == 0  # CLONE_NEWNET
            result.append(function(*arguments))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join(20)
        return result[0]

    def unplug(self) -> None:
        """Take the second host's link down."""
        ip("-n", self.hosts[1], "link", "set", "eth0", "down")

    def plug_in(self) -> None:
        """Take it up again."""
        ip("-n", self.hosts[1], "link", "set", "eth0", "up")

    def drop(self) -> None:
        """Send every packet to nobody, with both links up."""
        for host, other in zip(self.hosts, reversed(self._addresses), strict=True):
            ip("-n", host, "neigh", "replace", other, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def close(self) -> None:
        """End all alarms."""
        for alarm in self.alarms:
            alarm.end(DONE)
            alarm.__exit__(None, None, None)


@pytest.fixture
def lay() -> Iterator[Callable[[str, tuple[str, str]], Cable]]:
    """Lays cables that are gone afterwards."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip, to make network namespaces")
    try:
        ip("netns", "add", f"{PREFIX}try")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
    with contextlib.ExitStack() as stack:

        def lay_one(name: str, addresses: tuple[str, str]) -> Cable:
            cable = Cable(name, addresses)
            stack.callback(cable.close)
            return cable

        stack.callback(remove_namespaces)
        yield lay_one


def remove_namespaces() -> None:
    """Delete those of this process; the cables go with them."""
    for host in os.listdir("/run/netns"):
        if host.startswith(PREFIX):
            ip("netns", "delete", host)


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    """Is set if worker 0 says that worker 1 is lost, whose process is stopped."""
    rung = threading.Event()
    with Alarm("127.0.0.1") as alarm:
        alarm.watch(0, 2, alarm.address, rung.set)
        arguments = [str(alarm.address[what]) for what in ("host", "port", "token")]
        command = [sys.executable, "-c", STOPPED, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            process.send_signal(signal.SIGSTOP)
            yield rung
            assert not rung.is_set()
            process.kill()
            assert rung.wait(5)
            assert alarm.cause(0) == (DIED, 1)


def test_a_silent_host_is_noticed_and_named_and_no_other(
    lay: Callable[[str, tuple[str, str]], Cable], stopped: threading.Event
) -> None:
    unplugged = lay("unplugged", ("10.0.0.1", "10.0.0.2"))
    dropping = lay("dropping", ("fd00::1", "fd00::2"))
    mended = lay("mended", ("10.0.0.1", "10.0.0.2"))
    cut = time.monotonic()
    unplugged.unplug()
    dropping.drop()
    mended.unplug()
    assert not any(rung.wait(CUT_SECONDS) for rung in [mended.rung[0]])
    mended.plug_in()
    for cable in (unplugged, dropping):
        for rank, rung in enumerate(cable.rung):
            assert rung.wait(max(0.0, cut + NOTICE_SECONDS - time.monotonic())), (cable.hosts, rank)
        # Worker 2 hears it from worker 0, and worker 1, alone now, has lost worker 0.
        causes = [alarm.cause(0) for alarm in cable.alarms]
        assert causes == [(LOST, 1), (LOST, 0), (LOST, 1)]
        assert [cause.witness(rank) for rank, cause in enumerate(causes)] == [0, 1, 0]
    time.sleep(max(0.0, cut + NOTICE_SECONDS - time.monotonic()))
    assert not any(rung.is_set() for rung in mended.rung)
    mended.alarms[1].end(RAISED)
    assert mended.rung[2].wait(5), "the mended cable carries"
    assert mended.alarms[2].cause(0) == (RAISED, 1)
