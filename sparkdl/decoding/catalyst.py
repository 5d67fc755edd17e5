"""Arrays and Vectors from the bytes in which Spark holds them, its UnsafeArrayData and UnsafeRow.

Both are words of 8 bytes. An array is its length, a bit for every element that says whether it is null, and the
elements. A row is a bit for every field that says the same and a word for every field, which of an array has in its
upper half at which byte of the row it begins. See
https://github.com/apache/spark/tree/v4.1.0/sql/catalyst/src/main/java/org/apache/spark/sql/catalyst/expressions
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.arrow_types import bounds_and_bytes, is_packed, is_vector

TYPE, SIZE, INDICES, VALUES = range(4)  # a Vector's fields
DENSE_NULLS = 1 << SIZE | 1 << INDICES  # those that a dense one lacks


class _Held(NamedTuple):
    """Where bytes are.

    Attributes
    ----------
    words : array of int64
        All of them.
    first : array
        Of each array or Vector in them, the index of its first word.
    rows : array (n,) of bool
        Which rows of the column they are.
    """

    words: Array
    first: Array
    rows: Array


def unpack_column(column: pa.Array) -> pa.Array:
    """The lists, or the structs of Vectors, that a column stands for; other columns as they are."""
    if not is_packed(column.type):
        return column
    held, plain = _held(column), column.field("plain")
    if not held.rows.any():
        return plain
    read = _vectors if is_vector(plain.type) else _lists
    made = read(held.words, held.first, plain.type)
    if held.rows.all():
        return made
    places = np.where(held.rows, np.cumsum(held.rows), len(made) + np.cumsum(~held.rows)) - 1
    return pa.concat_arrays([made, plain.filter(pa.array(~held.rows))]).take(pa.array(places))


def matrix(column: pa.Array, width: int, dtype: str) -> Array | None:
    """The numbers of a column as (n, width), if each row is the bytes of `width` numbers and none is null; else None.

    Those of arrays are not copied and of their own dtype.
    """
    if not is_packed(column.type) or not len(column):
        return None
    held, plain = _held(column), column.type.field("plain").type
    if not held.rows.all():
        return None
    if not is_vector(plain):
        return _equally_long(held.words, held.first, width, _dtype(plain))
    return _of_vectors(held.words, held.first, width, dtype)


def _held(column: pa.StructArray) -> _Held:
    data = column.field("bytes")
    # A row that Spark holds has its bytes and no values, so that without the bytes it would pass for an empty one.
    assert not data.null_count, (
        f"Spark gave neither bytes nor values of {data.null_count} of {len(data)} rows, which is a fault of sparkdl; "
        "please report it, and set sparkdl.catalystBytes to false."
    )
    bounds, content = bounds_and_bytes(data)
    rows = np.diff(bounds) > 0
    return _Held(content[bounds[0] : bounds[-1]].view(np.int64), (bounds[:-1][rows] - bounds[0]) // 8, rows)


def _dtype(kind: pa.ListType) -> np.dtype:
    return np.dtype(kind.value_type.to_pandas_dtype())


def _field(words: Array, first: Array, field: int) -> Array:
    """Where this field of rows, an array, begins."""
    return first + (words[first + 1 + field] >> 32) // 8


def _equally_long(words: Array, first: Array, width: int, dtype: np.dtype) -> Array | None:
    """(n, width) of the elements of arrays; None if one is longer or shorter or holds a null."""
    bits = (width + 63) // 64
    if (words[first] != width).any() or _rows(words, first + 1, bits).any():
        return None
    return _rows(words.view(dtype), (first + 1 + bits) * (8 // dtype.itemsize), width)


def _of_vectors(words: Array, first: Array, width: int, dtype: str) -> Array | None:
    dense, values = words[first + 1 + TYPE] & 1 == 1, _field(words, first, VALUES)
    if (words[first] != np.where(dense, DENSE_NULLS, 0)).any():
        return None
    if dense.all():
        return _equally_long(words, values, width, np.dtype(np.float64))
    sparse, result = ~dense, np.zeros((len(first), width), dtype)
    if dense.any():
        whole = _equally_long(words, values[dense], width, np.dtype(np.float64))
        if whole is None:
            return None
        result[dense] = whole
    indices, values = _field(words, first[sparse], INDICES), values[sparse]
    sizes, lengths = words[first[sparse] + 1 + SIZE], words[values]
    if (sizes != width).any() or (words[indices] != lengths).any():
        return None
    bits = (lengths + 63) // 64
    if _join_spans(words, indices + 1, bits).any() or _join_spans(words, values + 1, bits).any():
        return None
    columns = _join_spans(words.view(np.int32), 2 * (indices + 1 + bits), lengths)
    if len(columns) and not 0 <= columns.min() <= columns.max() < width:
        return None
    places = np.repeat(np.flatnonzero(sparse) * width, lengths) + columns
    numbers = _join_spans(words.view(np.float64), values + 1 + bits, lengths)
    with np.errstate(over="ignore"):
        result.reshape(-1)[places] = numbers.astype(dtype)
    return result


def _vectors(words: Array, first: Array, kind: pa.StructType) -> pa.StructArray:
    null = {field: words[first] >> field & 1 == 1 for field in (SIZE, INDICES, VALUES)}
    fields = {
        "type": pa.array(words[first + 1 + TYPE].astype(np.int8)),
        "size": pa.array(words[first + 1 + SIZE].astype(np.int32), mask=null[SIZE]),
        "indices": _lists(words, _field(words, first, INDICES), kind.field("indices").type, null[INDICES]),
        "values": _lists(words, _field(words, first, VALUES), kind.field("values").type, null[VALUES]),
    }
    return pa.StructArray.from_arrays([fields[field.name] for field in kind], fields=list(kind))


def _lists(words: Array, first: Array, kind: pa.ListType, null: Array | None = None) -> pa.ListArray:
    """Lists from arrays; a list that is null is nowhere."""
    first = first if null is None else np.where(null, 0, first)
    lengths = words[first] if null is None else np.where(null, 0, words[first])
    bits, dtype = (lengths + 63) // 64, _dtype(kind)
    marks, missing = _join_spans(words, first + 1, bits), None
    if marks.any():
        marks = np.unpackbits(marks.view(np.uint8), bitorder="little")
        missing = _join_spans(marks, 64 * (np.cumsum(bits) - bits), lengths) == 1
    values = _join_spans(words.view(dtype), (first + 1 + bits) * (8 // dtype.itemsize), lengths)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)])).cast(pa.int32())  # refuses more, as Spark does
    flat = pa.array(values, kind.value_type, mask=missing)
    return pa.ListArray.from_arrays(offsets, flat, mask=None if null is None else pa.array(null))


def _rows(flat: Array, first: Array, width: int) -> Array:
    """(n, width): what begins at these places; a view where they are equally far apart."""
    steps, size = np.diff(first), flat.itemsize
    if (steps == steps[:1]).all():
        step = int(steps[0]) if len(steps) else width
        return np.ndarray((len(first), width), flat.dtype, flat, int(first[0]) * size, (step * size, size))
    return _join_spans(flat, first, np.full(len(first), width)).reshape(-1, width)


def _join_spans(flat: Array, first: Array, lengths: Array) -> Array:
    """Join the parts that begin at `first` and have `lengths`; `first` ascends, except of empty parts."""
    first, lengths = first[lengths > 0], lengths[lengths > 0]
    edges = np.stack([first, first + lengths], axis=1).reshape(-1)
    runs = np.diff(edges, prepend=0, append=len(flat))
    return flat[np.repeat(np.arange(len(runs)) % 2 == 1, runs)]
