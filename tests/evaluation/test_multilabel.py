"""Measures of several labels a row, against scikit-learn on the same rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from sparkdl.evaluation import Accumulator, MultilabelEvaluation, MultilabelMeasures

RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, 2, (120, 3))
LABELS[:, 2] = 0  # never occurs
SCORES = np.round(0.6 * RANDOM.random((120, 3)) + 0.4 * LABELS, 2)
WEIGHTS = RANDOM.random(120)
FOUND = MultilabelMeasures(3).add(SCORES, LABELS, WEIGHTS, losses=WEIGHTS).result()


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.array(actual, float), np.array(expected, float), rtol=1e-12, atol=1e-12)


def test_measures_of_labels_are_those_of_scikit_learn() -> None:
    predicted = (SCORES > 0.5).astype(int)
    arguments: Any = {"sample_weight": WEIGHTS}
    near(FOUND.subset_accuracy, metrics.accuracy_score(LABELS, predicted, **arguments))
    near(FOUND.hamming_loss, metrics.hamming_loss(LABELS, predicted, **arguments))
    near(FOUND.loss, WEIGHTS @ WEIGHTS / WEIGHTS.sum())
    averages: list[Any] = ["macro", "micro", "weighted"]
    for average, ours in zip(averages, (FOUND.macro, FOUND.micro, FOUND.weighted), strict=True):
        expected = metrics.precision_recall_fscore_support(
            LABELS, predicted, average=average, zero_division=0, **arguments
        )
        near((ours.precision, ours.recall, ours.f1), expected[:3])
        near(ours.iou, metrics.jaccard_score(LABELS, predicted, average=average, zero_division=0, **arguments))
    for number, label in enumerate(FOUND.per_label):
        truth, taken, chances = LABELS[:, number], predicted[:, number], SCORES[:, number]
        table = metrics.precision_recall_fscore_support(truth, taken, labels=[1], zero_division=0, **arguments)
        near((label.precision, label.recall, label.f1, label.support), np.concatenate(table))
        near(label.accuracy, metrics.accuracy_score(truth, taken, **arguments))
        near(label.matthews, metrics.matthews_corrcoef(truth, taken, **arguments))
        near(label.log_loss, metrics.log_loss(truth, chances, labels=[0, 1], **arguments))
        near(label.brier, metrics.brier_score_loss(truth, chances, labels=[0, 1], **arguments))
        curve = FOUND.curves[number]
        if number < 2:
            near(curve.roc_area, metrics.roc_auc_score(truth, chances, **arguments))
            near(curve.average_precision, metrics.average_precision_score(truth, chances, **arguments))
        else:
            assert curve.roc_area is None and curve.average_precision is None


def test_calibration_is_of_each_label() -> None:
    assert FOUND.calibration is not None
    for number, calibration in enumerate(FOUND.calibration):
        chances = SCORES[:, number]
        inside = (chances > 0.2) & (chances <= 4 / 15)
        near(calibration.frequency[3], WEIGHTS[inside] @ LABELS[inside, number] / WEIGHTS[inside].sum())


@pytest.mark.parametrize("exact_rows", [1000, 50])
def test_parts_come_to_the_whole(exact_rows: int) -> None:
    whole = MultilabelMeasures(3, exact_rows=exact_rows).add(SCORES, LABELS).result()
    parts = [
        MultilabelMeasures(3, exact_rows=exact_rows).add(SCORES[rows], LABELS[rows])
        for rows in (slice(60, None), slice(0, 10), slice(10, 60))
    ]
    first, second, third = (Accumulator.from_bytes(part.to_bytes()) for part in parts)
    found = first.merge(second.merge(third)).result()
    assert isinstance(found, MultilabelEvaluation)
    assert (found.curves, found.macro, found.micro) == (whole.curves, whole.macro, whole.micro)
    near([label.log_loss for label in found.per_label], [label.log_loss for label in whole.per_label])


def test_margins_are_told_by_their_sign_and_give_no_probabilities() -> None:
    found = MultilabelMeasures(3, probabilistic=False).add(4 * SCORES - 2, LABELS, WEIGHTS).result()
    assert (found.macro, found.micro) == (FOUND.macro, FOUND.micro)
    assert found.calibration is found.per_label[0].log_loss is found.per_label[0].brier is None
    near(found.curves[0].roc_area, FOUND.curves[0].roc_area)
    assert "subset accuracy" in str(found)


def test_a_result_goes_through_json_prints_draws_and_becomes_a_frame() -> None:
    pytest.importorskip("matplotlib")
    assert MultilabelEvaluation.from_json(json.dumps(FOUND.to_json(), allow_nan=False)) == FOUND
    frame = FOUND.to_pandas()
    assert list(frame.index) == [0, 1, 2, "macro", "micro", "weighted"]
    assert frame.loc[1, "matthews"] == FOUND.per_label[1].matthews
    assert f"subset accuracy {FOUND.subset_accuracy:.4f}" in str(FOUND)
    figure = FOUND.plot()
    figure.canvas.draw()
    assert len(figure.axes) == 4


def test_averages_by_support_are_0_where_no_row_has_a_label() -> None:
    found = MultilabelMeasures(2).add([[0.9, 0.2], [0.1, 0.6]], np.zeros((2, 2))).result()
    given = {"average": "weighted", "zero_division": 0}
    expected = metrics.precision_recall_fscore_support(np.zeros((2, 2)), np.array([[1, 0], [0, 1]]), **given)[:3]
    assert (found.weighted.precision, found.weighted.recall, found.weighted.f1) == expected == (0, 0, 0)


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="Labels must be 0 or 1, received 2"):
        MultilabelMeasures(2).add([[0.1, 0.2]], [[0, 2]])
    with pytest.raises(ValueError, match=r"Scores and labels must have shape \(n, 2\), received \(1, 2\) and \(1, 1\)"):
        MultilabelMeasures(2).add([[0.1, 0.2]], [[0]])
    with pytest.raises(ValueError, match="Scores must be probabilities, from 0 to 1, received -2; say probabilistic="):
        MultilabelMeasures(2).add([[0.1, -2.0]], [[0, 1]])
    with pytest.raises(ValueError, match="bins must be an integer of at least 1, received 2.5"):
        MultilabelMeasures(2, bins=2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="There are no rows of positive weight"):
        MultilabelMeasures(2).result()
