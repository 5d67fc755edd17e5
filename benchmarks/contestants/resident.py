"""The memory that this program and all that it started hold, by what each process is there for (Linux).

Pages of files that are mapped do not count: the system takes them back when it needs to.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

ROLES = ("driver", "JVM", "task", "training")
SECONDS = 0.02  # from one look to the next


@contextlib.contextmanager
def peaks() -> Iterator[dict[str, int]]:
    """The most bytes that one process of each of `ROLES` held while the block ran; filled in as it runs."""
    found, done = dict.fromkeys(ROLES, 0), threading.Event()

    def watch() -> None:
        while not done.wait(SECONDS):
            for role, held in _resident():
                found[role] = max(found[role], held)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _resident() -> Iterator[tuple[str, int]]:
    """(role, bytes) of this process and of those below it."""
    parents, names = dict[int, int](), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            parents[int(folder.name)], names[int(folder.name)] = int(rest.split()[1]), name
    for process in parents:
        if _is_below(process, os.getpid(), parents):
            with contextlib.suppress(OSError):
                told = Path(f"/proc/{process}/status").read_text()
                held = sum(int(kilobytes) for kilobytes in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", told, re.M))
                yield _role(process, names[process]), 1024 * held


def _is_below(process: int, top: int, parents: dict[int, int]) -> bool:
    while process in parents and process != top:
        process = parents[process]
    return process == top


def _role(process: int, name: str) -> str:
    if process == os.getpid():
        return "driver"
    if Path(os.readlink(f"/proc/{process}/exe")).name == "java":  # or a copy of it that is about to be another program
        return "JVM"
    return "training" if name == "sparkdl-worker" else "task"
