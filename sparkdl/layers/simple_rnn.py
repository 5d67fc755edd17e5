"""The recurrent layer without gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Weights
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
        if self.activation not in ("tanh", "relu"):
            raise ValueError(f"activation of SimpleRnn must be 'tanh' or 'relu', received {self.activation!r}.")

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        z = z + matmul(masked(state[0], mask), weights["recurrent"])
        return (jnp.tanh(z) if self.activation == "tanh" else jnp.maximum(z, 0),), None

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        slope = 1 - at.y * at.y if self.activation == "tanh" else (at.y > 0).astype(at.y.dtype)
        dz = dstate[0] * slope
        return (masked(matmul(dz, back), mask),), (dz,)
