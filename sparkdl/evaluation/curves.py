"""Receiver operating characteristic and precision-recall curves, exact for few rows and from histograms for many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdl.arrays import Array
from sparkdl.specs import Spec, is_integer

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Curve(Spec):
    """How rows above a threshold part into right and wrong ones, for every threshold that changes that.

    Points where the true positives equal those of both neighbours lie on a straight line of the one curve and below
    the other; they are left out, as by `drop_intermediate` of scikit-learn's `precision_recall_curve`.

    Attributes
    ----------
    thresholds : tuple of float
        Scores of rows, falling; a row is taken for positive if its score is at least that.
    true_positives, false_positives : tuple of float
        Weight of the positive and of the negative rows at or above each threshold; the last is that of all such rows.
    roc_area : float or None
        Area under the ROC curve by trapezoids, so that a tie of a positive and a negative row counts half (Hanley and
        McNeil 1982); None if all rows are of one kind.
    average_precision : float or None
        sum((recall[i] - recall[i - 1]) * precision[i]): the area under the precision-recall curve in steps, without
        interpolation, which would flatter it (Davis and Goadrich 2006); None without positive rows.
    """

    thresholds: Floats
    true_positives: Floats
    false_positives: Floats
    roc_area: float | None
    average_precision: float | None

    @property
    def roc(self) -> tuple[Array, Array]:
        """(false positive rates, true positive rates), each (points + 1,), from (0, 0) to (1, 1)."""
        return _rates(self.false_positives), _rates(self.true_positives)

    @property
    def precision_recall(self) -> tuple[Array, Array]:
        """(precision, recall) at each threshold, each (points,)."""
        true, false = np.array(self.true_positives), np.array(self.false_positives)
        return true / (true + false), _rates(self.true_positives)[1:]


def _rates(totals: Floats) -> Array:
    rates = np.array((0.0, *totals))
    return rates / rates[-1] if rates[-1] else np.full(len(rates), np.nan)


def curve(scores: Array, positive: Array, negative: Array) -> Curve:
    """The curve of groups of rows.

    Parameters
    ----------
    scores : array (groups,)
        The least score in each group, falling strictly; all rows of a group score higher than those of the next.
    positive, negative : array (groups,)
        Weight of the positive and of the negative rows of each group.
    """
    true, false = positive.cumsum(), negative.cumsum()
    changes = np.diff(true) != 0
    kept = np.concatenate([[True], changes[:-1] | changes[1:], [True]]) if len(true) > 2 else np.full(len(true), True)
    scores, true, false = scores[kept], true[kept], false[kept]
    roc_area = average_precision = None
    if true[-1]:
        recall = np.concatenate([[0.0], true / true[-1]])
        average_precision = float((np.diff(recall) * true / (true + false)).sum())
        if false[-1]:
            roc_area = float(np.trapezoid(recall, np.concatenate([[0.0], false / false[-1]])))
    return Curve(tuple(scores.tolist()), tuple(true.tolist()), tuple(false.tolist()), roc_area, average_precision)


def check_curve_options(bins: int, exact_rows: int) -> None:
    """ValueError unless they are as of `CurveSums`."""
    for name, value, least in (("bins", bins, 1), ("exact_rows", exact_rows, 0)):
        if not is_integer(value, least):
            raise ValueError(f"{name} must be an integer of at least {least}, received {value!r}.")


class CurveSums:
    """Rows, as long as there are at most `exact_rows` of them, and histograms of their scores from then on.

    Parameters
    ----------
    curves : int
        Columns of scores.
    bins : int
        Of a histogram, equally wide over probabilities, or over the sigmoid of scores that are none. Its curve consists
        of points of the exact one, the least score of every bin; the ROC area is off by at most half of the share of
        pairs, one row positive and one negative, that fall into the same bin.
    exact_rows : int
    probabilistic : bool
        Whether scores are probabilities.
    """

    def __init__(self, curves: int, bins: int, exact_rows: int, probabilistic: bool) -> None:
        self._curves, self._bins, self._exact_rows, self._probabilistic = curves, bins, exact_rows, probabilistic
        self._kept: list[tuple[Array, Array, Array]] = []
        self._kept_rows = 0
        self._histogram: Array | None = None  # (3, curves, bins): least score, positive weight, negative weight

    @property
    def exact(self) -> bool:
        """Whether all rows are still there."""
        return self._histogram is None

    def add(self, scores: Array, truth: Array, weights: Array) -> None:
        """Take in rows of scores (n, curves), truth (n, curves) of bool, and weights (n,) above 0."""
        if len(weights):
            self._kept.append((scores, truth, weights))
            self._kept_rows += len(weights)
        self._settle()

    def merge(self, other: CurveSums) -> None:
        """Take in what another has seen."""
        if other._histogram is not None:
            self._pour(other._histogram)
        self._kept += other._kept
        self._kept_rows += other._kept_rows
        self._settle()

    def _settle(self) -> None:
        if self._histogram is None and self._kept_rows <= self._exact_rows:
            return
        for rows in self._kept:
            self._pour(self._binned(*rows))
        self._kept, self._kept_rows = [], 0

    def _pour(self, histogram: Array) -> None:
        if self._histogram is None:
            self._histogram = histogram.copy()
        else:
            np.minimum(self._histogram[0], histogram[0], out=self._histogram[0])
            self._histogram[1:] += histogram[1:]

    def _binned(self, scores: Array, truth: Array, weights: Array) -> Array:
        places = scores if self._probabilistic else (1 + np.tanh(scores / 2)) / 2
        bins = np.clip((places * self._bins).astype(np.int64), 0, self._bins - 1)
        cells = (bins + self._bins * np.arange(self._curves)).reshape(-1)
        histogram = np.zeros((3, self._curves * self._bins))
        histogram[0] = np.inf
        np.minimum.at(histogram[0], cells, scores.reshape(-1))
        for part, kind in ((1, truth), (2, ~truth)):
            histogram[part] = np.bincount(cells, (weights[:, None] * kind).reshape(-1), self._curves * self._bins)
        return histogram.reshape(3, self._curves, self._bins)

    def to_arrays(self) -> dict[str, Array]:
        """What was kept, by name; `restore` takes it."""
        if self._histogram is not None:
            return {"histogram": self._histogram}
        if not self._kept:
            return {}
        return dict(zip(("scores", "truth", "row_weights"), self._rows(), strict=True))

    def restore(self, arrays: dict[str, Array]) -> None:
        """Take the arrays of `to_arrays` out of others."""
        if "histogram" in arrays:
            self._histogram = arrays.pop("histogram")
        elif "scores" in arrays:
            self.add(*(arrays.pop(name) for name in ("scores", "truth", "row_weights")))

    def _rows(self) -> tuple[Array, Array, Array]:
        scores, truth, weights = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        return scores, truth, weights

    def curves(self) -> tuple[Curve, ...]:
        """The curve of every column; there must be rows."""
        if self._histogram is not None:
            return tuple(_curve_of_bins(*column) for column in self._histogram.swapaxes(0, 1))
        scores, truth, weights = self._rows()
        return tuple(_curve_of_rows(*column, weights) for column in zip(scores.T, truth.T, strict=True))


def _curve_of_bins(least: Array, positive: Array, negative: Array) -> Curve:
    used = np.flatnonzero(np.isfinite(least))[::-1]
    return curve(least[used], positive[used], negative[used])


def _curve_of_rows(scores: Array, truth: Array, weights: Array) -> Curve:
    # Equal scores are sorted by the rest, so that weights are added up in the same order whatever that of the rows.
    order = np.lexsort((weights, truth, -scores))
    scores, truth, weights = scores[order], truth[order], weights[order]
    first = np.flatnonzero(np.concatenate([[True], np.diff(scores) != 0]))
    return curve(scores[first], np.add.reduceat(weights * truth, first), np.add.reduceat(weights * ~truth, first))
