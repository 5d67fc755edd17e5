"""Global heaps of HDF5 files, walked before HDF5 does: at a damaged one its library would go round forever.

The layout is that of section III.E of the HDF5 File Format Specification, version 3: "GCOL", the version 1, three bytes
of zeros, the size of the collection; then objects of 16 bytes (index, references, padding, size) and their data, which
come to multiples of 8. An object of index 0 is what is free, and its size counts these 16 bytes.
"""

from __future__ import annotations

from typing import Any

HEAP = b"GCOL\x01\0\0\0"
HEADER = 16  # bytes, of a collection and of an object


def damaged_heap(data: Any) -> bool:
    """Whether a heap has an object that leads nowhere or beyond its end.

    Parameters
    ----------
    data : bytes or mmap
        A whole file.
    """
    at = data.find(HEAP)
    while at >= 0:
        end, place = at + _number(data, at + 8), at + HEADER
        if end > len(data) or end < place:
            return True
        while place + HEADER <= end:
            size = _number(data, place + 8)
            free = data[place : place + 2] == b"\0\0"
            if free and size < HEADER:
                return True
            place += size if free else HEADER + -(-size // 8) * 8
        if place > end:
            return True
        at = data.find(HEAP, end)
    return False


def _number(data: Any, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
