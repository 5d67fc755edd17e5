"""Several hosts on one machine: network namespaces on a switch, each with a name, a disk and processes of its own."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NETWORK, NETWORK_6, UNPLUGGED = "10.213.9", "fd00:213:9", "10.213.10"
SWITCH = "switch"
LOCAL, SMALL_DISK = "local", "256m"  # folder of Spark's local disk, which on the last host is a small one
# Own name as Debian and Ubuntu write it, which no other host could reach. The second worker's means an interface that
# is down, as all hosts have one, and the last host's name resolves to nothing.
NAMES = "127.0.0.1 localhost\n::1 localhost\n"
RUN = 'hostname "$1" && ip link set lo up && shift && exec "$@"'


class Host:
    """One of them.

    Attributes
    ----------
    number : int
    name : str
    address : str
        At which the others reach it.
    folder : Path
        Its disk.
    """

    def __init__(self, number: int, owner: str, root: Path) -> None:
        self.number = number
        self.name = f"host{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.folder = root / self.name
        self.namespace = f"{owner}-{self.name}"
        self._switch = f"{owner}-{SWITCH}"
        self._started: list[subprocess.Popen[str]] = []

    def over_ipv6(self) -> Host:
        """The same host, as the others reach it by IPv6, with another folder."""
        other = self.within(self.folder / "ipv6")
        other.address = f"[{NETWORK_6}::{10 + self.number}]"
        return other

    def within(self, root: Path) -> Host:
        """The same host with another folder, in this one."""
        other = copy.copy(self)
        other.folder = root / self.name
        other.folder.mkdir(parents=True)
        return other

    def start(
        self,
        command: list[str],
        environment: dict[str, str],
        log: Path,
        stdin: int | None = subprocess.DEVNULL,
        user: int | None = None,
        folder: Path | None = None,
    ) -> subprocess.Popen[str]:
        """A process on this host, which prints into a file; its standard input may be a pipe.

        It runs in the host's folder or another, as root or as another user, until this process has ended.
        """
        who = [] if user is None else [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        command = ["setpriv", "--pdeathsig=KILL", *who, *command]
        with log.open("ab") as stream:
            started = subprocess.Popen(
                [*inside(self.namespace), "unshare", "--uts", "sh", "-c", RUN, "sh", self.name, *command],
                stdin=stdin,
                stdout=stream,
                stderr=stream,
                env=environment,
                cwd=folder or self.folder,
                text=True,
                start_new_session=True,
            )
        self._started.append(started)
        return started

    def end(self) -> None:
        """End all that runs here."""
        deadline = time.monotonic() + 10
        while self.kill("") and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self._started:
            process.wait(10)

    def plug(self, into_switch: bool) -> None:
        """Take the cable out of the switch, or put it in again: what is sent vanishes, and nobody is told."""
        port = ["ip", "-n", self._switch, "link", "set", f"to-{self.name}"]
        run(*port, *(["master", "bridge"] if into_switch else ["nomaster"]))

    def link(self, up: bool) -> None:
        """Take the cable out of the host, which sees that, or put it in; without it Linux forgets addresses of IPv6."""
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up" if up else "down")
        if up:
            run(
                *("ip", "-n", self.namespace, "address", "replace"),
                *(f"{NETWORK_6}::{10 + self.number}/64", "dev", "eth0", "nodad"),
            )

    def processes(self) -> dict[int, str]:
        """Ids and command lines of all that runs here."""
        found = {}
        for pid in run("ip", "netns", "pids", self.namespace).split():
            with contextlib.suppress(OSError):
                found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def trainers(self) -> list[int]:
        """Ids of the processes that train here, by the name that they take."""
        return [pid for pid in self.processes() if _name(pid) == "sparkdl-worker"]

    def kill_trainers(self) -> list[int]:
        """Kill them."""
        struck = self.trainers()
        for pid in struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return struck

    def listening(self, *names: str) -> list[tuple[str, int]]:
        """Addresses and TCP ports at which processes listen whose name begins with one of these.

        Those of the loopback, as of the daemons of Spark's Python workers, do not count.
        """
        found = []
        for line in run(
            *inside(self.namespace), "ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header"
        ).splitlines():
            address, port = line.split()[3].rsplit(":", 1)
            address = address.strip("[]").removeprefix("::ffff:")
            if re.search(rf'"({"|".join(names)})', line) and not address.startswith("127."):
                found.append((address, int(port)))
        return found

    def kill(self, command: str, number: int = signal.SIGKILL) -> list[int]:
        """Send a signal to all whose command line contains this."""
        struck = [pid for pid, line in self.processes().items() if command in line]
        for pid in struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return struck


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def inside(namespace: str) -> list[str]:
    """What precedes a command that runs in a network namespace."""
    return ["ip", "netns", "exec", namespace]


def run(*command: str) -> str:
    """What a command prints; a RuntimeError with its complaint if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def missing() -> str:
    """Why there can be no hosts on this machine; "" if there can."""
    if os.geteuid():
        return "several hosts on one machine take root"
    lacking = [program for program in ("ip", "unshare") if not shutil.which(program)]
    if lacking:
        return f"several hosts on one machine take {' and '.join(lacking)} (Debian's iproute2, util-linux)"
    probe = f"sparkdl-{os.getpid()}-probe"  # several processes may look at once
    try:
        run("ip", "netns", "add", probe)
        run("ip", "netns", "delete", probe)
    except RuntimeError as error:
        return f"this machine has no network namespaces: {error}"
    return ""


@contextlib.contextmanager
def connected(number: int, root: Path) -> Iterator[list[Host]]:
    """So many hosts on one switch; afterwards nothing of them is there, whatever happened.

    Parameters
    ----------
    number : int
    root : Path
        Folder for their disks.
    """
    _sweep()
    owner = f"sparkdl-{os.getpid()}"
    hosts = [Host(each, owner, root) for each in range(number)]
    settings = [Path("/etc/netns") / host.namespace for host in hosts]
    switch = ["ip", "-n", f"{owner}-{SWITCH}"]
    try:
        run("ip", "netns", "add", f"{owner}-{SWITCH}")
        run(*switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        run(*switch, "link", "set", "bridge", "up")
        for host, own in zip(hosts, settings, strict=True):
            host.folder.mkdir(parents=True)
            own.mkdir(parents=True)  # of which `ip netns exec` lays each file over that of /etc
            unplugged = f"{UNPLUGGED}.{10 + host.number}"
            means = {2: unplugged, number - 1: None}.get(host.number, "127.0.1.1")
            (own / "hosts").write_text(NAMES + (f"{means} {host.name}\n" if means else ""))
            (own / "resolv.conf").write_text("")
            (own / "nsswitch.conf").write_text("hosts: files\n")
            run("ip", "netns", "add", host.namespace)
            port, there = f"to-{host.name}", ["ip", "-n", host.namespace]
            run(
                "ip",
                "link",
                "add",
                "eth0",
                "netns",
                host.namespace,
                "type",
                "veth",
                "peer",
                "name",
                port,
                "netns",
                f"{owner}-{SWITCH}",
            )
            run(*there, "address", "add", f"{host.address}/24", "dev", "eth0")
            run(*there, "link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
            run(*there, "address", "add", f"{unplugged}/24", "dev", "eth1")
            run(*there, "link", "set", "lo", "up")
            host.link(True)
            run(*switch, "link", "set", port, "master", "bridge", "up")
        small = hosts[-1].folder / LOCAL
        small.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", owner, str(small))
        yield hosts
    finally:
        for host, own in zip(hosts, settings, strict=True):
            with contextlib.suppress(RuntimeError):
                host.end()
                run("ip", "netns", "delete", host.namespace)
            shutil.rmtree(own, ignore_errors=True)
        for command in (
            ["ip", "netns", "delete", f"{owner}-{SWITCH}"],
            ["umount", "--lazy", str(hosts[-1].folder / LOCAL)],
        ):
            with contextlib.suppress(RuntimeError):
                run(*command)


def _sweep() -> None:
    """Remove what runs that were killed have left, of whose processes Linux has ended those that they started."""
    for namespace in run("ip", "netns", "list").split():
        if _is_left(namespace):
            with contextlib.suppress(RuntimeError):  # another process removes it, too
                for pid in run("ip", "netns", "pids", namespace).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                run("ip", "netns", "delete", namespace)
    for settings in Path("/etc/netns").glob("sparkdl-*"):
        if _is_left(settings.name):
            shutil.rmtree(settings, ignore_errors=True)
    for source, folder, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines()):
        if _is_left(source):
            with contextlib.suppress(RuntimeError):
                run("umount", "--lazy", folder)


def _is_left(name: str) -> bool:
    """Whether this is called after a run of these tests of which the process has gone."""
    owner = re.match(r"sparkdl-(\d+)\b", name)
    return owner is not None and not os.path.exists(f"/proc/{owner[1]}")
