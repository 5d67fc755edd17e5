"""A loss at every position of a row: of every pixel, or of every step of a sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.losses.categorical import SoftmaxCrossEntropy
from sparkdl.losses.loss import Loss
from sparkdl.moves import Move, moved_map
from sparkdl.specs import is_integer

NO_CLASS = -1  # in place of a class where there is none; elsewhere that is NaN


def of_one_position(loss: Loss) -> Loss:
    """What a loss asks of a position: that of which it is the mean, or itself if it knows no positions."""
    return loss._of_one if isinstance(loss, EachPosition) else loss


@dataclass(frozen=True)
class EachPosition(Loss):
    """The mean, over the positions of a row that have a label, of another loss, as for segmentation.

    outputs  (batch, *positions, outputs)
    labels   (batch, *positions) classes, or (batch, *positions, labels); the positions may also be one axis

    Where a row's positions are the rows and columns of an image, its labels follow layers that move what is in it in
    training, as `RandomFlip` and `RandomAffine` do: each position then has the label of the nearest one before.

    Parameters
    ----------
    loss : Loss or str, default SoftmaxCrossEntropy()
        Of a position.
    ignore_class : int, optional
        The label of positions that have none, such as 255 in many masks: they count nothing, and a row without any
        other has a loss of 0. Of losses of classes.
    """

    loss: Loss | str = SoftmaxCrossEntropy()
    ignore_class: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "loss", Loss.of(self.loss))
        if self.ignore_class is None:
            return
        if not is_integer(self.ignore_class):
            raise ValueError(
                f"ignore_class of EachPosition must be an integer, or None, received {self.ignore_class!r}; many masks "
                "have 255 where they name no class."
            )
        if not self._of_one.takes_classes:
            raise ValueError(
                f"ignore_class of EachPosition is of losses of classes, which {self._of_one!r} is not; leave it out."
            )

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

    def mask_shape(self, output_shape: tuple[int, ...]) -> tuple[int, int] | None:
        if len(output_shape) != 3 or not self._of_one.takes_classes:
            return None
        rows, columns, _ = output_shape
        return (rows, columns) if self.labels_a_row(output_shape) == rows * columns else None

    def names_places(self, output_shape: tuple[int, ...]) -> bool:
        return len(output_shape) == 3

    def check_moved(self, output_shape: tuple[int, ...], size: tuple[int, int], fill: str) -> None:
        if fill == "constant" and self.ignore_class is None:
            raise ValueError(
                "fills what is beyond the edges by a constant, where EachPosition would have no label; take "
                "fill='reflect', 'nearest' or 'wrap', or say ignore_class."
            )
        rows, columns, _ = output_shape
        if fill and (size[0] % rows or size[1] % columns):
            raise ValueError(
                f"moves what is in images of {size[0]} x {size[1]}, but of {rows} x {columns} labels nothing says "
                "which part of the image each is of; take RandomFlip alone, or an image of as many positions as "
                "labels, or of a multiple."
            )

    def moved(self, labels: Array, output_shape: tuple[int, ...], move: Move) -> Array:
        own = labels.reshape(len(labels), *output_shape[:2], -1)
        return moved_map(own, move, _missing(labels)).reshape(labels.shape)

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
        if self.ignore_class is None:
            encoded = self._of_one.encode(flat, (outputs,))
        else:
            known = (flat != self.ignore_class).all(axis=tuple(range(1, flat.ndim)))
            found = self._of_one.encode(flat[known], (outputs,))
            encoded = np.full((len(flat), *found.shape[1:]), _missing(found), found.dtype)
            encoded[known] = found
        return encoded.reshape(len(labels), count, *encoded.shape[1:])

    def targets(self, outputs: Array, labels: Array) -> Array:
        targets = self._of_one.targets(self._positions(outputs), labels.reshape(-1, *labels.shape[2:]))
        return jnp.where(self._known(labels)[..., None], targets.reshape(*labels.shape[:2], -1), jnp.nan)

    def losses(self, outputs: Array, targets: Array) -> Array:
        known = self._known(targets)
        return _means(self._of_one.losses(self._positions(outputs), without_gaps(targets, known)), known)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        known = self._known(targets)
        found = self._of_one.slopes(self._positions(outputs), without_gaps(targets, known))
        each = jnp.where(known[..., None], found.reshape(*known.shape, -1), 0)
        return (each / _counts(known, found.dtype)[:, None, None]).reshape(outputs.shape)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        known = self._known(labels)
        return _means(self._of_one.metrics(self._positions(outputs), without_gaps(labels, known)), known)

    def predict(self, outputs: Array) -> Array:
        return self._of_one.predict(self._positions(outputs)).reshape(outputs.shape)

    def _positions(self, outputs: Array) -> Array:
        """Every position as a row."""
        return outputs.reshape(-1, outputs.shape[-1])

    def _known(self, labels: Array) -> Array:
        """(batch, positions): which have a label, of encoded ones, or of targets, (batch, positions, ...)."""
        if self.ignore_class is None:
            return jnp.ones(labels.shape[:2], bool)
        missing = labels == NO_CLASS if jnp.issubdtype(labels.dtype, jnp.integer) else jnp.isnan(labels)
        return ~missing.any(axis=tuple(range(2, labels.ndim)))


def _missing(labels: Any) -> float:
    """What stands in labels of this kind, NumPy's or JAX's, for none."""
    return NO_CLASS if np.issubdtype(labels.dtype, np.integer) else math.nan


def without_gaps(labels: Array, known: Array) -> Array:
    """Of every position as a row; 0 where there are none."""
    found = jnp.where(known.reshape(*known.shape, *(1,) * (labels.ndim - 2)), labels, 0)
    return found.reshape(-1, *labels.shape[2:])


def _means(found: Array, known: Array) -> Array:
    """By row the mean over positions that have a label."""
    return jnp.where(known, found.reshape(known.shape), 0).sum(axis=1) / _counts(known, found.dtype)


def _counts(known: Array, dtype: Any) -> Array:
    return jnp.maximum(known.sum(axis=1), 1).astype(dtype)
