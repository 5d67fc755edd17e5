"""Tables of series gathered into windows: what a plain loop over pandas groups makes, however rows lie and arrive."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkdl.series import SeriesWindows
from sparkdl.spark.tasks import windowing
from sparkdl.spark.tasks.windowing import windowed

START = pd.Timestamp("2024-03-01")
KEYS = ["shop", "item"]


def table(seed: int = 0, holes: float = 0.0) -> pd.DataFrame:
    """Five series of 0 to 40 hourly steps, of which two are each other's neighbours in all but one key, unordered."""
    random = np.random.default_rng(seed)
    lengths = {("a", 1): 40, ("a", 2): 7, ("b", 1): 1, (None, 2): 23, ("c", 3): 12}
    rows = [
        (shop, item, START + pd.Timedelta(hours=step), *random.normal(size=2), float(step % 24))
        for (shop, item), count in lengths.items()
        for step in range(count)
        if random.uniform() >= holes
    ]
    frame = pd.DataFrame(rows, columns=[*KEYS, "time", "sold", "price", "hour"])
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def gathered(
    frame: pd.DataFrame,
    values: list[str],
    window: int | None,
    horizon: int = 0,
    stride: int = 1,
    partial: bool = False,
    targets: list[str] | None = None,
    known: list[str] | None = None,
    split: bool = False,
    skip: bool = False,
) -> list[dict[str, Any]]:
    """Windows by a loop over the groups of a table, and over the places in each at which a window may end."""
    found = []
    for key, group in frame.groupby(KEYS, dropna=False):
        group = group.sort_values("time")
        gap = group.time.diff() != pd.Timedelta(hours=1) if split else pd.Series(False, group.index)
        for _, series in group.groupby(gap.cumsum()):
            count = len(series)
            first_end = (count - horizon - 1) if window is None else 0 if partial else window - 1
            for end in range(first_end, count - horizon, stride):
                if end < 0:
                    continue
                steps = series.iloc[0 if window is None else max(0, end - window + 1) : end + 1]
                later = series.iloc[end + 1 : end + 1 + horizon]
                row = dict(zip(KEYS, key, strict=True)) | {"time": series.time.iloc[end]}
                row |= {"history": steps[values].to_numpy().tolist()}
                row |= {"future": later[targets].to_numpy().reshape(-1).tolist()} if targets else {}
                row |= {"known": later[known].to_numpy().tolist()} if known else {}
                row |= {"until": later.time.iloc[-1]} if horizon else {}
                read = [steps[values], later[targets or []], later[known or []]]
                if not skip or all(np.isfinite(part.to_numpy()).all() for part in read):
                    found.append(row)
    return found


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by key and time, with None for pandas's NaN in a key."""
    plain = [row | {"shop": row["shop"] if isinstance(row["shop"], str) else None} for row in rows]
    return sorted(plain, key=lambda row: (str(row["shop"]), row["item"], row["time"]))


def by_task(frame: pd.DataFrame, sizes: list[int], **params: Any) -> list[dict[str, Any]]:
    """What a task puts out for the table in batches of these sizes, over and over."""
    plan = SeriesWindows(keyCols=KEYS, **params)._plan()
    frame = frame.sort_values([*KEYS, "time"], na_position="first")
    names = [*KEYS, "time", *(["next", "previous"] if plan.every else []), *plan.numbers]
    hour = pd.Timedelta(hours=1)
    frame = frame.assign(next=frame.time + hour, previous=frame.time - hour)
    rows = pa.Table.from_pandas(frame[names], preserve_index=False).rename_columns(plan.reads)

    def batches() -> Any:
        start = 0
        for size in itertools.cycle(sizes):
            if start >= len(frame):
                return
            yield from rows.slice(start, size).combine_chunks().to_batches()
            start += size

    return [row for made in windowed(batches(), plan) for row in made.to_pylist()]


@pytest.mark.parametrize("sizes", [[100], [1], [3, 5, 1, 20]], ids=["one batch", "of one row", "of several sizes"])
@pytest.mark.parametrize(
    "params",
    [
        {"window": 4},
        {"window": 1, "horizon": 1, "targets": ["sold"]},
        {"window": 5, "horizon": 3, "stride": 2, "targets": ["price", "sold"], "known": ["hour"]},
        {"window": 3, "horizon": 2, "stride": 7, "partial": True, "targets": ["sold"]},
        {"window": 30, "horizon": 2, "partial": True, "known": ["hour", "price"]},
        {"window": None},
        {"window": None, "horizon": 4, "targets": ["sold"], "known": ["hour"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("split", [False, True], ids=["rows", "hours"])
def test_windows_are_those_of_a_loop_over_pandas_groups(params: dict[str, Any], sizes: list[int], split: bool) -> None:
    frame = table(holes=0.1)
    named = {"targets": "targetCols", "known": "knownCols"}
    own = {named.get(name, name): value for name, value in params.items()}
    own |= {"futureCol": ""} if "targets" not in params else {}
    own |= {"every": "1 hour", "gaps": "split"} if split else {}
    found = by_task(frame, sizes, valueCols=["sold", "price"], **own)
    expected = gathered(frame, ["sold", "price"], **params, split=split)
    assert expected
    assert in_order(found) == in_order(expected)


@pytest.mark.parametrize("bytes_", [1, 500, 1 << 20])
def test_what_is_put_out_at_a_time_is_bounded(bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowing, "PART_BYTES", bytes_)
    plan = SeriesWindows(valueCols="sold", window=5)._plan()
    rows = pa.RecordBatch.from_pydict({"time": list(range(1000)), "number/0": np.arange(1000.0)})
    sizes = [len(made) for made in windowed(iter([rows]), plan)]
    assert sum(sizes) == 996
    assert max(sizes) <= max(1, bytes_ // 40 + 1)


def test_a_task_keeps_the_steps_of_two_windows_at_most() -> None:
    plan = SeriesWindows(valueCols="sold", window=50, horizon=20)._plan()
    seen: list[int] = []

    def batches() -> Any:
        for start in range(0, 20_000, 10):
            at = np.arange(start, start + 10)
            yield pa.RecordBatch.from_pydict({"time": at, "number/0": at * 1.0})

    class Watched(windowing.Steps):
        def __init__(self, rows: pa.Table, *others: Any) -> None:
            seen.append(len(rows))
            super().__init__(rows, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowing, "Steps", Watched)
        assert sum(len(made) for made in windowed(batches(), plan)) == 20_000 - 69
    assert max(seen) <= 2 * 70 + 10


@pytest.mark.parametrize("window", [4, None])
def test_windows_that_hold_what_is_no_number_are_left_out(window: int | None) -> None:
    frame = table(seed=1)
    for row, column, value in [(3, "sold", np.nan), (30, "price", np.inf), (50, "hour", np.nan), (60, "sold", np.nan)]:
        frame.loc[row, column] = value
    params: dict[str, Any] = {"window": window, "horizon": 2}
    found = by_task(frame, [9], valueCols="sold", targetCols="price", knownCols="hour", handleInvalid="skip", **params)
    expected = gathered(frame, ["sold"], targets=["price"], known=["hour"], skip=True, **params)
    everything = gathered(frame, ["sold"], targets=["price"], known=["hour"], **params)
    assert in_order(found) == in_order(expected)
    assert 0 < len(expected) < len(everything)


def test_what_is_to_be_forecast_needs_no_future() -> None:
    frame = table()
    last = frame.groupby(KEYS, dropna=False).time.transform("max")
    ahead = frame.time > last - pd.Timedelta(hours=3)
    frame.loc[ahead, "sold"] = np.nan  # of the next three hours only the price is known
    params: dict[str, Any] = {"window": 4, "horizon": 3, "known": ["price"]}
    found = by_task(frame, [50], valueCols="sold", window=4, horizon=3, knownCols="price", futureCol="")
    assert in_order(found) == in_order(gathered(frame, ["sold"], **params))
    alone = by_task(frame[~ahead], [50], valueCols="sold", window=4, horizon=3, futureCol="")
    assert in_order(alone) == in_order(gathered(frame[~ahead], ["sold"], 4))
    assert "until" not in alone[0]


def test_names_of_columns_that_are_not_made_are_free() -> None:
    frame = table()
    found = by_task(frame, [50], valueCols="sold", window=4, historyCol="until")
    expected = [row | {"until": row.pop("history")} for row in gathered(frame, ["sold"], 4)]
    assert in_order(found) == in_order(expected)


def refused(frame: pd.DataFrame, **params: Any) -> str:
    """What a task says against a table."""
    with pytest.raises(ValueError) as refusal:
        by_task(frame, [10], **({"valueCols": "sold", "window": 4} | params))
    return str(refusal.value)


def test_errors_name_the_series_and_the_time() -> None:
    frame = table().sort_values([*KEYS, "time"]).reset_index(drop=True)
    third = frame[(frame.shop == "c") & (frame.time == START + pd.Timedelta(hours=2))].index[0]
    where = "time 2024-03-01 02:00:00 of shop 'c', item 3"
    empty = frame.assign(sold=frame.sold.mask(frame.index == third))
    assert refused(empty).startswith(f"Column 'sold' is null at {where}; fill such rows or drop them, or set handleInv")
    endless = frame.assign(price=frame.price.mask(frame.index == third, -np.inf))
    params: dict[str, Any] = {"window": 2, "horizon": 1, "targetCols": "price"}
    assert refused(endless, **params).startswith(f"Column 'price' is -inf at {where}")
    assert by_task(endless, [10], valueCols="sold", window=4)  # which do not read it
    twice = pd.concat([frame, frame.loc[[third]]])
    assert refused(twice).startswith(f"There are two rows of {where}; make them one by groupBy")
    hole = frame.drop(third)
    told = refused(hole, every="1 hour")
    assert told.startswith(
        "The step after time 2024-03-01 01:00:00 of shop 'c', item 3 is at 2024-03-01 03:00:00, but every is '1 hour'"
    )
    untimed = frame.assign(time=frame.time.mask(frame.index == third))
    assert refused(untimed).startswith("timeCol 'time' is null in a row of shop 'c', item 3; drop such rows")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"valueCols": []}, "valueCols must name the columns of a window's steps"),
        ({"window": 0}, "window must be at least 1, received 0"),
        ({"horizon": -1}, "horizon must be at least 0, received -1"),
        ({"stride": 0}, "stride must be at least 1, received 0"),
        ({"window": None, "stride": 2}, "stride is of windows, but window is not set"),
        ({"window": None, "partial": True}, "partial is of windows, but window is not set"),
        ({"targetCols": "a"}, "targetCols are of steps after a window, but horizon is 0"),
        ({"knownCols": "a"}, "knownCols are of steps after a window, but horizon is 0"),
        ({"valueCols": ["a", "b"], "horizon": 1}, "targetCols must say which columns 'future' is made of, .*: a, b"),
        ({"gaps": "split"}, "gaps is 'split', but every is not set"),
        ({"keyCols": ["k", "time"]}, "keyCols and timeCol must name columns once each, received k, time, time"),
        ({"historyCol": ""}, "historyCol must be the name of a column"),
    ],
)
def test_what_makes_no_windows_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SeriesWindows(**({"valueCols": "a", "window": 3} | params))._plan()


def test_params_take_no_other_values() -> None:
    for every in ("1 fortnight", "hour", "0 days", True, -1, 0, [1]):
        with pytest.raises(TypeError, match="every must be a whole number of seconds, minutes, hours, days"):
            SeriesWindows(every=every)
    assert SeriesWindows(every=" 15  Minutes").getEvery() == "15 minute"
    with pytest.raises(TypeError, match="no Param 'target'; did you mean targetCols"):
        SeriesWindows(target="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="gaps must be one of error, split, received 'fill'"):
        SeriesWindows(gaps="fill")
    stage = SeriesWindows()
    for param in stage.params:
        name = param.name[0].upper() + param.name[1:]
        value = {"every": "1 hour", "gaps": "split", "handleInvalid": "skip", "partial": True}.get(param.name)
        value = value or (7 if param.name in ("window", "horizon", "stride") else "x")
        assert getattr(stage, f"set{name}")(value) is stage
        kept = getattr(stage, f"get{name}")()
        assert kept == (["x"] if param.name in ("keyCols", "valueCols", "targetCols", "knownCols") else value)


def test_spark_gathers_what_pandas_does_however_rows_are_partitioned(spark: SparkSession) -> None:
    frame = table(holes=0.1)
    rows = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
    stage = (
        SeriesWindows(
            keyCols=KEYS,
            valueCols=["sold", "price"],
            targetCols="sold",
            knownCols="hour",
            window=4,
            horizon=2,
            stride=3,
        )
        .setEvery("1 hour")
        .setGaps("split")
    )
    expected = gathered(frame, ["sold", "price"], 4, 2, 3, targets=["sold"], known=["hour"], split=True)
    for given in (rows.repartition(5), rows.orderBy(F.desc("time")).coalesce(1)):
        made = stage.transform(given)
        assert in_order([row.asDict() for row in made.collect()]) == in_order(expected)
    kinds = {"time": rows.schema["time"].dataType.simpleString(), "history": "array<array<double>>"}
    kinds |= {"shop": "string", "item": "bigint", "future": "array<double>", "known": "array<array<double>>"}
    assert dict(made.dtypes) == kinds | {"until": kinds["time"]}


def test_a_pipeline_with_windows_is_saved(spark: SparkSession, tmp_path: Any) -> None:
    frame = table()
    rows = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
    stage = SeriesWindows(keyCols=KEYS, valueCols="sold", window=3, horizon=2, untilCol="")
    path = str(tmp_path / "pipeline")
    Pipeline(stages=[stage]).fit(rows).write().save(path)
    loaded = PipelineModel.load(path)
    (kept,) = loaded.stages
    assert isinstance(kept, SeriesWindows)
    assert kept.uid == stage.uid and kept.extractParamMap() == stage.extractParamMap()
    expected = [row | {"until": None} for row in gathered(frame, ["sold"], 3, 2, targets=["sold"])]
    found = [row.asDict() | {"until": None} for row in loaded.transform(rows).collect()]
    assert in_order(found) == in_order(expected)
    now = loaded.transform(rows, {stage.futureCol: ""})  # for a model of the pipeline to forecast from the last step on
    assert now.columns == [*KEYS, "time", "history"]
    assert now.groupBy(*KEYS).agg(F.max("time")).count() == rows.groupBy(*KEYS).count().where("count >= 3").count()


def test_steps_of_the_calendar_and_of_numbers(spark: SparkSession) -> None:
    """A day is one of the session's time zone, of 23 hours where the clock is put forward; a month has any length."""
    months = [datetime.date(2024, month, 1) for month in (1, 2, 3, 5)]
    days = [f"2024-03-{day} 00:00:00" for day in ("30", "31")] + [f"2024-04-0{day} 00:00:00" for day in (1, 3)]
    rows = spark.createDataFrame(
        [(at, at * 0.1 + 0.1 * (at == 3), months[at], days[at]) for at in range(4)],
        "at int, tenth double, month date, text string",
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = rows.withColumn("day", F.expr("timestamp(text)")).withColumn(
            "plain", F.expr("cast(text as timestamp_ntz)")
        )
        rows = rows.withColumn("cent", F.expr("decimal(at + if(at = 3, 1, 0))"))
        given = {"tenth": 0.1, "month": "1 month", "day": "1 day", "plain": "1 day", "cent": 1}
        stage = SeriesWindows(valueCols="at", gaps="split")
        for column, every in given.items():
            windows = stage.setTimeCol(column).setEvery(every).transform(rows)
            assert sorted(row.history for row in windows.collect()) == [[[0.0], [1.0], [2.0]], [[3.0]]], column
            assert windows.schema[column].dataType == rows.schema[column].dataType
        hours = stage.setTimeCol("day").setEvery("1 hour")
        assert hours.transform(rows).count() == 4
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.mark.parametrize(
    ("kind", "times", "every"),
    [
        ("tinyint", [-128, -127], 1),
        ("tinyint", [126, 127], 1),
        ("tinyint", [-100, 100], 200),
        ("int", [2**31 - 2, 2**31 - 1], 1),
        ("bigint", [2**63 - 2, 2**63 - 1], 1),
        ("decimal(3, 1)", [99.8, 99.9], 0.1),
    ],
)
def test_times_may_be_the_first_and_the_last_of_their_type(
    spark: SparkSession, kind: str, times: list[float], every: float
) -> None:
    rows = spark.createDataFrame([(str(time),) for time in times], "text string")
    rows = rows.select(F.col("text").cast(kind).alias("time"), F.lit(1.0).alias("v"))
    (whole,) = SeriesWindows(valueCols="v", every=every).transform(rows).collect()
    assert (str(whole.time), whole.history) == (str(times[-1]), [[1.0], [1.0]])


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize(
    ("every", "days", "windows"),
    [
        ("1 month", ["2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"], 4),
        ("1 month", ["2023-12-30", "2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"], 3),
        ("3 months", ["2023-11-30", "2024-02-29", "2024-05-31", "2024-08-31", "2024-11-30"], 3),
        ("1 month", ["2024-01-31", "2024-03-31", "2024-04-30", "2024-05-31"], 1),  # February is missing
    ],
)
def test_ends_of_months_are_a_month_apart(
    spark: SparkSession, every: str, days: list[str], windows: int, kind: str
) -> None:
    rows = spark.createDataFrame([(day, float(at)) for at, day in enumerate(days)], "text string, v double")
    rows = rows.withColumn("time", F.expr(f"cast(text as {kind})"))
    stage = SeriesWindows(valueCols="v", window=2, horizon=1, every=every, gaps="split")
    assert stage.transform(rows).count() == windows


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"keyCols": "tags"}, "keyCols 'tags' must be string or numeric or date .*, received array<int>; cast it"),
        ({"keyCols": "shops"}, "keyCols names column 'shops', which is not there"),
        ({"timeCol": "shop"}, "timeCol 'shop' must be date or timestamp or numeric, received string; cast it"),
        ({"valueCols": "shop"}, "valueCols 'shop' must be numeric, received string; cast it"),
        ({"horizon": 1, "targetCols": "shop"}, "targetCols 'shop' must be numeric, received string"),
        ({"historyCol": "time"}, "Output column 'time' exists already"),
        ({"horizon": 1, "untilCol": "future"}, "Output column 'future' is asked for twice"),
        ({"every": 1}, "every is 1, but timeCol holds date; set it to text such as 1 hour"),
        ({"every": "1 hour"}, "every is '1 hour', but timeCol holds date; set it to days or more"),
        ({"timeCol": "item", "every": "1 hour"}, "every is '1 hour', but timeCol holds int; set it to a number"),
        ({"timeCol": "item", "every": 0.5}, "every is 0.5, but timeCol holds int; set it to a whole number"),
    ],
)
def test_columns_that_do_not_do_are_refused_before_any_job(
    spark: SparkSession, params: dict[str, Any], message: str
) -> None:
    rows = spark.createDataFrame([], "shop string, item int, time date, sold double, tags array<int>")
    with pytest.raises(ValueError, match=message):
        SeriesWindows(**({"valueCols": "sold", "window": 3} | params)).transform(rows)


def test_what_the_job_refuses_is_told(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", at // 2, 1.0) for at in range(4)], "shop string, day int, sold double")
    stage = SeriesWindows(keyCols="shop", timeCol="day", valueCols="sold", window=2)
    with pytest.raises(Exception, match="There are two rows of day 0 of shop 'a'; make them one"):
        stage.transform(rows).collect()
    assert stage.transform(rows.where("false")).collect() == []


def test_a_time_that_is_no_number_is_told(spark: SparkSession) -> None:
    rows = spark.sql("select * from values (1D, 1D), (double('NaN'), 2D) as t(time, v)")
    with pytest.raises(Exception, match="timeCol 'time' is NaN in a row; drop such rows, or give them their time"):
        SeriesWindows(valueCols="v").transform(rows).collect()


def test_keys_are_of_any_plain_type(spark: SparkSession) -> None:
    """Of doubles, as StringIndexer makes them, NaN is one key; so is null of any type."""
    keys = [("double", "NaN"), ("boolean", "true"), ("date", "2024-01-01"), ("binary", "a"), ("decimal(9, 2)", "1.5")]
    keys += [("timestamp", "2024-01-01 00:00:00"), ("string", "a b"), ("tinyint", "3")]
    rows = spark.range(6).selectExpr(
        "id time", *(f"if(id < 3, null, cast('{value}' as {kind})) key{at}" for at, (kind, value) in enumerate(keys))
    )
    names = [name for name in rows.columns if name != "time"]
    made = SeriesWindows(keyCols=names, valueCols="time", window=3).transform(rows)
    assert sorted(row.history for row in made.collect()) == [[[0.0], [1.0], [2.0]], [[3.0], [4.0], [5.0]]]
    assert [made.schema[name].dataType for name in names] == [rows.schema[name].dataType for name in names]
