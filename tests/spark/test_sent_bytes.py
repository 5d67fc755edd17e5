"""Arrays and Vectors are sent as Spark's own bytes where it has them, value by value elsewhere, and mean the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructType
from spark_cases import a_model

from sparkdl import Network
from sparkdl.decoding.arrow_types import is_packed
from sparkdl.decoding.columns import decode_features
from sparkdl.layers import Dense
from sparkdl.spark.driver import catalyst, columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.driver.columns import Inputs

pytestmark = pytest.mark.skipif(not hasattr(F, "arrow_udf"), reason="pyspark 4.0 has UDFs of pandas only")

WIDTH, COUNT = columns.LEAST_WIDTH + 6, 12
ARRAYS = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double"]
VECTORS = ["dense", "sparse", "both"]
RNG = np.random.default_rng(3)
VALUES = RNG.integers(-9, 9, (COUNT, WIDTH)) * (RNG.random((COUNT, WIDTH)) < 0.3)
VALUES[5] = 0  # is null


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """VALUES as arrays of every type and Vectors, row 5 being null, read from Parquet."""
    dense = [Vectors.dense(row) for row in VALUES]
    sparse = [SparseVector(WIDTH, {i: x for i, x in enumerate(row) if x}) for row in VALUES]
    rows: list[Any] = []
    for at, row in enumerate(VALUES.tolist()):
        vectors = (dense[at], sparse[at], (dense, sparse)[at % 2][at])
        rows.append((at, *((row, *vectors) if at != 5 else [None] * 4)))
    schema = StructType.fromDDL("id int, values array<int>")
    for name in VECTORS:
        schema = schema.add(name, VectorUDT())
    path = str(tmp_path_factory.mktemp("stored") / "rows")
    frame = spark.createDataFrame(rows, schema)
    casts = (F.col("values").cast(f"array<{kind}>").alias(kind) for kind in ARRAYS)
    frame.select("*", *casts).drop("values").coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


def inputs(rows: DataFrame, name: str) -> Inputs:
    return columns.features(rows, a_model(network=Network([Dense(1)], input_shape=(WIDTH,)), featuresCol=name))


def sent(rows: DataFrame, name: str, column: Column | None = None) -> pa.Array:
    """The features as workers have them, ordered."""

    def as_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema) as writer:
                writer.write(batch)
            yield pa.record_batch({"file": pa.array([stream.getvalue().to_pybytes()])})

    column = inputs(rows, name).columns["features/features/0"] if column is None else column
    chosen = rows.select("id", column.alias("x"))
    files = [row.file for row in chosen.mapInArrow(as_files, "file binary").collect()]
    whole = pa.concat_tables([pa.ipc.open_stream(file).read_all() for file in files]).combine_chunks()
    return whole["x"].combine_chunks().take(pc.sort_indices(whole["id"]))


def lengths(column: pa.Array) -> list[int]:
    return pc.binary_length(column.field("bytes")).to_pylist()


def check(rows: DataFrame, name: str, column: Column | None = None) -> pa.Array:
    """That the features, or the column in their stead, are VALUES, with row 5 null; gives them as they are sent."""
    found = sent(rows, name, column)
    decoded = decode_features([found], inputs(rows, name).layouts["features"])
    np.testing.assert_array_equal(decoded.values, VALUES != 0 if name == "boolean" else VALUES)
    assert decoded.status.tolist() == [int(at == 5) for at in range(COUNT)]
    return found


@pytest.mark.parametrize("name", ARRAYS + VECTORS)
def test_stored_rows_are_sent_as_bytes(stored: DataFrame, name: str) -> None:
    assert [size > 0 for size in lengths(check(stored.repartition(2), name))] == [at != 5 for at in range(COUNT)]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_the_same_step_of_spark_computes_are_sent_value_by_value(stored: DataFrame, name: str) -> None:
    kind = stored.schema[name].dataType
    computed = F.col("double").cast("array<decimal(3)>").cast(kind)
    some = F.when(F.col("id") % 3 == 0, F.col(name)).otherwise(computed)
    rows = stored.repartition(2)
    for column, held in ((computed, []), (some, [0, 3, 6, 9])):
        found = check(rows, name, catalyst.pack_column(stored.sparkSession, column, column, kind))
        assert np.flatnonzero(lengths(found)).tolist() == held


@pytest.mark.parametrize("name", ["float", "both"])
def test_without_generated_code_and_straight_from_parquet_they_mean_the_same(stored: DataFrame, name: str) -> None:
    check(stored, name)
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    conf = stored.sparkSession.conf
    for key, value in settings.items():
        conf.set(key, value)
    try:
        check(stored, name)
        check(stored.repartition(2), name)
    finally:
        for key in settings:
            conf.unset(key)


@pytest.mark.parametrize("name", ["double", "both"])
def test_transform_is_given_bytes(stored: DataFrame, name: str) -> None:
    rows = columns.in_rows(stored)

    def sizes(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for (column,) in batches:
            yield pc.binary_length(column.field("bytes")).cast(pa.float64())

    size = arrow_udf(sizes, DoubleType())(inputs(rows, name).columns["features/features/0"])
    found = [row[0] for row in rows.orderBy("id").select(size).collect()]
    assert [value > 0 for value in found] == [at != 5 for at in range(COUNT)]


def test_literals_are_sent_value_by_value(spark: SparkSession) -> None:
    rows = spark.range(2).withColumn("x", F.array_repeat(F.lit(2.5), WIDTH))
    found = decode_features([sent(rows, "x")], inputs(rows, "x").layouts["features"])
    assert found.values.tolist() == [[2.5] * WIDTH] * 2


def test_short_rows_and_arrays_of_decimals_are_sent_as_they_are(spark: SparkSession) -> None:
    short = spark.createDataFrame([(0, [1.0, 2.0])], "id int, x array<double>")
    model = a_model(network=Network([Dense(1)], input_shape=(2,)), featuresCol="x")
    assert not is_packed(short.select(columns.features(short, model).columns["features/features/0"]).toArrow()[0].type)
    decimals = spark.range(1).withColumn("x", F.array_repeat(F.lit(1), WIDTH).cast("array<decimal(3,1)>"))
    assert not is_packed(sent(decimals, "x").type)


def refused(*_: Any) -> Any:
    raise PermissionError("py4j.security.Py4JSecurityException:\nis not allowed")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"PACKAGE": "org.apache.spark.elsewhere"}, "ClassNotFoundException: org.apache.spark.elsewhere"),
        ({"_held": refused}, "as bytes: PermissionError: py4j.security.Py4JSecurityException: is not allowed."),
        (
            {"TESTED": ("4.9", "5.0")},
            "tried with Spark 4.9 and 5.0, not [0-9.]+; sparkdl.catalystBytes=true sends them.",
        ),
    ],
    ids=["no such classes", "no access to them", "an untried version"],
)
def test_where_bytes_cannot_be_had_values_are_sent_and_the_log_has_one_line(
    stored: DataFrame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, changes: Any, line: str
) -> None:
    for name, value in ({"_told": set()} | changes).items():
        monkeypatch.setattr(catalyst, name, value)
    for name in ("float", "both"):
        assert not is_packed(check(stored, name).type)
    assert [record.name for record in caplog.records] == ["sparkdl.catalyst"]
    assert re.search(line, caplog.messages[0])


def test_a_setting_of_the_session_says_whether_bytes_are_sent(
    stored: DataFrame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conf = stored.sparkSession.conf
    monkeypatch.setattr(catalyst, "TESTED", ())
    try:
        for told in ("true", "False"):
            conf.set(catalyst.SETTING, told)
            assert is_packed(check(stored, "float").type) == (told == "true")
        conf.set(catalyst.SETTING, "0")
        with pytest.raises(
            ValueError, match="sparkdl.catalystBytes must be true or false, received '0'; set it to one"
        ):
            inputs(stored, "float")
    finally:
        conf.unset(catalyst.SETTING)
    assert caplog.messages == []
