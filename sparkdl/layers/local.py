"""A convolution whose kernel differs from window to window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.initializers import Initializer
from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.pooling import check_rank, covered
from sparkdl.layers.windows import Padding, Windows, check_windows, per_axis
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class LocallyConnected(KernelLayer):
    """A convolution with a kernel and a bias of its own at every window: nothing is shared.

    x        (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y        (batch, *windows, filters)      dy  (batch, *windows, filters)    dL/dy
    weights  kernel (*windows, positions * channels, filters), bias (*windows, filters)

    Positions of a window are in row-major order, the channels of each together.

    Parameters
    ----------
    filters : int
        Number of output channels.
    size : int or tuple of int
        Window, one entry per spatial axis.
    strides, padding
        As of `Conv`.
    """

    filters: int
    size: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, self.padding, size=per_axis(self.size, 1), strides=self.strides)
        check_integers(self, 1, "filters")

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape, per_axis(self.size, 1), self.strides, self.padding)
        return (*self._windows(input_shape).checked(self).outputs, self.filters)

    def multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(self._kernel_shape(input_shape))

    def init(self, key: Array, input_shape: Shape) -> Weights:
        *windows, inputs, filters = self._kernel_shape(input_shape)
        kernel_key, bias_key = jax.random.split(key)
        kernel = jax.vmap(lambda own: Initializer.of(self.kernel_initializer).sample(own, (inputs, filters)))(
            jax.random.split(kernel_key, math.prod(windows))
        )
        weights = {"kernel": kernel.reshape(*windows, inputs, filters)}
        if self.bias:
            weights["bias"] = Initializer.of(self.bias_initializer).sample(bias_key, (*windows, filters))
        return weights

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        y = jnp.einsum("n...i,...if->n...f", self._covered(x), weights["kernel"])
        return y + weights["bias"][None] if self.bias else y

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        exact = np.promote_types(x.dtype, np.float32)  # of what overlapping windows add up to
        dcovered = jnp.einsum("n...f,...if->n...i", dy, weights["kernel"], preferred_element_type=exact)
        return jax.vjp(self._covered, x.astype(exact))[1](dcovered)[0].astype(x.dtype)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        kernel = jnp.einsum("n...i,n...f->...if", self._covered(x), dy)
        return {"kernel": kernel, "bias": dy.sum(axis=0)} if self.bias else {"kernel": kernel}

    def vector_axes(self, kernel: Array) -> tuple[int, ...]:
        return (kernel.ndim - 2,)

    def _covered(self, x: Array) -> Array:
        """What every window covers, (batch, *windows, positions * channels)."""
        return jnp.concatenate(list(covered(self._windows(x.shape[1:]), x, 0.0)), axis=-1)

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        windows = self._windows(input_shape)
        return (*windows.outputs, math.prod(windows.size) * input_shape[-1], self.filters)

    def _windows(self, input_shape: Shape) -> Windows:
        return Windows.over(input_shape[:-1], per_axis(self.size, 1), self.strides, self.padding)
