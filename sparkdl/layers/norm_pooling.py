"""The p-norm of windows, or of all positions: between an average and a maximum of sizes."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Weights, jitted
from sparkdl.layers.normalization import wide
from sparkdl.layers.pooling import GlobalPool, WindowPool, at_each_position, hand_to_inputs, sums_over
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class LpPool(WindowPool):
    """The p-norm of windows, y = (sum |x|^p)^(1/p), of which padding adds nothing (Sermanet et al. 2012).

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, *windows, channels)     dy  (batch, *windows, channels)   dL/dy

    dx = sign(x) * |x|^(p-1) * sum over windows of dy / y^(p-1), in which a window of zeros counts nothing. With p = 1
    and numbers of at least 0 it is SumPool; the larger p, the closer it comes to MaxPool of |x|.

    Parameters
    ----------
    size : int or tuple of int
        Window; an integer is the same along every spatial axis.
    strides : int or tuple of int, optional
        Distance between two windows, `size` unless given.
    padding : {"valid", "same", "full"} or tuple of (int, int), default "valid"
        As in Conv.
    p : int, default 2
        Of the norm, at least 1.
    """

    p: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "p")

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _root(sums_over(self._windows(x.shape[1:-1]), _powers(x, self.p)), self.p).astype(x.dtype)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        parts = hand_to_inputs(self._windows(x.shape[1:-1]), _part_of_norm(y, dy, self.p))
        return (_slope(x, self.p) * parts).astype(x.dtype)


@dataclass(frozen=True)
class GlobalLpPool(GlobalPool):
    """The p-norm of every channel over all positions of a row, as LpPool of windows.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, channels)               dy  (batch, channels)             dL/dy

    Parameters
    ----------
    p : int, default 2
        Of the norm, at least 1.
    """

    p: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "p")

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _root(_powers(x, self.p).sum(axis=range(1, x.ndim - 1)), self.p).astype(x.dtype)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return (_slope(x, self.p) * at_each_position(_part_of_norm(y, dy, self.p), x)).astype(x.dtype)


def _powers(x: Array, p: int) -> Array:
    """|x|^p."""
    return abs(lax.integer_pow(wide(x), p))


def _root(sums: Array, p: int) -> Array:
    """The p-th root, not as a power, which XLA does not vectorize: (64, 32, 32, 64) took 8 ms on a CPU instead of 4."""
    if p > 2:
        return jnp.exp(jnp.log(sums) / p)
    return jnp.sqrt(sums) if p == 2 else sums


def _slope(x: Array, p: int) -> Array:
    """sign(x) * |x|^(p-1), by which a norm is told to its numbers."""
    x = wide(x)
    return x * lax.integer_pow(abs(x), p - 2) if p > 1 else jnp.sign(x)


def _part_of_norm(y: Array, dy: Array, p: int) -> Array:
    """dy / y^(p-1), 0 of a norm that is 0."""
    y = wide(y)
    return jnp.where(y > 0, wide(dy) / lax.integer_pow(jnp.where(y > 0, y, 1), p - 1), 0)
