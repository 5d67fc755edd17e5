"""Memory that was freed in pieces: handed back to the system, and kept out of the way of what follows."""

from __future__ import annotations

import contextlib
import ctypes
import os

# Bytes of a piece that is held. Smaller ones glibc keeps in lists by size; larger ones are few, and a step needs them.
LEAST, MOST = 1 << 10, 32 << 20
ONE_ARENA = "glibc.malloc.arena_max=1"  # in GLIBC_TUNABLES
COUNTS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
    "keepcost",  # bytes that are free at the end of the heap
)


class _Counts(ctypes.Structure):
    """What glibc's mallinfo2 gives."""

    _fields_ = [(name, ctypes.c_size_t) for name in COUNTS]


class Pieces:
    """Free pieces of memory between others in use, which no allocation finds while they are held.

    A process that trains keeps all that it frees, since a step takes what the last one took. But compiling the step of
    a MobileNetV2 leaves 60,000 pieces of 950 MB in all, and glibc's malloc goes through those of similar size, one
    after the other, wherever in memory they lie: for a tenth of that step's time, by a profile. Holding them takes a
    third of a second and little memory, as the system has their pages back.

    Holds nothing but where GLIBC_TUNABLES asks for one arena, as it does for a fit's workers: elsewhere a step's memory
    lies in others. Nor where the C library is not glibc, or one before 2.33.
    """

    def __init__(self) -> None:
        self._held: list[int] = []

    def hold(self) -> None:
        """Give the system the pages of all free pieces, then take the pieces, those at the end of the heap excepted."""
        with contextlib.suppress(OSError, AttributeError, TypeError):
            library = ctypes.CDLL(None)
            library.malloc_trim(0)
            if ONE_ARENA not in os.environ.get("GLIBC_TUNABLES", "").split(":"):
                return
            library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
            library.sbrk.restype, library.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
            library.mallinfo2.restype = _Counts
            end, size = library.sbrk(0) - library.mallinfo2().keepcost, MOST
            while size >= LEAST:
                piece = library.malloc(size)  # the smallest that suffices; of the end only where no piece does
                if piece < end:
                    self._held.append(piece)
                else:
                    library.free(ctypes.c_void_p(piece))
                    size -= size // 8

    def close(self) -> None:
        """Let allocations have the pieces again."""
        if self._held:
            library = ctypes.CDLL(None)
            while self._held:
                library.free(ctypes.c_void_p(self._held.pop()))
