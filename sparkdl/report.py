"""One picture of a trained image classifier: how it learned, what it confuses, and some of the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sparkdl.arrays import Array

SHOWN = 4  # rows and columns of images


def classifier_report(
    path: Path, losses: Sequence[float], images: Array, truth: Array, predicted: Array, names: Sequence[str]
) -> None:
    """Write a PNG with the loss curve, the confusion matrix and the first images.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    losses : sequence of float
        Of every epoch.
    images : array (n, height, width)
        Gray, 0 is black.
    truth, predicted : int array (n,)
        Classes of the images.
    names : sequence of str
        The classes' names.
    """
    figure = Figure(figsize=(15, 4.8), layout="constrained")  # no pyplot: needs neither a display nor a backend
    curve, matrix, gallery = figure.subfigures(1, 3, squeeze=False)[0]
    _draw_losses(curve.add_subplot(), losses)
    _draw_confusion(matrix.add_subplot(), confusion(truth, predicted, len(names)), names)
    for number, axes in enumerate(gallery.subplots(SHOWN, SHOWN).flat):
        axes.axis("off")
        if number < len(images):
            _draw_image(axes, images[number], names[truth[number]], names[predicted[number]])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def confusion(truth: Array, predicted: Array, classes: int) -> Array:
    """Counts (classes, classes): row i, column j holds how many of class i were taken for class j."""
    return np.bincount(truth * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def _draw_losses(axes: Axes, losses: Sequence[float]) -> None:
    axes.plot(range(1, len(losses) + 1), losses, marker="o")
    axes.set(title="Training loss", xlabel="epoch", ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_confusion(axes: Axes, counts: Array, names: Sequence[str]) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", fontsize=7, color=color)
    axes.set(title=f"Accuracy {counts.trace() / max(counts.sum(), 1):.1%}", xlabel="predicted", ylabel="class")
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)


def _draw_image(axes: Axes, image: Array, truth: str, predicted: str) -> None:
    axes.imshow(image, cmap="gray_r")
    right = truth == predicted
    axes.set_title(predicted if right else f"{predicted}\nnot {truth}", fontsize=8, color="green" if right else "red")
