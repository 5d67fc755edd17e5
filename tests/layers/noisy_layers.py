"""Layers as a user would write them, random in training and with more than rows to hand to the way back."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights


@dataclass(frozen=True)
class NoisyGain(Layer):
    """y = gain * x, in training times numbers of [0.5, 1.5); counts the rows it was trained with."""

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"gain": jnp.ones(input_shape), "rows": jnp.zeros(1)}

    def statistics(self) -> frozenset[str]:
        return frozenset({"rows"})

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def forward(self, weights: Weights, x: Array) -> Array:
        return weights["gain"][None] * x

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, tuple[Array, Array]]:
        noise = jax.random.uniform(context.key, x.shape, x.dtype, 0.5, 1.5)
        return self.forward(weights, x) * noise, (noise, context.sum_over_workers(context.row_weights.sum()))

    def new_statistics(self, weights: Weights, kept: tuple[Array, Array]) -> Weights:
        return {"rows": weights["rows"] + kept[1].astype(weights["rows"].dtype)}


@dataclass(frozen=True)
class KeepingNoisyGain(NoisyGain):
    """The same, its noise kept instead of drawn again."""

    def train_delta(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: tuple[Array, Array], context: Context
    ) -> Array:
        return dy * kept[0] * weights["gain"][None]

    def train_gradient(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: tuple[Array, Array], context: Context
    ) -> Weights:
        return {"gain": (dy * kept[0] * x).sum(axis=0), "rows": jnp.zeros_like(weights["rows"])}
