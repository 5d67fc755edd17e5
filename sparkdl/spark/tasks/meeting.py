"""The meeting of a fit's workers before they train, in which each tells all of them what it has.

Spark's `allGather` takes a second, as Spark looks once a second whether all have come: half of a small fit. Workers of
one executor, as all are on one machine, meet at a socket of the first instead; if one of them cannot, all go to Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

import pyspark

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext

PATIENCE_SECONDS = 3.0  # for all to come to the socket: they begin at once, but Python may have to start
PAUSE_SECONDS = 0.01
IN_ORDER = int(pyspark.__version__.split(".")[0]) >= 4  # task ids, of the ranks of one attempt


class Meeting:
    """One worker's part in it; a context manager.

    Parameters
    ----------
    context : pyspark.BarrierTaskContext
    fit : str
        What no other fit on this machine is called.
    """

    def __init__(self, context: BarrierTaskContext, fit: str) -> None:
        self._context = context
        self._rank, self._workers = context.partitionId(), len(context.getTaskInfos())
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        self._socket: socket.socket | None = None
        executors = {info.address for info in context.getTaskInfos()}
        if self._workers > 1 and len(executors) == 1 and IN_ORDER and sys.platform == "linux":
            # A worker of an attempt that Spark is still ending has another name to meet under: Spark numbers the tasks
            # of an attempt in turn.
            name = f"\0sparkdl-{fit}-{context.taskAttemptId() - self._rank}"  # of no file, so that none is left behind
            self._socket = self._listen(name) if self._rank == 0 else self._connect(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def gather(self, message: str) -> list[str]:
        """What every worker brings, in the order of ranks, once all are here: Spark ends who waits for a dead one."""
        if self._workers == 1:
            return [message]
        if self._socket is not None:
            with self._socket, contextlib.suppress(OSError, ValueError):
                return self._collect(message) if self._rank == 0 else self._hand_in(message)
        return self._context.allGather(message)

    def _listen(self, name: str) -> socket.socket | None:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.bind(name)
            server.listen(self._workers)
            return server
        except OSError:
            server.close()
            return None

    def _connect(self, name: str) -> socket.socket | None:
        while time.monotonic() < self._deadline:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(PATIENCE_SECONDS)
            with contextlib.suppress(OSError):
                connection.connect(name)
                connection.settimeout(None)
                if _is_ours(connection):
                    return connection
            connection.close()
            time.sleep(PAUSE_SECONDS)  # the first has not begun, or cannot
        return None

    def _collect(self, message: str) -> list[str]:
        """Hear the others, once all have come, and tell each what all have said. OSError or ValueError if one fails."""
        assert self._socket is not None
        messages = {0: message}
        with contextlib.ExitStack() as opened:
            streams: list[TextIO] = []
            while len(streams) < self._workers - 1:
                self._socket.settimeout(max(self._deadline - time.monotonic(), PAUSE_SECONDS))
                peer = opened.enter_context(self._socket.accept()[0])
                peer.settimeout(None)
                if _is_ours(peer):
                    streams.append(opened.enter_context(peer.makefile("rw")))
            for stream in streams:
                rank, said = json.loads(stream.readline())
                messages[rank] = said
            told = [messages[rank] for rank in range(self._workers)]
            for stream in streams:
                stream.write(json.dumps(told) + "\n")
                stream.flush()
        return told

    def _hand_in(self, message: str) -> list[str]:
        assert self._socket is not None
        with self._socket.makefile("rw") as stream:
            stream.write(json.dumps([self._rank, message]) + "\n")
            stream.flush()
            told: list[str] = json.loads(stream.readline())
        return told


def _is_ours(peer: socket.socket) -> bool:
    """Whether the process at the other end is of this one's user: a socket without a file is open to all."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())
