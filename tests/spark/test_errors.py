"""What cannot be trained on says what to do: before training where that can be known, else tracelessly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import NETWORK, Remains

from sparkdl import DeepClassifier, DeepEstimator, DeepRegressor, Network
from sparkdl.layers import Dense, Relu

Change = Callable[[DataFrame], DataFrame]


def same(rows: DataFrame) -> DataFrame:
    return rows


def having(**columns: str) -> Change:
    """Rows with columns of these SQL expressions."""
    return lambda rows: rows.withColumns({name: F.expr(text) for name, text in columns.items()})


def named_classes(rows: DataFrame) -> DataFrame:
    return rows.withMetadata("label", {"ml_attr": {"type": "nominal", "vals": ["a", "b", "c"]}})


ONE_OUTPUT = Network([Dense(1)], input_shape=(4,))
THERE_ARE = "which is not there; the columns are features, label, id."
NAN = float("nan")


@pytest.mark.parametrize(
    "params, change, sentence",
    [
        ({"featuresCol": "x"}, same, f"featuresCol names column 'x', {THERE_ARE}"),
        ({"labelCol": "x"}, same, f"labelCol names column 'x', {THERE_ARE}"),
        ({"weightCol": "x"}, same, f"weightCol names column 'x', {THERE_ARE}"),
        ({"validationIndicatorCol": "x"}, same, f"validationIndicatorCol names column 'x', {THERE_ARE}"),
        ({}, having(features="'1 2'"), "featuresCol 'features' must be array<numeric> or Vector or binary"),
        ({}, having(features="array('1')"), "received array<string>; cast it."),
        ({}, having(label="'cat'"), "array<numeric> or Vector, received string; cast it."),
        ({"weightCol": "w"}, having(w="'1'"), "weightCol 'w' must be numeric, received string; cast it."),
        ({"validationIndicatorCol": "id"}, same, "validationIndicatorCol 'id' must be boolean, received bigint"),
        ({}, named_classes, "has 3 classes but the network ends in 2 outputs; end it in Dense(3)."),
        ({"numWorkers": 4}, same, "numWorkers is 4 but local[3] can run 3 tasks at once; lower numWorkers or use"),
        ({"numWorkers": 0}, same, "numWorkers must be at least 1, received 0."),
        ({"batchSize": 0}, same, "batchSize must be at least 1, received 0."),
        ({"maxIter": -1}, same, "maxIter must be at least 0, received -1."),
        ({"seed": -1}, same, "seed must be at least 0, received -1."),
        ({"stepSize": NAN}, same, "stepSize must be a finite number above 0, received nan."),
        ({"tol": -0.1}, same, "tol must be a finite number of at least 0, received -0.1."),
        ({"network": None}, same, "network of DeepClassifier is not set; pass network=Network("),
        ({"network": Network([Dense(2)])}, same, "input_shape of Network is not set"),
        ({"network": Network([Relu()], input_shape=(2, 2))}, same, "put Flatten() and Dense(classes) at its end"),
        ({"network": ONE_OUTPUT}, same, "with at least 2 classes, this one ends in (1,); put Dense(classes)"),
        ({"loss": "huber"}, same, "loss of DeepClassifier must take classes, Huber does not"),
        ({"thresholds": [1.0]}, same, "thresholds must hold one number a class, 2 of them, received 1."),
        ({"thresholds": [0.0, 0.0]}, same, "thresholds must be at least 0 with at most one 0 among them"),
        ({"thresholds": [0.5, 0.5], "loss": "hinge"}, same, "need probabilities, which Hinge does not give"),
    ],
)  # fmt: skip
def test_what_can_be_known_before_is_refused_without_a_spark_job(
    spark: SparkSession, rows: DataFrame, params: dict[str, Any], change: Change, sentence: str
) -> None:
    group = f"refused {sentence}"
    spark.sparkContext.setJobGroup(group, "")
    try:
        with pytest.raises(ValueError) as refused:
            DeepClassifier(**({"network": NETWORK} | params)).fit(change(rows))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert sentence in str(refused.value)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []


def test_every_estimator_takes_its_own_losses(rows: DataFrame) -> None:
    with pytest.raises(ValueError, match="loss of DeepRegressor must take numbers, Hinge takes classes"):
        DeepRegressor(network=NETWORK, loss="hinge").fit(rows)
    with pytest.raises(ValueError, match="loss of DeepEstimator is not set; pass loss='squared_error' or another."):
        DeepEstimator(network=NETWORK).fit(rows)


@pytest.mark.parametrize(
    "params, change, sentence",
    [
        pytest.param(
            {"numWorkers": 2}, having(features="if(id = 3, array(1D), features)"),
            "must hold 4 values a row to fill the network's input_shape (4,), received a row of 1.",
            id="rows of differing width",
        ),
        pytest.param(
            {}, having(features="if(id = 3, array(1D, 2D, 3D, double('NaN')), features)"),
            "featuresCol 'features' holds NaN or infinity; remove or replace such rows.", id="NaN",
        ),
        pytest.param(
            {}, having(label="if(id = 3, 2, label)"),
            "Labels must be whole numbers from 0 to 1, since the network has 2 outputs, received 2;",
            id="label too large",
        ),
        pytest.param(
            {}, having(label="if(id = 3, 0.5, label)"), "received 0.5; index the classes",
            id="label with a fraction",
        ),
        pytest.param(
            {}, having(label="if(id = 3, null, label)"),
            "Column 'label' holds 1 null rows or more; drop or fill them.", id="null label",
        ),
        pytest.param(
            {}, having(label="array(1, 2, 3)"),
            "SoftmaxCrossEntropy takes 2 labels a row, since the network has 2 outputs, received 3;",
            id="other number of labels",
        ),
        pytest.param(
            {"weightCol": "w"}, having(w="if(id = 3, -1, 1)"),
            "weightCol 'w' must be finite and at least 0, received -1.0.", id="negative weight",
        ),
        pytest.param(
            {"weightCol": "w"}, having(w="0"),
            "All rows weigh 0; give at least one row a positive weight.", id="no weight",
        ),
        pytest.param(
            {}, lambda rows: rows.where("id < 0"),
            "There are no rows to train on; check the data and its filters.", id="no rows",
        ),
        pytest.param(
            {"validationIndicatorCol": "v"}, having(v="true"),
            "There are no rows to train on; all 24 are marked for validation.", id="only validation rows",
        ),
    ],
)  # fmt: skip
def test_what_only_the_rows_can_tell_is_said_in_the_same_way(
    rows: DataFrame, remains: Remains, params: dict[str, Any], change: Change, sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:
        DeepClassifier(network=NETWORK, **params).fit(change(rows))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert remains(10) == []
