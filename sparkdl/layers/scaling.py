"""Preparation of numbers by what was learned of them before training, which a network's weights hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import along_channels
from sparkdl.specs import is_number, take_arrays


@dataclass(frozen=True)
class Normalization(Layer):
    """Gives each column mean 0 and variance 1: y = (x - mean) / sqrt(variance), by what was learned before training.

    x, y, dx and dy all have one shape, (batch, ..., columns).
    weights  mean and variance (columns,), which training leaves alone and a saved model holds

    `models.tabular` and `models.normalization` learn them from a DataFrame. A column whose variance is 0 is only
    shifted.

    Parameters
    ----------
    mean, variance : sequence of float, or array (columns,)
        Of every column.
    """

    each_step = True

    mean: Sequence[float]
    variance: Sequence[float]

    def __post_init__(self) -> None:
        take_arrays(self, "mean", "variance")
        super().__post_init__()
        for name, least in (("mean", -math.inf), ("variance", 0.0)):
            values = getattr(self, name)
            numbers = values if isinstance(values, tuple) else ()
            if not numbers or not all(is_number(n, least) for n in numbers):
                words = "finite numbers of at least 0" if least == 0 else "finite numbers"
                raise ValueError(f"{name} of Normalization must be {words}, one a column, received {values!r}.")
            object.__setattr__(self, name, tuple(map(float, numbers)))
        if len(self.mean) != len(self.variance):
            raise ValueError(
                f"mean and variance of Normalization must be as many, received {len(self.mean)} and "
                f"{len(self.variance)}."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] != len(self.mean):
            raise ValueError(
                f"Normalization of {len(self.mean)} columns expects rows of shape (..., {len(self.mean)}), received "
                f"{input_shape}."
            )
        return input_shape

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"mean": jnp.asarray(self.mean, float), "variance": jnp.asarray(self.variance, float)}

    def statistics(self) -> frozenset[str]:
        return frozenset({"mean", "variance"})

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return (x - along_channels(weights["mean"], x)) * self._factor(weights, x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * self._factor(weights, x)

    def _factor(self, weights: Weights, x: Array) -> Array:
        variance = along_channels(weights["variance"], x)
        return lax.rsqrt(jnp.where(variance > 0, variance, 1))
