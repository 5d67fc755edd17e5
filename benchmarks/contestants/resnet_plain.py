"""The step that a JAX user writes by hand: `jax.grad` of a network's plain forward pass, and SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from contestants.layers_plain import max_pool
from jax import lax

from sparkdl.layers import Add, BatchNorm, KernelLayer, Layer, MaxPool, Relu, Residual
from sparkdl.layers.base import Array, Weights
from sparkdl.layers.chain import Chain
from sparkdl.network import Network
from sparkdl.weights import updated


def plain_forward(layer: Layer, weights: Weights, x: Any) -> tuple[Array, Weights]:
    """The layer's output in training, by XLA's and textbook forms, and its new running statistics.

    x  (batch, *input_shape), in the dtype to compute in; kernels are cast to it, statistics are at least float32
    """
    if isinstance(layer, Chain | Residual):
        values, new = [x], {}
        for child in layer.children:
            read = [values[source] for source in child.sources]
            y, own = plain_forward(child.layer, weights.get(child.name, {}), read[0] if len(read) == 1 else tuple(read))
            values.append(y)
            new |= {child.name: own} if own else {}
        return values[-1], new
    if isinstance(layer, Add):
        return x[0] + x[1], {}
    if isinstance(layer, BatchNorm):
        return _batch_norm(layer, weights, x)
    if isinstance(layer, MaxPool):
        return max_pool(layer, weights, x), {}
    if isinstance(layer, Relu):
        return jax.nn.relu(x), {}
    if isinstance(layer, KernelLayer):
        weights = {name: value.astype(x.dtype) for name, value in weights.items()}
    return layer.forward(weights, x), {}


def _batch_norm(layer: BatchNorm, weights: Weights, x: Array) -> tuple[Array, Weights]:
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    axes = tuple(range(x.ndim - 1))
    mean, variance = wide.mean(axes), wide.var(axes)
    over_rows = (*(None for _ in axes), slice(None))
    y = (wide - mean[over_rows]) * lax.rsqrt(variance + layer.epsilon)[over_rows]
    y = y * weights["scale"][over_rows] + weights["bias"][over_rows]
    old, batch = (weights["mean"], weights["variance"]), (mean, variance)
    moved = [layer.momentum * a + (1 - layer.momentum) * b for a, b in zip(old, batch, strict=True)]
    return y.astype(x.dtype), dict(zip(("mean", "variance"), moved, strict=True))


def plain_step(network: Network, step_size: float, dtype: str) -> Callable[[Weights, Array, Array], Weights]:
    """A jitted `step(weights, images, classes) -> weights` of SGD that gives up `weights`.

    Weights stay float32; the network's arithmetic is in `dtype`, the loss's and the statistics' in float32 at least.
    """

    def mean_loss(learned: Weights, weights: Weights, images: Array, classes: Array) -> tuple[Array, Weights]:
        outputs, statistics = plain_forward(network, updated(weights, learned), images.astype(dtype))
        outputs = outputs.astype(np.promote_types(outputs.dtype, np.float32))
        return optax.softmax_cross_entropy_with_integer_labels(outputs, classes).mean(), statistics

    def step(weights: Weights, images: Array, classes: Array) -> Weights:
        learned = network.learned(weights)
        gradient, statistics = jax.grad(mean_loss, has_aux=True)(learned, weights, images, classes)
        learned = jax.tree.map(lambda weight, slope: weight - step_size * slope, learned, gradient)
        return updated(updated(weights, learned), statistics)

    return jax.jit(step, donate_argnums=0)
