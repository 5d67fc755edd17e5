"""What the rows of an Arrow column are, by its type, and where their bytes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

IMAGE = {"height", "width", "nChannels", "mode", "data"}  # fields of Spark's image struct
VECTOR = {"type", "size", "indices", "values"}  # and of a Vector's


def is_number(kind: pa.DataType) -> bool:
    """Whether it is one of numbers, booleans and decimals too, or of nulls without a type, which are missing ones."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is one of lists."""
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def is_binary(kind: pa.DataType) -> bool:
    """Whether it is one of bytes."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def bounds_and_bytes(column: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Bounds (n + 1,) of the rows of a binary column, and the bytes that they count, without a copy."""
    _, offsets, data = column.buffers()
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    if not len(column) or offsets is None:
        return np.zeros(len(column) + 1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return bounds, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def is_image(kind: pa.DataType) -> bool:
    """Whether it is that of Spark's image source."""
    return pa.types.is_struct(kind) and {field.name for field in kind} >= IMAGE


def is_vector(kind: pa.DataType) -> bool:
    """Whether it is that of Vectors, dense or sparse."""
    return pa.types.is_struct(kind) and {field.name for field in kind} >= VECTOR


def is_packed(kind: pa.DataType) -> bool:
    """Whether it is that of arrays or Vectors of which some are bytes (see `catalyst.py`)."""
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "plain"}


def depth_of(kind: Any) -> int:
    """How deep lists of numbers are nested, a Vector in one being a list; 0 for others."""
    if not is_list(kind):
        return 0
    item = kind.value_type
    if is_number(item):
        return 1
    return 2 if is_vector(item) else (depth + 1 if (depth := depth_of(item)) else 0)


def holds_vectors(kind: pa.DataType) -> bool:
    """Whether it is that of lists, nested or not, of Vectors."""
    return is_list(kind) and (is_vector(kind.value_type) or holds_vectors(kind.value_type))
