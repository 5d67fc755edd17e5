"""Losses of comparisons: whether two rows are alike, or which of two is nearer or better."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.losses.loss import Loss
from sparkdl.specs import check_range


@dataclass(frozen=True)
class Contrastive(Loss):
    """t * d ** 2 + (1 - t) * max(0, margin - d) ** 2 of distances d, t = 1 for a pair that is alike (Hadsell 2006).

    The outputs are distances, as of a `Distance` layer. A pair counts as alike below half the margin: "accuracy".

    Parameters
    ----------
    margin : float, default 1
        Distance from which on pairs that are not alike cost nothing.
    """

    margin: float = 1.0
    label_range = (0.0, 1.0)
    metric = "accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "margin")

    def losses(self, outputs: Array, targets: Array) -> Array:
        near = jnp.maximum(self.margin - outputs, 0)
        return (targets * outputs**2 + (1 - targets) * near**2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return 2 * (targets * outputs - (1 - targets) * jnp.maximum(self.margin - outputs, 0))

    def metrics(self, outputs: Array, labels: Array) -> Array:
        alike = self.targets(outputs, labels) > 0.5
        return ((outputs < self.margin / 2) == alike).astype(outputs.dtype).mean(axis=1)


@dataclass(frozen=True)
class Comparison(Loss):
    """Base of the losses of two outputs and one label a row, 1 if it is the first that is meant, 0 for the second.

    "accuracy" is the share of rows in which the loss has them in the right order.
    """

    label_range = (0.0, 1.0)
    metric = "accuracy"

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return 1

    def check(self, output_shape: tuple[int, ...]) -> None:
        if output_shape != (2,):
            raise ValueError(
                f"{type(self).__name__} needs a network ending in rows of shape (2,), this one ends in "
                f"{tuple(output_shape)}; put Concatenate() of the two at its end."
            )


@dataclass(frozen=True)
class Triplet(Comparison):
    """max(0, margin + d - e): the nearer of two distances is to be nearer by a margin (Schroff et al. 2015).

    The outputs are distances from an anchor to two others, as of `Distance`. d is the distance to the one of the
    anchor's kind, the first output where the label is 1 and the second where it is 0, and e the other.

    Parameters
    ----------
    margin : float, default 1
        As PyTorch's `TripletMarginLoss` has it.
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "margin")

    def losses(self, outputs: Array, targets: Array) -> Array:
        return jnp.maximum(0, self.margin + self._excess(outputs, targets))

    def slopes(self, outputs: Array, targets: Array) -> Array:
        sign = 2 * targets - 1
        costs = (self.margin + self._excess(outputs, targets) > 0)[:, None]
        return jnp.where(costs, jnp.concatenate([sign, -sign], axis=1), 0)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return (self._excess(outputs, self.targets(outputs, labels)) < 0).astype(outputs.dtype)

    def _excess(self, outputs: Array, targets: Array) -> Array:
        return (2 * targets[:, 0] - 1) * (outputs[:, 0] - outputs[:, 1])


@dataclass(frozen=True)
class PairwiseLogistic(Comparison):
    """-t * log(p) - (1 - t) * log(1 - p) of p = sigmoid(o_0 - o_1): the better of two has the larger score.

    Also called RankNet (Burges et al. 2005), and with t = 1 Bayesian personalized ranking (Rendle et al. 2009). A label
    of 1/2 is a tie.
    """

    def losses(self, outputs: Array, targets: Array) -> Array:
        lead = outputs[:, 0] - outputs[:, 1]
        return jax.nn.softplus(lead) - targets[:, 0] * lead

    def slopes(self, outputs: Array, targets: Array) -> Array:
        slope = jax.nn.sigmoid(outputs[:, :1] - outputs[:, 1:]) - targets
        return jnp.concatenate([slope, -slope], axis=1)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        first = self.targets(outputs, labels)[:, 0] > 0.5
        return ((outputs[:, 0] > outputs[:, 1]) == first).astype(outputs.dtype)
