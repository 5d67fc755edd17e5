"""Memory that is free but kept, handed back once."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Let the system have what glibc keeps of memory that was freed, for what is to come to take it anew.

    A process that trains keeps all, since a step takes what the last one took. What only its start took, such as the
    drawing of large weights, lies in pieces between others, in which a step's memory need not fit.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # of another C library, or of none by itself
        ctypes.CDLL(None).malloc_trim(0)
