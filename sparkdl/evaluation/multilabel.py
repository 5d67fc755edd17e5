"""Evaluation of classifiers that give every row any number of labels, each present or not."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LabelScores(ClassScores):
    """How well one label is told.

    Attributes
    ----------
    accuracy : float
        Share of the rows where presence is predicted rightly.
    matthews : float
    log_loss, brier : float or None
        Mean of -log(probability of what is so), clipped as in `ClassificationEvaluation`, and of
        (probability - label) ** 2; None where scores are no probabilities.
    """

    accuracy: float
    matthews: float
    log_loss: float | None
    brier: float | None


@dataclass(frozen=True, repr=False)
class MultilabelEvaluation(Evaluation):
    """How well labels are told; every number is by weight and equals scikit-learn's on the same rows.

    Attributes
    ----------
    subset_accuracy : float
        Share of the rows with every label right.
    hamming_loss : float
        Share of wrong labels among all labels of all rows.
    per_label : tuple of LabelScores
    macro, micro, weighted : ClassScores
        Averages: of all labels alike; of all labels of all rows as one; of labels by support.
    curves : tuple of Curve
        Of each label.
    curves_exact : bool
        Whether `curves` have every threshold; else they come from histograms.
    calibration : tuple of Calibration or None
        Of each label's probabilities; None where scores are none.
    """

    subset_accuracy: float
    hamming_loss: float
    per_label: tuple[LabelScores, ...]
    macro: ClassScores
    micro: ClassScores
    weighted: ClassScores
    curves: tuple[Curve, ...]
    curves_exact: bool
    calibration: tuple[Calibration, ...] | None

    def _overall(self) -> dict[str, float | None]:
        return {
            "rows": self.rows,
            "weight": self.weight,
            "subset accuracy": self.subset_accuracy,
            "Hamming loss": self.hamming_loss,
            "loss": self.loss,
        }

    def to_pandas(self) -> pd.DataFrame:
        """Precision, recall, F1, G-measure, IoU, support, areas and more of each label (index 0, 1, ...), and means."""
        frame = scores_frame(self.per_label, self.curves, [self.macro, self.micro, self.weighted])
        names = ["accuracy", "matthews", "log_loss", "brier"]
        rows = [[getattr(label, name) for name in names] for label in self.per_label]
        return frame.join(pd.DataFrame(rows, columns=names, dtype=float))

    def plot(self) -> Figure:
        """Scores by label, ROC and precision-recall curves and, of probabilities, reliability."""
        from sparkdl.evaluation.plots import multilabel_figure

        return multilabel_figure(self.per_label, self.subset_accuracy, self.curves, self.calibration)


class MultilabelMeasures(SummingAccumulator):
    """Sums over rows for a `MultilabelEvaluation`.

    Parameters
    ----------
    labels : int
        Of a row.
    probabilistic : bool, default True
        Whether scores are probabilities, of which those above 1/2 predict the label; else any numbers, of which those
        above 0.
    bins : int, default 1000
        Of the histograms behind curves of more than `exact_rows` rows.
    exact_rows : int, default 10000
        The most rows to keep for exact curves.

    Attributes
    ----------
    probabilistic : bool
    """

    def __init__(self, labels: int, *, probabilistic: bool = True, bins: int = 1000, exact_rows: int = 10_000) -> None:
        check_curve_options(bins, exact_rows)
        super().__init__(labels=labels, probabilistic=probabilistic, bins=int(bins), exact_rows=int(exact_rows))
        self._labels, self.probabilistic = labels, probabilistic
        self._curves = CurveSums(labels, bins, exact_rows, probabilistic)

    def add(self, scores: Any, labels: Any, weights: Any = None, *, losses: Any = None) -> Self:
        """Count rows in; returns self.

        Parameters
        ----------
        scores : array (n, labels)
        labels : array (n, labels)
            1 or True where the row has the label, else 0.
        weights : array (n,), optional
            Finite and at least 0; 1 unless given.
        losses : array (n,), optional
            Each row's loss.

        Raises
        ------
        ValueError
            Shapes do not fit, a label is neither 0 nor 1, or a score is not finite.
        """
        scores, labels = np.asarray(scores), np.asarray(labels)
        if scores.shape[1:] != (self._labels,) or labels.shape[1:] != (self._labels,):
            raise ValueError(
                f"Scores and labels must have shape (n, {self._labels}), received {scores.shape} and {labels.shape}; "
                "give every label of a row a column."
            )
        weights, (scores, labels, losses) = counted(weights, len(scores), scores, labels, losses)
        scores = require_finite(scores)
        if self.probabilistic:
            require_probabilities(scores)
        wrong = labels[(labels != 0) & (labels != 1)]
        if len(wrong):
            raise ValueError(f"Labels must be 0 or 1, received {wrong[0]:g}; mark a row's labels by 1.")
        if not len(weights):
            return self
        truth = labels.astype(bool)
        predicted = scores > (0.5 if self.probabilistic else 0)
        right = truth == predicted
        sums = totals(weights, losses) | {
            # (labels, 2, 2), as confusion matrices of each label's absence and presence
            "confusion": np.stack(
                [[weights @ ((truth == t) & (predicted == p)) for p in (False, True)] for t in (False, True)]
            ).transpose(2, 0, 1),
            "subsets": (weights * right.all(axis=1)).sum(),
        }
        if self.probabilistic:
            epsilon = np.finfo(np.float64).eps
            chances = np.where(truth, scores, 1 - scores).clip(epsilon, 1 - epsilon)
            sums["log_loss"] = -(weights @ np.log(chances))
            sums["brier"] = weights @ (scores - truth) ** 2
            columns = zip(scores.T, truth.T, strict=True)
            sums["calibration"] = np.stack([calibration_sums(*column, weights) for column in columns])
        self._add(sums)
        self._curves.add(scores, truth, weights)
        return self

    def merge(self, other: Self) -> Self:
        super().merge(other)
        self._curves.merge(other._curves)
        return self

    def to_arrays(self) -> dict[str, Array]:
        return super().to_arrays() | self._curves.to_arrays()

    def _restore(self, arrays: dict[str, Array]) -> None:
        self._curves.restore(arrays)
        super()._restore(arrays)

    def result(self) -> MultilabelEvaluation:
        """The measures of all rows seen; ValueError if there are none."""
        sums, known = self._sums, overall(self._sums)
        weight = known["weight"]
        confusion = sums["confusion"]
        right, predicted, support = confusion[:, 1, 1], confusion[:, :, 1].sum(axis=1), confusion[:, 1].sum(axis=1)
        correct = right + confusion[:, 0, 0]
        per_label = tuple(
            LabelScores(
                **vars(class_scores(right[i], predicted[i], support[i])),
                accuracy=float(correct[i] / confusion[i].sum()),
                matthews=matthews(confusion[i]),
                log_loss=float(sums["log_loss"][i] / weight) if self.probabilistic else None,
                brier=float(sums["brier"][i] / weight) if self.probabilistic else None,
            )
            for i in range(self._labels)
        )
        return MultilabelEvaluation(
            **known,
            subset_accuracy=float(sums["subsets"] / weight),
            hamming_loss=float((confusion[:, 0, 1] + confusion[:, 1, 0]).sum() / (weight * self._labels)),
            per_label=per_label,
            macro=averaged(per_label, np.ones(self._labels)),
            micro=class_scores(right.sum(), predicted.sum(), support.sum()),
            weighted=averaged(per_label, support),
            curves=self._curves.curves(),
            curves_exact=self._curves.exact,
            calibration=tuple(calibration(part) for part in sums["calibration"]) if self.probabilistic else None,
        )
