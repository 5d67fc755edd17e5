"""Columns of arrays of any length: from fit to SQL, on any number of workers, and the rows that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, assert_close, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Graph, Network, register_function, training
from sparkdl.decoding.hashing import hash_strings
from sparkdl.layers import Concatenate, Dense, EmbeddingBag, HashedEmbeddingBag, Ragged
from sparkdl.optimizers import AdaGrad
from sparkdl.weights import named_arrays

COUNT, TABLE = 120, 30
GRAPH = Graph(
    inputs={"history": (None,), "words": (None,), "age": ()},
    nodes={
        "seen": (EmbeddingBag(TABLE, 4), "history"),
        "said": (HashedEmbeddingBag(200, 3, mode="sum"), "words"),
        "all": (Concatenate(), "seen", "said", "age"),
        "kind": (Dense(2), "all"),
    },
    outputs="kind",
)
BAG = Network([EmbeddingBag(TABLE, 4), Dense(2)], input_shape=(None,))
COLUMNS = {"history": "clicks", "words": "words", "age": "age"}


def values() -> list[tuple[Any, ...]]:
    """Histories of 0 to 20 numbers, one of 50; the label is whether a 7 is among them."""
    random, rows = np.random.default_rng(4), []
    for at in range(COUNT):
        clicks = random.integers(0, TABLE, 50 if at == 11 else random.integers(0, 21)).tolist()
        words = [f"word {word}" for word in random.integers(0, 40, random.integers(0, 4))]
        rows.append((at, clicks, words, float(random.normal()), int(7 in clicks), at % 5 == 0))
    return rows


ROWS = values()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    schema = "id int, clicks array<int>, words array<string>, age double, label int, held boolean"
    frame = spark.createDataFrame(ROWS, schema).repartition(3)
    more = {f"as_{kind}": F.col("clicks").cast(f"array<{kind}>") for kind in ("bigint", "double")}
    return frame.withColumns(more).cache()


def classifier(**params: Any) -> DeepClassifier:
    given = {"network": GRAPH, "featuresCols": COLUMNS, "optimizer": AdaGrad(), "stepSize": 0.3, "batchSize": 40}
    return DeepClassifier(**{**given, "maxIter": 2, "numWorkers": 2, **params})


def of_bags(**params: Any) -> DeepClassifier:
    return classifier(network=BAG, **{"featuresCols": [], "featuresCol": "clicks", **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier(maxIter=20).fit(rows)


def parts(chosen: list[tuple[Any, ...]]) -> dict[str, Any]:
    words = hash_strings(pa.array([row[2] for row in chosen], pa.list_(pa.string()))).to_pylist()
    return {"history": [row[1] for row in chosen], "words": words, "age": np.array([row[3] for row in chosen])}


def padded(lists: list[list[int]]) -> Ragged:
    array = np.zeros((len(lists), max(1, *map(len, lists))), "int32")
    for at, row in enumerate(lists):
        array[at, : len(row)] = row
    return Ragged(array, np.array([len(row) for row in lists], "int32"))


def expected(model: DeepClassificationModel, chosen: list[tuple[Any, ...]]) -> Any:
    """Outputs of the network for these rows, padded here."""
    given = parts(chosen)
    x = padded(given["history"]), padded(given["words"]), given["age"].astype("float32")
    return np.asarray(GRAPH.forward(model.weights, x))


def test_workers_learn_what_one_process_learns(rows: DataFrame) -> None:
    given: dict[str, Any] = {"batch_size": COUNT, "step_size": 0.3, "epochs": 3, "dtype": "float64"}
    labels = {"kind": np.array([row[4] for row in ROWS])}
    alone = training.fit(GRAPH, (parts(ROWS), labels), optimizer=AdaGrad(), **given)
    fitted = classifier(numWorkers=3, batchSize=COUNT, maxIter=3, computeDtype="float64").fit(rows)
    assert_close(arrays(fitted), dict(named_arrays(alone.weights)), 1e-12)
    losses = [[epoch.loss for epoch in history] for history in (fitted.summary.history, alone.history)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_neither_partitions_nor_order_nor_type_change_a_bit(rows: DataFrame) -> None:
    first, *others = (
        of_bags(featuresCol=column).fit(frame)
        for column, frame in (
            ("clicks", rows),
            ("as_bigint", rows.orderBy(F.desc("age")).coalesce(1)),
            ("as_double", rows.repartition(5, "label")),
        )
    )
    assert all(same_bits(arrays(first), arrays(other)) for other in others)


def test_it_is_evaluated_saved_and_called_from_sql(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    outputs = expected(model, ROWS)
    chosen = np.argmax(outputs, axis=1)
    labels = np.array([row[4] for row in ROWS])
    scored = model.transform(rows).orderBy("id").collect()
    raw = np.array([row.rawPrediction.toArray() for row in scored])
    np.testing.assert_allclose(raw[:, 1] - raw[:, 0], outputs[:, 1] - outputs[:, 0], rtol=1e-4, atol=1e-4)
    measured = model.evaluate(rows)
    assert measured.accuracy == pytest.approx(np.mean(chosen == labels)) and measured.accuracy > 0.9
    losses = np.array([row.loss for row in model.score_rows(rows).orderBy("id").collect()])
    exact = np.logaddexp(outputs[:, 0], outputs[:, 1]) - outputs[np.arange(COUNT), labels]
    np.testing.assert_allclose(losses, exact, rtol=1e-4, atol=1e-4)
    assert measured.loss == pytest.approx(exact.mean(), rel=1e-4)
    model.save(str(tmp_path / "model"))
    again = DeepClassificationModel.load(str(tmp_path / "model"))
    assert again.getNetwork() == GRAPH and again.numFeatures == -1
    function = register_function(spark, "is_seven", again)
    called = rows.select("id", function("clicks", "words", "age").alias("kind")).orderBy("id").collect()
    assert [row.kind for row in called] == [row.prediction for row in scored] == chosen.tolist()


def test_rows_longer_than_all_that_it_learned_from_are_scored_and_in_any_company(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel
) -> None:
    long = [(0, list(range(TABLE)) * 9, ["word 3"], 0.5), (1, [], [], 0.5)]
    schema = "id int, clicks array<int>, words array<string>, age double"
    frame = spark.createDataFrame(long, schema).coalesce(1)
    found = model.transform(frame).orderBy("id").collect()
    raw = np.array([row.rawPrediction.toArray() for row in found])
    outputs = expected(model, long)
    np.testing.assert_allclose(raw[:, 1] - raw[:, 0], outputs[:, 1] - outputs[:, 0], rtol=1e-4, atol=1e-4)
    alone = model.transform(frame.where("id = 1")).first()
    np.testing.assert_allclose(alone.rawPrediction.toArray(), raw[1], rtol=1e-6)


def test_arrays_sent_as_bytes_and_value_by_value_are_scored_alike(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel
) -> None:
    first = model.transform(rows).select("id", "rawPrediction").orderBy("id").collect()
    spark.conf.set("sparkdl.catalystBytes", "false")
    try:
        assert model.transform(rows).select("id", "rawPrediction").orderBy("id").collect() == first
    finally:
        spark.conf.unset("sparkdl.catalystBytes")


def test_rows_held_out_may_be_the_longest(rows: DataFrame) -> None:
    held = rows.withColumn("held", F.size("clicks") > 15)
    fitted = of_bags(validationIndicatorCol="held").fit(held)
    measured = fitted.evaluate(held.where("held")).loss
    assert fitted.summary.history[-1].validation_loss == pytest.approx(measured, rel=1e-5)


# By id: null, a null within, a fraction, and two numbers that the table does not have.
BAD = {3: "null", 4: "array(1, null)", 5: "array(1, 0.5)", 6: f"array(1, {TABLE})", 7: "array(-1)"}


def test_arrays_that_cannot_be_used_go_where_handle_invalid_says(
    rows: DataFrame, model: DeepClassificationModel
) -> None:
    column = F.col("as_double")
    for at, value in BAD.items():
        column = F.when(F.col("id") == at, F.expr(f"cast({value} as array<double>)")).otherwise(column)
    strange = rows.withColumn("clicks", column)
    kept = model.copy().setHandleInvalid("keep").transform(strange)
    assert [row.id for row in kept.where("prediction is null").orderBy("id").collect()] == list(BAD)
    outside = strange.where("id in (0, 1, 2, 6)")
    message = f"must hold categories from 0 to {TABLE - 1}, .*received {TABLE}; .*unknown=True"
    with pytest.raises(Exception, match=f"featuresCols 'clicks' {message}"):
        model.transform(outside).collect()
    with pytest.raises(Exception, match=f"featuresCol 'clicks' {message}"):
        of_bags(numWorkers=1).fit(outside)
    skipping = of_bags(handleInvalid="skip").fit(strange)
    assert skipping.summary.skipped == {"null": 2, "no integer": 1, "no category": 2}
    assert same_bits(arrays(skipping), arrays(of_bags().fit(strange.where("id not between 3 and 7"))))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"featuresCol": "age"}, r"featuresCol 'age' must be one column of arrays to fill .* received double"),
        ({"featuresCol": "words"}, r"featuresCol 'words' must be numeric or .* received array<string>"),
        (
            {"featuresCol": "features", "featuresCols": ["clicks", "as_double"]},
            "featuresCols clicks, as_double must be one column of arrays to fill .* received 2 columns",
        ),
    ],
)
def test_columns_that_hold_no_such_rows_are_refused(rows: DataFrame, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_bags(**params).fit(rows)


def test_one_column_may_be_named_in_a_list(rows: DataFrame) -> None:
    named = of_bags(featuresCol="features", featuresCols=["clicks"])
    assert named.fit(rows.limit(9)).summary.totalIterations == 2
