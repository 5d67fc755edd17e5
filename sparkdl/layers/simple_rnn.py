"""The recurrent layer without gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Weights
from sparkdl.layers.products import matmul
from sparkdl.layers.recurrent import Moment, Recurrent, State, masked


@dataclass(frozen=True)
class SimpleRnn(Recurrent):
    """h = activation(x @ kernel + before @ recurrent + bias) at every step (Elman 1990, "Finding structure in time").

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, units), recurrent (units, units), bias (units,)

    y is h, and `before` that of the step before, zeros at the first. Further parameters are those of `Recurrent`.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    activation : str, default "tanh"
        Or "relu".
    """

    activation: str = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_activation(self, self.activation)

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        z = z + matmul(masked(state[0], mask), weights["recurrent"])
        return (activated(z, self.activation),), None

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        dz = dstate[0] * slope_at(at.y, self.activation)
        return (masked(matmul(dz, back), mask),), (dz,)


def check_activation(layer: Layer, activation: str) -> None:
    """ValueError unless it is one of the two whose slopes their values tell."""
    if activation not in ("tanh", "relu"):
        kind = type(layer).__name__
        raise ValueError(f"activation of {kind} must be 'tanh' or 'relu', received {activation!r}.")


def activated(z: Array, activation: str) -> Array:
    """tanh or relu of z."""
    return jnp.tanh(z) if activation == "tanh" else jnp.maximum(z, 0)


def slope_at(y: Array, activation: str) -> Array:
    """The derivative of `activated` by z, where it gave y."""
    return 1 - y * y if activation == "tanh" else (y > 0).astype(y.dtype)
