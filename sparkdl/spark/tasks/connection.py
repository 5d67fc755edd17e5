"""Whether Spark still listens to the Python worker that a task runs in.

Where Spark cannot give a task all its rows, as when the host is lost on which some of them lie, it closes its socket
to the worker, and Arrow takes that for the end of the rows (`ReadNext` of its stream reader): the task would train on
those that had come, for nobody, or wait for the other tasks for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat


class Connection:
    """The sockets that are open as it is made: make it before a task opens any of its own."""

    def __init__(self) -> None:
        self._descriptors = [number for number in map(int, os.listdir("/dev/fd")) if _is_open_socket(number)]

    def is_closed(self) -> bool:
        """Whether the other side of one of them has closed it since."""
        return not all(map(_is_open_socket, self._descriptors))


def _is_open_socket(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as ours, contextlib.suppress(BlockingIOError):
            return bool(ours.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return True  # but nothing to read
    except OSError:  # not connected, or gone
        return False
