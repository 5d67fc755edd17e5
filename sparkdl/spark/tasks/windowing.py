"""What a task does to rows in the order of series and time: it gathers them into windows, a part at a time.

Of a series only the steps that a window to come may hold are kept, so that a series of any length passes through; where
whole series are asked for, all of one. Loaded on workers that need neither JAX nor the stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.spark.tasks.series_plan import SeriesPlan
from sparkdl.spark.tasks.series_steps import Steps

PART_BYTES = 4 << 20  # of windows that are put out at a time, or one window if that has more


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
        yield from _rows(_valid(_complete(steps, held, batch is None), steps), steps)
        rest, place = _rest(steps)
        kept, held, come = rest.to_batches(), rest.num_rows, 0


def _complete(steps: Steps, held: int, over: bool) -> Windows:
    """The windows whose last row is none of the first `held`; of whole series those that have ended."""
    plan, count = steps.plan, len(steps.starts)
    if plan.window is None:
        last = np.flatnonzero(np.append(steps.starts[1:], over))
        first, end = steps.first[last], last - plan.horizon
        keep = end >= first
    else:
        last = np.arange(held, count)
        end = last - plan.horizon
        beyond = end - steps.first[last] - (0 if plan.partial else plan.window - 1)
        first, keep = np.maximum(end - plan.window + 1, steps.first[last]), (beyond >= 0)
        keep &= beyond % plan.stride == 0
    return Windows(first, end, last).chosen(keep)


def _rest(steps: Steps) -> tuple[pa.Table, int]:
    """The rows that windows to come may hold, and the place of the first in its series."""
    count = len(steps.starts)
    start = steps.first[-1] if steps.plan.window is None else max(0, count - steps.plan.behind)
    return steps.rows.slice(start), int(start - steps.first[start])


def _rows(windows: Windows, steps: Steps) -> Iterator[pa.RecordBatch]:
    """The windows as rows, a part at a time."""
    plan = steps.plan
    numbers = (windows.end - windows.first + 1) * len(plan.values)
    numbers += plan.horizon * (len(plan.targets) + len(plan.known))
    parts = np.cumsum(8 * numbers) // PART_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(parts)) + 1), len(parts)]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        if start < stop:
            yield _batch(windows.chosen(slice(start, stop)), steps)


def _batch(windows: Windows, steps: Steps) -> pa.RecordBatch:
    plan, end = steps.plan, pa.array(windows.end)
    ahead = Windows(windows.end + 1, windows.last, windows.last)
    make = {
        "history": lambda: _sequences(steps, plan.values, windows),
        "future": lambda: _sequences(steps, plan.targets, ahead, flat=True),
        "known": lambda: _sequences(steps, plan.known, ahead),
        "until": lambda: steps.time.take(pa.array(windows.last)),
    }
    arrays = [key.take(end) for key in steps.keys] + [steps.time.take(end)] + [make[each]() for each in plan.makes]
    return pa.RecordBatch.from_arrays(arrays, names=[*plan.keys, plan.time, *plan.makes.values()])


def _sequences(steps: Steps, names: tuple[str, ...], windows: Windows, flat: bool = False) -> pa.Array:
    """A list of steps for each window, or, flat, of all of their numbers."""
    lengths = windows.end - windows.first + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - windows.first, lengths)
    values = np.stack([steps.numbers[name][at] for name in names], axis=1)
    numbers = pa.array(values.reshape(-1))
    if flat:
        return pa.ListArray.from_arrays(pa.array(offsets * len(names), pa.int32()), numbers)
    each = pa.ListArray.from_arrays(pa.array(np.arange(len(at) + 1) * len(names), pa.int32()), numbers)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), each)


def _valid(windows: Windows, steps: Steps) -> Windows:
    """Those without null, NaN and infinity; ValueError for the first with one, unless they are skipped."""
    plan = steps.plan
    bad = np.zeros(len(windows.end), bool)
    for names, first, end in _parts(windows, plan):
        wrong = ~np.logical_and.reduce([np.isfinite(steps.numbers[name]) for name in names])
        counts = np.concatenate([[0], np.cumsum(wrong)])
        bad |= counts[end + 1] > counts[first]
    if bad.any() and not plan.skip:
        _refuse(windows.chosen(slice(np.argmax(bad), np.argmax(bad) + 1)), steps)
    return windows.chosen(~bad)


def _refuse(window: Windows, steps: Steps) -> NoReturn:
    """ValueError for the first number of a window that is none."""
    read = (
        (row, name)
        for names, (first,), (end,) in _parts(window, steps.plan)
        for row in range(first, end + 1)
        for name in names
    )
    row, name = next((row, name) for row, name in read if not np.isfinite(steps.numbers[name][row]))
    found = steps.columns[name][row].as_py()
    raise ValueError(
        f"Column {name!r} is {'null' if found is None else found} at {steps.where(row)}; fill such rows or drop them, "
        "or set handleInvalid to skip, which leaves out the windows that hold one."
    )


def _parts(windows: Windows, plan: SeriesPlan) -> Iterator[tuple[tuple[str, ...], Array, Array]]:
    """Columns that are read, with the first and last rows of which they are."""
    yield plan.values, windows.first, windows.end
    for names in (plan.targets, plan.known):
        if names:
            yield names, windows.end + 1, windows.last
