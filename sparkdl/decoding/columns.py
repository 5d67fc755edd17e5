"""From Arrow to NumPy, on the workers: one decoder for every form that a column's rows may have, and which are bad.

Decoders never refuse a row: they say which rows cannot be used and why, and put zeros in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.decoding.arrow_types import depth_of, is_binary, is_image, is_number, is_vector
from sparkdl.decoding.images import decode_bytes, decode_images
from sparkdl.decoding.layout import INFINITY, KINDS, NAN, NULL, VALID, WIDTH, Array, Decoded, Layout


def decode_features(columns: Sequence[pa.Array], layout: Layout) -> Decoded:
    """(n, *layout.shape) of uint8 from bytes and images, of layout.dtype from numbers.

    Raises
    ------
    ValueError
        A column is of a type that holds no features, as one that transform reads is not but one of a SQL function may
        be, or Pillow is missing.
    """
    columns = [_typed(column) for column in columns]
    kind = columns[0].type
    images = is_image(kind) or (is_binary(kind) and layout.binary == "image")
    layout.check_form(max(depth_of(column.type) for column in columns), images, str(kind))
    decoded = _joined(columns, layout) if layout.param == "featuresCols" else _one(columns[0], layout)
    return decoded._replace(values=decoded.values.reshape(-1, *layout.shape))


def decode_labels(column: pa.Array, name: str, outputs: int) -> Decoded:
    """(n,) of float64 from numbers, (n, outputs) from lists and Vectors, which must be as long."""
    column, subject = _typed(column), f"labelCol {name!r}"
    if is_number(column.type):
        return _scalars(column, subject, "float64")
    must = f"hold {outputs} labels a row, since the network has {outputs} outputs"
    return _numbers(column, subject, (outputs,), "float64", must)


def decode_weights(column: pa.Array, name: str) -> Decoded:
    """(n,) of float64 from a column of numbers; ValueError for one below 0."""
    decoded = _scalars(column, f"weightCol {name!r}", "float64")
    negative = decoded.values[decoded.values < 0]
    if len(negative):
        raise ValueError(f"weightCol {name!r} must be finite and at least 0, received {negative[0]:g}.")
    return decoded


def decode_flags(column: pa.Array, name: str) -> Decoded:
    """(n,) of bool from a column of booleans, or of the numbers 0 and 1; ValueError for others."""
    decoded = _scalars(column, f"validationIndicatorCol {name!r}", "float64")
    strange = decoded.values[~np.isin(decoded.values, (0, 1))]
    if len(strange):
        raise ValueError(
            f"validationIndicatorCol {name!r} must be true or false, or 1 or 0, received {strange[0]:g}; map it."
        )
    return decoded._replace(values=decoded.values != 0)


def _typed(column: pa.Array) -> pa.Array:
    """The column; as lists if it holds nulls without a type, as of SQL's NULL, and of pandas where all are None."""
    return column.cast(pa.list_(pa.float64())) if pa.types.is_null(column.type) else column


def _one(column: pa.Array, layout: Layout) -> Decoded:
    if is_binary(column.type):
        return decode_bytes(column, layout.subject, layout)
    if is_image(column.type):
        return decode_images(column, layout.subject, layout)
    must = f"hold {layout.width} values a row {layout.purpose}"
    return _numbers(column, layout.subject, layout.shape, layout.dtype, must)


def _joined(columns: Sequence[pa.Array], layout: Layout) -> Decoded:
    """(n, width): the values of several columns, one after another."""
    subjects = [f"{layout.param} {name!r}" for name in layout.names]
    widths = np.stack([_widths(*each) for each in zip(columns, subjects, strict=True)], axis=1)
    status = np.where(widths.sum(axis=1) == layout.width, VALID, WIDTH).astype(np.uint8)
    status[(widths < 0).any(axis=1)] = NULL
    whole = status == VALID
    values = np.zeros((len(status), layout.width), layout.dtype)

    def parts(rows: Array, split: Array) -> Iterator[Decoded]:
        for column, subject, width in zip(columns, subjects, np.maximum(split, 0).tolist(), strict=True):
            chosen = column if rows.all() else column.filter(pa.array(rows))
            yield _numbers(chosen, subject, (width,), layout.dtype, f"hold {width} values")

    for split in distinct(widths[whole]):
        rows = whole & (widths == split).all(axis=1)
        chosen = slice(None) if rows.all() else rows
        for part, first, width in zip(parts(rows, split), np.cumsum(split) - split, split, strict=True):
            values[chosen, first : first + width] = part.values.reshape(len(part.status), -1)
            status[rows] = np.where(status[rows] != VALID, status[rows], part.status)
    values[status != VALID] = 0

    def problem(row: int) -> str:
        if status[row] == WIDTH and widths[row].sum() != layout.width:
            received = " + ".join(map(str, widths[row]))
            return (
                f"{layout.subject} must hold {layout.width} values a row {layout.purpose}, received a row of {received}"
            )
        alone = parts(np.arange(len(status)) == row, widths[row])
        return next(part for part in alone if part.status[0] == status[row]).problem(0)

    return Decoded(values, status, problem, widths)


def distinct(rows: Array) -> Array:
    """The rows of a matrix that differ; in no time where all are equal."""
    return rows[:1] if (rows == rows[:1]).all() else np.unique(rows, axis=0)


def split_error(layout: Layout, splits: set[tuple[int, ...]]) -> str:
    """The sentence for a fit on columns whose widths differ from row to row."""
    one, other = (" + ".join(map(str, split)) for split in sorted(splits)[:2])
    return (
        f"{layout.subject} must each hold as many values in every row, received rows of {one} "
        f"and of {other}; make each column's arrays equally long."
    )


def _widths(column: pa.Array, subject: str) -> Array:
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


def _numbers(column: pa.Array, subject: str, shape: tuple[int, ...], dtype: str, must: str) -> Decoded:
    """(n, width) from rows of numbers; (n,) from a column of numbers, which fill rows of one."""
    if is_number(column.type):
        if math.prod(shape) == 1:
            return _scalars(column, subject, dtype)
        status = np.where(_nulls(column), NULL, WIDTH).astype(np.uint8)
        values = np.zeros((len(column), math.prod(shape)), dtype)
        return Decoded(values, status, _problem(column, status, subject, dtype, must))
    if depth_of(column.type):
        return _lists(column, subject, shape, dtype, must)
    if is_vector(column.type):
        return _vectors(column, subject, math.prod(shape), dtype, must)
    raise _strange(column, subject)


def _strange(column: pa.Array, subject: str) -> ValueError:
    return ValueError(f"{subject} must be a column of numbers, arrays or Vectors, received {column.type}; cast it.")


def _scalars(column: pa.Array, subject: str, dtype: str) -> Decoded:
    status = np.zeros(len(column), np.uint8)
    values = _leaves(column, None, 1, status, dtype)
    return Decoded(_zeroed(values, status)[:, 0], status, _problem(column, status, subject, dtype))


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
    columns = _held(indices, index_counts, chosen).to_numpy(zero_copy_only=False)
    stored = _held(values, counts, chosen)
    marks = np.zeros(len(stored), np.uint8)
    numbers = _leaves(stored, None, 1, marks, dtype)[:, 0]
    places = np.repeat(good * width, counts[good]) + columns
    strays = len(columns) > 0 and not 0 <= columns.min() <= columns.max() < width
    if strays or marks.any():
        inside = (columns >= 0) & (columns < width)
        rows = np.repeat(good, counts[good])
        status[rows[~inside]] = WIDTH
        for mark in (INFINITY, NAN, NULL):
            status[rows[inside & (marks == mark)]] = mark
        places, numbers = places[inside], numbers[inside]
    result.reshape(-1)[places] = numbers
    return Decoded(_zeroed(result, status), status, _problem(column, status, subject, dtype, must))


def _problem(column: pa.Array, status: Array, subject: str, dtype: str, must: str = "") -> Callable[[int], str]:
    """`Decoded.problem` of rows of numbers."""

    def problem(row: int) -> str:
        value = column[row].as_py()
        if status[row] == WIDTH:
            return f"{subject} must {must}, received a row of {_measured(value)}"
        too_large = status[row] == INFINITY and "inf" not in repr(value)
        return f"{subject} holds {f'a number too large for {dtype}' if too_large else KINDS[status[row]]}"

    return problem


def _leaves(column: pa.Array, rows: Array | None, width: int, status: Array, dtype: str) -> Array:
    """(rows, width) of numbers; marks in `status`, at `rows` or all, those that hold null, NaN or infinity."""
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())

    def mark(which: Any, kind: int) -> None:
        status[which if rows is None else rows[which]] = kind

    shape = len(status if rows is None else rows), width
    nulls = None
    if column.null_count:
        nulls = _nulls(column).reshape(shape).any(axis=1)
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.itemsize == 8 and values.dtype.kind in "iu":  # rounded twice, as the values of a Vector are
            values = values.astype(np.float64)
        values = values.astype(dtype, copy=False).reshape(shape)
        if not np.isfinite([values.min(initial=0), values.max(initial=0)]).all():  # NaN is either, and fast to find
            mark(np.isinf(values).any(axis=1), INFINITY)
            mark(np.isnan(values).any(axis=1), NAN)
    if nulls is not None:
        mark(nulls, NULL)
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
    if value and isinstance(value[0], list):
        inner = sorted({_measured(item) if item is not None else "null" for item in value})
        return f"{len(value)} lists of {' and '.join(inner)}"
    return str(len(value))
