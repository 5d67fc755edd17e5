"""Rows of numbers from columns of numbers, lists and Vectors, and which of them are bad."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import INTEGERS, Array
from sparkdl.decoding.arrow_types import depth_of, holds_vectors, is_number, is_packed, is_vector
from sparkdl.decoding.catalyst import matrix, unpack_column
from sparkdl.decoding.layout import FRACTION, INFINITY, KINDS, NAN, NULL, VALID, WIDTH, Decoded


def decode_numbers(column: pa.Array, subject: str, shape: tuple[int, ...], dtype: str, must: str) -> Decoded:
    """(n, width) from rows of numbers; (n,) from a column of numbers, which fill rows of one."""
    if is_packed(column.type):
        values = matrix(column, math.prod(shape), "float64" if dtype == INTEGERS else dtype)
        if values is None:
            return decode_numbers(unpack_column(column), subject, shape, dtype, must)
        status = np.zeros(len(values), np.uint8)
        values = _zeroed(_checked(values, None, status, dtype), status)
        return Decoded(values, status, _problem(column, status, subject, dtype, must))
    if is_number(column.type):
        if math.prod(shape) == 1:
            return decode_scalars(column, subject, dtype)
        status = np.where(_nulls(column), NULL, WIDTH).astype(np.uint8)
        values = np.zeros((len(column), math.prod(shape)), dtype)
        return Decoded(values, status, _problem(column, status, subject, dtype, must))
    if holds_vectors(column.type):
        return _lists_of_vectors(column, subject, shape, dtype, must)
    if depth_of(column.type):
        return _lists(column, subject, shape, dtype, must)
    if is_vector(column.type):
        return _vectors(column, subject, math.prod(shape), dtype, must)
    raise _strange(column, subject)


def decode_scalars(column: pa.Array, subject: str, dtype: str) -> Decoded:
    """(n,) from a column of numbers."""
    status = np.zeros(len(column), np.uint8)
    values = _leaves(column, None, 1, status, dtype)
    return Decoded(_zeroed(values, status)[:, 0], status, _problem(column, status, subject, dtype))


def row_widths(column: pa.Array, subject: str) -> Array:
    """(n,) of the values in each row; -1 for null."""
    if is_number(column.type):
        return np.where(_nulls(column), -1, 1)
    if depth_of(column.type):
        return _lengths(column)
    if not is_vector(column.type):
        raise _strange(column, subject)
    sizes = column.field("size").fill_null(-1).to_numpy(zero_copy_only=False)
    widths = np.where(_dense(column), _lengths(column.field("values")), sizes)
    return np.where(_nulls(column), -1, widths)


def _lists(column: pa.Array, subject: str, shape: tuple[int, ...], dtype: str, must: str) -> Decoded:
    """(n, width) from lists, nested as far as they are; the innermost holds what is left of the shape."""
    status = np.zeros(len(column), np.uint8)
    good = np.arange(len(column))
    level, depth = column, depth_of(column.type)
    sizes = (*shape[: depth - 1], math.prod(shape[depth - 1 :]))
    for size in sizes:
        lengths = _lengths(level).reshape(len(good), -1) if len(good) else np.zeros((0, 1), np.int64)
        nulls, wrong = (lengths < 0).any(axis=1), (lengths != size).any(axis=1)
        status[good[wrong]], status[good[nulls]] = WIDTH, NULL
        if wrong.any():
            level = level.filter(pa.array(np.repeat(~wrong, lengths.shape[1])))
            good = good[~wrong]
        level = level.flatten()
    values = _leaves(level, good, math.prod(sizes), status, dtype)
    return Decoded(_placed(values, good, status), status, _problem(column, status, subject, dtype, must))


def _lists_of_vectors(column: pa.Array, subject: str, shape: tuple[int, ...], dtype: str, must: str) -> Decoded:
    """(n, width) from lists of Vectors, each of which is decoded as a row of its own; the first bad one spoils its."""
    lengths, width = _lengths(column), math.prod(shape)
    items = decode_numbers(column.flatten(), subject, shape[1:], dtype, must)
    status = np.where(lengths < 0, NULL, np.where(lengths == shape[0], VALID, WIDTH)).astype(np.uint8)
    whole = status == VALID
    row_of = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    bad = np.flatnonzero((items.status != VALID) & whole[row_of])[::-1]
    status[row_of[bad]] = items.status[bad]  # that of the first, which comes last
    values = items.values[whole[row_of]].reshape(-1, width)
    return Decoded(
        _placed(values, np.flatnonzero(whole), status), status, _problem(column, status, subject, dtype, must)
    )


def _vectors(column: pa.Array, subject: str, width: int, dtype: str, must: str) -> Decoded:
    """(n, width) from Spark's Vectors, which come as structs; sparse ones are made dense here and not before."""
    values, dense, null = column.field("values"), _dense(column), _nulls(column)
    if dense.all():
        decoded = _lists(values, subject, (width,), dtype, must)
        decoded.status[null] = NULL
        return decoded._replace(values=_zeroed(decoded.values, decoded.status))
    status = np.where(null, NULL, VALID).astype(np.uint8)
    result = np.zeros((len(column), width), dtype)
    if dense.any():
        part = _lists(values.filter(pa.array(dense)), subject, (width,), dtype, must)
        result[dense], status[dense] = part.values, part.status
    sizes = column.field("size").fill_null(-1).to_numpy(zero_copy_only=False)
    indices = column.field("indices")
    counts, index_counts = _lengths(values), _lengths(indices)
    sparse = ~dense & ~null
    wrong = sparse & ((sizes != width) | (counts != index_counts))
    status[wrong] = WIDTH
    chosen = sparse & ~wrong
    good = np.flatnonzero(chosen)
    columns = _held(indices, index_counts, chosen).to_numpy(zero_copy_only=False).astype(np.int64)  # may be of no type
    stored = _held(values, counts, chosen)
    marks = np.zeros(len(stored), np.uint8)
    numbers = _leaves(stored, None, 1, marks, dtype)[:, 0]
    places = np.repeat(good * width, counts[good]) + columns
    strays = len(columns) > 0 and not 0 <= columns.min() <= columns.max() < width
    if strays or marks.any():
        inside = (columns >= 0) & (columns < width)
        rows = np.repeat(good, counts[good])
        status[rows[~inside]] = WIDTH
        for mark in (FRACTION, INFINITY, NAN, NULL):
            status[rows[inside & (marks == mark)]] = mark
        places, numbers = places[inside], numbers[inside]
    result.reshape(-1)[places] = numbers
    return Decoded(_zeroed(result, status), status, _problem(column, status, subject, dtype, must))


def _problem(column: pa.Array, status: Array, subject: str, dtype: str, must: str = "") -> Callable[[int], str]:
    """`Decoded.problem` of rows of numbers."""

    def problem(row: int) -> str:
        value = unpack_column(column.slice(row, 1))[0].as_py()
        if status[row] == WIDTH:
            return f"{subject} must {must}, received a row of {_measured(value)}"
        if status[row] == FRACTION:
            return f"{subject} must hold whole numbers that {dtype} holds, received {value!r:.40}"
        too_large = status[row] == INFINITY and "inf" not in repr(value)
        return f"{subject} holds {f'a number too large for {dtype}' if too_large else KINDS[status[row]]}"

    return problem


def _leaves(column: pa.Array, rows: Array | None, width: int, status: Array, dtype: str) -> Array:
    """(rows, width) of numbers; marks in `status`, at `rows` or all, those that hold null, NaN or infinity."""
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())

    shape = len(status if rows is None else rows), width
    nulls = None
    if column.null_count:
        nulls = _nulls(column).reshape(shape).any(axis=1)
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = _checked(column.to_numpy(zero_copy_only=False).reshape(shape), rows, status, dtype)
    if nulls is not None:
        status[nulls if rows is None else rows[nulls]] = NULL
    return values


def _checked(values: Array, rows: Array | None, status: Array, dtype: str) -> Array:
    """The numbers as that dtype; marks in `status`, at `rows` or all, those that hold NaN or infinity."""

    def mark(which: Any, kind: int) -> None:
        status[which if rows is None else rows[which]] = kind

    if dtype == INTEGERS:
        limits = np.iinfo(dtype)
        fitting = (values >= limits.min) & (values <= limits.max) & (values == np.floor(values))
        mark(~fitting.all(axis=1), FRACTION)
        if values.dtype.kind == "f":
            mark(np.isinf(values).any(axis=1), INFINITY)
            mark(np.isnan(values).any(axis=1), NAN)
        return np.where(fitting, values, 0).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.itemsize == 8 and values.dtype.kind in "iu":  # rounded twice, as the values of a Vector are
            values = values.astype(np.float64)
        values = np.ascontiguousarray(values, dtype)
        if not np.isfinite([values.min(initial=0), values.max(initial=0)]).all():  # NaN is either, and fast to find
            mark(np.isinf(values).any(axis=1), INFINITY)
            mark(np.isnan(values).any(axis=1), NAN)
    return values


def _placed(values: Array, rows: Array, status: Array) -> Array:
    """The values of some rows among all of them."""
    if len(rows) < len(status):
        result = np.zeros((len(status), values.shape[1]), values.dtype)
        result[rows] = values
        values = result
    return _zeroed(values, status)


def _zeroed(values: Array, status: Array) -> Array:
    bad = status != VALID
    if bad.any():
        values = values.copy()
        values[bad] = 0
    return values


def _lengths(column: pa.Array) -> Array:
    """(n,) of the lengths of lists; -1 for null."""
    return pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _held(lists: pa.Array, lengths: Array, chosen: Array) -> pa.Array:
    """What the chosen lists hold, one after another; many times as fast as taking the lists."""
    held, lengths = lists.flatten(), np.maximum(lengths, 0)
    return held.filter(pa.array(np.repeat(chosen, lengths))) if lengths[~chosen].any() else held


def _nulls(column: pa.Array) -> Array:
    return column.is_null().to_numpy(zero_copy_only=False)


def _dense(column: pa.Array) -> Array:
    """(n,) of bool: the Vectors, null ones too, that are not sparse."""
    return column.field("type").fill_null(1).to_numpy(zero_copy_only=False) != 0


def _measured(value: Any) -> str:
    """How many values a row holds: the lengths of a list and of the lists in it, a Vector's size, 1 of a number."""
    if isinstance(value, dict):
        return str(value["size"] if value["type"] == 0 else len(value["values"]))
    if not isinstance(value, list):
        return "1"
    if value and isinstance(value[0], (list, dict)):
        inner = sorted({_measured(item) if item is not None else "null" for item in value})
        return f"{len(value)} lists of {' and '.join(inner)}"
    return str(len(value))


def _strange(column: pa.Array, subject: str) -> ValueError:
    return ValueError(f"{subject} must be a column of numbers, arrays or Vectors, received {column.type}; cast it.")
