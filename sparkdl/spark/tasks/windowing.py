"""What a task does to rows in the order of series and time: it gathers them into windows, a part at a time.

Of a series only the steps that a window to come may hold are kept, so that a series of any length passes through; where
whole series are asked for, all of one. Loaded on workers that need neither JAX nor the stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import Array

PART_BYTES = 4 << 20  # of windows that are put out at a time, or one window if that has more
FLOAT_STEPS = 1e-3  # how far, in steps, a time that is a float may be from where it is expected


@dataclass(frozen=True)
class SeriesPlan:
    """Which windows are made of which columns; see `SeriesWindows`, whose names of columns these are.

    Attributes
    ----------
    keys, values, targets, known : tuple of str
        Columns of the rows; no targets where no column of the future is made.
    time : str
    window : int or None
        Steps; None for whole series.
    horizon : int
        Steps behind a window that must be there for it to be made.
    stride : int
    partial : bool
    every : str
        As a user wrote it; "" if the time between steps does not count.
    split : bool
        Whether a step at another time begins a series, instead of being refused.
    skip : bool
        Whether windows with invalid numbers are left out, instead of being refused.
    history, future, ahead, until : str
        Columns that are made.
    """

    keys: tuple[str, ...]
    time: str
    values: tuple[str, ...]
    targets: tuple[str, ...]
    known: tuple[str, ...]
    window: int | None
    horizon: int
    stride: int
    partial: bool
    every: str
    split: bool
    skip: bool
    history: str
    future: str
    ahead: str
    until: str

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers, each once."""
        return tuple(dict.fromkeys((*self.values, *self.targets, *self.known)))

    @property
    def reads(self) -> list[str]:
        """Names of the columns of the rows, as `windowed` takes them: keys, time, the next time if any, numbers."""
        return [
            *(f"key/{at}" for at in range(len(self.keys))),
            "time",
            *(["next"] if self.every else []),
            *(f"number/{at}" for at in range(len(self.numbers))),
        ]

    @property
    def makes(self) -> list[str]:
        """Names of the columns that come out besides keys and time."""
        several = ((self.future, self.targets), (self.ahead, self.known), (self.until, self.until and self.horizon))
        return [self.history, *(name for name, there in several if there)]

    @property
    def behind(self) -> int:
        """Steps of a series that the windows to come may hold."""
        return max(1, (self.window or 0) + self.horizon - 1)


class Windows(NamedTuple):
    """Rows that windows are made of: first to end, and up to last the steps after the window."""

    first: Array
    end: Array
    last: Array

    def chosen(self, which: Array | slice) -> Windows:
        """Some of them."""
        return Windows(self.first[which], self.end[which], self.last[which])


def windowed(batches: Iterator[pa.RecordBatch], plan: SeriesPlan) -> Iterator[pa.RecordBatch]:
    """The windows of rows that are in the order of keys and time, all of a series one behind the other.

    Raises
    ------
    ValueError
        A time is null or occurs twice in a series, a step is missing, or a window holds an invalid number; the message
        names the series and the time.
    """
    kept: list[pa.RecordBatch] = []  # rows that windows to come may hold
    place = held = come = 0  # of the first of them in its series; how many they are; rows since
    for batch in chain(batches, [None]):
        if batch is not None:
            kept.append(batch)
            come += batch.num_rows
            if come < max(1, held):  # so that a long series is copied a few times only, however small batches are
                continue
        if not held + come:
            continue
        rows = pa.Table.from_batches(kept).combine_chunks()
        steps = Steps(rows, plan, place)
        yield from steps.put_out(steps.complete(held, batch is None))
        rest, place = steps.rest()
        kept, held, come = rest.to_batches(), rest.num_rows, 0


class Steps:
    """Rows of a table as the steps of series.

    Parameters
    ----------
    rows : pa.Table
        Columns as `SeriesPlan.reads` names them.
    plan : SeriesPlan
    place : int
        Of the first row in its series, whose rows before it are gone.
    """

    def __init__(self, rows: pa.Table, plan: SeriesPlan, place: int) -> None:
        self._plan = plan
        columns = dict(zip(plan.reads, (_array(column) for column in rows.columns), strict=True))
        self._rows, self._time = rows, columns["time"]
        self._keys = [columns[f"key/{at}"] for at in range(len(plan.keys))]
        self._columns = {name: columns[f"number/{at}"] for at, name in enumerate(plan.numbers)}
        self._numbers = {name: column.to_numpy(zero_copy_only=False) for name, column in self._columns.items()}
        self._check_times()
        starts = np.concatenate([[place == 0], self._series_change(columns.get("next"))])
        at = np.arange(len(starts))
        self._starts = starts
        self._first = np.maximum.accumulate(np.where(starts, at, -place))  # of each row's series; below 0 if gone

    def complete(self, held: int, over: bool) -> Windows:
        """The windows whose last row is none of the first `held`; of whole series those that have ended."""
        plan, count = self._plan, len(self._starts)
        if plan.window is None:
            last = np.flatnonzero(np.append(self._starts[1:], over))
            first, end = self._first[last], last - plan.horizon
            keep = end >= first
        else:
            last = np.arange(held, count)
            end = last - plan.horizon
            beyond = end - self._first[last] - (0 if plan.partial else plan.window - 1)
            first, keep = np.maximum(end - plan.window + 1, self._first[last]), (beyond >= 0)
            keep &= beyond % plan.stride == 0
        return self._valid(Windows(first, end, last).chosen(keep))

    def rest(self) -> tuple[pa.Table, int]:
        """The rows that windows to come may hold, and the place of the first in its series."""
        count = len(self._starts)
        start = self._first[-1] if self._plan.window is None else max(0, count - self._plan.behind)
        return self._rows.slice(start), int(start - self._first[start])

    def put_out(self, windows: Windows) -> Iterator[pa.RecordBatch]:
        """The windows as rows, a part at a time."""
        plan = self._plan
        numbers = (windows.end - windows.first + 1) * len(plan.values)
        numbers += plan.horizon * (len(plan.targets) + len(plan.known))
        parts = np.cumsum(8 * numbers) // PART_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(parts)) + 1), len(parts)]
        for start, stop in zip(cuts, cuts[1:], strict=False):
            if start < stop:
                yield self._batch(windows.chosen(slice(start, stop)))

    def _batch(self, windows: Windows) -> pa.RecordBatch:
        plan, end = self._plan, pa.array(windows.end)
        ahead = Windows(windows.end + 1, windows.last, windows.last)
        made = {plan.history: lambda: self._sequences(plan.values, windows)}
        made |= {plan.future: lambda: self._sequences(plan.targets, ahead, flat=True)}
        made |= {plan.ahead: lambda: self._sequences(plan.known, ahead)}
        made |= {plan.until: lambda: self._time.take(pa.array(windows.last))}
        arrays = [key.take(end) for key in self._keys] + [self._time.take(end)]
        arrays += [made[name]() for name in plan.makes]
        return pa.RecordBatch.from_arrays(arrays, names=[*plan.keys, plan.time, *plan.makes])

    def _sequences(self, names: tuple[str, ...], windows: Windows, flat: bool = False) -> pa.Array:
        """A list of steps for each window, or, flat, of all of their numbers."""
        lengths = windows.end - windows.first + 1
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - windows.first, lengths)
        values = np.stack([self._numbers[name][at] for name in names], axis=1)
        numbers = pa.array(values.reshape(-1))
        if flat:
            return pa.ListArray.from_arrays(pa.array(offsets * len(names), pa.int32()), numbers)
        steps = pa.ListArray.from_arrays(pa.array(np.arange(len(at) + 1) * len(names), pa.int32()), numbers)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), steps)

    def _valid(self, windows: Windows) -> Windows:
        """Those without null, NaN and infinity; ValueError for the first with one, unless they are skipped."""
        plan = self._plan
        bad = np.zeros(len(windows.end), bool)
        for names, first, end in self._parts(windows):
            wrong = ~np.logical_and.reduce([np.isfinite(self._numbers[name]) for name in names])
            counts = np.concatenate([[0], np.cumsum(wrong)])
            bad |= counts[end + 1] > counts[first]
        if bad.any() and not plan.skip:
            for names, first, end in self._parts(windows.chosen(slice(np.argmax(bad), np.argmax(bad) + 1))):
                for row in range(first[0], end[0] + 1):
                    for name in names:
                        if not np.isfinite(self._numbers[name][row]):
                            found = self._columns[name][row].as_py()
                            raise ValueError(
                                f"Column {name!r} is {'null' if found is None else found} at {self._where(row)}; fill "
                                "such rows or drop them, or set handleInvalid to skip, which leaves out the windows "
                                "that hold one."
                            )
        return windows.chosen(~bad)

    def _parts(self, windows: Windows) -> Iterator[tuple[tuple[str, ...], Array, Array]]:
        """Columns that are read, with the first and last rows of which they are."""
        plan = self._plan
        yield plan.values, windows.first, windows.end
        for names in (plan.targets, plan.known):
            if names:
                yield names, windows.end + 1, windows.last

    def _check_times(self) -> None:
        missing = pc.is_null(self._time, nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any():
            series = self._series(int(np.argmax(missing)))
            raise ValueError(
                f"timeCol {self._plan.time!r} is null in a row{f' of {series}' if series else ''}; drop such rows, or "
                "give them their time."
            )

    def _series_change(self, following: pa.Array | None) -> Array:
        """Of every row but the first, whether another series begins with it."""
        change = np.zeros(len(self._time) - 1, bool)
        for key in self._keys:
            change |= _differ(key[1:], key[:-1])
        time, before = self._time[1:], self._time[:-1]
        twice = ~change & ~_differ(time, before)
        if twice.any():
            raise ValueError(
                f"There are two rows of {self._where(int(np.argmax(twice)))}; make them one by groupBy and an "
                "aggregate, or name the columns that tell their series apart in keyCols."
            )
        if following is None:
            return change
        if pa.types.is_floating(time.type):
            expected, now, then = (part.to_numpy() for part in (following[:-1], time, before))
            off = np.abs(now - expected) > FLOAT_STEPS * (expected - then)
        else:
            off = _differ(time, following[:-1])
        off &= ~change
        if off.any() and not self._plan.split:
            row = int(np.argmax(off))
            raise ValueError(
                f"The step after {self._where(row)} is at {time[row].as_py()}, but every is {self._plan.every!r}; make "
                "rows for the steps that are missing, or set gaps to split, by which a new series begins there."
            )
        return change | off

    def _where(self, row: int) -> str:
        """The time and the series of a row, to be named in an error."""
        series = self._series(row)
        return f"{self._plan.time} {self._time[row].as_py()}{f' of {series}' if series else ''}"

    def _series(self, row: int) -> str:
        named = zip(self._plan.keys, self._keys, strict=True)
        return ", ".join(f"{name} {key[row].as_py()!r}" for name, key in named)


def _array(column: pa.ChunkedArray) -> pa.Array:
    """The only chunk of a column."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _differ(one: pa.Array, other: pa.Array) -> Array:
    """Where two arrays are not equal; nulls are equal to each other, as NaNs are."""
    unequal = pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        unequal = pc.and_not(unequal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return unequal.to_numpy(zero_copy_only=False)
