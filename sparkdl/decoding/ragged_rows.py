"""Rows of any length on the host: decoded, shuffled and stored without padding, which a batch alone has."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import INTEGERS, Array
from sparkdl.decoding.arrow_types import bounds_and_bytes


class RaggedRows:
    """Like an array (n, steps, *step) whose rows end early.

    Parameters
    ----------
    values : array (total, *step)
        The rows' steps, one row after another.
    lengths : array (n,)
        Steps of every row.
    steps : int, optional
        To how many steps a batch pads its rows; by default those of the longest.
    """

    def __init__(self, values: Array, lengths: Array, steps: int | None = None) -> None:
        self.values, self.lengths = values, np.asarray(lengths, np.int64)
        self.steps = self.longest if steps is None else steps

    @classmethod
    def of(cls, rows: Iterable[Any], step: Sequence[int] = (), subject: str = "rows") -> RaggedRows:
        """Those of lists, or arrays, of one row each, whose steps have that shape.

        Raises
        ------
        ValueError
            A row is no list, or its steps have another shape; the message calls the rows by `subject`.
        """
        arrays = []
        for number, row in enumerate(rows):
            try:
                array = np.asarray(row)
            except ValueError:  # steps of different shapes
                array = np.empty((), object)
            if not array.ndim or (len(array) and array.shape[1:] != tuple(step)):
                received = f"steps of shape {array.shape[1:]}" if array.ndim else repr(row)
                raise ValueError(
                    f"{subject} must be a list of lists or arrays, one a row, with steps of shape {tuple(step)}, "
                    f"received {received:.80} in row {number}; give [] for an empty row."
                )
            arrays.append(array)
        held = [array for array in arrays if len(array)]  # an empty list has no dtype to go by
        values = np.concatenate(held) if held else np.zeros((0, *step), INTEGERS)
        return cls(values, np.array([len(array) for array in arrays], np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, steps, *step)."""
        return len(self), self.steps, *self.values.shape[1:]

    @property
    def longest(self) -> int:
        """Steps of the longest row."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def starts(self) -> Array:
        """(n,) of where in `values` each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def places(self) -> Array:
        """(total,) of each value's step in its row."""
        return np.arange(len(self.values)) - np.repeat(self.starts, self.lengths)

    def __getitem__(self, rows: Any) -> RaggedRows:
        """The rows of some indices, of a slice or a mask, as rows of any length."""
        lengths, starts = self.lengths[rows], self.starts[rows]
        moved = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return RaggedRows(self.values[np.arange(len(moved)) + moved], lengths, self.steps)

    def padded_to(self, steps: int) -> RaggedRows:
        """The same rows, which a batch pads to that many steps."""
        return RaggedRows(self.values, self.lengths, steps)

    def padded(self) -> tuple[Array, Array]:
        """Values (n, steps, *step), zeros where a row has ended, and lengths (n,) of int32."""
        result = np.zeros(self.shape, self.dtype)
        result[np.arange(self.steps) < self.lengths[:, None]] = self.values
        return result, self.lengths.astype(INTEGERS)

    @property
    def column(self) -> pa.Array:
        """A binary column of the rows' bytes."""
        size = self.dtype.itemsize * math.prod(self.values.shape[1:])
        bounds = pa.array(np.append(0, np.cumsum(self.lengths) * size)).cast(pa.int32())  # refuses more, as Spark does
        values = pa.py_buffer(np.ascontiguousarray(self.values))
        return pa.Array.from_buffers(pa.binary(), len(self), [None, bounds.buffers()[1], values])

    @property
    def metadata(self) -> dict[str, str]:
        """What a file has to say of the column, for `from_column`."""
        return {"ragged": json.dumps([self.dtype.str, *self.values.shape[1:]])}

    @classmethod
    def from_column(cls, column: pa.Array, dtype: Any, step: Sequence[int]) -> RaggedRows:
        """The rows of such a column without nulls, without a copy."""
        bounds, data = bounds_and_bytes(column)
        values = data[bounds[0] : bounds[-1]].view(dtype).reshape(-1, *step)
        return cls(values, np.diff(bounds) // (np.dtype(dtype).itemsize * math.prod(step)))


def numbers_of(rows: Any) -> Array:
    """All that rows hold, which may be RaggedRows."""
    return rows.values if isinstance(rows, RaggedRows) else rows


def check_steps(lengths: Array, wanted: Array, subject: str) -> None:
    """ValueError unless rows of labels are as long as the rows of features that they are of; -1 is no row."""
    if len(lengths) != len(wanted):
        return  # which whoever puts the rows together says
    wrong = np.flatnonzero((lengths != wanted) & (lengths >= 0) & (wanted >= 0))
    if len(wrong):
        raise ValueError(
            f"{subject} must hold one label for each step of the row, received {lengths[wrong[0]]} for "
            f"{wanted[wrong[0]]} steps; give NaN, or null in a column, for a step that has none."
        )


def cut_lists(column: pa.Array, most: int, side: str) -> tuple[pa.Array, Array]:
    """Lists without the steps beyond `most` of them, and the steps (n,) that they had; -1 of null.

    They lose those at their end, or with the side "left" those at their start.
    """
    held = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if held.max(initial=0) <= most:
        return column, held
    lengths = np.maximum(held, 0)
    kept = np.minimum(lengths, most)
    ends = np.cumsum(kept)
    starts = np.cumsum(lengths) - lengths + (lengths - kept if side == "left" else 0)
    places = np.arange(ends[-1]) + np.repeat(starts - (ends - kept), kept)
    offsets, missing = pa.array(np.append(0, ends)).cast(pa.int32()), column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, column.flatten().take(pa.array(places)), mask=missing), held


def rounded_steps(longest: int) -> int:
    """To how many steps rows are padded of which the longest has so many, at least.

    To one of four numbers in every doubling, so that few programs are compiled for rows of many lengths; above 32 the
    longest has at most a fifth of padding.
    """
    unit = max(8, 1 << max(0, (longest - 1).bit_length() - 3))
    return max(1, -(-longest // unit)) * unit


def common_steps(longest: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """By part of the features, to how many steps all rows are padded of which the longest of each share are given."""
    shares = list(longest)
    return {part: rounded_steps(max(share[part] for share in shares)) for part in (shares[0] if shares else {})}
