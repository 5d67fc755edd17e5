"""What a fit learns, the same for any column types, order, partitions and workers, and what it tells of itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import FEATURES, LABELS, NETWORK, arrays, assert_close, descended, initial, same_bits, table

from sparkdl import DeepClassificationModel, DeepClassifier, Network, datasets
from sparkdl.layers import Dense, Flatten, Relu, Rescale
from sparkdl.spark import local_session

Change = Callable[[DataFrame], DataFrame]


def classifier(**params: Any) -> DeepClassifier:
    return DeepClassifier(**({"network": NETWORK, "stepSize": 0.5, "maxIter": 3, "seed": 5, "batchSize": 8} | params))


def retyped(features: str, label: str) -> Change:
    return lambda rows: rows.withColumns(
        {"features": F.col("features").cast(features), "label": F.col("label").cast(label)}
    )


def as_bytes(rows: DataFrame) -> DataFrame:
    as_hex = F.concat_ws("", F.transform("features", lambda value: F.lpad(F.hex(value.cast("int")), 2, "0")))
    return rows.withColumn("features", F.unhex(as_hex))


# Learning


def test_workers_may_be_as_many_as_the_session_has_slots_whatever_was_asked_for_later(spark: SparkSession) -> None:
    """Spark takes such a setting down in the session that runs, whose slots stay what they are."""
    assert local_session("local[1]").conf.get("spark.master") == "local[1]"
    fitted = classifier(numWorkers=2, maxIter=0).fit(spark.createDataFrame(table()))
    assert len(fitted.summary.workers) == 2


def test_a_second_fit_of_equal_shapes_compiles_nothing(spark: SparkSession) -> None:
    """Whatever the settings, as between the maps of a grid."""

    def listed(batches: Any) -> Any:
        list(batches)
        folder = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "jax-compilation-cache"
        yield pa.RecordBatch.from_pydict({"name": sorted(path.name for path in folder.glob("jit_step-*-cache"))})

    def programs() -> set[str]:
        return {row.name for row in spark.range(1).repartition(1).mapInArrow(listed, "name string").collect()}

    network = Network([Flatten(), Dense(7), Relu(), Dense(3)], input_shape=NETWORK.input_shape)
    deep = classifier(network=network, numWorkers=2, batchSize=1000)
    before = programs()
    deep.fit(spark.createDataFrame(table()))
    after = programs()
    assert len(after - before) == 1  # which both workers run
    deep.fit(spark.createDataFrame(table()), {deep.stepSize: 0.7, deep.seed: 99})
    assert programs() == after


def test_a_classifier_in_a_pipeline_learns_to_tell_images_apart(spark: SparkSession) -> None:
    images = spark.createDataFrame(datasets.sample()).repartition(4).cache()
    train, test = (images.where(F.col("split") == split) for split in ("train", "test"))
    layers = [Rescale(1 / 255), Flatten(), Dense(32), Relu(), Dense(10)]
    deep = DeepClassifier(
        network=Network(layers, input_shape=(28, 28, 1)),
        featuresCol="image",
        labelCol="index",
        optimizer="adam",
        stepSize=0.005,
        batchSize=250,
        maxIter=6,
        numWorkers=2,
    )
    model = Pipeline(stages=[StringIndexer(inputCol="label", outputCol="index"), deep]).fit(train)
    evaluator = MulticlassClassificationEvaluator(labelCol="index", metricName="accuracy")
    assert evaluator.evaluate(model.transform(test)) > 0.78
    assert model.stages[1].numClasses == 10
    assert model.stages[1].numFeatures == 784


def test_by_lbfgs_it_comes_to_the_loss_that_mllib_comes_to(spark: SparkSession) -> None:
    """Of logistic regression with l2, whose intercepts MLlib does not pull to 0 either."""
    rows = spark.createDataFrame(table()).withColumn("features", array_to_vector("features"))
    network = Network([Rescale(1 / 255), Dense(2, l2=0.02)], input_shape=(4,))
    deep = DeepClassifier(network=network, optimizer="lbfgs", stepSize=1.0, maxIter=60, tol=1e-7, numWorkers=2)
    summary = deep.fit(rows).summary
    scaled = rows.withColumn("features", array_to_vector(F.transform(vector_to_array("features"), lambda x: x / 255)))
    theirs = LogisticRegression(family="multinomial", regParam=0.02, standardization=False, tol=1e-9, maxIter=200)
    objective = theirs.fit(scaled).summary.objectiveHistory
    assert summary.history[-1].loss == pytest.approx(objective[-1], rel=1e-4)
    assert len(summary.history) < 60
    assert all(epoch.steps == 1 for epoch in summary.history)


@pytest.fixture(scope="module")
def first(rows: DataFrame) -> DeepClassificationModel:
    return classifier(numWorkers=2).fit(rows)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda rows: rows, id="again"),
        pytest.param(lambda rows: rows.orderBy(F.rand(3)).repartition(5), id="other order and partitions"),
        pytest.param(retyped("array<float>", "float"), id="array<float> and float"),
    ],
)
def test_the_same_rows_give_the_same_weights_bit_for_bit(
    rows: DataFrame, first: DeepClassificationModel, change: Change
) -> None:
    assert same_bits(arrays(classifier(numWorkers=2).fit(change(rows))), arrays(first))


def test_another_seed_gives_other_weights(rows: DataFrame, first: DeepClassificationModel) -> None:
    assert not same_bits(arrays(classifier(numWorkers=2, seed=6).fit(rows)), arrays(first))


# One step an epoch, on all rows: then the weights are those of plain gradient descent. The odd rows count double.

COUNTS = np.where(np.arange(len(LABELS)) % 2, 2, 1)
TWICE = table(np.repeat(FEATURES, COUNTS, axis=0), np.repeat(LABELS, COUNTS))


def doubled(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(TWICE)


def weighted(spark: SparkSession) -> DataFrame:
    wild = np.full((3, 4), 255)
    features, labels = np.concatenate([FEATURES, wild]), np.concatenate([LABELS, [1, 0, 0]])
    return spark.createDataFrame(table(features, labels, weight=np.concatenate([COUNTS, np.zeros(3)])))


def held_out(spark: SparkSession) -> DataFrame:
    return (
        doubled(spark)
        .withColumn("held", F.lit(False))
        .union(spark.createDataFrame(table()).withColumn("held", F.lit(True)))
    )


@pytest.mark.parametrize(
    "data, tolerance, params",
    [
        pytest.param(doubled, 1e-12, {}, id="1 worker"),
        pytest.param(lambda spark: as_bytes(doubled(spark)), 1e-12, {"numWorkers": 3}, id="bytes and 3 workers"),
        pytest.param(weighted, 1e-12, {"weightCol": "weight", "numWorkers": 2}, id="weights"),
        pytest.param(held_out, 1e-12, {"validationIndicatorCol": "held"}, id="validation rows"),
        pytest.param(doubled, 1e-5, {"computeDtype": "float32", "numWorkers": 2}, id="float32"),
    ],
)
def test_a_step_on_all_rows_is_one_of_gradient_descent(
    spark: SparkSession, data: Callable[[SparkSession], DataFrame], tolerance: float, params: dict[str, Any]
) -> None:
    model = classifier(**({"batchSize": 64, "computeDtype": "float64"} | params)).fit(data(spark))
    features, labels = np.repeat(FEATURES, COUNTS, axis=0), np.repeat(LABELS, COUNTS)
    start = initial(NETWORK, 5, params.get("computeDtype", "float64"))
    expected, losses = descended(start, features, labels, 0.5, 3)
    assert_close(arrays(model), expected, tolerance)
    np.testing.assert_allclose(model.summary.objectiveHistory, losses, rtol=tolerance)
    if "validationIndicatorCol" in params:
        after = [descended(start, features, labels, 0.5, steps)[0] for steps in (1, 2, 3)]
        expected_losses = [descended(weights, FEATURES, LABELS, 0.0, 1)[1][0] for weights in after]
        np.testing.assert_allclose(model.summary.validationHistory, expected_losses, rtol=tolerance)
        assert len(model.summary.validationMetricHistory) == 3
    else:
        assert model.summary.validationHistory == []
    assert {array.dtype.name for array in arrays(model).values()} == {params.get("computeDtype", "float64")}


def test_workers_may_have_no_rows_at_all(spark: SparkSession) -> None:
    two = spark.createDataFrame(table(FEATURES[:2], LABELS[:2])).repartition(7)
    model = classifier(numWorkers=3, batchSize=64, computeDtype="float64").fit(two)
    expected, _ = descended(initial(NETWORK, 5, "float64"), FEATURES[:2], LABELS[:2], 0.5, 3)
    assert_close(arrays(model), expected, 1e-12)
    assert sorted(worker["rows"] for worker in model.summary.workers)[0] == 0
    assert sum(worker["rows"] for worker in model.summary.workers) == 2


def test_rows_that_are_alike_are_shared_evenly(spark: SparkSession) -> None:
    """Their hash is one, and so is the worker to which it gives them all."""
    chosen = np.repeat([0, int(np.argmax(LABELS[0] != LABELS))], [30, 1])
    features, labels = FEATURES[chosen], LABELS[chosen]
    model = classifier(numWorkers=3, batchSize=64, computeDtype="float64").fit(
        spark.createDataFrame(table(features, labels))
    )
    assert sorted(worker["rows"] for worker in model.summary.workers) == [10, 10, 11]
    expected, _ = descended(initial(NETWORK, 5, "float64"), features, labels, 0.5, 3)
    assert_close(arrays(model), expected, 1e-12)


def test_no_epoch_gives_the_initial_weights(rows: DataFrame) -> None:
    model = classifier(maxIter=0).fit(rows)
    assert_close(arrays(model), initial(NETWORK, 5, "float32"), 1e-6)
    assert model.summary.objectiveHistory == []
    assert model.summary.rowsPerSecond == 0


# What a fit tells of itself


def test_training_stops_where_an_epoch_gains_less_than_tol(rows: DataFrame) -> None:
    losses = classifier(tol=0.02, maxIter=60, batchSize=24).fit(rows).summary.objectiveHistory
    gains = [(before - after) / before for before, after in pairwise(losses)]
    assert 1 < len(losses) < 60
    assert gains[-1] < 0.02 <= min(gains[:-1], default=1)


def test_the_summary_tells_history_workers_and_timings(first: DeepClassificationModel) -> None:
    summary = first.summary
    assert first.hasSummary
    assert summary.totalIterations == len(summary.objectiveHistory) == len(summary.metricHistory) == 3
    assert all(0 <= share <= 1 for share in summary.metricHistory)
    assert summary.metric == "accuracy"
    assert list(summary.timings) == ["spark", "read", "start", "compile", "training", "return"]
    assert min(summary.timings.values()) >= 0
    assert [worker["rank"] for worker in summary.workers] == [0, 1]
    assert sum(worker["rows"] for worker in summary.workers) == len(LABELS)
    assert all(worker["host"] and worker["device"] for worker in summary.workers)
    seconds = sum(epoch.seconds for epoch in summary.history)
    assert summary.rowsPerSecond == pytest.approx(3 * len(LABELS) / seconds)
    header, *epochs, ended, timings = str(summary).splitlines()
    assert ended == "ended: all 3 epochs are done"
    assert "accuracy" in header
    assert [line.split()[:2] for line in epochs] == [
        [str(number), f"{loss:.4f}"] for number, loss in enumerate(summary.objectiveHistory, start=1)
    ]
    assert "training" in timings
