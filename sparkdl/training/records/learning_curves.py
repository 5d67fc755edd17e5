"""How a network learned, as a figure; drawn without pyplot, so that neither a display nor a backend is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sparkdl.pictures import Picture
from sparkdl.training.results import Epoch

MARKED = 30  # epochs; curves of more go without a mark for each


def learning_figure(
    history: Sequence[Epoch], metric: str | Mapping[str, str], best: Sequence[Any] | None = None
) -> Figure:
    """Loss and metric of every epoch, in training and on the validation rows if there are any.

    Of several outputs, the loss of all, and below it a row for each with its loss and its metric.

    Parameters
    ----------
    history : sequence of Epoch
    metric : str, or dict of str
        What the metric is; of several outputs by output.
    best : [epochs, steps of the next epoch, monitored value], optional
        The best check of early stopping, which is marked.
    """
    panels = _panels(history, metric)
    figure = Picture(figsize=(9, max(4.2, 2.8 * len(panels))), layout="constrained")
    moment = None if best is None else _moment(history, *best[:2])
    for row, across in zip(panels, figure.subplots(len(panels), 2, squeeze=False), strict=True):
        for title, axes in zip_longest(row, across):
            if title is None:
                axes.remove()
                continue
            for label, values in row[title].items():
                _draw(axes, values, label)
            if best is not None:
                label = f"best check ({best[2]:.4g})"
                axes.axvline(moment, color="gray", linestyle=":", label=label)
            axes.set(title=title, xlabel="epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if axes.get_legend_handles_labels()[1]:
                axes.legend(fontsize=7)
    return figure


def _panels(
    history: Sequence[Epoch], metric: str | Mapping[str, str]
) -> list[dict[str, dict[str, list[float | None]]]]:
    """What is drawn, row by row: by title, and then by label, a value for every epoch."""
    epochs = [epoch._asdict() for epoch in history]
    if isinstance(metric, str):
        return [{"loss": _curves(epochs, "loss"), metric: _curves(epochs, "metric")}]
    panels = [{"loss": _curves(epochs, "loss")}]
    for name, its_metric in metric.items():
        own = [epoch["outputs"][name] for epoch in epochs]
        panels.append({f"{name}: loss": _curves(own, "loss"), f"{name}: {its_metric}": _curves(own, "metric")})
    return panels


def _curves(epochs: Sequence[Mapping[str, Any]], what: str) -> dict[str, list[float | None]]:
    return {
        label: [epoch[f"{prefix}{what}"] for epoch in epochs]
        for label, prefix in (("training", ""), ("validation", "validation_"))
    }


def _moment(history: Sequence[Epoch], epochs: int, steps: int) -> float:
    """Where on the axis of epochs, of which the first ends at 1."""
    return epochs + (steps / max(history[epochs].steps, steps) if steps and epochs < len(history) else 0)


def _draw(axes: Axes, values: Sequence[float | None], label: str) -> None:
    points = [(number, value) for number, value in enumerate(values, 1) if value is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="o" if len(values) <= MARKED else None, markersize=3)
