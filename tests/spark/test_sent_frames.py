"""Rows mean the same, sent as bytes or value by value, whichever operator of Spark they leave, on its heap and off it.

A program too, since only a session that was started so keeps memory off its heap.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from spark_cases import UNOPTIMIZED, a_model, arrays, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Network
from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.labels import LabelPart
from sparkdl.layers import Dense
from sparkdl.spark import local_session
from sparkdl.spark.driver import columns

pytestmark = pytest.mark.skipif(not hasattr(F, "arrow_udf"), reason="pyspark 4.0 has UDFs of pandas only")

Differences = dict[str, dict[str, list[int]]]

WIDTH, COUNT = columns.LEAST_WIDTH + 6, 12
NETWORK = Network([Dense(2)], input_shape=(WIDTH,))
DEADLINE_SECONDS = 400
NAN, INFINITY = float("nan"), float("inf")
NAMES = ["boolean", "float", "strange", "dense", "both"]
STRANGE: list[Any] = [[-0.0] * WIDTH, [NAN] * WIDTH, [1.0] * 69 + [-INFINITY], [None] * WIDTH, [], [2.0] * 3, None]
LARGE = {
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
OPERATORS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "scan": lambda rows, ids: rows,
    "shuffle": lambda rows, ids: rows.repartition(2, "id"),
    "coalesce": lambda rows, ids: rows.repartition(3).coalesce(1),
    "sort": lambda rows, ids: rows.orderBy(F.desc("id")),
    "merge join": lambda rows, ids: ids.join(rows.hint("merge"), "id", "left"),
    "hash join": lambda rows, ids: ids.join(rows.hint("shuffle_hash"), "id"),
    "broadcast join": lambda rows, ids: ids.join(F.broadcast(rows), "id"),
    "aggregation": lambda rows, ids: rows.groupBy("id").agg(*(F.first(name).alias(name) for name in NAMES)),
    "distinct": lambda rows, ids: rows.dropDuplicates(),
    "window": lambda rows, ids: rows.withColumn("rank", F.row_number().over(Window.orderBy("id"))),
    "union": lambda rows, ids: rows.where("id < 5").union(rows.where("id >= 5")),
    "cache": lambda rows, ids: rows.cache(),
}
COPYING = OPERATORS.keys() - {"scan", "union", "cache"}  # give rows of which all columns are bytes


def store(session: SparkSession, path: str) -> None:
    """Write rows of every type that is sent as bytes, of which row 5 is null, and of which `strange` ones are bad."""
    rows: list[Any] = []
    for at in range(COUNT):
        values = [float((at * 7 + place * 5) % 19 - 9) if place % 3 == at % 3 else 0.0 for place in range(WIDTH)]
        dense, sparse = Vectors.dense(values), SparseVector(WIDTH, {i: x for i, x in enumerate(values) if x})
        known = ([x > 0 for x in values], values, dense, (dense, sparse)[at % 2]) if at != 5 else [None] * 4
        rows.append((at, *known[:2], STRANGE[at % len(STRANGE)], *known[2:]))
    schema = StructType.fromDDL("id int, boolean array<boolean>, float array<float>, strange array<double>")
    schema = schema.add("dense", VectorUDT()).add("both", VectorUDT())
    session.createDataFrame(rows, schema).coalesce(1).write.parquet(path)


@contextmanager
def told(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """With these settings of the session."""
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            session.conf.unset(key)


def differences(session: SparkSession, path: str) -> Differences:
    """By operator and column: rows, how many were sent as bytes, and how many of all are not the same either way."""
    stored, ids = session.read.parquet(path), session.range(COUNT).withColumn("id", F.col("id").cast("int"))
    frames = {name: operator(stored, ids) for name, operator in OPERATORS.items()}
    layout = columns.features(stored, _model("float")).layouts["features"]

    def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in NAMES:
                packed, plain = (batch.column(f"{name}_{form}") for form in ("packed", "plain"))
                one, other = (decode_features([column], layout) for column in (packed, plain))
                bits = zip(one.values.view("u4"), other.values.view("u4"), one.status, other.status, strict=True)
                unlike = [(values != expected).any() or kind != wanted for values, expected, kind, wanted in bits]
                held = [len(data) > 0 for data in packed.field("bytes").to_pylist()]
                whose = {"operator": batch.column("operator"), "name": pa.array([name] * len(held))}
                yield pa.RecordBatch.from_pydict(
                    whose | {"held": pa.array(held), "unlike": pa.array(map(bool, unlike))}
                )

    whole = reduce(DataFrame.union, (_both(frame, name) for name, frame in frames.items()))
    found = {name: {column: [0, 0, 0] for column in NAMES} for name in OPERATORS}
    for row in whole.mapInArrow(compared, "operator string, name string, held boolean, unlike boolean").collect():
        for at, counted in enumerate((True, row.held, row.unlike)):
            found[row.operator][row.name][at] += counted
    frames["cache"].unpersist()
    return found


def _model(name: str) -> Any:
    return a_model(network=NETWORK, featuresCol=name)


def _both(frame: DataFrame, operator: str) -> DataFrame:
    chosen = [F.lit(operator).alias("operator")]
    for name in NAMES:
        packed = columns.features(frame, _model(name)).columns["features/features/0"]
        plain, _ = columns.labels(frame, LabelPart(name, 1))
        chosen += [packed.alias(f"{name}_packed"), plain.alias(f"{name}_plain")]
    return frame.select(*chosen)


def fitted(session: SparkSession, path: str) -> tuple[DeepClassificationModel, DataFrame]:
    """A model of the good rows as they leave a sort, and these."""
    good = session.read.parquet(path).where("float is not null").withColumn("label", F.col("id") % 2).orderBy("label")
    model = DeepClassifier(network=NETWORK, maxIter=1, handleInvalid="skip", featuresCol="float").fit(good)
    return model, good


def tell(path: str, folder: Path) -> None:
    """Write what a session that keeps memory off its heap makes of the stored rows."""
    memory = {"spark.memory.offHeap.enabled": True, "spark.memory.offHeap.size": "256m", "spark.driver.memory": "1g"}
    session = local_session("local[2]", **memory, **{"spark.sql.shuffle.partitions": 2})
    found = [differences(session, path)]
    with told(session, INTERPRETED):
        found.append(differences(session, path))
    with told(session, LARGE):
        model, good = fitted(session, path)
        counts = [model.summary.workers[0]["rows"], model.transform(good).count(), model.evaluate(good).rows]
    np.savez(folder / "weights.npz", **arrays(model))
    (folder / "told.json").write_text(json.dumps([found, counts]))
    session.stop()


# What the tests see of it.


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where rows are stored."""
    path = str(tmp_path_factory.mktemp("stored") / "rows")
    store(spark, path)
    return path


def assert_none(found: Differences) -> None:
    """All rows are there and the same; as bytes, at least where an operator makes rows of its own."""
    for operator, of_columns in found.items():
        for name, (rows, held, unlike) in of_columns.items():
            assert (rows, unlike) == (COUNT, 0), (operator, name)
            null = STRANGE[: COUNT % len(STRANGE)].count(None) + 1 if name == "strange" else 1
            assert held == COUNT - null or operator not in COPYING, (operator, name, held)


@pytest.mark.parametrize("settings", [LARGE, INTERPRETED], ids=["large types", "no generated code"])
def test_rows_of_every_operator_are_the_same_as_value_by_value(
    spark: SparkSession, stored: str, settings: dict[str, str]
) -> None:
    with told(spark, settings):
        assert_none(differences(spark, stored))


def test_rows_off_the_heap_are_the_same_and_all_of_them_are_used(
    spark: SparkSession, stored: str, tmp_path: Path
) -> None:
    environment = os.environ | {"SPARK_LOCAL_DIRS": str(tmp_path / "local"), UNOPTIMIZED[0]: UNOPTIMIZED[1]}
    command = [sys.executable, __file__, stored, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, env=environment)
    assert done.returncode == 0, done.stderr
    found, counts = json.loads((tmp_path / "told.json").read_text())
    for each in found:
        assert_none(each)
    assert counts == [COUNT - 1] * 3
    assert same_bits(dict(np.load(tmp_path / "weights.npz")), arrays(fitted(spark, stored)[0]))


if __name__ == "__main__":
    tell(sys.argv[1], Path(sys.argv[2]))
