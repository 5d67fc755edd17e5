"""A loss at every position of a row: of every pixel, or of every step of a sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from sparkdl.losses.categorical import SoftmaxCrossEntropy
from sparkdl.losses.loss import Loss
from sparkdl.moves import Move, moved_map


def of_one_position(loss: Loss) -> Loss:
    """What a loss asks of a position: that of which it is the mean, or itself if it knows no positions."""
    return loss._of_one if isinstance(loss, EachPosition) else loss


@dataclass(frozen=True)
class EachPosition(Loss):
    """The mean, over the positions of a row, of another loss, as for segmentation.

    outputs  (batch, *positions, outputs)
    labels   (batch, *positions) classes, or (batch, *positions, labels); the positions may also be one axis

    Where a row's positions are the rows and columns of an image, its labels follow layers that move what is in it in
    training, as `RandomFlip` and `RandomAffine` do: each position then has the label of the nearest one before.

    Parameters
    ----------
    loss : Loss or str, default SoftmaxCrossEntropy()
        Of a position.
    """

    loss: Loss | str = SoftmaxCrossEntropy()

    labels_everywhere = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "loss", Loss.of(self.loss))

    @property
    def _of_one(self) -> Loss:
        return Loss.of(self.loss)

    @property
    def metric(self) -> str:  # type: ignore[override]
        """That of the loss of a position."""
        return self._of_one.metric

    def check(self, output_shape: tuple[int, ...]) -> None:
        if len(output_shape) < 2:
            raise ValueError(
                f"EachPosition needs a network ending in rows of shape (*positions, outputs), this one ends in "
                f"{tuple(output_shape)}; use its loss, {self._of_one!r}, alone."
            )
        self._of_one.check(output_shape[-1:])

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        *positions, outputs = output_shape
        one_class = self._of_one.takes_classes and outputs > 1
        return math.prod(positions) * (1 if one_class else self._of_one.labels_a_row((outputs,)))

    def names_places(self, output_shape: tuple[int, ...]) -> bool:
        return len(output_shape) == 3

    def moved(self, labels: Array, output_shape: tuple[int, ...], move: Move) -> Array:
        return moved_map(labels.reshape(len(labels), *output_shape[:2], -1), move).reshape(labels.shape)

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        *positions, outputs = output_shape
        count = math.prod(positions)
        each = self._of_one.labels_a_row((outputs,))
        shapes = [(*positions,), (count,), (*positions, each), (count, each), (count * each,)]
        if labels.shape[1:] not in shapes:
            raise ValueError(
                f"EachPosition takes labels of shape {tuple(positions)}, since the network has rows of shape "
                f"{tuple(output_shape)}, received {labels.shape[1:]}; give one label a position."
            )
        size = math.prod(labels.shape[1:]) // count
        flat = labels.reshape(-1, size) if size > 1 else labels.reshape(-1)
        encoded = self._of_one.encode(flat, (outputs,))
        return encoded.reshape(len(labels), count, *encoded.shape[1:])

    def targets(self, outputs: Array, labels: Array) -> Array:
        flat = labels.reshape(-1, *labels.shape[2:])
        targets = self._of_one.targets(self._positions(outputs), flat)
        return targets.reshape(*labels.shape[:2], -1)

    def losses(self, outputs: Array, targets: Array) -> Array:
        found = self._of_one.losses(self._positions(outputs), targets.reshape(-1, targets.shape[-1]))
        return found.reshape(len(outputs), -1).mean(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        found = self._of_one.slopes(self._positions(outputs), targets.reshape(-1, targets.shape[-1]))
        return found.reshape(outputs.shape) / targets.shape[1]

    def metrics(self, outputs: Array, labels: Array) -> Array:
        found = self._of_one.metrics(self._positions(outputs), labels.reshape(-1, *labels.shape[2:]))
        return found.reshape(len(outputs), -1).mean(axis=1)

    def predict(self, outputs: Array) -> Array:
        return self._of_one.predict(self._positions(outputs)).reshape(outputs.shape)

    def _positions(self, outputs: Array) -> Array:
        """Every position as a row."""
        return outputs.reshape(-1, outputs.shape[-1])
