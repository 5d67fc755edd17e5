"""Convolution the other way round: from few positions to many."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.convolution import Conv
from sparkdl.layers.windows import Padding, Windows, check_windows, per_axis
from sparkdl.specs import check_integers, is_integer


@dataclass(frozen=True)
class ConvTranspose(KernelLayer):
    """Transposed convolution: its forward kernel is the delta of a `Conv` from its y to its x (Zeiler et al. 2010).

    x        (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y        (batch, *larger, filters)       dy  (batch, *larger, filters)     dL/dy
    weights  kernel (*size, filters, channels), bias (filters,); gradients are sums over the batch

    Of n positions, with stride s and an extent e of dilation * (size - 1) + 1, come (n - 1) * s + e + `extra` for the
    padding "valid", n * s for "same", and `low + high` fewer than for "valid" if these are given, as Keras and PyTorch
    count them.

    Parameters
    ----------
    filters : int
        Number of output channels.
    size : int or tuple of int
        Window, one entry per spatial axis.
    strides, dilation : int or tuple of int, default 1
        Distance of two neighbours of x in y, and between two positions of a window.
    padding : {"valid", "same"} or tuple of (int, int), default "valid"
        What the Conv from y to x pads its rows with.
    extra : int or tuple of int, default 0
        Positions at the end of y that no window needs, below the stride; PyTorch's `output_padding`.
    """

    filters: int
    size: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"
    dilation: int | Shape = 1
    extra: int | Shape = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, self.padding, size=per_axis(self.size, 1), strides=self.strides, dilation=self.dilation)
        if self.padding == "full":
            raise ValueError("padding of ConvTranspose must be 'valid', 'same' or pairs of sizes, received 'full'.")
        check_integers(self, 1, "filters")
        extras, strides = (per_axis(value, self._rank) for value in (self.extra, self.strides))
        fits = len(extras) == len(strides) == self._rank and all(map(is_integer, extras))
        if not fits or not all(0 <= extra < stride for extra, stride in zip(extras, strides, strict=True)):
            raise ValueError(
                f"extra of ConvTranspose must be at least 0 and below the strides {self.strides}, received "
                f"{self.extra!r}."
            )
        if self.padding == "same" and any(extras):
            raise ValueError(f"extra of ConvTranspose must be 0 where padding is 'same', received {self.extra!r}.")

    @property
    def _rank(self) -> int:
        return len(per_axis(self.size, 1))

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != self._rank + 1:
            raise ValueError(
                f"ConvTranspose with size {self.size} expects rows of {self._rank} spatial axes and then channels, "
                f"received {input_shape}; give size one entry for every axis but the last."
            )
        spatial, strides = input_shape[:-1], per_axis(self.strides, self._rank)
        if self.padding == "same":
            larger = tuple(n * stride for n, stride in zip(spatial, strides, strict=True))
        else:
            windows = Windows.over(spatial, self.size, self.strides, self.padding, self.dilation)
            larger = tuple(
                (n - 1) * stride + extent + extra - low - high
                for (n, _, stride, extent, (low, high)), extra in zip(
                    windows.axes(), per_axis(self.extra, self._rank), strict=True
                )
            )
        if min(larger) < 1:
            raise ValueError(
                f"padding of ConvTranspose must leave something of its y, received {self.padding} for rows of shape "
                f"{input_shape}."
            )
        return (*larger, self.filters)

    def multiply_adds(self, input_shape: Shape) -> int:
        return self._conv(input_shape[-1]).multiply_adds(self.output_shape(input_shape))

    def init(self, key: Array, input_shape: Shape) -> Weights:
        channels = input_shape[-1]
        weights = self.init_kernel(key, (*per_axis(self.size, 1), channels, self.filters))
        return weights | {"kernel": jnp.swapaxes(weights["kernel"], -2, -1)}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        y = jnp.zeros((x.shape[0], *self.output_shape(x.shape[1:])), x.dtype)  # for its shape; nothing reads it
        y = self._conv(x.shape[-1]).delta({"kernel": weights["kernel"]}, y, x, x)
        return y + jnp.expand_dims(weights["bias"], range(y.ndim - 1)) if self.bias else y

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._conv(x.shape[-1]).forward({"kernel": weights["kernel"]}, dy)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        kernel = self._conv(x.shape[-1]).gradient({"kernel": weights["kernel"]}, dy, x, x)
        return kernel | ({"bias": dy.sum(axis=range(dy.ndim - 1))} if self.bias else {})

    def vector_axes(self, kernel: Array) -> tuple[int, ...]:
        return (*range(kernel.ndim - 2), kernel.ndim - 1)

    def _conv(self, channels: int) -> Conv:
        """The convolution from y to x."""
        return Conv(channels, self.size, self.strides, self.padding, self.dilation, bias=False)
