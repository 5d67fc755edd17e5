"""Evaluation of classifiers whose classes exclude each other, two or more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from sparkdl.evaluation.base import (
    Array,
    Evaluation,
    SummingAccumulator,
    counted,
    overall,
    require_finite,
    require_probabilities,
    totals,
)
from sparkdl.evaluation.calibration import Calibration, calibration, calibration_sums
from sparkdl.evaluation.curves import Curve, CurveSums, check_curve_options
from sparkdl.evaluation.scores import ClassScores, averaged, class_scores, matthews, scores_frame
from sparkdl.specs import is_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ClassificationEvaluation(Evaluation):
    """How well a classifier does; every number is by weight and equals scikit-learn's on the same rows.

    Attributes
    ----------
    accuracy : float
        Share of the rows whose predicted class is right.
    top_k : tuple of (int, float)
        Share of the rows whose class is among the k of the largest scores, for every k below the number of classes; of
        equal scores the later class's counts as the larger. Does not heed thresholds.
    matthews : float
        Matthews' correlation coefficient; Gorodkin's (2004) of more than two classes.
    per_class : tuple of ClassScores
    macro, micro, weighted : ClassScores
        Averages: of the classes that occur as label or prediction alike; of all rows as one class; of the classes by
        support.
    confusion : tuple of tuple of float
        Weight of the rows of class i (row) taken for class j (column).
    curves : tuple of Curve
        Of each class against the others; of two classes only that of class 1.
    curves_exact : bool
        Whether `curves` have every threshold; else they come from histograms.
    log_loss : float or None
        Mean of -log(probability of the row's class), which is clipped to [eps, 1 - eps] of float64; None, like the
        following, where scores are no probabilities.
    brier : float or None
        Mean squared distance of the probabilities to the class's (Brier 1950): of two classes
        (p - label) ** 2, of more the sum over them.
    calibration : Calibration or None
    """

    accuracy: float
    top_k: tuple[tuple[int, float], ...]
    matthews: float
    per_class: tuple[ClassScores, ...]
    macro: ClassScores
    micro: ClassScores
    weighted: ClassScores
    confusion: tuple[tuple[float, ...], ...]
    curves: tuple[Curve, ...]
    curves_exact: bool
    log_loss: float | None
    brier: float | None
    calibration: Calibration | None

    @property
    def top_k_accuracy(self) -> dict[int, float]:
        """`top_k` by k."""
        return dict(self.top_k)

    def _overall(self) -> dict[str, float | None]:
        tops = {f"top-{k}": value for k, value in self.top_k if k > 1}
        error = {"calibration error": self.calibration.expected_error} if self.calibration else {}
        overall = {"rows": self.rows, "weight": self.weight, "accuracy": self.accuracy, **tops}
        rest = {"Matthews": self.matthews, "loss": self.loss, "log loss": self.log_loss, "Brier": self.brier}
        return overall | rest | error

    def to_pandas(self) -> pd.DataFrame:
        """Precision, recall, F1, G-measure, IoU, support and areas of each class (index 0, 1, ...) and averages."""
        return scores_frame(self.per_class, self.curves, [self.macro, self.micro, self.weighted])

    def plot(self) -> Figure:
        """The confusion matrix, ROC and precision-recall curves and, of probabilities, reliability."""
        from sparkdl.evaluation.plots import classification_figure

        matrix = np.array(self.confusion)
        return classification_figure(matrix, self.accuracy, self.curves, self.calibration)


class ClassificationMeasures(SummingAccumulator):
    """Sums over rows for a `ClassificationEvaluation`.

    Parameters
    ----------
    classes : int
        2 or more.
    probabilistic : bool, default True
        Whether scores are probabilities that add up to 1; else any numbers, the largest of the likeliest class.
    top_k : sequence of int, default (1, 3, 5)
        Those below the number of classes are measured.
    bins : int, default 1000
        Of the histograms behind curves of more than `exact_rows` rows.
    exact_rows : int, default 10000
        The most rows to keep (with one float64 a class each) for exact curves.

    Attributes
    ----------
    probabilistic : bool

    Examples
    --------
    >>> from sparkdl.evaluation import ClassificationMeasures
    >>> one, other = ClassificationMeasures(3), ClassificationMeasures(3)
    >>> one = one.add([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]], [0, 1])
    >>> other = other.add([[0.2, 0.2, 0.6], [0.1, 0.8, 0.1]], [2, 0], weights=[1.0, 2.0])
    >>> one.merge(other).result().accuracy
    0.6
    """

    def __init__(
        self,
        classes: int,
        *,
        probabilistic: bool = True,
        top_k: Sequence[int] = (1, 3, 5),
        bins: int = 1000,
        exact_rows: int = 10_000,
    ) -> None:
        if not is_integer(classes, 2):
            raise ValueError(f"classes must be at least 2, received {classes!r}; a single score tells two classes.")
        ks = list(top_k) if isinstance(top_k, Iterable) else [None]
        if not all(is_integer(k, 1) for k in ks):
            raise ValueError(f"top_k must hold integers of at least 1, as (1, 3), received {top_k!r}.")
        check_curve_options(bins, exact_rows)
        super().__init__(
            classes=int(classes),
            probabilistic=probabilistic,
            top_k=list(map(int, ks)),
            bins=int(bins),
            exact_rows=int(exact_rows),
        )
        self._classes, self.probabilistic = classes, probabilistic
        self._top_k = sorted({k for k in map(int, ks) if k < classes})
        self._curves = CurveSums(1 if classes == 2 else classes, bins, exact_rows, probabilistic)

    def add(
        self,
        scores: Any,
        labels: Any,
        weights: Any = None,
        *,
        predicted: Any = None,
        losses: Any = None,
    ) -> Self:
        """Count rows in; returns self.

        Parameters
        ----------
        scores : array (n, classes)
            Or (n, 1), or (n,), of class 1 for two classes.
        labels : array (n,)
            Classes 0, 1, ...
        weights : array (n,), optional
            Finite and at least 0; 1 unless given.
        predicted : array (n,), optional
            Classes; those of the largest scores unless given.
        losses : array (n,), optional
            Each row's loss.

        Raises
        ------
        ValueError
            Shapes do not fit, a class is not one of those, or a score is not finite.
        """
        scores = self._every_score(np.asarray(scores))
        if predicted is None:
            predicted = scores.argmax(axis=1)
        weights, (scores, labels, predicted, losses) = counted(weights, len(scores), scores, labels, predicted, losses)
        labels, predicted = self._check_classes(labels, "Labels"), self._check_classes(predicted, "Predictions")
        scores = require_finite(scores)
        if self.probabilistic:
            require_probabilities(scores)
        if not len(weights):
            return self
        own = scores[np.arange(len(labels)), labels]
        truth = labels[:, None] == np.arange(self._classes)
        cells = np.bincount(labels * self._classes + predicted, weights, self._classes**2)
        later = np.arange(self._classes) > labels[:, None]
        place = ((scores > own[:, None]) | ((scores == own[:, None]) & later)).sum(axis=1)
        sums = totals(weights, losses) | {
            "confusion": cells.reshape(self._classes, self._classes),
            "top_hits": np.array([(weights * (place < k)).sum() for k in self._top_k]),
        }
        if self.probabilistic:
            epsilon = np.finfo(np.float64).eps
            sums["log_loss"] = -(weights @ np.log(own.clip(epsilon, 1 - epsilon)))
            if self._classes == 2:
                distance, confidence, event = (scores[:, 1] - labels) ** 2, scores[:, 1], labels == 1
            else:
                distance = ((scores - truth) ** 2).sum(axis=1)
                confidence, event = scores.max(axis=1), scores.argmax(axis=1) == labels
            sums["brier"] = weights @ distance
            sums["calibration"] = calibration_sums(confidence, event, weights)
        self._add(sums)
        columns = slice(1, 2) if self._classes == 2 else slice(None)
        self._curves.add(scores[:, columns], truth[:, columns], weights)
        return self

    def _every_score(self, scores: Array) -> Array:
        scores = scores[:, None] if scores.ndim == 1 else scores
        if scores.shape[1:] == (1,) and self._classes == 2:
            scores = np.concatenate([1 - scores if self.probabilistic else -scores, scores], axis=1)
        if scores.shape[1:] != (self._classes,):
            raise ValueError(
                f"Scores must have shape (n, {self._classes}), one a class, received {scores.shape}; "
                "give every class a score."
            )
        return scores

    def _check_classes(self, values: Array, name: str) -> Array:
        if values.ndim != 1:
            raise ValueError(f"{name} must have shape (n,), one class a row, received {values.shape}.")
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{name} must be whole numbers, received {values.dtype}; index the classes.")
        wrong = values[~np.isin(values, np.arange(self._classes))]
        if len(wrong):
            raise ValueError(
                f"{name} must be whole numbers from 0 to {self._classes - 1}, received {wrong[0]:g}; index the classes."
            )
        return values.astype(np.int64)

    def merge(self, other: Self) -> Self:
        super().merge(other)
        self._curves.merge(other._curves)
        return self

    def to_arrays(self) -> dict[str, Array]:
        return super().to_arrays() | self._curves.to_arrays()

    def _restore(self, arrays: dict[str, Array]) -> None:
        self._curves.restore(arrays)
        super()._restore(arrays)

    def result(self) -> ClassificationEvaluation:
        """The measures of all rows seen; ValueError if there are none."""
        sums, known = self._sums, overall(self._sums)
        weight = known["weight"]
        confusion = sums["confusion"]
        right, support, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
        per_class = [class_scores(*row) for row in zip(right, predicted, support, strict=True)]
        return ClassificationEvaluation(
            **known,
            accuracy=float(right.sum() / support.sum()),
            top_k=tuple((k, float(hits / weight)) for k, hits in zip(self._top_k, sums["top_hits"], strict=True)),
            matthews=matthews(confusion),
            per_class=tuple(per_class),
            macro=averaged(per_class, (support + predicted > 0).astype(float)),
            micro=class_scores(right.sum(), support.sum(), support.sum()),
            weighted=averaged(per_class, support),
            confusion=tuple(tuple(row) for row in confusion.tolist()),
            curves=self._curves.curves(),
            curves_exact=self._curves.exact,
            log_loss=float(sums["log_loss"] / weight) if self.probabilistic else None,
            brier=float(sums["brier"] / weight) if self.probabilistic else None,
            calibration=calibration(sums["calibration"]) if self.probabilistic else None,
        )
