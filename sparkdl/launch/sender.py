"""Progress and logs on their way to the driver: best effort, so that they can be late or lost but never fail a fit."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from types import TracebackType
from typing import Any, Self

from sparkdl.launch.channel import connect

CONNECT_SECONDS = 2.0


class Sender:
    """Sends messages from a task's threads to the driver's Receiver; every trouble is swallowed.

    Parameters
    ----------
    address : dict or None
        The receiver's; None sends nothing.
    """

    def __init__(self, address: dict[str, Any] | None) -> None:
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        if address is None:
            return
        with contextlib.suppress(OSError):
            self._socket = connect(address, CONNECT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, or give up for good."""
        with self._lock:
            if self._socket is None:
                return
            try:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._socket.close()
                self._socket = None
