"""The stage that makes rows for networks of sequences: windows, or whole series, of a table with a row a step."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from pyspark.ml import Transformer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegralType,
    NumericType,
    StructField,
    StructType,
)

from sparkdl.decoding.names import quoted
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.interpreter import check_interpreter
from sparkdl.spark.params.series_params import SeriesArguments, SeriesParams
from sparkdl.spark.saving.persistence import Saved
from sparkdl.spark.tasks.series_plan import SeriesPlan
from sparkdl.spark.tasks.windowing import windowed

NUMBERS = ArrayType(DoubleType(), False)
WHOLE_DAYS = ("day", "week", "month", "year")


class SeriesWindows(Transformer, SeriesParams, Saved):
    """Gathers a long table, with a row for every step of every series, into one row for every window.

    A series is the rows of equal keys, in the order of their time. A window is `window` steps of one; its row has the
    keys, the time of the window's last step, and:

    history   array<array<double>>, (window, valueCols), the steps, oldest first: `featuresCol` of a network whose
              input has that shape, or (None, valueCols)
    future    array<double>, (horizon * targetCols,), the targets of the steps after the window, step after step:
              `labelCol` of a network with as many outputs; where horizon is not 0
    known     array<array<double>>, (horizon, knownCols), what is known of these steps before; where there are knownCols
    until     the time of the last of these steps; where they are read

    Parameters
    ----------
    keyCols : str or list of str, default []
        Columns that tell series apart: strings, numbers, booleans, dates, timestamps or binary; none for a single
        series. What does not change within a series, such as its index, class or region, may be named with them.
    timeCol : str, default "time"
        Dates, timestamps or numbers. Each time occurs once in a series. It need not be a regular one: without `every`,
        steps are the rows in their order.
    valueCols : str or list of str
        Columns of numbers or booleans.
    targetCols : str or list of str, optional
        By default the only one of valueCols.
    knownCols : str or list of str, optional
        What is known before its time comes, such as the weekday or a price. Name them in valueCols, too, for the
        network to see them of the steps of the window.
    window : int, optional
        Steps. Without it there is one row for each series, of all its steps but the last `horizon`.
    horizon : int, default 0
        Steps after the window.
    stride : int, default 1
        Steps from one window to the next, from the first of a series on.
    partial : bool, default False
        Whether windows that begin before their series does are made, too, of the steps there are: the first one then
        ends at the first step. They are for networks that read rows of any length, (None, valueCols).
    every : str or float, optional
        Time from one step to the next: "15 minutes", "1 hour", "1 day", "1 month", ... or, of a time that is a number,
        a number. Days and more are those of the calendar in the session's time zone, whatever their hours.
    gaps : str, default "error"
        What becomes of a step that is not `every` after the one before: "error", or "split", by which a series ends and
        the next begins, so that no window has the gap in it.
    handleInvalid : str, default "error"
        What becomes of windows that hold null, NaN or infinity: "error", or "skip", which leaves them out.
    historyCol, futureCol, knownCol, untilCol : str, default "history", "future", "known", "until"
        Names of what is made; "" leaves out the last. Without a future (`futureCol=""`) targets are not read, and
        windows up to the last step of a series are made, or, with knownCols, up to the last for which these are there:
        what a model is to forecast.

    Raises
    ------
    ValueError
        In `transform`: a Param has no usable value, or a column is missing or of another type. In the Spark job: a time
        is null or occurs twice in a series, a step is not `every` after the one before, or a window holds an invalid
        number; the message names the series and the time.

    Notes
    -----
    A shuffle brings the rows of a series together and sorts them on disk where need be; they then pass through a Python
    worker that holds the steps of two windows, or of a whole series if `window` is not set. A series is the work of one
    task, so that one of them alone has no use of a cluster. The result does not depend on how the table is partitioned.

    Windows overlap, so rows are not to be divided by chance into some to train on and some to test with. Divide them by
    time: those that are to be trained on end, with their future, before those that are tested on begin theirs:
    ``windows.where("until < '2024-03-01'")`` and ``windows.where("time >= '2024-03-01'")``.

    Examples
    --------
    >>> from sparkdl.series import SeriesWindows
    >>> sales = spark.createDataFrame([("a", day, 10.0 * day) for day in range(5)], "shop string, day int, sold double")
    >>> windows = SeriesWindows(keyCols="shop", timeCol="day", valueCols="sold", window=2, horizon=2)
    >>> for row in windows.transform(sales).orderBy("day").collect():
    ...     print(row.shop, row.day, row.history, row.future, row.until)
    a 1 [[0.0], [10.0]] [20.0, 30.0] 3
    a 2 [[10.0], [20.0]] [30.0, 40.0] 4
    """

    def __init__(self, **params: Unpack[SeriesArguments]) -> None:
        super().__init__()
        self.setParams(**params)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        columns.check_rows(dataset, "SeriesWindows")
        plan = self._plan()
        keys = [columns.key(dataset, name, "keyCols") for name in plan.keys]
        time = columns.time(dataset, plan.time, "timeCol")
        numbers = [columns.numbers(dataset, name, self._param_of(name)).cast("double") for name in plan.numbers]
        columns.check_outputs(dataset.select(*keys, time), list(plan.makes.values()))
        check_interpreter(dataset.sparkSession)
        field = dataset.schema[plan.time]
        beside = _beside(plan.time, field.dataType, self.getEvery()) if plan.every else []
        read = [*keys, time, *beside, *numbers]
        rows = dataset.select(*(column.alias(name) for column, name in zip(read, plan.reads, strict=True)))
        order = [F.col(f"`{name}`") for name in plan.reads[: len(keys) + 1]]
        together = rows.repartition(*order[:-1]) if keys else rows.repartition(1)
        kinds: dict[str, DataType] = {"history": ArrayType(NUMBERS, False), "future": NUMBERS}
        kinds |= {"known": ArrayType(NUMBERS, False), "until": field.dataType}
        schema = [*(dataset.schema[name] for name in plan.keys), field]
        schema += [StructField(name, kinds[each], False) for each, name in plan.makes.items()]
        return together.sortWithinPartitions(*order).mapInArrow(partial(windowed, plan=plan), StructType(schema))

    def _plan(self) -> SeriesPlan:
        window, horizon, every = self.getWindow(), self.getHorizon(), self.getEvery()
        self._check_counts()
        values, known, targets = self.getValueCols(), self.getKnownCols(), self.getTargetCols()
        if not values:
            raise ValueError("valueCols must name the columns of a window's steps, received none.")
        if not horizon and (targets or known):
            which = "targetCols" if targets else "knownCols"
            raise ValueError(f"{which} are of steps after a window, but horizon is 0; set it, or leave {which} out.")
        future = bool(horizon and self.getFutureCol())
        if future and not targets:
            if len(values) > 1:
                raise ValueError(
                    f"targetCols must say which columns {self.getFutureCol()!r} is made of, as valueCols are several: "
                    f"{', '.join(values)}."
                )
            targets = values
        if self.isSet(self.gaps) and every is None:
            raise ValueError(f"gaps is {self.getGaps()!r}, but every is not set; set it to the time of a step.")
        return SeriesPlan(
            keys=tuple(self.getKeyCols()),
            time=self.getTimeCol(),
            values=tuple(values),
            targets=tuple(targets) if future else (),
            known=tuple(known),
            window=window,
            horizon=horizon if future or known else 0,
            stride=self.getStride(),
            partial=self.getPartial(),
            every="" if every is None else str(every),
            split=self.getGaps() == "split",
            skip=self.getHandleInvalid() == "skip",
            history=self.getHistoryCol(),
            future=self.getFutureCol(),
            ahead=self.getKnownCol(),
            until=self.getUntilCol(),
        )

    def _check_counts(self) -> None:
        for name, least in (("window", 1), ("horizon", 0), ("stride", 1)):
            value = self.getOrDefault(name) if self.isDefined(self.getParam(name)) else least
            if value < least:
                raise ValueError(f"{name} must be at least {least}, received {value}.")
        if self.getWindow() is None and (self.getStride() > 1 or self.getPartial()):
            which = "stride" if self.getStride() > 1 else "partial"
            raise ValueError(f"{which} is of windows, but window is not set; set it, or leave {which} out.")
        for name in ("historyCol", "knownCol"):
            if not self.getOrDefault(name):
                raise ValueError(f"{name} must be the name of a column, received ''.")
        names = [*self.getKeyCols(), self.getTimeCol()]
        if len(set(names)) < len(names):
            raise ValueError(f"keyCols and timeCol must name columns once each, received {', '.join(names)}.")

    def _param_of(self, name: str) -> str:
        """Which Param names a column of numbers."""
        return next(param for param in ("valueCols", "targetCols", "knownCols") if name in self.getOrDefault(param))


def _beside(time: str, kind: DataType, every: str | float | None) -> list[Column]:
    """When the step after one comes, and when the one before it came, in the type of the time; null beyond it."""
    number, subject = isinstance(kind, NumericType), f"every is {every!r}, but timeCol holds {kind.simpleString()}"
    if number != isinstance(every, (int, float)):
        raise ValueError(f"{subject}; set it to {'a number' if number else 'text such as 1 hour'}.")
    if number:
        whole = isinstance(kind, IntegralType)
        if whole and every % 1:  # type: ignore[operator]
            raise ValueError(f"{subject}; set it to a whole number, or cast the column to double.")
        step = f"{int(every)}" if whole else f"{every}D"  # type: ignore[arg-type]
    else:
        if isinstance(kind, DateType) and str(every).split()[1] not in WHOLE_DAYS:
            raise ValueError(f"{subject}; set it to days or more, or cast the column to timestamp.")
        step = f"interval {every}"
    moved = (f"try_{move}({quoted(time)}, {step})" for move in ("add", "subtract"))
    return [F.expr(f"try_cast({each} as {kind.simpleString()})") for each in moved]
