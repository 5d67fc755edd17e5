"""Rows in the order of keys and time as the steps of series: where each begins, and which times cannot be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import Array
from sparkdl.spark.tasks.series_plan import SeriesPlan

FLOAT_STEPS = 1e-3  # how far, in steps, a time that is a float may be from where it is expected


class Steps:
    """Rows of a table as the steps of series.

    Parameters
    ----------
    rows : pa.Table
        One or more, with columns as `SeriesPlan.reads` names them; each is of one chunk.
    plan : SeriesPlan
    place : int
        Of the first row in its series, whose rows before it are gone.

    Attributes
    ----------
    keys, time : list of pa.Array, pa.Array
    columns, numbers : dict of pa.Array, dict of Array
        The columns of numbers by the user's name, as they came and with NaN for null.
    starts : Array, shape (rows,)
        Whether a series begins with the row.
    first : Array, shape (rows,)
        The row that its series begins with, below 0 if that is gone.

    Raises
    ------
    ValueError
        A time is null or occurs twice in a series, or a step is missing; the message names the series and the time.
    """

    def __init__(self, rows: pa.Table, plan: SeriesPlan, place: int) -> None:
        self.rows, self.plan = rows, plan
        found = {name: rows.column(name).chunk(0) for name in plan.reads}
        self.time = found["time"]
        self.keys = [found[f"key/{at}"] for at in range(len(plan.keys))]
        self.columns = {name: found[f"number/{at}"] for at, name in enumerate(plan.numbers)}
        self.numbers = {name: column.to_numpy(zero_copy_only=False) for name, column in self.columns.items()}
        self._check_times()
        self.starts: Array = np.concatenate(
            [[place == 0], self._series_change(found.get("next"), found.get("previous"))]
        )
        at = np.arange(len(self.starts))
        self.first: Array = np.maximum.accumulate(np.where(self.starts, at, -place))

    def _check_times(self) -> None:
        missing = pc.is_null(self.time, nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any():
            row = int(np.argmax(missing))
            series, what = self._series(row), "NaN" if self.time[row].is_valid else "null"
            raise ValueError(
                f"timeCol {self.plan.time!r} is {what} in a row{f' of {series}' if series else ''}; drop such rows, or "
                "give them their time."
            )

    def _series_change(self, following: pa.Array | None, previous: pa.Array | None) -> Array:
        """Of every row but the first, whether another series begins with it."""
        change = np.zeros(len(self.time) - 1, bool)
        for key in self.keys:
            change |= _differ(key[1:], key[:-1])
        time, before = self.time[1:], self.time[:-1]
        twice = ~change & ~_differ(time, before)
        if twice.any():
            raise ValueError(
                f"There are two rows of {self.where(int(np.argmax(twice)))}; make them one by groupBy and an "
                "aggregate, or name the columns that tell their series apart in keyCols."
            )
        if following is None or previous is None:
            return change
        if pa.types.is_floating(time.type):
            expected, now, then = (part.to_numpy() for part in (following[:-1], time, before))
            off = np.abs(now - expected) > FLOAT_STEPS * (expected - then)
        else:
            # A month after January 31 is February 29, and so is one before March 31.
            off = _differ(time, following[:-1]) & _differ(previous[1:], before)
        off &= ~change
        if off.any() and not self.plan.split:
            row = int(np.argmax(off))
            raise ValueError(
                f"The step after {self.where(row)} is at {time[row].as_py()}, but every is {self.plan.every!r}; make "
                "rows for the steps that are missing, or set gaps to split, by which a new series begins there."
            )
        return change | off

    def where(self, row: int) -> str:
        """The time and the series of a row, to be named in an error."""
        series = self._series(row)
        return f"{self.plan.time} {self.time[row].as_py()}{f' of {series}' if series else ''}"

    def _series(self, row: int) -> str:
        values = [key[row].as_py() for key in self.keys]
        named = zip(self.plan.keys, values, strict=True)
        return ", ".join(f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}" for name, value in named)


def _differ(one: pa.Array, other: pa.Array) -> Array:
    """Where two arrays are not equal; nulls are equal to each other, as NaNs are."""
    unequal = pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        unequal = pc.and_not(unequal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return unequal.to_numpy(zero_copy_only=False)
