"""The layers as a textbook writes them, in XLA's own operations, for `jax.vjp` to differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers import BatchNorm, Conv, Dense, GlobalAvgPool, Layer, LocalResponseNorm, MaxPool, Relu

Array = jax.Array


def forward(layer: Layer, weights: dict[str, Array], x: Array) -> Array:
    """y in training of a layer over images (batch, height, width, channels) or flat rows (batch, inputs)."""
    return PLAIN[type(layer)](layer, weights, x)


def kernels(layer: Layer, weights: dict[str, Array], x: Array, dy: Array) -> dict[str, Callable[[], Any]]:
    """Calls of the forward pass, which keeps what `jax.vjp` wants kept, and of what that makes of it and dy."""

    @jax.jit
    def keeping(learned: dict[str, Array], x: Array) -> Any:
        return jax.vjp(lambda values, rows: forward(layer, weights | values, rows), learned, x)

    learned = layer.learned(weights)
    pull_back = keeping(learned, x)[1]
    gradient, delta = (jax.jit(lambda kept, dy, part=part: kept(dy)[part]) for part in (0, 1))
    calls = {"forward": lambda: keeping(learned, x), "delta": lambda: delta(pull_back, dy)}
    return calls | ({"gradient": lambda: gradient(pull_back, dy)} if learned else {})


def conv(layer: Conv, weights: dict[str, Array], x: Array) -> Array:
    """Cross-correlation."""
    strides, padding = _strides(layer.strides), _padding(layer.padding)
    y = lax.conv_general_dilated(x, weights["kernel"], strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + weights["bias"][None, None, None] if layer.bias else y


def dense(layer: Dense, weights: dict[str, Array], x: Array) -> Array:
    """Affine map."""
    y = x @ weights["kernel"]
    return y + weights["bias"][None] if layer.bias else y


def max_pool(layer: MaxPool, weights: dict[str, Array], x: Array) -> Array:
    """XLA's own, whose gradient is its select-and-scatter."""
    size = (1, *_strides(layer.size), 1)
    strides = size if layer.strides is None else (1, *_strides(layer.strides), 1)
    padding = _padding(layer.padding)
    if not isinstance(padding, str):
        padding = [(0, 0), *padding, (0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, padding)


def local_response_norm(layer: LocalResponseNorm, weights: dict[str, Array], x: Array) -> Array:
    """A window sum of squares over the channels, and a power."""
    window = (*(1 for _ in x.shape[:-1]), 2 * layer.radius + 1)
    padding = [*((0, 0) for _ in x.shape[:-1]), (layer.radius, layer.radius)]
    energy = lax.reduce_window(x * x, 0.0, lax.add, window, (1,) * x.ndim, padding)
    return x / (layer.bias + layer.alpha * energy) ** layer.beta


def batch_norm(layer: BatchNorm, weights: dict[str, Array], x: Array) -> Array:
    """With the statistics of the batch."""
    over = tuple(range(x.ndim - 1))
    mean, variance = x.mean(over, keepdims=True), x.var(over, keepdims=True)
    scale, bias = (weights[name].reshape(mean.shape) for name in ("scale", "bias"))
    return (x - mean) / jnp.sqrt(variance + layer.epsilon) * scale + bias


def relu(layer: Relu, weights: dict[str, Array], x: Array) -> Array:
    """The positive part."""
    return jnp.maximum(x, 0)


def global_avg_pool(layer: GlobalAvgPool, weights: dict[str, Array], x: Array) -> Array:
    """Mean over height and width."""
    return x.mean((1, 2))


PLAIN: dict[type[Layer], Callable[[Any, dict[str, Array], Array], Array]] = {
    BatchNorm: batch_norm,
    Conv: conv,
    Dense: dense,
    GlobalAvgPool: global_avg_pool,
    LocalResponseNorm: local_response_norm,
    MaxPool: max_pool,
    Relu: relu,
}


def _strides(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else value


def _padding(value: str | tuple[tuple[int, int], ...]) -> Any:
    return value.upper() if isinstance(value, str) else list(value)
