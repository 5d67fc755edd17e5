"""Numbers drawn from what the layers before say of them, as the code of a variational autoencoder is."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted

LEAST_SCALE = 1e-3  # of a code, whose numbers are to be of the order of 1


def scales_of(raw: Array, least: float = LEAST_SCALE) -> Array:
    """Standard deviations, softplus(o) + least, which an output o that is far off makes neither huge nor 0."""
    return jax.nn.softplus(raw) + least


@dataclass(frozen=True)
class GaussianSample(Layer):
    """Normal numbers of the means and standard deviations in x, drawn anew in every step; at inference the means.

    The code of a variational autoencoder (Kingma & Welling 2014), whose loss is `EvidenceLowerBound`.

    x, dx  (batch, ..., 2 * k), means m, and then o, of which standard deviations s = softplus(o) + 0.001 are made
    y, dy  (batch, ..., k), m + s * e, where e is normal of mean 0 and variance 1
    """

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] % 2:
            raise ValueError(
                "GaussianSample expects rows of shape (..., 2 * k), a mean and a deviation of each of k numbers, "
                f"received {input_shape}; put Dense(2 * k) before it."
            )
        return (*input_shape[:-1], input_shape[-1] // 2)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x[..., : x.shape[-1] // 2]

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        means, raw = jnp.split(x, 2, axis=-1)
        drawn = jax.random.normal(context.key, means.shape, x.dtype)
        return means + scales_of(raw) * drawn, drawn

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return jnp.concatenate([dy, dy * kept * jax.nn.sigmoid(x[..., x.shape[-1] // 2 :])], axis=-1)
