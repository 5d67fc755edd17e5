"""Strings as integers, for layers that take hashes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkdl.arrays import INTEGERS


def is_string(kind: pa.DataType) -> bool:
    """Whether it is one of strings."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def hash_strings(column: pa.Array) -> pa.Array:
    """Strings, or lists of them, as int32, null as null; every other column as it is.

    The hash is the low half of pandas' SipHash of the string's UTF-8, whose key is fixed: it is the same on every
    worker, in every release, and in a model that is loaded years later.
    """
    if is_string(column.type):
        from pandas.util import hash_array  # slow to import, and few columns are hashed

        coded = column.dictionary_encode()  # so that every string is hashed once
        hashes = hash_array(coded.dictionary.to_numpy(zero_copy_only=False), categorize=False)
        return pa.array(hashes.astype(np.uint32).view(INTEGERS)).take(coded.indices)
    if pa.types.is_list(column.type) and is_string(column.type.value_type):
        values = hash_strings(column.values)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null() if column.null_count else None)
    return column
