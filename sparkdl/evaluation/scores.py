"""Precision, recall and what is made of them, of every class and averaged; and Matthews' correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from sparkdl.arrays import Array
from sparkdl.evaluation.curves import Curve
from sparkdl.specs import Spec


@dataclass(frozen=True)
class ClassScores(Spec):
    """How well one class is told from the others; a quotient by 0 counts as 0.

    Attributes
    ----------
    precision : float
        TP / (TP + FP): share of the rows taken for the class that are of it.
    recall : float
        TP / (TP + FN): share of the class's rows that are taken for it.
    f1 : float
        2 TP / (2 TP + FP + FN), the harmonic mean of the two (van Rijsbergen 1979).
    g_measure : float
        sqrt(precision * recall), the geometric mean (Fowlkes and Mallows 1983).
    support : float
        Weight of the class's rows.
    iou : float or None
        TP / (TP + FP + FN), intersection over union (Jaccard 1912), by which segmentations are compared: of the macro
        average it is the mean IoU. None in measures saved before they had it.
    """

    precision: float
    recall: float
    f1: float
    g_measure: float
    support: float
    iou: float | None = field(default=None, kw_only=True)


def class_scores(true_positives: float, predicted: float, support: float) -> ClassScores:
    """Scores of a class from weights: of rows rightly taken for it, of rows taken for it, of its rows."""
    precision, recall = _quotient(true_positives, predicted), _quotient(true_positives, support)
    f1 = _quotient(2 * true_positives, predicted + support)
    iou = _quotient(true_positives, predicted + support - true_positives)
    return ClassScores(precision, recall, f1, math.sqrt(precision * recall), float(support), iou=iou)


def averaged(scores: Sequence[ClassScores], weights: Array) -> ClassScores:
    """The mean of scores by weights, 0 where all of these are; the support is the sum of all."""
    table = np.array([(each.precision, each.recall, each.f1, each.g_measure, each.iou) for each in scores])
    precision, recall, f1, g_measure, iou = (weights @ table / (weights.sum() or 1)).tolist()
    return ClassScores(precision, recall, f1, g_measure, math.fsum(each.support for each in scores), iou=iou)


def matthews(confusion: Array) -> float:
    """Matthews' correlation coefficient of a confusion matrix of any size (Gorodkin 2004); 0 where it is undefined."""
    truth, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    covariance = confusion.trace() * truth.sum() - truth @ predicted
    # Each by its own sum, so that it is exactly 0 for a single class, whatever the weights' rounding.
    variances = (truth.sum() ** 2 - truth @ truth) * (predicted.sum() ** 2 - predicted @ predicted)
    return float(covariance / np.sqrt(variances)) if variances > 0 else 0.0


def scores_frame(
    scores: Sequence[ClassScores], curves: Sequence[Curve], averages: Sequence[ClassScores]
) -> pd.DataFrame:
    """Scores of classes or labels and their averages, one a row, with the areas of the last classes' curves."""
    names = [*range(len(scores)), "macro", "micro", "weighted"]
    fields = ["precision", "recall", "f1", "g_measure", "iou", "support"]
    frame = pd.DataFrame([[getattr(row, name) for name in fields] for row in (*scores, *averages)], names, fields)
    first = len(scores) - len(curves)
    areas = pd.DataFrame(
        {
            "roc_area": [curve.roc_area for curve in curves],
            "average_precision": [curve.average_precision for curve in curves],
        },
        range(first, len(scores)),
        dtype=float,
    )
    return frame.join(areas)


def _quotient(over: float, under: float) -> float:
    return float(over / under) if under else 0.0
