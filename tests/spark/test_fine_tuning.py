"""Fits in which layers learn at their own pace, or begin later: by two workers what a plain loop in NumPy comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.tuning import ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, LABELS, NETWORK, Array, arrays, assert_close, initial, outputs, softmax

from sparkdl import DeepClassifier


@pytest.fixture(scope="module", autouse=True)
def _session(spark: SparkSession) -> None:
    """pyspark builds stages of a running session only."""


def classifier(**params: Any) -> DeepClassifier:
    return DeepClassifier(**{"network": NETWORK, "batchSize": 24, "stepSize": 0.5, "computeDtype": "float64"} | params)


def by_hand(epochs: int, factors: dict[str, float], rests: dict[str, int]) -> dict[str, Array]:
    """Gradient descent on all rows."""
    weights = initial(NETWORK, 0, "float64")
    x = FEATURES / 255
    for epoch in range(epochs):
        hidden = np.tanh(x @ weights["dense_1/kernel"] + weights["dense_1/bias"])
        slope = (softmax(outputs(weights, FEATURES)) - np.eye(2)[LABELS]) / len(LABELS)
        below = slope @ weights["dense_3/kernel"].T * (1 - hidden**2)
        for name, read, own in (("dense_1", x, below), ("dense_3", hidden, slope)):
            size = 0.5 * factors.get(name, 1) * (epoch >= rests.get(name, 0))
            weights[f"{name}/kernel"] = weights[f"{name}/kernel"] - size * read.T @ own
            weights[f"{name}/bias"] = weights[f"{name}/bias"] - size * own.sum(axis=0)
    return weights


def test_a_fit_goes_on_in_the_phase_after_the_one_it_ended_in(rows: DataFrame, tmp_path: Path) -> None:
    own: dict[str, Any] = {"stepSizeFactors": {"dense_1": 0.2}, "unfreezeAfter": {"dense_1": 2}}
    fits = [classifier(numWorkers=2, maxIter=epochs, checkpointDir=str(tmp_path), **own).fit(rows) for epochs in (2, 4)]
    assert fits[1].summary.resumedFrom == [2, 0]
    for fitted, epochs in zip(fits, (2, 4), strict=True):
        assert_close(arrays(fitted), by_hand(epochs, *own.values()), 1e-12)
    assert fits[1].getUnfreezeAfter() == {"dense_1": 2}


def test_settings_of_a_grid_share_a_job(rows: DataFrame) -> None:
    estimator = classifier(maxIter=2)
    grid = ParamGridBuilder().addGrid(estimator.stepSizeFactors, [{"dense": 0.5}, {"dense_3": 2.0}]).build()
    halved, doubled = estimator.fit(rows, grid)
    assert_close(arrays(halved), by_hand(2, {"dense_1": 0.5, "dense_3": 0.5}, {}), 1e-12)
    assert_close(arrays(doubled), by_hand(2, {"dense_3": 2.0}, {}), 1e-12)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"stepSizeFactors": {"dense_2": 0.1}}, "^stepSizeFactors names 'dense_2', which stands for no layer"),
        ({"stepSizeFactors": {"dense_1": -1.0}}, "^stepSizeFactors must be a dict of finite numbers of at least 0"),
        ({"unfreezeAfter": {"tanh_2": 1}}, "^unfreezeAfter names 'tanh_2', which stands for no layer"),
    ],
)
def test_what_is_said_of_no_layer_is_refused_before_any_job(
    rows: DataFrame, params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        classifier(**params).fit(rows)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"stepSizeFactors": 0.1}, "stepSizeFactors must be a dict of numbers by layer, received 0.1"),
        ({"unfreezeAfter": {"dense_1": 1.5}}, "unfreezeAfter must be a dict of numbers of epochs by layer"),
    ],
)
def test_params_take_numbers_by_layer(params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        classifier(**params)
