"""Evaluations as figures; drawn without pyplot, so that neither a display nor a backend is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparkdl.evaluation.calibration import BINS, EDGES, Calibration
from sparkdl.evaluation.curves import Curve
from sparkdl.pictures import Picture

NAMED = 10  # more curves than this go without a legend, more classes without numbers in their cells


def classification_figure(
    confusion: Any, accuracy: float, curves: Sequence[Curve], calibration: Calibration | None
) -> Figure:
    """Confusion matrix, ROC, precision-recall and, of probabilities, reliability.

    `confusion` is an array (classes, classes).
    """
    panels = _panels(4 if calibration else 3)
    _draw_confusion(panels[0], confusion, accuracy)
    names = ["1"] if len(confusion) == 2 else [str(number) for number in range(len(curves))]
    _draw_curves(panels[1], panels[2], curves, names)
    if calibration:
        title = f"Calibration error {calibration.expected_error:.3f}"
        _draw_reliability(panels[3], [calibration], ["reliability"], title)
    return panels[0].get_figure(root=True)  # type: ignore[return-value]


def multilabel_figure(
    per_label: Sequence[Any],
    subset_accuracy: float,
    curves: Sequence[Curve],
    calibration: Sequence[Calibration] | None,
) -> Figure:
    """F1 of each label, ROC, precision-recall and, of probabilities, reliability."""
    panels = _panels(4 if calibration else 3)
    names = [str(number) for number in range(len(per_label))]
    _draw_bars(panels[0], {name: [getattr(s, name) for s in per_label] for name in ("precision", "recall")})
    panels[0].set(title=f"Subset accuracy {subset_accuracy:.1%}", xlabel="label", ylim=(0, 1))
    _draw_curves(panels[1], panels[2], curves, names)
    if calibration:
        _draw_reliability(panels[3], calibration, names, "Reliability")
    return panels[0].get_figure(root=True)  # type: ignore[return-value]


def regression_figure(frame: pd.DataFrame) -> Figure:
    """Errors, and R2 and correlation, of each output, of which each is a row of `RegressionEvaluation.to_pandas`."""
    panels = _panels(2)
    for panel, names, title in ((panels[0], ["rmse", "mae"], "Error"), (panels[1], ["r2", "correlation"], "Agreement")):
        _draw_bars(panel, {name: frame[name].to_numpy() for name in names})
        panel.set(title=title, xlabel="output")
    return panels[0].get_figure(root=True)  # type: ignore[return-value]


def quantile_figure(frame: pd.DataFrame, quantiles: Sequence[float]) -> Figure:
    """Pinball loss, and coverage beside what it should be, by position, of which each is a row of
    `QuantileEvaluation.to_pandas`."""
    panels = _panels(2)
    for panel, name, title in ((panels[0], "pinball", "Pinball loss"), (panels[1], "coverage", "Labels at or below")):
        _draw_bars(panel, {f"{quantile:g}": frame[f"{name}_{quantile:g}"].to_numpy() for quantile in quantiles})
        panel.set(title=title, xlabel="position")
    for quantile in quantiles:
        panels[1].axhline(quantile, color="gray", linestyle=":")
    return panels[0].get_figure(root=True)  # type: ignore[return-value]


def detection_figure(frame: pd.DataFrame) -> Figure:
    """Average precisions, and recall, of each class, of which each is a row of `DetectionEvaluation.to_pandas`."""
    panels = _panels(2)
    for panel, names, title in (
        (panels[0], ["average_precision", "average_precision_50", "average_precision_75"], "Average precision"),
        (panels[1], ["recall_50"], "Objects found"),
    ):
        _draw_bars(panel, {name: frame[name].to_numpy() for name in names})
        panel.set(title=title, xlabel="class", ylim=(0, 1))
    return panels[0].get_figure(root=True)  # type: ignore[return-value]


def _panels(count: int) -> list[Axes]:
    figure = Picture(figsize=(4.5 * count, 4.2), layout="constrained")
    return list(figure.subplots(1, count, squeeze=False)[0])


def _draw_confusion(axes: Axes, confusion: Any, accuracy: float) -> None:
    totals = confusion.sum(axis=1, keepdims=True)
    shares = confusion / np.where(totals > 0, totals, 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(confusion) <= NAMED:
        for (row, column), weight in np.ndenumerate(confusion):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{weight:g}", ha="center", va="center", fontsize=7, color=color)
        axes.set_xticks(range(len(confusion)))
        axes.set_yticks(range(len(confusion)))
    axes.set(title=f"Accuracy {accuracy:.1%}", xlabel="predicted", ylabel="class")


def _draw_curves(roc: Axes, precision_recall: Axes, curves: Sequence[Curve], names: Sequence[str]) -> None:
    for curve, name in zip(curves, names, strict=True):
        if curve.roc_area is not None:
            roc.plot(*curve.roc, label=f"{name}: {curve.roc_area:.3f}")
        if curve.average_precision is not None:
            precision, recall = curve.precision_recall
            label = f"{name}: {curve.average_precision:.3f}"
            precision_recall.step(np.append(0, recall), np.append(precision[0], precision), where="pre", label=label)
    roc.plot([0, 1], [0, 1], color="gray", linestyle=":")
    roc.set(title="ROC (area)", xlabel="false positive rate", ylabel="true positive rate")
    precision_recall.set(title="Precision and recall (average precision)", xlabel="recall", ylabel="precision")
    precision_recall.set(xlim=(0, 1.02), ylim=(0, 1.02))
    for axes in (roc, precision_recall):
        if axes.get_legend_handles_labels()[1] and len(curves) <= NAMED:
            axes.legend(fontsize=7)


def _draw_reliability(axes: Axes, calibrations: Sequence[Calibration], names: Sequence[str], title: str) -> None:
    if len(calibrations) == 1:
        heights = [value or 0.0 for value in calibrations[0].frequency]
        axes.bar(EDGES[:-1], heights, width=1 / BINS, align="edge", alpha=0.3)
    for calibration, name in zip(calibrations, names, strict=True):
        points = zip(calibration.confidence, calibration.frequency, strict=True)
        known = np.array([point for point in points if None not in point])
        axes.plot(*known.T, marker="o", markersize=3, label=name)
    axes.plot([0, 1], [0, 1], color="gray", linestyle=":")
    axes.set(title=title, xlabel="mean probability", ylabel="share that came true", xlim=(0, 1), ylim=(0, 1.02))
    if 1 < len(calibrations) <= NAMED:
        axes.legend(fontsize=7)


def _draw_bars(axes: Axes, values: dict[str, Any]) -> None:
    width = 0.8 / len(values)
    for place, (name, heights) in enumerate(values.items()):
        axes.bar(np.arange(len(heights)) + (place - (len(values) - 1) / 2) * width, heights, width, label=name)
    axes.set_xticks(range(len(heights)))
    axes.legend(fontsize=7)
