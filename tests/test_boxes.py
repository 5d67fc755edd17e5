"""Boxes: overlaps, which predictions are kept, anchors, and average precision, against loops and examples by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdl.boxes import find_anchors, overlaps, select_boxes, size_overlaps
from sparkdl.evaluation import Accumulator, DetectionEvaluation, DetectionMeasures
from sparkdl.specs import Spec

RANDOM = np.random.default_rng(3)


def some_boxes(count: int) -> np.ndarray:
    corners = RANDOM.uniform(0, 0.6, (count, 2))
    return np.concatenate([corners, corners + RANDOM.uniform(0.05, 0.4, (count, 2))], axis=1)


def painted(box: np.ndarray, size: int = 1000) -> np.ndarray:
    image = np.zeros((size, size), bool)
    left, top, right, bottom = (box * size).round().astype(int)
    image[top:bottom, left:right] = True
    return image


def test_overlaps_are_those_of_painted_boxes() -> None:
    boxes, others = some_boxes(4).round(3), some_boxes(5).round(3)
    found = overlaps(boxes, others)
    for i, j in np.ndindex(4, 5):
        one, other = painted(boxes[i]), painted(others[j])
        assert found[i, j] == pytest.approx((one & other).sum() / (one | other).sum(), abs=1e-12)
    assert overlaps(boxes[:1], boxes[:1] + 2) == 0
    assert overlaps(np.zeros((1, 4)), np.zeros((1, 4))) == 0  # nor by dividing by 0


def detected(*boxes: tuple[list[float], float, list[float]]) -> np.ndarray:
    return np.array([[[*corners, confidence, *chances] for corners, confidence, chances in boxes]])


def test_of_boxes_of_one_class_that_overlap_the_surest_is_kept() -> None:
    [found] = select_boxes(
        detected(
            ([0.1, 0.1, 0.5, 0.5], 0.8, [0.9, 0.1]),  # 0.72
            ([0.1, 0.1, 0.5, 0.6], 0.95, [0.8, 0.2]),  # 0.76, overlaps by 0.8
            ([0.1, 0.1, 0.5, 0.6], 0.9, [0.3, 0.7]),  # 0.63 of the other class
            ([0.6, 0.6, 1.2, 1.1], 1.0, [1.0, 0.0]),  # far from both, and beyond the image
            ([0.0, 0.0, 0.3, 0.2], 0.6, [0.5, 0.5]),  # 0.3
            ([0.0, 0.0, 0.3, 0.2], np.nan, [0.5, 0.5]),
        ),
        2,
    )
    assert found["class"].tolist() == [0, 0, 1]
    np.testing.assert_allclose(found["score"], [1, 0.76, 0.63], rtol=1e-6)
    assert [found[name][0] for name in ("right", "bottom")] == [1, 1]
    np.testing.assert_allclose(found["bottom"][1:], [0.6, 0.6], rtol=1e-6)


def test_what_is_kept_can_be_chosen() -> None:
    predictions = detected(
        ([0.1, 0.1, 0.5, 0.5], 0.8, [1.0]), ([0.1, 0.1, 0.5, 0.6], 0.9, [1.0]), ([0, 0, 0.1, 0.1], 0.2, [1.0])
    )
    assert [len(select_boxes(predictions, 1, overlap_threshold=each)[0]) for each in (0.79, 0.81)] == [1, 2]
    assert [len(select_boxes(predictions, 1, score_threshold=each)[0]) for each in (0.2, 0.21, 0.95)] == [2, 1, 0]
    [found] = select_boxes(predictions, 1, overlap_threshold=1, max_boxes=1)
    assert found["score"].tolist() == [np.float32(0.9)]
    assert [len(each) for each in select_boxes(np.zeros((3, 2, 2, 12)), 1)] == [0, 0, 0]
    for options, sentence in (
        ({"score_threshold": 1.5}, "score_threshold must be between 0 and 1, received 1.5"),
        ({"overlap_threshold": -1}, "overlap_threshold must be between 0 and 1"),
        ({"max_boxes": 0}, "max_boxes must be a whole number of at least 1, received 0"),
        ({"classes": 0.5}, "classes must be a whole number"),
        ({"classes": 2}, r"must be rows of boxes of 7 numbers each, received shape \(1, 3, 6\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            select_boxes(predictions, **({"classes": 1} | options))


def test_anchors_are_the_sizes_that_boxes_gather_around() -> None:
    kinds = np.array([[0.1, 0.3], [0.5, 0.2], [0.7, 0.8]])
    sizes = kinds[RANDOM.integers(3, size=300)] * RANDOM.uniform(0.9, 1.1, (300, 2))
    found = np.array(find_anchors(sizes, 3))
    np.testing.assert_allclose(found, kinds, rtol=0.05)
    assert find_anchors(sizes, 3) == find_anchors(sizes, 3)
    several = [size_overlaps(sizes, np.array(find_anchors(sizes, count))).max(axis=1).mean() for count in (1, 2, 3)]
    assert several == sorted(several)
    assert find_anchors([[0.2, 0.4], [0.2, 0.4]], 1) == ((0.2, 0.4),)
    for wrong, count, sentence in (
        ([[0.2, 0.4], [0.2, 0.4]], 2, "count must be from 1 to 1, the number of different sizes, received 2"),
        ([[0.2, 0.0]], 1, "sizes must be an array"),
        ([0.2, 0.4], 1, "sizes must be an array"),
    ):
        with pytest.raises(ValueError, match=sentence):
            find_anchors(wrong, count)


def precision_by_hand(found: list[tuple[float, float, bool]], objects: float) -> float:
    """Of (score, weight, right): the area under the best precision at each recall or beyond it, by a loop."""
    points = []
    for threshold in sorted({score for score, _, _ in found}, reverse=True):
        kept = [each for each in found if each[0] >= threshold]
        hits = sum(weight for _, weight, right in kept if right)
        points.append((hits / objects, hits / sum(weight for _, weight, _ in kept)))
    area, last = 0.0, 0.0
    for place, (recall, _) in enumerate(points):
        area += (recall - last) * max(precision for _, precision in points[place:])
        last = recall
    return area


def some_rows(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions near to what is there, and labels, of which rows have none to three."""
    labels = np.full((count, 3, 5), -1.0)
    predictions = np.zeros((count, 6, 5 + classes))
    for row in range(count):
        there = int(RANDOM.integers(4))
        labels[row, :there, 0], labels[row, :there, 1:] = RANDOM.integers(classes, size=there), some_boxes(there)
        boxes = np.concatenate([labels[row, :there, 1:] + RANDOM.normal(scale=0.02, size=(there, 4)), some_boxes(6)])[
            :6
        ]
        kinds = np.append(labels[row, :there, 0], RANDOM.integers(classes, size=6))[:6].astype(int)
        predictions[row] = np.concatenate([boxes, RANDOM.uniform(size=(6, 1)), np.eye(classes)[kinds]], axis=1)
    return predictions, labels


def test_average_precision_is_that_of_loops() -> None:
    predictions, labels = some_rows(40, 3)
    weights = RANDOM.integers(0, 3, 40).astype(float)
    result = DetectionMeasures(3).add(predictions, labels, weights, losses=np.arange(40.0)).result()
    assert result.rows == (weights > 0).sum() and result.loss == pytest.approx(
        np.average(np.arange(40), weights=weights)
    )
    kept = select_boxes(predictions, 3, score_threshold=0.01)
    for kind, scores in enumerate(result.per_class):
        assert scores.objects == sum(
            weight * (row[:, 0] == kind).sum() for weight, row in zip(weights, labels, strict=True)
        )
        areas = {}
        for least in np.arange(0.5, 1, 0.05).round(2):
            found = []
            for boxes, row, weight in zip(kept, labels, weights, strict=True):
                free = [box[1:] for box in row if box[0] == kind]
                for box in boxes[boxes["class"] == kind]:
                    corners = np.array([box[name] for name in ("left", "top", "right", "bottom")])[None]
                    near = [float(overlaps(corners, each[None])[0, 0]) for each in free]
                    right = bool(near) and max(near) >= least
                    if right:
                        free.pop(int(np.argmax(near)))
                    found.append((float(box["score"]), weight, right))
            areas[least] = precision_by_hand([each for each in found if each[1]], scores.objects)
        assert scores.average_precision == pytest.approx(np.mean(list(areas.values())), rel=1e-12)
        assert scores.average_precision_50 == pytest.approx(areas[0.5], rel=1e-12)
        assert scores.average_precision_75 == pytest.approx(areas[0.75], rel=1e-12)
    assert 0.2 < result.average.average_precision_50 < 1  # the rows tell something
    means = [np.mean([getattr(each, name) for each in result.per_class]) for name in ("average_precision", "recall_50")]
    assert [result.average.average_precision, result.average.recall_50] == pytest.approx(means)


def test_a_perfect_detector_is_and_others_are_not() -> None:
    labels = np.array([[[0, 0.1, 0.1, 0.4, 0.4], [1, 0.5, 0.5, 0.9, 0.9]], [[-1] * 5] * 2])
    right = np.zeros((2, 2, 7))
    right[0] = [[0.1, 0.1, 0.4, 0.4, 1, 1, 0], [0.5, 0.5, 0.9, 0.9, 0.6, 0, 1]]
    assert DetectionMeasures(2).add(right, labels).result().average.average_precision == 1
    swapped = right[:, :, [0, 1, 2, 3, 4, 6, 5]]
    assert DetectionMeasures(2).add(swapped, labels).result().average.average_precision == 0
    third = DetectionMeasures(3).add(np.insert(right, 7, 0, axis=2), labels).result()
    assert third.per_class[2].average_precision is None and third.average.average_precision == 1
    nothing = DetectionMeasures(2).add(right[1:], labels[1:]).result()
    assert nothing.average.average_precision is None and "-" in str(nothing)


def test_parts_add_up_in_any_order_and_travel_as_bytes() -> None:
    predictions, labels = some_rows(30, 2)
    predictions[:, :, 4] = predictions[:, :, 4].round(1)  # scores that are equal
    whole = DetectionMeasures(2).add(predictions, labels).result()
    parts = [DetectionMeasures(2).add(predictions[each], labels[each]) for each in (slice(20, 30), slice(0, 20))]
    travelled = [Accumulator.from_bytes(part.to_bytes()) for part in [*parts, DetectionMeasures(2)]]
    merged = travelled[2].merge(travelled[0]).merge(travelled[1]).result()
    assert merged.per_class == whole.per_class and merged.rows == 30
    assert Spec.from_json(whole.to_json()) == whole
    assert isinstance(whole, DetectionEvaluation) and "map_50" in str(whole)
    assert list(whole.to_pandas().index) == [0, 1, "average"]
    assert len(whole.plot().axes) == 2
    with pytest.raises(ValueError, match="no rows of positive weight"):
        DetectionMeasures(2).result()
    with pytest.raises(ValueError, match="outputs must be finite"):
        DetectionMeasures(2).add(np.full((1, 1, 7), np.nan), labels[:1])
