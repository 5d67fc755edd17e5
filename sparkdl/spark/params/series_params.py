"""Params of the stage that gathers windows: which columns make a series, how long windows are, what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Self, TypedDict

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasHandleInvalid

from sparkdl.spark.params.converters import one_of
from sparkdl.spark.params.named_params import NamedParams

UNITS = ("second", "minute", "hour", "day", "week", "month", "year")


class SeriesArguments(TypedDict, total=False):
    """Keyword arguments of SeriesWindows: its Params by name."""

    keyCols: str | Sequence[str]
    timeCol: str
    valueCols: str | Sequence[str]
    targetCols: str | Sequence[str]
    knownCols: str | Sequence[str]
    window: int | None
    horizon: int
    stride: int
    partial: bool
    every: str | float
    gaps: str
    handleInvalid: str
    historyCol: str
    futureCol: str
    knownCol: str
    untilCol: str


def names_list(value: Any) -> list[str]:
    """A type converter: one name or several become a list of them."""
    return TypeConverters.toListString([value] if isinstance(value, str) else value)


def time_step(value: Any) -> str | float:
    """A type converter: the time from one step to the next, a number above 0 or text such as "1 hour"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return value
    text = value.lower() if isinstance(value, str) else ""
    found = re.fullmatch(rf"\s*([1-9]\d*)\s+({'|'.join(UNITS)})s?\s*", text)
    if not found:
        raise TypeError(
            f"every must be a whole number of {', '.join(f'{unit}s' for unit in UNITS)}, as '15 minutes', or a number "
            f"above 0 for a time that is a number, received {value!r}."
        )
    return f"{found[1]} {found[2]}"


def _columns(name: str, doc: str) -> Param[list[str]]:
    return Param(Params._dummy(), name, doc, names_list)


def _count(name: str, doc: str) -> Param[int]:
    return Param(Params._dummy(), name, doc, TypeConverters.toInt)


def _text(name: str, doc: str) -> Param[str]:
    return Param(Params._dummy(), name, doc, TypeConverters.toString)


class SeriesParams(HasHandleInvalid, NamedParams):
    """What a table of series is, and what is gathered of it."""

    keyCols = _columns(
        "keyCols", "columns that say which series a row is of, and stay beside its windows; none for a single series."
    )
    timeCol = _text("timeCol", "column of a row's time, by which a series is in order: date, timestamp or number.")
    valueCols = _columns("valueCols", "columns of numbers that are the steps of historyCol, in this order.")
    targetCols = _columns(
        "targetCols", "columns of numbers that futureCol has of the steps after a window; the only one of valueCols."
    )
    knownCols = _columns(
        "knownCols", "columns of numbers that are known before their time comes, as a holiday; steps of knownCol."
    )
    window = _count("window", "steps of a window (> 0); not set: one row a series, with all of its steps.")
    horizon = _count("horizon", "steps after a window that futureCol and knownCol have (>= 0).")
    stride = _count("stride", "steps from one window to the next (> 0).")
    partial = Param[bool](
        Params._dummy(),
        "partial",
        "whether windows that begin before their series does are made, too, of the steps that there are.",
        TypeConverters.toBoolean,
    )
    every = Param[Any](
        Params._dummy(),
        "every",
        "time from one step to the next, as '1 hour', or a number where the time is one; not set: steps are rows in "
        "order, whatever time is between them.",
        time_step,
    )
    gaps = Param[str](
        Params._dummy(),
        "gaps",
        "what becomes of steps that are not `every` apart: error, or split, by which a new series begins.",
        one_of("gaps", "error", "split"),
    )
    handleInvalid = Param[str](
        Params._dummy(),
        "handleInvalid",
        "what becomes of windows that hold null, NaN or infinity: error or skip, which leaves them out.",
        one_of("handleInvalid", "error", "skip"),
    )
    historyCol = _text("historyCol", "column that is made of a window's steps: array<array<double>>, oldest first.")
    futureCol = _text(
        "futureCol",
        "column that is made of targetCols after a window: array<double>, step after step; '' for none, which also "
        "makes windows whose future is not there yet.",
    )
    knownCol = _text("knownCol", "column that is made of knownCols after a window: array<array<double>>.")
    untilCol = _text("untilCol", "column that is made of the time of the last step after a window; '' for none.")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            keyCols=[],
            timeCol="time",
            valueCols=[],
            targetCols=[],
            knownCols=[],
            horizon=0,
            stride=1,
            partial=False,
            gaps="error",
            handleInvalid="error",
            historyCol="history",
            futureCol="future",
            knownCol="known",
            untilCol="until",
        )

    def getKeyCols(self) -> list[str]:
        """Columns that say which series a row is of."""
        return self.getOrDefault(self.keyCols)

    def getTimeCol(self) -> str:
        """Column of a row's time."""
        return self.getOrDefault(self.timeCol)

    def getValueCols(self) -> list[str]:
        """Columns that are the steps of a window."""
        return self.getOrDefault(self.valueCols)

    def getTargetCols(self) -> list[str]:
        """Columns of the steps after a window; [] where the only one of valueCols is meant."""
        return self.getOrDefault(self.targetCols)

    def getKnownCols(self) -> list[str]:
        """Columns that are known before their time comes."""
        return self.getOrDefault(self.knownCols)

    def getWindow(self) -> int | None:
        """Steps of a window; None for whole series."""
        return self.getOrDefault(self.window) if self.isDefined(self.window) else None

    def getHorizon(self) -> int:
        """Steps after a window."""
        return self.getOrDefault(self.horizon)

    def getStride(self) -> int:
        """Steps from one window to the next."""
        return self.getOrDefault(self.stride)

    def getPartial(self) -> bool:
        """Whether windows that begin before their series does are made, too."""
        return self.getOrDefault(self.partial)

    def getEvery(self) -> str | float | None:
        """Time from one step to the next; None where any will do."""
        return self.getOrDefault(self.every) if self.isDefined(self.every) else None

    def getGaps(self) -> str:
        """What becomes of steps that are not `every` apart."""
        return self.getOrDefault(self.gaps)

    def getHistoryCol(self) -> str:
        """Column of a window's steps."""
        return self.getOrDefault(self.historyCol)

    def getFutureCol(self) -> str:
        """Column of the targets after a window; "" for none."""
        return self.getOrDefault(self.futureCol)

    def getKnownCol(self) -> str:
        """Column of what is known of the steps after a window."""
        return self.getOrDefault(self.knownCol)

    def getUntilCol(self) -> str:
        """Column of the time of the last step after a window; "" for none."""
        return self.getOrDefault(self.untilCol)

    def setKeyCols(self, value: str | Sequence[str]) -> Self:
        """Set the columns that say which series a row is of."""
        return self._set(keyCols=value)

    def setTimeCol(self, value: str) -> Self:
        """Set the column of a row's time."""
        return self._set(timeCol=value)

    def setValueCols(self, value: str | Sequence[str]) -> Self:
        """Set the columns that are the steps of a window."""
        return self._set(valueCols=value)

    def setTargetCols(self, value: str | Sequence[str]) -> Self:
        """Set the columns of the steps after a window; [] for the only one of valueCols."""
        return self._set(targetCols=value)

    def setKnownCols(self, value: str | Sequence[str]) -> Self:
        """Set the columns that are known before their time comes."""
        return self._set(knownCols=value)

    def setWindow(self, value: int | None) -> Self:
        """Set the steps of a window; None for whole series."""
        return self._set(window=value)

    def setHorizon(self, value: int) -> Self:
        """Set the steps after a window."""
        return self._set(horizon=value)

    def setStride(self, value: int) -> Self:
        """Set the steps from one window to the next."""
        return self._set(stride=value)

    def setPartial(self, value: bool) -> Self:
        """Set whether windows that begin before their series does are made, too."""
        return self._set(partial=value)

    def setEvery(self, value: str | float | None) -> Self:
        """Set the time from one step to the next; None where any will do."""
        return self._set(every=value)

    def setGaps(self, value: str) -> Self:
        """Set what becomes of steps that are not `every` apart."""
        return self._set(gaps=value)

    def setHandleInvalid(self, value: str) -> Self:
        """Set what becomes of windows that hold null, NaN or infinity."""
        return self._set(handleInvalid=value)

    def setHistoryCol(self, value: str) -> Self:
        """Set the column of a window's steps."""
        return self._set(historyCol=value)

    def setFutureCol(self, value: str) -> Self:
        """Set the column of the targets after a window; "" for none."""
        return self._set(futureCol=value)

    def setKnownCol(self, value: str) -> Self:
        """Set the column of what is known of the steps after a window."""
        return self._set(knownCol=value)

    def setUntilCol(self, value: str) -> Self:
        """Set the column of the time of the last step after a window; "" for none."""
        return self._set(untilCol=value)
