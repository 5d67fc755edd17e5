"""Further activations that leave large x as it is, or nearly so, and keep little of what is below."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sparkdl.layers.activation import Activation
from sparkdl.layers.base import Array, Weights, jitted
from sparkdl.specs import is_number

_FAR = 20  # where tanh(softplus(x)) is 1 in float64, and exp(4 * x) still a number in float32


@dataclass(frozen=True)
class Mish(Activation):
    """y = x * tanh(softplus(x)), a smooth rectifier (Misra 2020).

    With z = exp(x) and p = z * (z + 2), tanh(softplus(x)) is p / (p + 2) and its slope 4 * z * (z + 1) / (p + 2)^2: of
    one exponential, and without a difference of numbers that are nearly equal.
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        z = jnp.exp(jnp.minimum(x, _FAR))
        part = z * (z + 2)
        return x * (part / (part + 2))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        near = jnp.minimum(x, _FAR)
        z = jnp.exp(near)
        part = z * (z + 2)
        whole = part + 2
        return dy * (part / whole + 4 * near * z * ((z + 1) / (whole * whole)))


@dataclass(frozen=True)
class HardSwish(Activation):
    """y = x * min(max(x + 3, 0), 6) / 6, nearly Silu (Howard et al. 2019). The subgradient at -3 is 0, at 3 it is 1."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * (jnp.clip(x + 3, 0, 6) / 6)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * jnp.where(jnp.abs(x) < 3, x / 3 + 0.5, jnp.where(x > 0, 1, 0).astype(x.dtype))


@dataclass(frozen=True)
class Celu(Activation):
    """y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0), an Elu whose slope is 1 at 0 for every alpha (Barron 2017).

    Parameters
    ----------
    alpha : float, default 1
        Minus the limit of y for small x; above 0.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.alpha) and self.alpha > 0):
            raise ValueError(f"alpha of Celu must be a finite number above 0, received {self.alpha!r}; 1 is usual.")

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.where(x > 0, x, self.alpha * jnp.expm1(jnp.minimum(x, 0) / self.alpha))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(x > 0, dy, dy * jnp.exp(jnp.minimum(x, 0) / self.alpha))


@dataclass(frozen=True)
class ThresholdedRelu(Activation):
    """y = x where x > theta, 0 elsewhere (Konda et al. 2015). The subgradient at theta is 0.

    Parameters
    ----------
    theta : float, default 1
        Up to which y is 0.
    """

    theta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.theta):
            raise ValueError(f"theta of ThresholdedRelu must be a finite number, received {self.theta!r}; 1 is usual.")

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.where(x > self.theta, x, 0)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(x > self.theta, dy, 0)
