"""Sequences from a column to a model: recurrent networks over rows of any length, on all that a model is used for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays

from sparkdl import DeepClassificationModel, DeepClassifier, Network, training
from sparkdl.layers import Bidirectional, Dense, Dropout, Gru, LastStep, LayerNorm, Lstm, TimeMean
from sparkdl.spark import register_function

COUNT = 90
RANDOM = np.random.default_rng(8)
LENGTHS = [*RANDOM.integers(1, 30, COUNT - 1).tolist(), 0]
# Whether a series rises: its numbers go up with the step, or down.
LABELS = [at % 2 for at in range(COUNT)]
SERIES = [
    [
        [float((2 * label - 1) * step / 10 + noise), float(noise)]
        for step, noise in enumerate(RANDOM.normal(0, 0.3, count))
    ]
    for label, count in zip(LABELS, LENGTHS, strict=True)
]
NETWORK = Network(
    [LayerNorm(), Bidirectional(Gru(6)), Dropout(0.1), Lstm(5), LastStep(), Dense(2)], input_shape=(None, 2)
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = list(zip(SERIES, LABELS, strict=True))
    return spark.createDataFrame(values, "features array<array<double>>, label int").repartition(3).cache()


def classifier(**params: Any) -> DeepClassifier:
    given = {"network": NETWORK, "optimizer": "adam", "stepSize": 0.03, "batchSize": 18, "maxIter": 15, "numWorkers": 2}
    return DeepClassifier(**{**given, "lengthBuckets": 3, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier().fit(rows)


def test_a_recurrent_network_learns_and_fills_its_batches(rows: DataFrame, model: DeepClassificationModel) -> None:
    assert model.evaluate(rows).accuracy > 0.85
    assert 1 < model.summary.programs <= 3 and model.summary.fill is not None
    alone = classifier(lengthBuckets=1, maxIter=1).fit(rows).summary
    assert alone.programs == 1 and alone.fill is not None and alone.fill < model.summary.fill - 0.1


def test_workers_take_the_step_of_one_process(rows: DataFrame) -> None:
    network = Network([Bidirectional(Lstm(3)), Dense(4), TimeMean(), Dense(2)], input_shape=(None, 2))
    spread = classifier(network=network, batchSize=COUNT, maxIter=2, computeDtype="float64").fit(rows)
    options: dict[str, Any] = {"optimizer": "adam", "step_size": 0.03, "batch_size": COUNT, "epochs": 2}
    alone = training.fit(network, ([np.array(s).reshape(-1, 2) for s in SERIES], LABELS), dtype="float64", **options)
    expected = {name: array for name, array in arrays(alone).items()}
    for name, array in arrays(spread).items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_the_same_rows_give_the_same_bits_and_a_checkpoint_is_gone_on_from(rows: DataFrame, tmp_path: Path) -> None:
    kept = {"checkpointDir": str(tmp_path)}
    classifier(maxIter=2, **kept).fit(rows)
    resumed = classifier(maxIter=4, **kept).fit(rows)
    whole = classifier(maxIter=4).fit(rows.repartition(5))
    assert resumed.summary.resumedFrom == [2, 0]
    for name, array in arrays(whole).items():
        np.testing.assert_array_equal(arrays(resumed)[name], array, err_msg=name)


def test_a_model_is_saved_and_used_everywhere(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert loaded.getNetwork() == NETWORK
    scored = rows.withColumn("id", F.monotonically_increasing_id())
    expected = {row.id: row.prediction for row in model.transform(scored).collect()}
    assert {row.id: row.prediction for row in loaded.transform(scored).collect()} == expected
    losses = model.score_rows(scored).select("id", "loss").collect()
    assert len(losses) == COUNT and all(np.isfinite(row.loss) for row in losses)
    register_function(spark, "rises", loaded)
    named = scored.selectExpr("id", "rises(features) as found").collect()
    assert {row.id: float(row.found) for row in named} == expected


def test_rows_that_cannot_be_used_are_named(spark: SparkSession, rows: DataFrame) -> None:
    wrong = spark.createDataFrame([([[1.0, 2.0], [3.0]], 1)], rows.schema)
    with pytest.raises(ValueError, match=r"to fill each step of the network's input_shape \(None, 2\)"):
        classifier().fit(rows.union(wrong))
    with pytest.raises(
        ValueError, match=r"labelCol .label. must be array<numeric> or array<array<numeric>>, received int"
    ):
        classifier(network=Network([Lstm(2)], input_shape=(None, 2))).fit(rows)
    with pytest.raises(ValueError, match="lengthBuckets must be at least 1, received 0"):
        classifier(lengthBuckets=0).fit(rows)
