"""The end of one worker ends the waiting of all: in an exchange they would wait for it for half a minute or for ever.

Every worker's parent process holds a connection to that of rank 0. One byte on it says how the worker ended; its loss
without a byte, that the worker died.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from sparkdl.training.addresses import ANY_PORT, listen

ADMITTED, DONE, RAISED, DIED, ASKED = b"a", b"d", b"r", b"x", b"t"
ROUND_TRIPS = 8  # to compare clocks
CONNECT_SECONDS = 60.0


class Alarm:
    """One worker's end of it; a context manager, which tells the others of a death if it is left before `end`.

    Parameters
    ----------
    host : str
        This machine's numeric address as the other workers see it.
    ports : range, optional
        Those that it may listen on.

    Attributes
    ----------
    address : dict
        Where the others find it: host, port, token.
    offset : float
        Seconds to add to this machine's clock for that of rank 0's.
    """

    def __init__(self, host: str, ports: range = ANY_PORT) -> None:
        self._server = listen(host, ports)
        self._token = secrets.token_hex(16)
        self._peers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._end = DIED
        self._heard: queue.Queue[bytes] = queue.Queue()
        self.offset = 0.0
        self.address: dict[str, Any] = {"host": host, "port": self._server.getsockname()[1], "token": self._token}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._server.close()
        self._tell(self._end)
        with self._lock:
            for peer in self._peers:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)  # wakes recv
                peer.close()

    def watch(self, rank: int, center: dict[str, Any], ring: Callable[[], None]) -> None:
        """Begin to watch.

        Parameters
        ----------
        rank : int
            This worker's.
        center : dict
            The `address` of rank 0's alarm.
        ring : callable
            Called in a thread when another worker has raised an exception or died; perhaps several times.

        Raises
        ------
        OSError
            Rank 0 cannot be reached.
        """
        if rank == 0:
            threading.Thread(target=self._accept, args=(ring,), daemon=True).start()
            return
        peer = socket.create_connection((center["host"], center["port"]), CONNECT_SECONDS)
        self._peers.append(peer)
        peer.sendall(center["token"].encode())
        if peer.recv(1) != ADMITTED:
            raise OSError(f"The alarm at {center['host']}:{center['port']} does not answer.")
        self.offset = _clock_offset(peer)
        peer.settimeout(None)
        threading.Thread(target=self._listen, args=(peer, ring), daemon=True).start()

    def end(self, how: bytes) -> None:
        """Tell the others that this worker is DONE, which alarms nobody, or has RAISED an exception."""
        self._end = how
        self._tell(how)

    def cause(self, seconds: float) -> bytes:
        """Whether another worker has RAISED an exception or DIED, as far as is heard within so many seconds."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return DIED

    def _accept(self, ring: Callable[[], None]) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._admit, args=(peer, ring), daemon=True).start()

    def _admit(self, peer: socket.socket, ring: Callable[[], None]) -> None:
        peer.settimeout(CONNECT_SECONDS)
        with contextlib.suppress(OSError):
            token = peer.recv(len(self._token), socket.MSG_WAITALL)
            if hmac.compare_digest(token, self._token.encode()):
                peer.settimeout(None)
                with self._lock:
                    self._peers.append(peer)
                peer.sendall(ADMITTED)
                self._listen(peer, ring)
                return
        peer.close()

    def _listen(self, peer: socket.socket, ring: Callable[[], None]) -> None:
        try:
            while (heard := peer.recv(1)) == ASKED:
                peer.sendall(struct.pack("!d", time.time()))
        except OSError:
            heard = b""
        if heard != DONE and self._end == DIED:  # else it is this worker's own end that ended it
            heard = heard or DIED
            self._heard.put(heard)
            self._tell(heard)  # rank 0 passes it on
            ring()

    def _tell(self, byte: bytes) -> None:
        with self._lock:
            for peer in self._peers:
                with contextlib.suppress(OSError):
                    peer.sendall(byte)


def _clock_offset(peer: socket.socket) -> float:
    """Seconds from this machine's clock to the peer's, by the quickest of some round trips (Cristian, 1989)."""
    tries = []
    for _ in range(ROUND_TRIPS):
        asked = time.time()
        peer.sendall(ASKED)
        answer = peer.recv(8, socket.MSG_WAITALL)
        heard = time.time()
        if len(answer) < 8:
            raise OSError("The alarm of the first worker fell silent.")
        tries.append((heard - asked, struct.unpack("!d", answer)[0] - (asked + heard) / 2))
    return min(tries)[1]
