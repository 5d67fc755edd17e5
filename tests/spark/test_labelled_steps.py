"""A label for each step of a sequence, from the column to every way in which a model is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays

from sparkdl import DeepClassificationModel, DeepClassifier, DeepRegressor, Network, training
from sparkdl.layers import Dense, Lstm, Ragged
from sparkdl.spark import register_function

COUNT = 40
RANDOM = np.random.default_rng(3)
LENGTHS = [*RANDOM.integers(1, 12, COUNT - 1).tolist(), 0]
SERIES = [RANDOM.normal(size=(length, 2)).round(3).tolist() for length in LENGTHS]
# Whether the first number has been above 0 so far more often than not; the first step has no label.
LABELS = [
    [None if at == 0 else int(sum(step[0] > 0 for step in row[: at + 1]) * 2 > at + 1) for at in range(len(row))]
    for row in SERIES
]
WEIGHTS = [(1.0, 0.5, 2.0)[at % 3] for at in range(COUNT)]
NETWORK = Network([Lstm(4), Dense(2)], input_shape=(None, 2))
HELD = [[np.nan if label is None else label for label in row] for row in LABELS]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = [(at, *row) for at, row in enumerate(zip(SERIES, LABELS, WEIGHTS, strict=True))]
    schema = "id int, features array<array<double>>, label array<int>, weight double"
    return spark.createDataFrame(values, schema).repartition(3).cache()


def classifier(**params: Any) -> DeepClassifier:
    given = {"network": NETWORK, "optimizer": "adam", "stepSize": 0.05, "batchSize": COUNT, "numWorkers": 2}
    return DeepClassifier(**{**given, "weightCol": "weight", "computeDtype": "float64", "maxIter": 2, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier().fit(rows)


@pytest.fixture(scope="module")
def expected(model: DeepClassificationModel) -> list[np.ndarray]:
    """The network's outputs for each step of every row, by the network alone."""
    padded = np.zeros((COUNT, max(LENGTHS), 2))
    for at, row in enumerate(SERIES):
        padded[at, : len(row)] = np.reshape(row, (-1, 2))
    with jax.enable_x64(True):
        values = np.asarray(NETWORK.forward(model.weights, Ragged(padded, np.array(LENGTHS, "int32"))).values)
    return [own[:length] for own, length in zip(values, LENGTHS, strict=True)]


def test_workers_take_the_step_of_one_process(model: DeepClassificationModel) -> None:
    """The mean is over the labelled steps of all workers, each of the weight of its row."""
    options: dict[str, Any] = {"optimizer": "adam", "step_size": 0.05, "batch_size": COUNT, "epochs": 2}
    series = [np.array(row).reshape(-1, 2) for row in SERIES]
    alone = training.fit(NETWORK, (series, HELD, WEIGHTS), dtype="float64", **options)
    for name, array in arrays(model).items():
        np.testing.assert_allclose(array, arrays(alone)[name], rtol=0, atol=1e-12, err_msg=name)
    assert model.summary.history[-1].loss == pytest.approx(alone.history[-1].loss, rel=1e-12)


def test_segments_of_truncated_rows_are_those_of_one_process(rows: DataFrame) -> None:
    options: dict[str, Any] = {"optimizer": "adam", "step_size": 0.05, "batch_size": COUNT, "epochs": 1}
    series = [np.array(row).reshape(-1, 2) for row in SERIES]
    alone = training.fit(NETWORK, (series, HELD, WEIGHTS), dtype="float64", truncated=(4, 2), **options)
    for name, array in arrays(classifier(truncated=[4, 2], maxIter=1).fit(rows)).items():
        np.testing.assert_allclose(array, arrays(alone)[name], rtol=0, atol=1e-12, err_msg=name)


def test_a_prediction_for_each_step(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, expected: list[np.ndarray]
) -> None:
    scored = model.transform(rows)
    types = {field.name: field.dataType.simpleString() for field in scored.schema}
    assert types["prediction"] == "array<double>" and types["probability"] == "array<array<double>>"
    for row in scored.collect():
        own = expected[row.id]
        assert len(row.prediction) == LENGTHS[row.id] and row.prediction == own.argmax(axis=1).tolist()
        shifted = np.exp(own - own.max(axis=1, keepdims=True)) if len(own) else own
        np.testing.assert_allclose(
            np.reshape(row.probability, (-1, 2)), shifted / shifted.sum(axis=1, keepdims=True), atol=1e-12
        )
    register_function(spark, "steps", model)
    assert {row.id: row.found for row in rows.selectExpr("id", "steps(features) as found").collect()} == {
        row.id: row.prediction for row in scored.collect()
    }
    seen = model.copy({model.activationCols: {"lstm_0": "seen"}}).transform(rows.where("id = 0")).first()
    assert np.shape(seen.seen) == (LENGTHS[0], 4)


def test_losses_and_measures_are_those_of_labelled_steps(
    rows: DataFrame, model: DeepClassificationModel, expected: list[np.ndarray]
) -> None:
    losses = [
        -np.log(np.exp(own)[range(len(own)), np.nan_to_num(held).astype(int)] / np.exp(own).sum(axis=1))
        for own, held in zip(expected, HELD, strict=True)
    ]
    known = [~np.isnan(np.array(row, float)) for row in HELD]
    found = {row.id: row.loss for row in model.score_rows(rows).collect()}
    for at in range(COUNT):
        if known[at].any():
            assert found[at] == pytest.approx(losses[at][known[at]].mean(), rel=1e-10)
        else:
            assert found[at] is None
    flat, weights = np.concatenate(known), np.repeat(WEIGHTS, LENGTHS)
    right = np.concatenate([own.argmax(axis=1) for own in expected]) == np.concatenate(HELD)
    measured = model.evaluate(rows)
    assert measured.accuracy == pytest.approx(np.average(right[flat], weights=weights[flat]), rel=1e-12)
    assert measured.loss == pytest.approx(np.average(np.concatenate(losses)[flat], weights=weights[flat]), rel=1e-10)


def test_it_is_saved_and_numbers_for_each_step_are_learned(
    rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert (
        loaded.transform(rows).select("id", "prediction").collect()
        == model.transform(rows).select("id", "prediction").collect()
    )
    network = Network([Dense(3)], input_shape=(None, 2))
    sums = rows.withColumn("label", F.expr("transform(features, step -> array(step[0], step[1], step[0] + step[1]))"))
    regressor = DeepRegressor(network=network, optimizer="adam", stepSize=0.1, batchSize=20, maxIter=80, numWorkers=2)
    row = regressor.fit(sums).transform(sums.where("id = 1")).first()
    np.testing.assert_allclose(row.prediction, row.label, atol=0.02)


@pytest.mark.parametrize(
    "label, message",
    [
        ("slice(label, 1, 1)", "labelCol 'label' must hold one label for each step of the row, received 1 for"),
        ("size(label)", "labelCol 'label' must be array<numeric> or array<array<numeric>>, received int"),
        ("transform(label, each -> 7)", "Labels must be whole numbers from 0 to 1"),
    ],
    ids=["fewer", "one", "no class"],
)
def test_labels_that_do_not_fit(rows: DataFrame, label: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(maxIter=1).fit(rows.withColumn("label", F.expr(label)))


def test_rows_that_lack_them_are_skipped_on_demand(rows: DataFrame) -> None:
    some = rows.withColumn("label", F.expr("if(id < 5, null, if(id < 8, array(1), label))")).where(
        "id >= 8 or size(features) > 1"
    )
    model = classifier(maxIter=1, handleInvalid="skip").fit(some)
    short = sum(LENGTHS[at] > 1 for at in range(5, 8))
    assert model.summary.skipped == {
        "null": sum(LENGTHS[at] > 1 for at in range(5)),
        **({"wrong width": short} if short else {}),
    }
