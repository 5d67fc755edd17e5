"""The F-measure as a loss, which the rows of a batch have together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.losses.categorical import SigmoidLoss
from sparkdl.specs import check_range


@dataclass(frozen=True)
class FMeasure(SigmoidLoss):
    """1 - F of labels t, 0 or 1, and p = sigmoid(o), for rare positives (Pastor-Pellicer et al. 2013).

    F = (1 + beta ** 2) * sum(t * p) / (beta ** 2 * sum(t) + sum(p)), the F-measure of counts to which a row adds its
    probability. The sums are over the batch of all workers, rows times their weights, so batches have to be large
    enough to hold positives: one without any teaches nothing. The loss of an epoch is the mean over its batches.

    Rows by themselves have no such loss, so `evaluate` and `score_rows` refuse it; of a model that was trained by it
    they take `setLoss("sigmoid_cross_entropy")`, which reads the same outputs.

    Parameters
    ----------
    beta : float, default 1
        How many times as much recall counts as precision.
    """

    beta: float = 1.0
    whole_batch = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "beta")

    def check(self, output_shape: tuple[int, ...]) -> None:
        if output_shape != (1,):
            raise ValueError(
                f"FMeasure needs a network ending in rows of shape (1,), this one ends in {tuple(output_shape)}; put "
                "Dense(1) at its end."
            )

    def losses(self, outputs: Array, targets: Array) -> Array:
        lack, _ = self._lack(outputs, targets, jnp.ones_like(outputs))
        return jnp.broadcast_to(lack, len(outputs))

    @partial(jax.jit, static_argnums=0)
    def value(self, outputs: Array, labels: Array, weights: Array) -> Array:
        weights = weights.astype(outputs.dtype)[:, None]
        return weights.sum() * self._lack(outputs, self.targets(outputs, labels), weights)[0]

    @partial(jax.jit, static_argnums=0)
    def delta(self, outputs: Array, labels: Array, weights: Array) -> Array:
        weights, targets = weights.astype(outputs.dtype)[:, None], self.targets(outputs, labels)
        lack, whole = self._lack(outputs, targets, weights)
        slopes = (1 - lack - (1 + self.beta**2) * targets) / whole * jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)
        return jnp.where(weights != 0, weights.sum() * weights * slopes, 0)

    def _lack(self, outputs: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
        """(1 - F, what F is divided by); without any rows that weigh something (1, 1)."""
        found = jnp.where(weights != 0, weights * jax.nn.sigmoid(outputs), 0)  # a row of weight 0 may hold anything
        there = jnp.where(weights != 0, weights * targets, 0)
        whole = self.beta**2 * there.sum() + found.sum()
        whole = jnp.where(whole > 0, whole, 1)
        return 1 - (1 + self.beta**2) * jnp.where(weights != 0, targets * found, 0).sum() / whole, whole
