"""Activations that are bounded on both sides, as tanh is, but cheaper or harder."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sparkdl.layers.activation import Activation
from sparkdl.layers.base import Array, Weights, jitted
from sparkdl.specs import is_number


@dataclass(frozen=True)
class Softsign(Activation):
    """y = x / (1 + |x|), which comes to its bounds of -1 and 1 more slowly than tanh (Elliott 1993)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x / (1 + jnp.abs(x))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        slope = 1 / (1 + jnp.abs(x))
        return dy * slope * slope


@dataclass(frozen=True)
class HardTanh(Activation):
    """y = min(max(x, low), high), a tanh of straight lines (Collobert 2004). Its slope at both bounds is 0.

    Parameters
    ----------
    low, high : float, default -1 and 1
        Bounds of y, of which the first is the smaller one.
    """

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.low) and is_number(self.high) and self.low < self.high):
            raise ValueError(
                "low and high of HardTanh must be finite numbers, low below high, "
                f"received {self.low!r} and {self.high!r}; -1.0 and 1.0 are usual."
            )

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.clip(x, self.low, self.high)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where((x > self.low) & (x < self.high), dy, 0)


_FACTOR, _QUARTIC = 1.7159, 1.41645  # of RationalTanh
_FAR = 1e6  # where the approximation is 1 in float64, and far from what float32 can hold


@dataclass(frozen=True)
class RationalTanh(Activation):
    """y = 1.7159 * t(2 * x / 3) with a rational t near tanh, as in Deeplearning4j (Kalinovskii and Spitsyn 2015).

    t(u) = sign(u) * (1 - 1 / (1 + |u| + u^2 + 1.41645 * u^4)), which takes no exponentials. The factors are those of
    LeCun et al. 1998, "Efficient BackProp".
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        u = jnp.clip(2 / 3 * x, -_FAR, _FAR)
        size = jnp.abs(u)
        inner = 1 + size + _QUARTIC * size * size * size  # of which |t| = |u| * inner / (1 + |u| * inner)
        return _FACTOR * (u * inner / (1 + size * inner))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        size = jnp.minimum(2 / 3 * jnp.abs(x), _FAR)
        square = size * size
        share = 1 / (1 + size + square + _QUARTIC * square * square)
        return dy * (2 / 3 * _FACTOR) * (share * ((1 + 2 * size + 4 * _QUARTIC * square * size) * share))


@dataclass(frozen=True)
class RectifiedTanh(Activation):
    """y = max(tanh(x), 0), as in Deeplearning4j. The subgradient at 0 is 0."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.maximum(jnp.tanh(x), 0)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(y > 0, dy * (1 - y * y), 0)
