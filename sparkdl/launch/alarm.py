"""The end of one worker ends the waiting of all: in an exchange they would wait for it for half a minute or for ever.

Every worker's parent process holds a connection to that of rank 0. A few bytes on it say how a worker ended; its loss
without them, that the worker died, or that its machine is not to be reached.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from sparkdl.launch.channel import Door, connect
from sparkdl.training.group.addresses import ANY_PORT

ADMITTED = b"a"
DONE, RAISED, DIED, LOST, ASKED = b"d", b"r", b"x", b"l", b"t"
MESSAGE = struct.Struct("!cI")  # one of these, and the rank that it is about
ROUND_TRIPS = 8  # to compare clocks
CONNECT_SECONDS = 15.0
ADMIT_SECONDS = 60.0  # for rank 0 to answer, and for all others to come


class Cause(NamedTuple):
    """Why this worker cannot go on.

    Attributes
    ----------
    how : bytes
        Another worker has RAISED an exception or DIED, or is LOST: its machine has not answered for some seconds.
    rank : int or None
        Which one, if that is known.
    """

    how: bytes
    rank: int | None

    def witness(self, rank: int) -> int:
        """Who found that out, if it was told to the worker of this rank: all are connected to rank 0 alone."""
        return 0 if self.rank else rank


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
        self._door = Door(host, ports=ports)
        self._peers: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._rank = 0
        self._end = DIED
        self._heard: queue.Queue[Cause] = queue.Queue()
        self._absent: threading.Timer | None = None
        self.offset = 0.0
        self.address = self._door.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._absent is not None:
            self._absent.cancel()
        self._door.close()
        self._tell(self._end, self._rank)
        with self._lock:
            for peer in self._peers.values():
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)  # wakes recv
                peer.close()

    def watch(self, rank: int, workers: int, center: dict[str, Any], ring: Callable[[], None]) -> None:
        """Begin to watch.

        Parameters
        ----------
        rank : int
            This worker's.
        workers : int
            How many there are.
        center : dict
            The `address` of rank 0's alarm.
        ring : callable
            Called in a thread when `cause` has something to tell; perhaps several times.

        Raises
        ------
        OSError
            Rank 0 cannot be reached.
        """
        self._rank = rank
        if rank == 0 and workers > 1:
            self._door.open(lambda peer: self._admit(peer, ring))
            self._absent = threading.Timer(ADMIT_SECONDS, self._miss, (workers, ring))
            self._absent.daemon = True
            self._absent.start()
            return
        self._door.close()
        if rank == 0:
            return
        where = f"worker 0's alarm at {center['host']}:{center['port']}"
        try:
            peer = connect(center, CONNECT_SECONDS)
        except OSError as error:
            raise OSError(f"{where} cannot be reached: {error}") from None
        self._peers[0] = peer
        peer.settimeout(ADMIT_SECONDS)
        peer.sendall(struct.pack("!I", rank))
        if peer.recv(1) != ADMITTED:
            raise OSError(f"{where} does not answer")
        self.offset = _clock_offset(peer)
        peer.settimeout(None)
        threading.Thread(target=self._listen, args=(0, peer, ring), daemon=True).start()

    def end(self, how: bytes) -> None:
        """Tell the others that this worker is DONE, which alarms nobody, or has RAISED an exception."""
        self._end = how
        self._tell(how, self._rank)

    def cause(self, seconds: float) -> Cause:
        """The first that is heard of another worker; if nothing is heard for `seconds`, that one DIED."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return Cause(DIED, None)

    def _admit(self, peer: socket.socket, ring: Callable[[], None]) -> None:
        try:
            (rank,) = struct.unpack("!I", peer.recv(4, socket.MSG_WAITALL))
        except struct.error:  # it has gone again
            return
        with self._lock:
            self._peers[rank] = peer
        peer.sendall(ADMITTED)
        self._listen(rank, peer, ring)

    def _miss(self, workers: int, ring: Callable[[], None]) -> None:
        with self._lock:
            absent = [rank for rank in range(1, workers) if rank not in self._peers]
        if absent:
            self._alert(Cause(LOST, absent[0]), ring)

    def _listen(self, rank: int, peer: socket.socket, ring: Callable[[], None]) -> None:
        """Hear what one peer says, of itself or, if it is rank 0, of any."""
        try:
            while True:
                how, about = MESSAGE.unpack(peer.recv(MESSAGE.size, socket.MSG_WAITALL))
                if how != ASKED:
                    break
                peer.sendall(struct.pack("!d", time.time()))
        except (struct.error, ConnectionError):  # its process has ended
            how, about = DIED, rank
        except OSError:
            how, about = LOST, rank
        if how != DONE:
            self._alert(Cause(how, about), ring)

    def _alert(self, cause: Cause, ring: Callable[[], None]) -> None:
        if self._end != DIED:
            return  # it is this worker's own end that ended it
        self._heard.put(cause)
        if cause.rank is not None:
            self._tell(cause.how, cause.rank)  # rank 0 passes it on
        ring()

    def _tell(self, how: bytes, rank: int) -> None:
        with self._lock:
            for peer in self._peers.values():
                with contextlib.suppress(OSError):
                    peer.sendall(MESSAGE.pack(how, rank))


def _clock_offset(peer: socket.socket) -> float:
    """Seconds from this machine's clock to the peer's, by the quickest of some round trips (Cristian, 1989)."""
    tries = []
    for _ in range(ROUND_TRIPS):
        asked = time.time()
        peer.sendall(MESSAGE.pack(ASKED, 0))
        answer = peer.recv(8, socket.MSG_WAITALL)
        heard = time.time()
        if len(answer) < 8:
            raise OSError("worker 0's alarm fell silent")
        tries.append((heard - asked, struct.unpack("!d", answer)[0] - (asked + heard) / 2))
    return min(tries)[1]
