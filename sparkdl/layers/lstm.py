"""Long short-term memory, plain and with peepholes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.base import Array, Shape, Weights
from sparkdl.layers.gated import Gated
from sparkdl.layers.products import matmul
from sparkdl.layers.recurrent import Moment, State, flat, masked


@dataclass(frozen=True)
class Lstm(Gated):
    """Long short-term memory with a forget gate (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    z = x @ kernel + h @ recurrent + bias, of four blocks in the order i, f, g, o
    i, f, o = sigmoid(z_i), sigmoid(z_f), sigmoid(z_o), g = tanh(z_g)
    c' = f * c + i * g
    h' = o * tanh(c')

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, 4 * units), recurrent (units, 4 * units), bias (4 * units,)

    y is h' of every step, h and c are of the step before, zeros at the first; y is 0 beyond the end of a row. The
    layout of the weights is that of Keras. Further parameters are those of `Gated` and `Recurrent`.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    unit_forget_bias : bool, default True
        Whether the bias of f starts at 1 (Jozefowicz et al. 2015), so that the cell remembers at first.

    Examples
    --------
    >>> import jax
    >>> from sparkdl.layers import Lstm
    >>> layer = Lstm(4)
    >>> layer.output_shape((None, 3))
    (None, 4)
    >>> layer.init(jax.random.key(0), (None, 3))["kernel"].shape
    (3, 16)
    """

    blocks: ClassVar[int] = 4
    states: ClassVar[int] = 2

    unit_forget_bias: bool = field(default=True, kw_only=True)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        weights = super().init(key, input_shape)
        if self.bias and self.unit_forget_bias:
            weights["bias"] = weights["bias"].at[self.units : 2 * self.units].set(1)
        return weights

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        h, c = state
        gates = self.gates_of(z + matmul(masked(h, mask), weights["recurrent"]), 2)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        cell = f * c + i * g
        seen = self.curves[0].value(cell)
        return (o * seen, cell), (gates, c, seen)

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        dh, dc = dstate
        gates, c, seen = at.kept
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        dc = dc + dh * o * self.curves[0].slope(seen)
        # Put together before they are multiplied: block by block, XLA writes every factor out.
        above, beside = jnp.concatenate([dc, dc, dc, dh], axis=-1), jnp.concatenate([g, c, i, seen], axis=-1)
        dz = above * beside * self.slopes_of(gates, 2)
        return (masked(matmul(dz, back), mask), dc * f), (dz,)


@dataclass(frozen=True)
class GravesLstm(Lstm):
    """An LSTM whose gates see the cell through peepholes (Gers et al. 2002; Graves 2013, equations 7 to 11).

    i = sigmoid(z_i + peephole[0] * c), f = sigmoid(z_f + peephole[1] * c), g = tanh(z_g)
    c' = f * c + i * g
    o = sigmoid(z_o + peephole[2] * c'), h' = o * tanh(c')

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, 4 * units), recurrent (units, 4 * units), bias (4 * units,), peephole (3, units)

    z and all else is as of `Lstm`.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    peephole_initializer : Initializer or str, default GlorotUniform()
    """

    peephole_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "peephole_initializer", Initializer.of(self.peephole_initializer))

    def init(self, key: Array, input_shape: Shape) -> Weights:
        peephole_key, key = jax.random.split(key)
        peephole = Initializer.of(self.peephole_initializer).sample(peephole_key, (3, self.units))
        return super().init(key, input_shape) | {"peephole": peephole}

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        h, c = state
        z_i, z_f, z_g, z_o = jnp.split(z + matmul(masked(h, mask), weights["recurrent"]), 4, axis=-1)
        to_i, to_f, to_o = weights["peephole"][:, None]
        inner, gate = (curve.value for curve in self.curves)
        i, f, g = gate(z_i + to_i * c), gate(z_f + to_f * c), inner(z_g)
        cell = f * c + i * g
        o, seen = gate(z_o + to_o * cell), inner(cell)
        return (o * seen, cell), (jnp.concatenate([i, f, g, o], axis=-1), c, seen)

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        dh, dc = dstate
        gates, c, seen = at.kept
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        to_i, to_f, to_o = weights["peephole"][:, None]
        inner, gate = (curve.slope for curve in self.curves)
        dc = dc + dh * o * inner(seen) + dh * seen * gate(o) * to_o
        above, beside = jnp.concatenate([dc, dc, dc, dh], axis=-1), jnp.concatenate([g, c, i, seen], axis=-1)
        dz = above * beside * self.slopes_of(gates, 2)
        dz_i, dz_f = dz[:, : self.units], dz[:, self.units : 2 * self.units]
        return (masked(matmul(dz, back), mask), dc * f + dz_i * to_i + dz_f * to_f), (dz,)

    def recurrent_gradient(self, weights: Weights, before: Array, at: Moment, slopes: Any) -> Weights:
        gates, c, _ = (flat(kept) for kept in at.kept)
        i, f, g, _ = jnp.split(gates, 4, axis=-1)
        dz_i, dz_f, _, dz_o = jnp.split(flat(slopes[0]), 4, axis=-1)
        peephole = jnp.stack([(dz_i * c).sum(axis=0), (dz_f * c).sum(axis=0), (dz_o * (f * c + i * g)).sum(axis=0)])
        return super().recurrent_gradient(weights, before, at, slopes) | {"peephole": peephole}
