"""Strings in parts, words or characters, each of which is a step of a row of any length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import Array
from sparkdl.decoding.arrow_types import bounds_and_bytes
from sparkdl.decoding.hashing import is_string

SPLITS = ("word", "character")
APART = r"([^\p{L}\p{M}\p{N}\s])"  # a character that is a word by itself, or a space that is none of ASCII's


def split_strings(column: pa.Array, split: str | None) -> pa.Array:
    """Lists of the parts of strings, null of null; every other column, and with a split of None all, as they are.

    Words are runs of letters, their marks and digits, in lower case and in Unicode's form NFC, and every other
    character that is no white space by itself. Characters are code points.
    """
    if split is None or not is_string(column.type):
        return column
    return _words(column) if split == "word" else _characters(column)


def _words(column: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(pc.utf8_normalize(column, "NFC"))
    found = pc.utf8_split_whitespace(pc.replace_substring_regex(lower, pattern=APART, replacement=r" \1 "))
    lengths = pc.list_value_length(found).fill_null(0).to_numpy(zero_copy_only=False)
    parts = found.flatten()
    kept = pc.greater(pc.binary_length(parts), 0)  # there is an empty one before white space that comes first
    counts = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    return _lists(column, counts[np.append(0, np.cumsum(lengths))], parts.filter(kept))


def _characters(column: pa.Array) -> pa.Array:
    """The bytes stay where they are: in UTF-8, each but the first of a code point begins with the bits 10."""
    large = pa.types.is_large_string(column.type)
    bounds, data = bounds_and_bytes(column.cast(pa.large_binary() if large else pa.binary()))
    bounds, data = bounds - bounds[0], data[bounds[0] : bounds[-1]]
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    ends = pa.py_buffer(np.append(starts, bounds[-1]).astype(np.int64))
    parts = pa.LargeStringArray.from_buffers(len(starts), ends, pa.py_buffer(np.ascontiguousarray(data)))
    return _lists(column, np.searchsorted(starts, bounds), parts)


def _lists(column: pa.Array, offsets: Array, parts: pa.Array) -> pa.Array:
    missing = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), parts, mask=missing)
