"""Dice's coefficient as a loss, for segmentation of what fills little of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp
from jax import Array

from sparkdl.losses.loss import Loss
from sparkdl.losses.positions import EachPosition, without_gaps
from sparkdl.specs import check_range


@dataclass(frozen=True)
class Dice(EachPosition):
    """1 - Dice's coefficient of classes t and probabilities p over a row's positions (Milletari et al. 2016, V-Net).

    D = (2 sum(t * p) + s) / (sum(t) + sum(p) + s) of each class, with s = `smoothing`; the loss is 1 less the mean of
    these. Of one output, or of classes that do not exclude each other, each output is a class. However few positions
    are of one, it counts as much as others.

    outputs, labels  as of `EachPosition`

    Parameters
    ----------
    loss : Loss or str, default SoftmaxCrossEntropy()
        Of a position; says what probabilities outputs stand for.
    ignore_class : int, optional
        As of `EachPosition`.
    smoothing : float, default 1
        Positions: keeps the coefficient of a class that a row lacks near 1 where few are taken for it.
    loss_weight : float, default 0
        How many times the mean of `loss` over positions is added: 1 is what Isensee et al. 2021 (nnU-Net) train with,
        as the coefficient alone tells little far from the goal.
    """

    smoothing: float = field(default=1.0, kw_only=True)
    loss_weight: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "smoothing")
        check_range(self, "[0, inf)", "loss_weight")
        if not (self._of_one.takes_classes and self._of_one.gives_probabilities):
            raise ValueError(
                f"loss of Dice must be one of classes and probabilities, such as 'softmax_cross_entropy', received "
                f"{self._of_one!r}."
            )

    def losses(self, outputs: Array, targets: Array) -> Array:
        known = self._known(targets)
        chances = self._of_one.predict(self._positions(outputs)).reshape(*known.shape, -1)
        p = jnp.where(known[..., None], chances, 0)
        t = without_gaps(targets, known).reshape(p.shape)
        each = (2 * (t * p).sum(axis=1) + self.smoothing) / ((t + p).sum(axis=1) + self.smoothing)
        added = self.loss_weight * super().losses(outputs, targets) if self.loss_weight else 0
        return 1 - each.mean(axis=-1) + added

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return Loss.slopes(self, outputs, targets)
