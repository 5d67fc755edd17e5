"""Strings as integers: their hashes, or their places among those that a layer has rows for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import INTEGERS
from sparkdl.decoding.arrow_types import is_list


def is_string(kind: pa.DataType) -> bool:
    """Whether it is one of strings."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def hash_strings(column: pa.Array) -> pa.Array:
    """Strings, or lists of them, as int32, null as null; every other column as it is.

    The hash is the low half of pandas' SipHash of the string's UTF-8, whose key is fixed: it is the same on every
    worker, in every release, and in a model that is loaded years later.
    """

    def hashed(strings: pa.Array) -> pa.Array:
        from pandas.util import hash_array  # slow to import, and few columns are hashed

        coded = strings.dictionary_encode()  # so that every string is hashed once
        hashes = hash_array(coded.dictionary.to_numpy(zero_copy_only=False), categorize=False)
        return pa.array(hashes.astype(np.uint32).view(INTEGERS)).take(coded.indices)

    return _of_strings(column, hashed)


def look_up_strings(column: pa.Array, entries: Sequence[str]) -> pa.Array:
    """Strings, or lists of them, as int32, their places among the entries, or len(entries); all else as it is."""

    def places(strings: pa.Array) -> pa.Array:
        found = pc.index_in(strings, value_set=pa.array(entries, strings.type)).fill_null(len(entries))
        return pc.if_else(strings.is_valid(), found, None) if strings.null_count else found

    return _of_strings(column, places)


def _of_strings(column: pa.Array, function: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """What the function makes of strings, or of those in lists."""
    if is_string(column.type):
        return function(column)
    if is_list(column.type) and is_string(column.type.value_type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.append(0, np.cumsum(lengths))).cast(pa.int32())  # a slice has none that a mask goes with
        missing = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(offsets, function(column.flatten()), mask=missing)
    return column
