"""Evaluation of quantiles of numbers: what each costs, and how many labels it is above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from sparkdl.evaluation.base import (
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


@dataclass(frozen=True)
class QuantileErrors(Spec):
    """How well one quantile is told.

    Attributes
    ----------
    pinball : float
        Mean of max(q * (label - prediction), (q - 1) * (label - prediction)) (Koenker and Bassett 1978), scikit-learn's
        `mean_pinball_loss`.
    coverage : float
        Share of the labels that are at most the prediction; q of a quantile that is told well.
    """

    pinball: float
    coverage: float


@dataclass(frozen=True, repr=False)
class QuantileEvaluation(Evaluation):
    """How well quantiles are told; every number is by weight.

    Attributes
    ----------
    quantiles : tuple of float
        Those that are predicted.
    per_position : tuple of tuple of QuantileErrors
        By position of a row, of which a loss that is not of each position has one, and by quantile.
    average : tuple of QuantileErrors
        By quantile, the plain mean over positions.
    pinball : float
        The plain mean over positions and quantiles.
    """

    quantiles: tuple[float, ...]
    per_position: tuple[tuple[QuantileErrors, ...], ...]
    average: tuple[QuantileErrors, ...]
    pinball: float

    def _overall(self) -> dict[str, float | None]:
        return {"rows": self.rows, "weight": self.weight, "pinball": self.pinball, "loss": self.loss}

    def to_pandas(self) -> pd.DataFrame:
        """Pinball loss and coverage of each quantile, at each position (index 0, 1, ...) and their average."""
        columns = {
            f"{name}_{quantile:g}": [getattr(row[place], name) for row in (*self.per_position, self.average)]
            for name in ("pinball", "coverage")
            for place, quantile in enumerate(self.quantiles)
        }
        return pd.DataFrame(columns, [*range(len(self.per_position)), "average"], dtype=float)

    def plot(self) -> Figure:
        """Pinball loss and coverage of each quantile, by position as bars."""
        from sparkdl.evaluation.plots import quantile_figure

        return quantile_figure(self.to_pandas().iloc[:-1], self.quantiles)


class QuantileMeasures(SummingAccumulator):
    """Sums over rows for a `QuantileEvaluation`.

    Parameters
    ----------
    quantiles : sequence of float
    positions : int, default 1
        Of a row, each of which has a label.
    """

    def __init__(self, quantiles: Sequence[float], positions: int = 1) -> None:
        super().__init__(quantiles=list(quantiles), positions=positions)
        self._quantiles, self._positions = tuple(quantiles), positions

    def add(self, predictions: Any, labels: Any, weights: Any = None, *, losses: Any = None) -> Self:
        """Count rows in; returns self.

        Parameters
        ----------
        predictions : array (n, positions * quantiles)
            Position after position, of each all quantiles.
        labels : array (n, positions)
            Or (n,) for one position.
        weights : array (n,), optional
            Finite and at least 0; 1 unless given.
        losses : array (n,), optional
            Each row's loss.

        Raises
        ------
        ValueError
            Shapes do not fit, or a prediction or label is not finite.
        """
        predictions, labels = np.asarray(predictions), np.asarray(labels)
        labels = labels[:, None] if labels.ndim == 1 else labels
        shape = self._positions, len(self._quantiles)
        if predictions.shape[1:] != (shape[0] * shape[1],) or labels.shape[1:] != shape[:1]:
            raise ValueError(
                f"Predictions and labels must have shapes (n, {shape[0] * shape[1]}) and (n, {shape[0]}), received "
                f"{predictions.shape} and {labels.shape}; give a prediction for every quantile and a label for every "
                "position."
            )
        weights, (predictions, labels, losses) = counted(weights, len(predictions), predictions, labels, losses)
        predictions, labels = require_finite(predictions).reshape(-1, *shape), require_finite_labels(labels)[..., None]
        if not len(weights):
            return self
        lack, quantiles = labels - predictions, np.array(self._quantiles)
        pinball = np.maximum(quantiles * lack, (quantiles - 1) * lack)
        sums = totals(weights, losses) | {
            "pinball": np.tensordot(weights, pinball, 1),
            "covered": np.tensordot(weights, lack <= 0, 1),
        }
        self._add(sums)
        return self

    def result(self) -> QuantileEvaluation:
        """The measures of all rows seen; ValueError if there are none."""
        known = overall(self._sums)
        means = (
            np.stack([self._sums["pinball"], self._sums["covered"]], axis=-1) / known["weight"]
        )  # (positions, quantiles, 2)
        return QuantileEvaluation(
            **known,
            quantiles=self._quantiles,
            per_position=tuple(tuple(QuantileErrors(*each) for each in row) for row in means.tolist()),
            average=tuple(QuantileErrors(*each) for each in means.mean(axis=0).tolist()),
            pinball=float(means[..., 0].mean()),
        )
