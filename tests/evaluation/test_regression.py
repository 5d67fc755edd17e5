"""Measures of numbers, against scikit-learn on the same rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from sparkdl.evaluation import Accumulator, RegressionEvaluation, RegressionMeasures

RANDOM = np.random.default_rng(2)
LABELS = RANDOM.normal(size=(100, 2)) * [1, 50] + [0, 1000]
PREDICTIONS = LABELS + RANDOM.normal(size=(100, 2)) * [0.5, 20]
WEIGHTS = RANDOM.random(100) * (RANDOM.random(100) > 0.2)


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.array(actual, float), np.array(expected, float), rtol=1e-12, atol=1e-12)


def test_measures_of_numbers_are_those_of_scikit_learn() -> None:
    found = RegressionMeasures(2).add(PREDICTIONS, LABELS, WEIGHTS, losses=WEIGHTS).result()
    arguments: Any = {"sample_weight": WEIGHTS, "multioutput": "raw_values"}
    outputs = found.per_output
    near([output.mse for output in outputs], metrics.mean_squared_error(LABELS, PREDICTIONS, **arguments))
    near([output.rmse for output in outputs], metrics.root_mean_squared_error(LABELS, PREDICTIONS, **arguments))
    near([output.mae for output in outputs], metrics.mean_absolute_error(LABELS, PREDICTIONS, **arguments))
    r2 = metrics.r2_score(LABELS, PREDICTIONS, **arguments)
    near([output.r2 for output in outputs], r2)
    near([output.rse for output in outputs], 1 - r2)
    near(found.average.r2, metrics.r2_score(LABELS, PREDICTIONS, sample_weight=WEIGHTS))
    near(found.average.rmse, metrics.root_mean_squared_error(LABELS, PREDICTIONS, sample_weight=WEIGHTS))
    for number, output in enumerate(outputs):
        covariance = np.cov(PREDICTIONS[:, number], LABELS[:, number], aweights=WEIGHTS)
        near(output.correlation, covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
    assert found.rows == (WEIGHTS > 0).sum()
    near((found.weight, found.loss), (WEIGHTS.sum(), WEIGHTS @ WEIGHTS / WEIGHTS.sum()))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_parts_in_any_order_come_to_the_whole_however_far_from_0(offset: float) -> None:
    whole = RegressionMeasures(2).add(PREDICTIONS + offset, LABELS + offset, WEIGHTS).result()
    parts = [
        RegressionMeasures(2).add(PREDICTIONS[rows] + offset, LABELS[rows] + offset, WEIGHTS[rows])
        for rows in np.split(np.arange(100), [0, 1, 3, 60])
    ]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        first, *others = (Accumulator.from_bytes(parts[number].to_bytes()) for number in order)
        for other in others:
            first.merge(other)
        near(first.result().to_pandas(), whole.to_pandas())
    near([whole.per_output[0].r2], metrics.r2_score(LABELS + offset, PREDICTIONS + offset, sample_weight=WEIGHTS,
                                                     multioutput="raw_values")[:1])  # fmt: skip


@pytest.mark.parametrize(
    "predictions, labels, r2, rse, correlation",
    [
        ([0.1] * 7, [0.1] * 7, 1.0, None, None),
        ([0.1, 0.2, 0.3], [0.25] * 3, 0.0, None, None),
        ([2.0] * 3, [1.0, 2.0, 3.0], 0.0, 1.0, None),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], -3.0, 4.0, -1.0),
        ([3.0], [1.0], None, None, None),
    ],
)
def test_what_is_undefined_is_none(
    predictions: list[float], labels: list[float], r2: float | None, rse: float | None, correlation: float | None
) -> None:
    found = RegressionMeasures(1).add(predictions, labels).result()
    assert (found.average.r2, found.average.rse, found.average.correlation) == (r2, rse, correlation)
    if r2 is not None:
        assert r2 == pytest.approx(metrics.r2_score(labels, predictions))


def test_a_result_goes_through_json_prints_draws_and_becomes_a_frame() -> None:
    pytest.importorskip("matplotlib")
    for rows in (100, 1):
        found = RegressionMeasures(2).add(PREDICTIONS[:rows], LABELS[:rows]).result()
        assert RegressionEvaluation.from_json(json.dumps(found.to_json(), allow_nan=False)) == found
        assert list(found.to_pandas().index) == [0, 1, "average"]
        assert f"{found.average.rmse:.4f}" in str(found)
        found.plot().canvas.draw()


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="Labels must be finite, received NaN or infinity"):
        RegressionMeasures(1).add([1.0], [np.nan])
    with pytest.raises(ValueError, match="outputs must be finite"):
        RegressionMeasures(1).add([np.inf], [1.0])
    with pytest.raises(ValueError, match=r"must have shape \(n, 2\), received \(1, 1\) and \(1, 1\)"):
        RegressionMeasures(2).add([1.0], [1.0])
    with pytest.raises(ValueError, match="There are no rows of positive weight"):
        RegressionMeasures(1).add([1.0], [1.0], [0.0]).result()
