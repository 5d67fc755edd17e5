"""A TCP port for those who show a token: strangers are few at once, are soon cut off, and are never heard."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from sparkdl.training.group.addresses import ANY_PORT, listen, without_brackets

GREETING_SECONDS = 10.0  # for all of the token, however it trickles in
STRANGERS = 64  # connections that have not shown the token yet, at once
BEAT_SECONDS, SILENCE_SECONDS = 3, 12
PAUSE_SECONDS = 0.1


class Door:
    """Listens on one address and lets in who shows the token.

    Parameters
    ----------
    host : str
        This machine's address, or a name of it, as the others see it; an IPv6 address may have brackets.
    bind : str, optional
        The address to listen on, if that is another one.
    ports : range, optional
        Those to listen on, of which the first is taken that is free.

    Attributes
    ----------
    address : dict
        Where the others find it: host, port, token.

    Raises
    ------
    OSError
        This machine cannot listen there.
    """

    def __init__(self, host: str, bind: str | None = None, ports: range = ANY_PORT) -> None:
        where = socket.getaddrinfo(without_brackets(bind or host), 0, type=socket.SOCK_STREAM)[0][4][0]
        self._server = listen(str(where), ports)
        token = secrets.token_hex(16)
        self.address: dict[str, Any] = {
            "host": without_brackets(host),
            "port": self._server.getsockname()[1],
            "token": token,
        }
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # the one who has waited longest comes first
        self._admitted: list[threading.Thread] = []
        self._closed = False

    def open(self, hear: Callable[[socket.socket], None]) -> None:
        """Let others in from now on: each is heard in a thread of its own, and closed when `hear` returns."""
        threading.Thread(target=self._accept, args=(hear,), daemon=True).start()

    def close(self, seconds: float = 0.0) -> None:
        """Let nobody in any more, and wait up to `seconds` for those who are heard to end."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone does not
        self._server.close()
        with self._lock:
            for stranger in self._strangers:
                _hang_up(stranger)
            admitted = list(self._admitted)
        deadline = time.monotonic() + seconds
        for thread in admitted:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self, hear: Callable[[socket.socket], None]) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed, or this process has as many files open as it may
                time.sleep(PAUSE_SECONDS)
                continue
            with self._lock:
                if len(self._strangers) >= STRANGERS:  # who has the token shows it at once, so the slowest leaves
                    oldest = next(iter(self._strangers))
                    del self._strangers[oldest]
                    _hang_up(oldest)
                self._strangers[connection] = None
            threading.Thread(target=self._greet, args=(connection, hear), daemon=True).start()

    def _greet(self, connection: socket.socket, hear: Callable[[socket.socket], None]) -> None:
        with connection, contextlib.suppress(OSError):
            known = _shows(connection, self.address["token"].encode())
            with self._lock:
                known &= connection in self._strangers and not self._closed
                self._strangers.pop(connection, None)
                if known:
                    self._admitted = [thread for thread in self._admitted if thread.is_alive()]
                    self._admitted.append(threading.current_thread())
            if known:
                connection.settimeout(None)
                keep_alive(connection)
                hear(connection)


def connect(address: dict[str, Any], seconds: float) -> socket.socket:
    """Connect to a Door and send it the token; whatever is done with the connection may take `seconds`.

    Parameters
    ----------
    address : dict
        The door's.
    seconds : float

    Raises
    ------
    OSError
        It cannot be reached in that time.
    """
    connection = socket.create_connection((without_brackets(address["host"]), address["port"]), seconds)
    try:
        keep_alive(connection)
        connection.sendall(address["token"].encode())
    except BaseException:
        connection.close()
        raise
    return connection


def keep_alive(connection: socket.socket) -> None:
    """End a connection with an OSError when the other machine has not answered for `SILENCE_SECONDS`.

    Its kernel answers: a machine that is gone or cut off falls silent, one that is slow or a process that is stopped
    does not.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": BEAT_SECONDS,
        "TCP_KEEPALIVE": BEAT_SECONDS,  # its name on macOS
        "TCP_KEEPINTVL": BEAT_SECONDS,
        "TCP_KEEPCNT": SILENCE_SECONDS // BEAT_SECONDS - 1,
        "TCP_USER_TIMEOUT": 1000 * SILENCE_SECONDS,  # of what was sent and not acknowledged
    }
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _shows(connection: socket.socket, token: bytes) -> bool:
    deadline = time.monotonic() + GREETING_SECONDS
    shown = b""
    with contextlib.suppress(OSError):
        while len(shown) < len(token):
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))  # which by itself is one of every receive
            piece = connection.recv(len(token) - len(shown))
            if not piece or time.monotonic() > deadline:
                return False
            shown += piece
    return hmac.compare_digest(shown, token)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes who receives, and closes
