"""How a network learned, as a figure; drawn without pyplot, so that neither a display nor a backend is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sparkdl.training.results import Epoch

MARKED = 30  # epochs; curves of more go without a mark for each


def learning_figure(history: Sequence[Epoch], metric: str, best: Sequence[Any] | None = None) -> Figure:
    """Loss and metric of every epoch, in training and on the validation rows if there are any.

    Parameters
    ----------
    history : sequence of Epoch
    metric : str
        What the metric is.
    best : [epochs, steps of the next epoch, monitored value], optional
        The best check of early stopping, which is marked.
    """
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    moment = None if best is None else _moment(history, *best[:2])
    for axes, field, title in zip(figure.subplots(1, 2), ("loss", "metric"), ("loss", metric), strict=True):
        _draw(axes, history, field, "training")
        _draw(axes, history, f"validation_{field}", "validation")
        if best is not None:
            label = f"best check ({best[2]:.4g})"
            axes.axvline(moment, color="gray", linestyle=":", label=label)  # type: ignore[arg-type]
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=7)
    return figure


def _moment(history: Sequence[Epoch], epochs: int, steps: int) -> float:
    """Where on the axis of epochs, of which the first ends at 1."""
    return epochs + (steps / max(history[epochs].steps, steps) if steps and epochs < len(history) else 0)


def _draw(axes: Axes, history: Sequence[Epoch], field: str, label: str) -> None:
    points = [
        (number, value) for number, epoch in enumerate(history, 1) if (value := getattr(epoch, field)) is not None
    ]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="o" if len(history) <= MARKED else None, markersize=3)
