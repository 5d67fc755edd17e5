"""Dropout, the regularisation that hides random inputs from a network while it trains."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted


@dataclass(frozen=True)
class Dropout(Layer):
    """Sets inputs to 0 at random in training and does nothing at inference (Srivastava et al. 2014).

    The inputs that stay are multiplied by 1 / (1 - rate), so that the expectation of y is x.
    x, y, dx and dy all have one shape, (batch, ...).

    Parameters
    ----------
    rate : float
        Probability of DROPPING an input, in [0, 1): Dropout(0.1) keeps nine in ten.
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rate, (str, bool)) or not 0 <= self.rate < 1:
            raise ValueError(
                f"rate of Dropout, the probability of dropping an input, must be at least 0 and below 1, "
                f"received {self.rate!r}; Dropout(0.5) drops half of them."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        stays = jax.random.bernoulli(context.key, 1 - self.rate, x.shape)
        return jnp.where(stays, x / (1 - self.rate), 0), stays

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return jnp.where(kept, dy / (1 - self.rate), 0)
