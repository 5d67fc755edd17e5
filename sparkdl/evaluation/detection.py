"""Evaluation of detectors: how precisely the objects of each class are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from sparkdl.boxes import BOX, KEPT, LABEL, overlaps, select_boxes
from sparkdl.evaluation.base import (
    Array,
    Evaluation,
    SummingAccumulator,
    counted,
    overall,
    require_finite,
    require_finite_labels,
    totals,
)
from sparkdl.specs import Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERLAPS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))  # those of COCO
SCORE_THRESHOLD = 0.01
CORNERS = list(KEPT.names or ())[-BOX:]


@dataclass(frozen=True)
class DetectionScores(Spec):
    """How well the objects of one class are found.

    A box found counts as right if it overlaps with an object of its class, in intersection over union by at least so
    much, that no box of a larger score has taken.

    Attributes
    ----------
    objects : float
        By weight of their rows.
    average_precision : float or None
        The mean of those at overlaps of 0.5, 0.55, ... 0.95, as COCO has it; None without objects. Each is the area
        under the curve of precision over recall, as the score from which boxes count goes down, where precision is the
        best at this recall or a larger one (Everingham et al. 2015, section 3.4).
    average_precision_50, average_precision_75 : float or None
        That at an overlap of 0.5, of 0.75.
    recall_50 : float or None
        The share of objects that are found, at an overlap of 0.5 and by a box of any score.
    """

    objects: float
    average_precision: float | None
    average_precision_50: float | None
    average_precision_75: float | None
    recall_50: float | None


MEASURES = ["objects", "average_precision", "average_precision_50", "average_precision_75", "recall_50"]


@dataclass(frozen=True, repr=False)
class DetectionEvaluation(Evaluation):
    """How well a detector finds objects; every number is by weight.

    Attributes
    ----------
    per_class : tuple of DetectionScores
    average : DetectionScores
        The plain mean over classes that have objects: the mean average precision (mAP).
    """

    per_class: tuple[DetectionScores, ...]
    average: DetectionScores

    def _overall(self) -> dict[str, float | None]:
        mean = self.average
        found = {"map": mean.average_precision, "map_50": mean.average_precision_50}
        return {"rows": self.rows, "weight": self.weight, **found, "loss": self.loss}

    def to_pandas(self) -> pd.DataFrame:
        """Objects, average precisions and recall of each class (index 0, 1, ...) and their average."""
        rows = [[getattr(scores, name) for name in MEASURES] for scores in (*self.per_class, self.average)]
        return pd.DataFrame(rows, [*range(len(self.per_class)), "average"], MEASURES, dtype=float)

    def plot(self) -> Figure:
        """Average precisions, and recall, of each class as bars."""
        from sparkdl.evaluation.plots import detection_figure

        return detection_figure(self.to_pandas().iloc[:-1])


class DetectionMeasures(SummingAccumulator):
    """The boxes found in rows, and whether they are right, for a `DetectionEvaluation`.

    Boxes are those that `select_boxes` keeps with a score of at least 0.01: up to 100 a row, of each its score, weight
    and class, and at which overlaps it is right.

    Parameters
    ----------
    classes : int
    """

    def __init__(self, classes: int) -> None:
        super().__init__(classes=classes)
        self._classes = classes
        self._found: list[dict[str, Array]] = []  # parts

    def add(self, predictions: Any, labels: Any, weights: Any = None, *, losses: Any = None) -> Self:
        """Count rows in; returns self.

        Parameters
        ----------
        predictions : array (n, ...)
            What the loss `Yolo` predicts, boxes of 5 + classes numbers.
        labels : array (n, boxes * 5) or (n, boxes, 5)
            Class, left, top, right and bottom; a class below 0 is no object.
        weights : array (n,), optional
            Finite and at least 0; 1 unless given.
        losses : array (n,), optional
            Each row's loss.

        Raises
        ------
        ValueError
            Shapes do not fit, or a prediction or label is not finite.
        """
        weights, (predictions, labels, losses) = counted(
            weights, len(predictions), np.asarray(predictions), np.asarray(labels), losses
        )
        if not len(weights):
            return self
        found = select_boxes(require_finite(predictions), self._classes, score_threshold=SCORE_THRESHOLD)
        truth = require_finite_labels(labels).reshape(len(weights), -1, LABEL)
        self._add(totals(weights, losses) | {"objects": np.zeros(self._classes)})
        for boxes, objects, weight in zip(found, truth, weights, strict=True):
            objects = objects[objects[:, 0] >= 0]
            kinds = objects[:, 0].astype(np.int64)
            self._add({"objects": weight * np.bincount(kinds, minlength=self._classes)})
            right = _right(boxes, kinds, objects[:, 1:])
            own = {"score": boxes["score"], "class": boxes["class"], "right": right}
            self._found.append(own | {"row_weight": np.full(len(boxes), weight)})
        return self

    def merge(self, other: Self) -> Self:
        super().merge(other)
        self._found += other._found
        return self

    def to_arrays(self) -> dict[str, Array]:
        return super().to_arrays() | self._all_found()

    def _restore(self, arrays: dict[str, Array]) -> None:
        self._found = [{name: arrays.pop(name) for name in self._all_found()}]
        super()._restore(arrays)

    def result(self) -> DetectionEvaluation:
        """The measures of all rows seen; ValueError if there are none."""
        known, objects = overall(self._sums), self._sums["objects"]
        found = self._all_found()
        each = tuple(
            _scores(float(count), {name: array[found["class"] == kind] for name, array in found.items()})
            for kind, count in enumerate(objects)
        )
        there = [scores for scores in each if scores.objects]
        means = [
            float(np.mean([getattr(scores, name) for scores in there])) if there else None for name in MEASURES[1:]
        ]
        return DetectionEvaluation(**known, per_class=each, average=DetectionScores(float(objects.sum()), *means))

    def _all_found(self) -> dict[str, Array]:
        empty = {"score": np.zeros(0, "float32"), "class": np.zeros(0, "int32"), "row_weight": np.zeros(0)}
        empty["right"] = np.zeros((0, len(OVERLAPS)), bool)
        return {name: np.concatenate([none, *(part[name] for part in self._found)]) for name, none in empty.items()}


def _right(boxes: Array, kinds: Array, objects: Array) -> Array:
    """Of boxes, the best first: whether each is right, (n, overlaps). It takes the object it overlaps with the most."""
    right = np.zeros((len(boxes), len(OVERLAPS)), bool)
    if not len(objects):
        return right
    corners = np.stack([boxes[name] for name in CORNERS], axis=-1).astype(np.float64)
    beside = np.where(boxes["class"][:, None] == kinds, overlaps(corners, objects), 0)
    for place, least in enumerate(OVERLAPS):
        free = np.ones(len(objects), bool)
        for number, own in enumerate(beside):
            best = int(np.where(free, own, -1).argmax())
            if free[best] and own[best] >= least:
                free[best], right[number, place] = False, True
    return right


def _scores(objects: float, found: dict[str, Array]) -> DetectionScores:
    if not objects:
        return DetectionScores(objects, None, None, None, None)
    order = np.argsort(-found["score"], kind="stable")
    weights, right = found["row_weight"][order], found["right"][order]
    last = np.append(np.diff(found["score"][order]) != 0, True)[
        : len(order)
    ]  # of boxes of one score, which count at once
    hits = np.cumsum(right * weights[:, None], axis=0)[last]
    recall, precision = hits / objects, hits / np.cumsum(weights)[last][:, None]
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    areas = (np.diff(recall, axis=0, prepend=0) * precision).sum(axis=0)
    at = {overlap: float(area) for overlap, area in zip(OVERLAPS, areas, strict=True)}
    return DetectionScores(
        objects, float(areas.mean()), at[0.5], at[0.75], float(recall[-1, 0]) if len(recall) else 0.0
    )
