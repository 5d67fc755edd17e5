"""Measures of quantiles, against scikit-learn on the same rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import metrics

from sparkdl.evaluation import Accumulator, QuantileEvaluation, QuantileMeasures

RANDOM = np.random.default_rng(5)
QUANTILES = (0.1, 0.5, 0.9)
LABELS = RANDOM.normal(size=(80, 2)) * [1, 10] + [0, 100]
PREDICTIONS = LABELS[..., None] + RANDOM.normal(size=(80, 2, 3)) + [-1.0, 0.0, 1.0]
FLAT = PREDICTIONS.reshape(80, 6)
WEIGHTS = RANDOM.random(80) * (RANDOM.random(80) > 0.2)


def test_measures_of_quantiles_are_those_of_scikit_learn() -> None:
    found = QuantileMeasures(QUANTILES, 2).add(FLAT, LABELS, WEIGHTS, losses=WEIGHTS).result()
    for position in range(2):
        for place, quantile in enumerate(QUANTILES):
            own, predicted = found.per_position[position][place], PREDICTIONS[:, position, place]
            pinball = metrics.mean_pinball_loss(LABELS[:, position], predicted, sample_weight=WEIGHTS, alpha=quantile)
            assert own.pinball == pytest.approx(pinball, rel=1e-12)
            held = np.average(LABELS[:, position] <= predicted, weights=WEIGHTS)
            assert own.coverage == pytest.approx(held, rel=1e-12)
    means = found.to_pandas().loc[[0, 1]].mean()
    np.testing.assert_allclose(found.to_pandas().loc["average"], means, rtol=1e-12)
    assert found.pinball == pytest.approx(means.iloc[:3].mean(), rel=1e-12)
    assert (found.rows, found.weight) == ((WEIGHTS > 0).sum(), pytest.approx(WEIGHTS.sum()))
    assert found.loss == pytest.approx(WEIGHTS @ WEIGHTS / WEIGHTS.sum(), rel=1e-12)


def test_parts_come_to_the_whole_and_a_result_goes_through_json_and_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    whole = QuantileMeasures(QUANTILES, 2).add(FLAT, LABELS, WEIGHTS).result()
    parts = [
        QuantileMeasures(QUANTILES, 2).add(FLAT[rows], LABELS[rows], WEIGHTS[rows])
        for rows in np.split(np.arange(80), [0, 1, 30])
    ]
    first, *others = (Accumulator.from_bytes(part.to_bytes()) for part in parts[::-1])
    for other in others:
        first.merge(other)
    found = first.result()
    np.testing.assert_allclose(found.to_pandas(), whole.to_pandas(), rtol=1e-12)
    assert isinstance(found, QuantileEvaluation) and found.loss is None
    assert QuantileEvaluation.from_json(json.dumps(found.to_json(), allow_nan=False)) == found
    assert list(found.to_pandas().columns[:3]) == ["pinball_0.1", "pinball_0.5", "pinball_0.9"]
    assert f"pinball {found.pinball:.4f}" in str(found)
    found.plot().canvas.draw()


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shapes \(n, 6\) and \(n, 2\), received \(80, 3\) and \(80, 2\)"):
        QuantileMeasures(QUANTILES, 2).add(FLAT[:, :3], LABELS)
    with pytest.raises(ValueError, match="Labels must be finite, received NaN or infinity"):
        QuantileMeasures((0.5,)).add([[1.0]], [np.nan])
    with pytest.raises(ValueError, match="outputs must be finite"):
        QuantileMeasures((0.5,)).add([[np.inf]], [1.0])
    with pytest.raises(ValueError, match="There are no rows of positive weight"):
        QuantileMeasures((0.5,)).add([[1.0]], [1.0], [0.0]).result()
