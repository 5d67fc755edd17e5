"""Evaluation of regressors, by output and averaged."""

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
    require_finite_labels,
    totals,
)
from sparkdl.specs import Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERRORS = ["mse", "rmse", "mae", "r2", "rse", "correlation"]


@dataclass(frozen=True)
class OutputErrors(Spec):
    """How far predictions p of one output are from its labels t; means are by weight.

    Attributes
    ----------
    mse, rmse, mae : float
        mean((p - t) ** 2), its square root, mean(|p - t|); in the label's unit, squared for the first.
    r2 : float or None
        1 - sum((p - t) ** 2) / sum((t - mean(t)) ** 2), the coefficient of determination. Of labels that are all equal
        1 if all predictions are right, else 0, as scikit-learn has it; None of a single row.
    rse : float or None
        Relative squared error, sum((p - t) ** 2) / sum((t - mean(t)) ** 2); None of labels that are all equal.
    correlation : float or None
        Pearson's; None if labels or predictions are all equal.
    """

    mse: float
    rmse: float
    mae: float
    r2: float | None
    rse: float | None
    correlation: float | None


@dataclass(frozen=True, repr=False)
class RegressionEvaluation(Evaluation):
    """How well a regressor does; every number is by weight and equals scikit-learn's on the same rows.

    Attributes
    ----------
    per_output : tuple of OutputErrors
    average : OutputErrors
        The plain mean over outputs, of those where the measure is defined.
    """

    per_output: tuple[OutputErrors, ...]
    average: OutputErrors

    def _overall(self) -> dict[str, float | None]:
        return {"rows": self.rows, "weight": self.weight, "loss": self.loss}

    def to_pandas(self) -> pd.DataFrame:
        """MSE, RMSE, MAE, R2, RSE and correlation of each output (index 0, 1, ...) and their average."""
        rows = [[getattr(output, name) for name in ERRORS] for output in (*self.per_output, self.average)]
        return pd.DataFrame(rows, [*range(len(self.per_output)), "average"], ERRORS, dtype=float)

    def plot(self) -> Figure:
        """RMSE and MAE, and R2 and correlation, of each output as bars."""
        from sparkdl.evaluation.plots import regression_figure

        return regression_figure(self.to_pandas().iloc[:-1])


class RegressionMeasures(SummingAccumulator):
    """Sums over rows for a `RegressionEvaluation`.

    Means and squared deviations of parts are combined by the formulas of Chan, Golub and LeVeque (1983), which lose no
    digits where values are far from 0.

    Parameters
    ----------
    outputs : int
        Of a row.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__(outputs=outputs)
        self._outputs = outputs
        # The last axis but one of the following is predictions, labels. Means are in two parts, the second being what
        # the first is off by rounding, since means of parts are subtracted from each other.
        self._means = np.zeros((2, 2, outputs))
        self._products = np.zeros((2, 2, outputs))  # of both with both: sums of weight * deviation ** 2
        self._bounds = np.stack([np.full((2, outputs), np.inf), np.full((2, outputs), -np.inf)])  # least, most

    def add(self, predictions: Any, labels: Any, weights: Any = None, *, losses: Any = None) -> Self:
        """Count rows in; returns self.

        Parameters
        ----------
        predictions, labels : array (n, outputs)
            Or (n,) for one output.
        weights : array (n,), optional
            Finite and at least 0; 1 unless given.
        losses : array (n,), optional
            Each row's loss.

        Raises
        ------
        ValueError
            Shapes do not fit, or a prediction or label is not finite.
        """
        predictions, labels = (
            np.asarray(each)[:, None] if np.ndim(each) == 1 else np.asarray(each) for each in (predictions, labels)
        )
        if predictions.shape[1:] != (self._outputs,) or labels.shape[1:] != (self._outputs,):
            raise ValueError(
                f"Predictions and labels must have shape (n, {self._outputs}), received {predictions.shape} and "
                f"{labels.shape}; give one label an output."
            )
        weights, (predictions, labels, losses) = counted(weights, len(predictions), predictions, labels, losses)
        predictions, labels = require_finite(predictions), require_finite_labels(labels)
        if not len(weights):
            return self
        part = type(self)(self._outputs)
        pairs = np.stack([predictions, labels])  # (2, n, outputs)
        mean = weights @ pairs / weights.sum()
        rest = weights @ (pairs - mean[:, None]) / weights.sum()
        part._means = np.stack([mean, rest])
        deviations = pairs - mean[:, None] - rest[:, None]
        part._products = np.einsum("n,ano,bno->abo", weights, deviations, deviations)
        part._bounds = np.stack([pairs.min(axis=1), pairs.max(axis=1)])
        distances = np.abs(predictions - labels)
        part._add(totals(weights, losses) | {"squared": weights @ distances**2, "absolute": weights @ distances})
        return self.merge(part)

    def merge(self, other: Self) -> Self:
        self._check_mergeable(other)
        if not other._sums:
            return self
        if not self._sums:
            self._restore(other.to_arrays())
            return self
        own, others = self._sums["weight"], other._sums["weight"]
        weight = own + others
        apart = (other._means - self._means).sum(axis=0)
        self._products = self._products + other._products + apart[:, None] * apart[None] * (own * others / weight)
        mean, rest = self._means
        rest = rest + apart * (others / weight)
        self._means = np.stack([mean + rest, rest - (mean + rest - mean)])
        self._bounds = np.stack(
            [np.minimum(self._bounds[0], other._bounds[0]), np.maximum(self._bounds[1], other._bounds[1])]
        )
        self._add(other._sums)
        return self

    def to_arrays(self) -> dict[str, Array]:
        moments = {"means": self._means, "products": self._products, "bounds": self._bounds}
        return super().to_arrays() | moments

    def _restore(self, arrays: dict[str, Array]) -> None:
        self._means, self._products, self._bounds = (arrays.pop(name) for name in ("means", "products", "bounds"))
        super()._restore(arrays)

    def result(self) -> RegressionEvaluation:
        """The measures of all rows seen; ValueError if there are none."""
        known = overall(self._sums)
        per_output = tuple(self._output(number) for number in range(self._outputs))
        average = OutputErrors(*(_mean_of_known([getattr(each, name) for each in per_output]) for name in ERRORS))  # type: ignore[arg-type]
        return RegressionEvaluation(**known, per_output=per_output, average=average)

    def _output(self, number: int) -> OutputErrors:
        squared, absolute = self._sums["squared"][number], self._sums["absolute"][number]
        products = self._products[:, :, number]
        varies = self._bounds[1, :, number] > self._bounds[0, :, number]  # of predictions, of labels
        rse = float(squared / products[1, 1]) if varies[1] else None
        r2 = None if self._sums["rows"] < 2 else 1 - rse if rse is not None else float(squared == 0)
        correlation = None
        if varies.all():
            correlation = float(np.clip(products[0, 1] / np.sqrt(products[0, 0] * products[1, 1]), -1, 1))
        weight = self._sums["weight"]
        mse = float(squared / weight)
        return OutputErrors(mse, float(np.sqrt(mse)), float(absolute / weight), r2, rse, correlation)


def _mean_of_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
