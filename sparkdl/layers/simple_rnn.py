"""The recurrent layer without gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkdl.layers.base import Array, Weights
from sparkdl.layers.curves import CURVES, check_curves
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
        Or elu, hard_sigmoid, hard_sigmoid_0.2 (that of Keras before version 3), linear, relu, sigmoid or softsign.
    """

    activation: str = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_curves(self, "activation")

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        z = z + matmul(masked(state[0], mask), weights["recurrent"])
        return (CURVES[self.activation].value(z),), None

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        dz = dstate[0] * CURVES[self.activation].slope(at.y)
        return (masked(matmul(dz, back), mask),), (dz,)
