"""Measures of exclusive classes, against scikit-learn on the same rows."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from sparkdl.evaluation import Accumulator, ClassificationEvaluation, ClassificationMeasures

Array = np.ndarray[Any, Any]
Case = tuple[Array, Array, Array]  # scores, labels, weights


def case(rows: int, classes: int, labels: int, digits: int = 9) -> Case:
    """Random probabilities, rounded so as to tie, classes below `labels` that they tell a little of, and weights."""
    random = np.random.default_rng(rows + classes + digits)
    truth = random.integers(0, labels, rows)
    scores = random.dirichlet(np.ones(classes), rows) + 0.3 * np.eye(classes)[truth]
    steps = np.round(scores / scores.sum(axis=1, keepdims=True) * 10**digits)
    return steps / steps.sum(axis=1, keepdims=True), truth, random.random(rows) * (random.random(rows) > 0.2)


CASES = {
    "two classes": case(200, 2, 2),
    "four classes": case(300, 4, 4),
    "a class that never occurs": case(200, 5, 4),
    "ties": case(300, 3, 3, digits=1),
    "two classes with ties": case(300, 2, 2, digits=1),
    "a single class": case(50, 3, 1),
    "one row": (np.array([[0.2, 0.3, 0.5]]), np.array([1]), np.array([2.0])),
}
each_case = pytest.mark.parametrize("name", CASES)


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.array(actual, float), np.array(expected, float), rtol=1e-12, atol=1e-12)


def measured(name: str) -> tuple[ClassificationEvaluation, Case]:
    """The evaluation of a case, and its rows of positive weight."""
    scores, labels, weights = CASES[name]
    used = weights > 0
    found = ClassificationMeasures(scores.shape[1], top_k=(1, 2, 3)).add(scores, labels, weights).result()
    return found, (scores[used], labels[used], weights[used])


@each_case
def test_scores_of_classes_are_those_of_scikit_learn(name: str) -> None:
    found, (scores, labels, weights) = measured(name)
    classes, predicted = scores.shape[1], scores.argmax(axis=1)
    assert found.rows == len(labels)
    near(found.weight, weights.sum())
    near(found.accuracy, metrics.accuracy_score(labels, predicted, sample_weight=weights))
    matrix = metrics.confusion_matrix(labels, predicted, labels=range(classes), sample_weight=weights)
    near(found.confusion, matrix)
    if len(set(labels) | set(predicted)) > 1:  # else scikit-learn's is a convention about accuracy
        near(found.matthews, metrics.matthews_corrcoef(labels, predicted, sample_weight=weights))
    arguments: Any = {"sample_weight": weights, "zero_division": 0}
    averages: list[Any] = ["macro", "micro", "weighted"]
    for average, ours in zip(averages, (found.macro, found.micro, found.weighted), strict=True):
        expected = metrics.precision_recall_fscore_support(labels, predicted, average=average, **arguments)
        near((ours.precision, ours.recall, ours.f1), expected[:3])
        near(ours.iou, metrics.jaccard_score(labels, predicted, average=average, **arguments))
    table = metrics.precision_recall_fscore_support(labels, predicted, labels=range(classes), **arguments)
    near([(c.precision, c.recall, c.f1, c.support) for c in found.per_class], np.transpose(table))
    near([c.g_measure for c in found.per_class], np.sqrt(table[0] * table[1]))
    each = metrics.jaccard_score(labels, predicted, labels=range(classes), average=None, **arguments)
    near([c.iou for c in found.per_class], each)


@each_case
def test_measures_of_probabilities_are_those_of_scikit_learn(name: str) -> None:
    found, (scores, labels, weights) = measured(name)
    classes = scores.shape[1]
    arguments: Any = {"sample_weight": weights, "labels": range(classes)}
    with np.errstate(all="ignore"):
        near(found.log_loss, metrics.log_loss(labels, scores, **arguments))
    given = scores[:, 1] if classes == 2 else scores
    near(found.brier, metrics.brier_score_loss(labels, given, **arguments))
    for k, share in found.top_k:
        chances = scores[:, 1] if classes == 2 else scores
        if classes > 2:  # of two, scikit-learn wants a decision instead
            near(share, metrics.top_k_accuracy_score(labels, chances, k=k, **arguments))
    assert [k for k, _ in found.top_k] == [k for k in (1, 2, 3) if k < classes]


@each_case
def test_exact_curves_are_those_of_scikit_learn(name: str) -> None:
    found, (scores, labels, weights) = measured(name)
    assert found.curves_exact
    numbers = [1] if scores.shape[1] == 2 else range(scores.shape[1])
    for number, curve in zip(numbers, found.curves, strict=True):
        truth, column = labels == number, scores[:, number]
        if not truth.any():
            assert curve.average_precision is None and curve.roc_area is None
            continue
        near(curve.average_precision, metrics.average_precision_score(truth, column, sample_weight=weights))
        precision, recall, thresholds = metrics.precision_recall_curve(
            truth, column, sample_weight=weights, drop_intermediate=True
        )
        near(curve.precision_recall[0][::-1], precision[:-1])
        near(curve.precision_recall[1][::-1], recall[:-1])
        assert curve.thresholds[::-1] == tuple(thresholds)
        if truth.all():
            assert curve.roc_area is None
        else:
            near(curve.roc_area, metrics.roc_auc_score(truth, column, sample_weight=weights))
            near(np.trapezoid(*curve.roc[::-1]), curve.roc_area)


def test_calibration_is_counted_bin_by_bin() -> None:
    scores, labels, weights = CASES["four classes"]
    for classes, chance, event in [
        (4, scores.max(axis=1), scores.argmax(axis=1) == labels),
        (2, scores[:, 1], labels == 1),
    ]:
        given = scores if classes == 4 else scores[:, 1]
        found = ClassificationMeasures(classes).add(given, labels if classes == 4 else event, weights).result()
        assert found.calibration is not None
        error = 0.0
        for number in range(15):
            inside = (chance > number / 15) & (chance <= (number + 1) / 15)
            total = weights[inside].sum()
            near(found.calibration.weight[number], total)
            if total:
                confidence, frequency = (
                    weights[inside] @ chance[inside] / total,
                    weights[inside] @ event[inside] / total,
                )
                near(
                    [found.calibration.confidence[number], found.calibration.frequency[number]], [confidence, frequency]
                )
                error += total / weights.sum() * abs(confidence - frequency)
            else:
                assert found.calibration.confidence[number] is None
        near(found.calibration.expected_error, error)


def parted(scores: Array, labels: Array, weights: Array, order: tuple[int, ...], **options: Any) -> Any:
    """Evaluated in four parts, of which one is empty, that travelled as bytes and were merged in this order."""
    edges = np.array([0, 7, 7, len(labels) // 2, len(labels)])
    parts = []
    for first, last in zip(edges[:-1], edges[1:], strict=True):
        part = ClassificationMeasures(scores.shape[1], **options)
        parts.append(part.add(scores[first:last], labels[first:last], weights[first:last]).to_bytes())
    first, second, third, fourth = (Accumulator.from_bytes(parts[number]) for number in order)
    return first.merge(second).merge(third.merge(fourth)).result()


@pytest.mark.parametrize("exact_rows", [10_000, 100, 0])
@pytest.mark.parametrize("whole_weights", [True, False])
def test_the_parts_and_their_order_do_not_matter(exact_rows: int, whole_weights: bool) -> None:
    scores, labels, weights = CASES["ties"]
    weights = np.ceil(3 * weights) if whole_weights else weights
    options = {"exact_rows": exact_rows, "bins": 50}
    whole = ClassificationMeasures(3, **options).add(scores, labels, weights).result()  # type: ignore[arg-type]
    assert whole.curves_exact == (exact_rows == 10_000)
    for order in permutations(range(4)):
        found = parted(scores, labels, weights, order, **options)
        if whole_weights:
            assert (found.confusion, found.per_class, found.curves) == (whole.confusion, whole.per_class, whole.curves)
        near(flattened(found), flattened(whole))
        if exact_rows == 10_000:
            assert found.curves == whole.curves


def flattened(value: Any) -> list[float]:
    """All numbers of an evaluation."""
    if isinstance(value, ClassificationEvaluation):
        return flattened(value.to_json())
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return [number for item in items for number in flattened(item)]
    return [] if isinstance(value, str) or value is None else [float(value)]


@pytest.mark.parametrize("probabilistic", [True, False])
def test_a_histogram_gives_points_of_the_exact_curve_and_nearly_its_areas(probabilistic: bool) -> None:
    scores, labels, weights = CASES["four classes"]
    scores = scores if probabilistic else 4 * scores - 2
    exact, coarse = (
        ClassificationMeasures(4, probabilistic=probabilistic, exact_rows=rows, bins=200)
        .add(scores, labels, weights)
        .result()
        for rows in (1000, 10)
    )
    assert exact.curves_exact and not coarse.curves_exact
    for number, (one, other) in enumerate(zip(exact.curves, coarse.curves, strict=True)):
        assert one.roc_area == pytest.approx(other.roc_area, abs=0.01)
        assert one.average_precision == pytest.approx(other.average_precision, abs=0.02)
        truth = (labels == number) * weights
        for threshold, true in zip(other.thresholds, other.true_positives, strict=True):
            near(true, truth @ (scores[:, number] >= threshold))


def test_rows_of_weight_0_count_nothing_whatever_they_hold() -> None:
    scores, labels, _ = CASES["four classes"]
    spoilt, weights = np.concatenate([scores, np.full((1, 4), np.nan)]), np.append(np.ones(len(labels)), 0)
    found = ClassificationMeasures(4).add(spoilt, np.append(labels, 9), weights).result()
    assert found == ClassificationMeasures(4).add(scores, labels).result()


def test_a_weight_of_2_counts_as_two_rows() -> None:
    scores, labels, _ = CASES["ties"]
    twice = ClassificationMeasures(3).add(scores, labels).add(scores, labels).result()
    weighed = ClassificationMeasures(3).add(scores, labels, np.full(len(labels), 2)).result()
    assert weighed.curves == twice.curves
    assert (weighed.rows, twice.rows) == (len(labels), 2 * len(labels))
    near(flattened(weighed)[1:], flattened(twice)[1:])


def test_a_single_score_tells_two_classes() -> None:
    chances, labels, weights = CASES["two classes"]
    both = ClassificationMeasures(2).add(chances, labels, weights).result()
    near(flattened(ClassificationMeasures(2).add(chances[:, 1], labels, weights).result()), flattened(both))
    margins = np.log(chances[:, 1:] / chances[:, :1])
    of_margins = ClassificationMeasures(2, probabilistic=False).add(margins, labels, weights).result()
    assert of_margins.confusion == both.confusion
    near(of_margins.curves[0].roc_area, both.curves[0].roc_area)
    assert of_margins.log_loss is of_margins.brier is of_margins.calibration is None


def test_given_predictions_decide_about_classes_and_given_losses_are_averaged() -> None:
    scores, labels, weights = CASES["four classes"]
    found = ClassificationMeasures(4).add(scores, labels, weights, predicted=labels, losses=labels).result()
    assert (found.accuracy, found.matthews) == (1, pytest.approx(1))
    assert found.top_k_accuracy[1] < 1
    near(found.loss, weights @ labels / weights.sum())
    assert ClassificationMeasures(4).add(scores, labels).result().loss is None


@pytest.mark.parametrize("name", ["two classes", "a class that never occurs", "one row"])
def test_a_result_goes_through_json_prints_draws_and_becomes_a_frame(name: str) -> None:
    pytest.importorskip("matplotlib")
    found, (scores, _, _) = measured(name)
    assert ClassificationEvaluation.from_json(json.dumps(found.to_json(), allow_nan=False)) == found
    frame = found.to_pandas()
    assert list(frame.index) == [*range(scores.shape[1]), "macro", "micro", "weighted"]
    assert frame.loc["macro", "f1"] == found.macro.f1
    last = scores.shape[1] - 1
    near(frame.loc[last, "average_precision"], found.curves[-1].average_precision or np.nan)
    assert f"accuracy {found.accuracy:.4f}" in str(found) and "weighted" in str(found)
    assert repr(found) == str(found)
    figure = found.plot()
    figure.canvas.draw()
    assert [axes.get_title().split(" ")[0] for axes in figure.axes] == ["Accuracy", "ROC", "Precision", "Calibration"]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (([[0.5, 0.5, 0.0]], [3]), "Labels must be whole numbers from 0 to 2, received 3; index the classes."),
        (([[0.5, 0.5, 0.0]], [0.5]), "Labels must be whole numbers from 0 to 2, received 0.5"),
        (([[0.5, 0.5]], [0]), r"Scores must have shape \(n, 3\), one a class, received \(1, 2\)"),
        (([[0.5, 0.5, 0.0]], [0, 1]), "Scores have 1 rows and what belongs to them 2; give one for each row."),
        (([[0.5, 0.5, np.nan]], [0]), "outputs must be finite to be evaluated, received NaN or infinity"),
        (([[0.5, 0.5, 0.0]], [0], [-1.0]), "Weights must be finite and at least 0, received -1"),
        (([[0.5, 0.5, 0.0]] * 2, [0, 1], [1.0, np.inf]), "Weights must be finite and at least 0, received inf"),
        (([[0.5, 0.5, 0.0]], [0], [[1.0]]), r"Weights must have shape \(n,\), one a row, received \(1, 1\)"),
        (([[0.5, 0.5, 0.0]], ["cat"]), "Labels must be whole numbers, received <U3; index the classes"),
        (([[3.0, -1.0, 0.5]], [0]), "Scores must be probabilities, from 0 to 1, received 3; say probabilistic=False"),
    ],
)
def test_rows_that_do_not_fit_are_refused(arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ClassificationMeasures(3).add(*arguments)


def test_options_may_be_numpys() -> None:
    made = ClassificationMeasures(np.int64(3), top_k=np.array([1, 2]), bins=np.int64(9), exact_rows=np.int64(0))  # type: ignore[arg-type]
    plain = ClassificationMeasures(3, top_k=(1, 2), bins=9, exact_rows=0).add(np.eye(3), [0, 1, 2])
    assert Accumulator.from_bytes(made.to_bytes()).merge(plain).result() == plain.result()


def test_no_rows_and_other_options_are_refused() -> None:
    with pytest.raises(ValueError, match="There are no rows of positive weight to evaluate"):
        ClassificationMeasures(3).add(np.ones((2, 3)), [0, 1], [0, 0]).result()
    with pytest.raises(ValueError, match="Only accumulators of one kind and equal options can be merged"):
        ClassificationMeasures(3).merge(ClassificationMeasures(3, bins=10))
    wrong: list[dict[str, Any]] = [{"bins": 0}, {"exact_rows": -1}, {"top_k": (0,)}, {"classes": 1}]
    for options in [*wrong, {"bins": 2.5}, {"exact_rows": 1e4}, {"top_k": 3}, {"top_k": (1.5,)}, {"classes": 2.0}]:
        with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
            ClassificationMeasures(**({"classes": 3} | options))  # type: ignore[arg-type]
