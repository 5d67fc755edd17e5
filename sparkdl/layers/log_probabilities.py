"""Activations that are logarithms of probabilities, finite also where these are too small for floating point."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers.activation import Activation
from sparkdl.layers.base import Array, Shape, Weights, jitted
from sparkdl.layers.normalization import check_channels


@dataclass(frozen=True)
class LogSigmoid(Activation):
    """y = log(1 / (1 + exp(-x))), which is -softplus(-x)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return -jnp.logaddexp(-x, 0)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * lax.logistic(-x)


@dataclass(frozen=True)
class LogSoftmax(Activation):
    """y = x - log(sum(exp(x))) over the last axis.

    A network for `SoftmaxCrossEntropy` may end in it, as in PyTorch for NLLLoss: the softmax of y is that of x.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jax.nn.log_softmax(x, axis=-1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy - jnp.exp(y) * dy.sum(axis=-1, keepdims=True)
