"""Follows what a process prints into a file, no faster than somebody could want to read it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

POLL_SECONDS = 0.5
LINES_A_POLL = 100
LINE_BYTES = 500
CHUNK_BYTES = 1 << 16


class LogFollower:
    """Hands over every line that is added to a file, from a thread; a context manager.

    Of what comes in half a second it hands over the first `LINES_A_POLL` lines, cut to `LINE_BYTES`, and says how many
    it dropped. When it is closed it hands over what the file holds by then.

    Parameters
    ----------
    path : Path
        A file that exists.
    say : callable
        Called with one line at a time.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._begun = b""  # a line without its end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join(4 * POLL_SECONDS)  # it may be stuck with `say`

    def _follow(self) -> None:
        with contextlib.suppress(OSError), self._path.open("rb") as stream:
            while not self._closed.wait(POLL_SECONDS):
                self._hand_over(stream)
            self._hand_over(stream)
            if self._begun:
                self._say(_text(self._begun))

    def _hand_over(self, stream: IO[bytes]) -> None:
        said = dropped = 0
        here = os.fstat(stream.fileno()).st_size  # its end runs away from us if much is printed
        while chunk := stream.read(max(0, min(CHUNK_BYTES, here - stream.tell()))):
            *lines, rest = (self._begun + chunk).split(b"\n")
            self._begun = rest[: LINE_BYTES + 1]
            wanted = lines[: LINES_A_POLL - said]
            for line in wanted:
                self._say(_text(line))
            said += len(wanted)
            dropped += len(lines) - len(wanted)
        if dropped:
            self._say(f"... {dropped} more lines were dropped")


def _text(line: bytes) -> str:
    text = line[:LINE_BYTES].decode(errors="replace").rstrip("\r")
    return f"{text}..." if len(line) > LINE_BYTES else text
