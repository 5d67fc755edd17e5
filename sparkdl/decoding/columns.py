"""From Arrow to NumPy, on the workers: one decoder for every form that a column's rows may have, and which are bad.

Decoders never refuse a row: they say which rows cannot be used and why, and put zeros in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.arrow_types import depth_of, is_binary, is_image, is_list
from sparkdl.decoding.catalyst import unpack_column
from sparkdl.decoding.images import decode_bytes, decode_images
from sparkdl.decoding.layout import CATEGORY, KINDS, NULL, STEPS, VALID, WIDTH, Cut, Decoded, Layout
from sparkdl.decoding.numbers import decode_numbers, decode_scalars, row_widths
from sparkdl.decoding.ragged_rows import RaggedRows, cut_lists
from sparkdl.decoding.splitting import split_strings


def decode_features(columns: Sequence[pa.Array], layout: Layout) -> Decoded:
    """(n, *layout.shape) of uint8 from bytes and images, of layout.dtype from numbers; RaggedRows of any length.

    Raises
    ------
    ValueError
        A column is of a type that holds no features, as one that transform reads is not but one of a SQL function may
        be, or Pillow is missing.
    """
    columns = [typed(column) for column in columns] if layout.shape else columns
    held, cuts = zip(*(_steps(column, layout) for column in columns), strict=True)
    columns = [layout.strings.integers(column) for column in held] if layout.strings else held
    kind = held[0].type
    images = is_image(kind) or (is_binary(kind) and layout.binary == "image")
    layout.check_form(max(depth_of(column.type) for column in columns), images, str(kind))
    if layout.ragged:
        decoded = _ragged(columns[0], layout)._replace(cut=cuts[0])
    else:
        decoded = _limited(_join_columns(columns, layout) if layout.joined else _one(columns[0], layout), layout)
    return _naming_strings(decoded, held, layout) if layout.strings and layout.limit is not None else decoded


def _steps(column: pa.Array, layout: Layout) -> tuple[pa.Array, Cut | None]:
    """A column with its strings split, if they are to be, and its lists cut to the most steps."""
    if layout.strings:
        column = split_strings(column, layout.strings.split)
    if not layout.ragged:
        return column, None
    column = unpack_column(column)
    if layout.max_length is None or not is_list(column.type):
        return column, None
    column, lengths = cut_lists(column, layout.max_length, layout.truncation_side)
    return column, Cut(lengths, layout.max_length, layout.truncation_side)


def _naming_strings(decoded: Decoded, columns: Sequence[pa.Array], layout: Layout) -> Decoded:
    """The same rows; of one that holds a string which the vocabulary lacks, the problem names it."""

    def problem(row: int) -> str:
        if decoded.status[row] == CATEGORY and layout.strings:
            for column in columns:
                if (unknown := layout.strings.first_unknown(column.slice(row, 1))) is not None:
                    return (
                        f"{layout.subject} must hold strings that the vocabulary of the network's layer "
                        f"{layout.table!r} has, received {unknown!r}; learn it from all rows, or give the layer "
                        "unknown=True"
                    )
        return decoded.problem(row)

    return decoded._replace(problem=problem)


def _ragged(column: pa.Array, layout: Layout) -> Decoded:
    """Rows of any length, from lists whose items are decoded as rows of their own: a bad one spoils its row."""
    lengths = row_widths(column, layout.subject)
    steps = _limited(_one(column.flatten(), layout.of_step), layout.of_step)
    row_of = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    bad = np.flatnonzero(steps.status)[::-1]
    status = np.where(lengths < 0, NULL, VALID).astype(np.uint8)
    status[row_of[bad]] = steps.status[bad]  # that of the first, which comes last
    if layout.most_steps is not None:
        status[(status == VALID) & (lengths > layout.most_steps)] = STEPS
    whole = status == VALID
    values = RaggedRows(steps.values[whole[row_of]], np.where(whole, lengths, 0))

    def problem(row: int) -> str:
        if status[row] == STEPS:
            return (
                f"{layout.subject} must hold at most {layout.most_steps} steps a row, as many as the network's "
                f"positions tell apart, received {lengths[row]}; cut rows by maxLength={layout.most_steps}"
            )
        wrong = bad[row_of[bad] == row]
        return steps.problem(int(wrong[-1])) if len(wrong) else f"{layout.subject} holds {KINDS[status[row]]}"

    return Decoded(values, status, problem)


def _limited(decoded: Decoded, layout: Layout) -> Decoded:
    """The rows in their shape; of integers that choose rows of a table, those without one are marked."""
    limit, count = layout.limit, len(decoded.status)
    if limit is None:
        return decoded._replace(values=decoded.values.reshape(count, *layout.shape))
    values = decoded.values.reshape(count, layout.width)
    outside = (values < 0) | (values >= limit)
    status = np.where((decoded.status == VALID) & outside.any(axis=1), CATEGORY, decoded.status).astype(np.uint8)

    def problem(row: int) -> str:
        if status[row] != CATEGORY:
            return decoded.problem(row)
        return (
            f"{layout.subject} must hold categories from 0 to {limit - 1}, the rows of the network's table "
            f"{layout.table!r}, received {values[row][outside[row]][0]}; index them so, give the layer more rows, "
            "or unknown=True"
        )

    kept = np.where(status[:, None] == VALID, values, 0)
    return Decoded(kept.reshape(count, *layout.shape), status, problem, decoded.widths)


def decode_weights(column: pa.Array, name: str) -> Decoded:
    """(n,) of float64 from a column of numbers; ValueError for one below 0."""
    decoded = decode_scalars(column, f"weightCol {name!r}", "float64")
    negative = decoded.values[decoded.values < 0]
    if len(negative):
        raise ValueError(f"weightCol {name!r} must be finite and at least 0, received {negative[0]:g}.")
    return decoded


def decode_flags(column: pa.Array, name: str) -> Decoded:
    """(n,) of bool from a column of booleans, or of the numbers 0 and 1; ValueError for others."""
    decoded = decode_scalars(column, f"validationIndicatorCol {name!r}", "float64")
    strange = decoded.values[~np.isin(decoded.values, (0, 1))]
    if len(strange):
        raise ValueError(
            f"validationIndicatorCol {name!r} must be true or false, or 1 or 0, received {strange[0]:g}; map it."
        )
    return decoded._replace(values=decoded.values != 0)


def typed(column: pa.Array) -> pa.Array:
    """The column; as lists if it holds nulls without a type, as of SQL's NULL, and of pandas where all are None."""
    return column.cast(pa.list_(pa.float64())) if pa.types.is_null(column.type) else column


def _one(column: pa.Array, layout: Layout) -> Decoded:
    if is_binary(column.type):
        return decode_bytes(column, layout.subject, layout)
    if is_image(column.type):
        return decode_images(column, layout.subject, layout)
    must = f"hold {layout.width} values a row {layout.purpose}"
    return decode_numbers(column, layout.subject, layout.shape, layout.dtype, must)


def _join_columns(columns: Sequence[pa.Array], layout: Layout) -> Decoded:
    """(n, width): the values of several columns, one after another."""
    columns = [unpack_column(column) for column in columns]
    subjects = [f"{layout.param} {name!r}" for name in layout.names]
    widths = np.stack([row_widths(*each) for each in zip(columns, subjects, strict=True)], axis=1)
    status = np.where(widths.sum(axis=1) == layout.width, VALID, WIDTH).astype(np.uint8)
    status[(widths < 0).any(axis=1)] = NULL
    whole = status == VALID
    values = np.zeros((len(status), layout.width), layout.dtype)

    def parts(rows: Array, split: Array) -> Iterator[Decoded]:
        for column, subject, width in zip(columns, subjects, np.maximum(split, 0).tolist(), strict=True):
            chosen = column if rows.all() else column.filter(pa.array(rows))
            yield decode_numbers(chosen, subject, (width,), layout.dtype, f"hold {width} values")

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
