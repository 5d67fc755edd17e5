"""Gated recurrent units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sparkdl.initializers import Initializer
from sparkdl.layers.base import Array, Shape, Weights
from sparkdl.layers.gated import Gated
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.layers.recurrent import Moment, State, flat, masked


@dataclass(frozen=True)
class Gru(Gated):
    """Gated recurrent units (Cho et al. 2014).

    z = sigmoid(x @ kernel_z + h @ recurrent_z + bias_z), r likewise
    n = tanh(x @ kernel_n + bias_n + r * (h @ recurrent_n + recurrent_bias_n)), or, with `reset_after=False`, as in the
    paper, n = tanh(x @ kernel_n + bias_n + (r * h) @ recurrent_n)
    h' = z * h + (1 - z) * n

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, 3 * units), recurrent (units, 3 * units), bias (3 * units,) and, with `reset_after`,
             recurrent_bias (3 * units,): the blocks of z, r and n in this order

    y is h' of every step and h that of the step before, zeros at the first; y is 0 beyond the end of a row. The layout
    of the weights is that of Keras, whose bias holds bias and recurrent_bias one above the other. Further parameters
    are those of `Gated` and `Recurrent`.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    reset_after : bool, default True
        Whether r takes from what `recurrent` makes of the state, as in Keras, PyTorch and cuDNN, so that the products
        of a step are one; else from the state before that.
    """

    blocks: ClassVar[int] = 3

    reset_after: bool = field(default=True, kw_only=True)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        weights = super().init(key, input_shape)
        if self.bias and self.reset_after:
            sample = Initializer.of(self.bias_initializer).sample
            weights["recurrent_bias"] = sample(jax.random.fold_in(key, 2), (self.blocks * self.units,))
        return weights

    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        (h,), both = state, 2 * self.units
        seen = masked(h, mask)
        inner, gate = (curve.value for curve in self.curves)
        if self.reset_after:
            own = matmul(seen, weights["recurrent"])
            own = own + weights["recurrent_bias"][None] if self.bias else own
            # One array of all three: of two apart, XLA makes one loop with the rest, which takes five times as long.
            all_three = jnp.concatenate([z[:, :both] + own[:, :both], own[:, both:]], axis=-1)
            is_gate = (jnp.arange(all_three.shape[-1]) < both)[None]
            gates, kept = jnp.split(jnp.where(is_gate, gate(all_three), all_three), [both], axis=-1)
            candidate = inner(z[:, both:] + gates[:, self.units :] * kept)
        else:
            kept = None
            gates = gate(z[:, :both] + matmul(seen, weights["recurrent"][:, :both]))
            reset = gates[:, self.units :] * seen
            candidate = inner(z[:, both:] + matmul(reset, weights["recurrent"][:, both:]))
        update = gates[:, : self.units]
        return (update * h + (1 - update) * candidate,), (gates, candidate, kept)

    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        """Slopes are dL/dz, and dL/d(h @ recurrent_n), where that is not a part of dL/dz."""
        (dh,), both, before = dstate, 2 * self.units, at.before
        gates, candidate, own = at.kept
        update, reset = gates[:, : self.units], gates[:, self.units :]
        inner, gate = (curve.slope for curve in self.curves)
        dcandidate = dh * (1 - update) * inner(candidate)
        dupdate = dh * (before - candidate) * gate(update)
        if self.reset_after:
            dreset = dcandidate * own * gate(reset)
            downward = dcandidate * reset
            dseen = matmul(jnp.concatenate([dupdate, dreset, downward], axis=-1), back)
            slopes = (jnp.concatenate([dupdate, dreset, dcandidate], axis=-1), downward)
        else:
            seen = masked(before, mask)
            dlet = matmul(dcandidate, back[both:])
            dreset = dlet * seen * gate(reset)
            dgates = jnp.concatenate([dupdate, dreset], axis=-1)
            dseen = matmul(dgates, back[:both]) + dlet * reset
            slopes = (jnp.concatenate([dgates, dcandidate], axis=-1), None)
        return (dh * update + masked(dseen, mask),), slopes

    def recurrent_gradient(self, weights: Weights, before: Array, at: Moment, slopes: Any) -> Weights:
        both, rows = 2 * self.units, flat(before)
        dz = flat(slopes[0])
        if not self.reset_after:
            reset = flat(at.kept[0])[:, self.units :] * rows
            candidate = transposed_product(reset, dz[:, both:])
            return {"recurrent": jnp.concatenate([transposed_product(rows, dz[:, :both]), candidate], axis=1)}
        down = flat(slopes[1])
        candidate = transposed_product(rows, down)
        gradient = {"recurrent": jnp.concatenate([transposed_product(rows, dz[:, :both]), candidate], axis=1)}
        if self.bias:
            gradient["recurrent_bias"] = jnp.concatenate([dz[:, :both].sum(axis=0), down.sum(axis=0)])
        return gradient
