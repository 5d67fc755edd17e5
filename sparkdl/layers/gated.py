"""What recurrent layers with gates share."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp

from sparkdl.layers.base import Array
from sparkdl.layers.curves import CURVES, Curve, check_curves
from sparkdl.layers.recurrent import Recurrent


@dataclass(frozen=True)
class Gated(Recurrent):
    """Base of the recurrent layers with gates.

    Parameters
    ----------
    activation : str, default "tanh"
        Of what the gates let through, wherever a formula says tanh: elu, hard_sigmoid, hard_sigmoid_0.2 (that of Keras
        before version 3), linear, relu, sigmoid, softsign or tanh.
    recurrent_activation : str, default "sigmoid"
        Of the gates, wherever a formula says sigmoid: one of the same.
    """

    activation: str = field(default="tanh", kw_only=True)
    recurrent_activation: str = field(default="sigmoid", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_curves(self, "activation", "recurrent_activation")

    @property
    def curves(self) -> tuple[Curve, Curve]:
        """That of what passes, and that of the gates."""
        return CURVES[self.activation], CURVES[self.recurrent_activation]

    def gates_of(self, z: Array, candidate: int) -> Array:
        """Of the blocks of the columns of z that one by what passes, all others as gates."""
        inner, gate = self.curves
        is_inner = self._is_block(z, candidate)
        if (self.activation, self.recurrent_activation) != ("tanh", "sigmoid"):
            return jnp.where(is_inner, inner.value(z), gate.value(z))
        half = jnp.where(is_inner, 1, 0.5).astype(z.dtype)  # one tanh of all, which XLA vectorizes at once
        return jnp.tanh(z * half) * half + (1 - half)

    def slopes_of(self, gates: Array, candidate: int) -> Array:
        """The derivative of `gates_of` by z."""
        inner, gate = self.curves
        return jnp.where(self._is_block(gates, candidate), inner.slope(gates), gate.slope(gates))

    def _is_block(self, z: Array, number: int) -> Array:
        """Whether columns are of that block, (1, columns)."""
        return (jnp.arange(z.shape[-1]) // (z.shape[-1] // self.blocks) == number)[None]
