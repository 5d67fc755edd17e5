"""Convolution over one, two or three spatial axes; its delta and gradient are convolutions too.

XLA's own convolution runs at 95 % of a CPU's matrix-product rate if rows, space and channels lie in this order. In the
gradient the sum runs over rows, so on a CPU it transposes first: otherwise it falls to 2 GFLOP/s inside a loop; and it
takes the rows in parts that stay in the cache, as a delta of strides does. Accelerators have kernels for all as
they stand. On a CPU kernels of one position are matrix products (`pointwise.py`), and shapes that `winograd.suits`
names take fewer multiplications: all three kernels together 0.3 to 0.6 of the time. XLA's forward kernel for a CPU is
slow with few filters, or an odd number of channels, so that such images get channels or filters of zeros (`widened`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from sparkdl.arrays import STEPS
from sparkdl.layers import patches, pointwise, winograd
from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.causal import first_steps, from_steps
from sparkdl.layers.ragged import Ragged, is_ragged
from sparkdl.layers.row_parts import map_parts, parts_of, sum_parts
from sparkdl.layers.windows import Padding, Windows, check_windows, per_axis
from sparkdl.specs import check_integers


def widened(kernel: Shape) -> tuple[int, int]:
    """Channels and filters that XLA's forward kernel for images is fastest with on a CPU, for a kernel that has fewer.

    Time over that of the shape as it stands, (28, 28), a ReLU and pooling behind it: 0.3 for one channel and 16 filters
    (3, 3) or (5, 5), 0.4 and 0.3 for three channels and 32; 0.15 for three and 24.
    """
    *size, channels, filters = kernel
    if len(size) == 2 and math.prod(size) > 1:
        if channels > 1 and filters < 48 and (channels < 4 or filters > 16):
            channels += channels % 2
        if channels <= 4 and filters <= 16:
            filters = 32
    return channels, filters


@dataclass(frozen=True)
class Conv(KernelLayer):
    """Cross-correlation of rows with `filters` learned kernels, in as many dimensions as `size` has entries.

    x        (batch, *spatial, channels)      dx  (batch, *spatial, channels)   dL/dx
    y        (batch, *windows, filters)       dy  (batch, *windows, filters)    dL/dy
    weights  kernel (*size, channels / groups, filters), bias (filters,); gradients are sums over the batch

    With window o, position k in the window, stride s, dilation d and padding `low` before the row, per spatial axis::

        y[o]         = sum over k of  x[s o + d k - low] @ kernel[k]  + bias
        dx[i]        = sum over o, k with s o + d k - low = i of  dy[o] @ kernel[k].T
        dkernel[k]   = sum over o of  x[s o + d k - low].T @ dy[o]

    Delta and gradient are each one convolution again (Dumoulin & Visin 2016, "A guide to convolution arithmetic for
    deep learning", chapter 4).

    Over time, with one entry of `size`, rows may be of any length (`Ragged`, shape (None, channels)) if strides are 1
    and the padding gives as many windows as a row has steps, as "causal" and "same" do. Each row then gives what it
    would alone: zeros stand beyond its end, in x and in y.

    Parameters
    ----------
    filters : int
        Number of output channels.
    size : int or tuple of int
        Window, one entry per spatial axis: (5, 5) convolves images; an integer, sequences.
    strides, dilation : int or tuple of int, default 1
        Distance between two windows, and between two positions of a window.
    padding : {"valid", "same", "full", "causal"} or tuple of (int, int), default "valid"
        Zeros around every row: none; enough for ceil(n / stride) windows, the odd one at the end, as TensorFlow; every
        window that touches the row; over time, before the row, so that no window reads a step after its own, as
        Keras's (van den Oord et al. 2016, "WaveNet"); or (low, high) for every spatial axis.
    groups : int, default 1
        Splits channels and filters into groups that do not see each other; as many as channels is a depthwise
        convolution.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Conv, Relu, TimeMax
    >>> layers = [Conv(8, 3, padding="causal"), Relu(), Conv(8, 3, padding="causal", dilation=2), TimeMax()]
    >>> Network(layers, input_shape=(None, 4)).output_shape()
    (8,)
    """

    filters: int
    size: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"
    dilation: int | Shape = 1
    groups: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, self.padding, causal=True, size=self._size, strides=self.strides, dilation=self.dilation)
        check_integers(self, 1, "filters", "groups")
        if self.filters % self.groups:
            raise ValueError(f"filters of Conv must be a multiple of groups={self.groups}, received {self.filters}.")

    @property
    def _size(self) -> Shape:
        return per_axis(self.size, 1)

    @property
    def takes_ragged(self) -> bool:
        return len(self._size) == 1  # if every row keeps its length, which `output_shape` asks for

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != len(self._size) + 1:
            axes = ("length",) if len(self._size) == 1 else ("depth", "height", "width")[-len(self._size) :]
            raise ValueError(
                f"Conv with size {self._size} expects rows of shape ({', '.join(axes)}, channels), "
                f"received {input_shape}; give size one entry for every axis but the last."
            )
        if input_shape[-1] % self.groups:
            raise ValueError(
                f"Conv expects rows whose channels are a multiple of groups={self.groups}, received {input_shape}; "
                "change groups."
            )
        if is_ragged(input_shape):
            return (self._kept_length(input_shape), self.filters)
        return (*self._windows(input_shape[:-1]).checked(self).outputs, self.filters)

    def multiply_adds(self, input_shape: Shape) -> int:
        *outputs, filters = self.output_shape(input_shape)
        return math.prod(n or 1 for n in outputs) * filters * math.prod(self._size) * input_shape[-1] // self.groups

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return self.init_kernel(key, (*self._size, input_shape[-1] // self.groups, self.filters))

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        if isinstance(x, Ragged):
            return replace(x, values=self.forward(weights, x.cleared().values)).cleared()

        def on_cpu(kernel: Array, x: Array) -> Array:
            if pointwise.suits(windows, self.groups):
                return pointwise.forward(windows, kernel, x)
            if patches.suits(kernel, x, self.groups, once):
                return patches.convolve(kernel, x, windows.strides, windows.padding, windows.dilation, once)
            return winograd.forward(tiles, kernel, x) if tiles else self._forward_widened(kernel, x)

        kernel, windows, once = weights["kernel"], self._windows(x.shape[1:-1]), (1,) * len(self._size)
        tiles = self._tiles(kernel.shape, x)
        y = lax.platform_dependent(kernel, x, cpu=on_cpu, default=self._forward)
        return y + jnp.expand_dims(weights["bias"], range(y.ndim - 1)) if self.bias else y

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return first_steps(self, self._windows((STEPS,)), rows, input_shape, dtype)

    @jitted
    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        return from_steps(partial(self.forward, weights), state, x)

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        if isinstance(x, Ragged):
            dx = self.delta(weights, x.values, y.values, replace(x, values=dy).cleared().values)
            return replace(x, values=dx).cleared().values

        def direct(kernel: Array, dy: Array) -> Array:
            return self._delta(kernel, windows.inputs, dy)

        def on_cpu(kernel: Array, dy: Array) -> Array:
            if pointwise.suits(windows, self.groups):
                return pointwise.delta(windows, kernel, dy)
            transposed = self._transposed(kernel)
            if patches.suits(transposed, dy, self.groups, windows.strides):
                rest = self._delta_padding(windows), windows.dilation, windows.strides
                return patches.convolve(transposed, dy, (1,) * len(self._size), *rest)
            if tiles:
                return winograd.delta(tiles, kernel, dy)
            parts = self._parts(kernel, x, dy) if max(windows.strides) > 1 else 1
            return map_parts(partial(direct, kernel), parts, dy)

        kernel, windows = weights["kernel"], self._windows(x.shape[1:-1])
        tiles = self._tiles(kernel.shape, x)
        return lax.platform_dependent(kernel, dy, cpu=on_cpu, default=direct)

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        if isinstance(x, Ragged):
            return self.gradient(weights, x.cleared().values, y.values, replace(x, values=dy).cleared().values)

        def on_cpu(x: Array, dy: Array) -> Array:
            if pointwise.suits(windows, self.groups):
                return pointwise.gradient(windows, x, dy)
            if tiles:
                return winograd.gradient(tiles, x, dy)
            return sum_parts(partial(self._gradient, rows_first=True), self._parts(weights["kernel"], x, dy), x, dy)

        windows = self._windows(x.shape[1:-1])
        tiles = self._tiles(weights["kernel"].shape, x)
        kernel = lax.platform_dependent(x, dy, cpu=on_cpu, default=partial(self._gradient, rows_first=False))
        return {"kernel": kernel, "bias": dy.sum(axis=range(dy.ndim - 1))} if self.bias else {"kernel": kernel}

    def _kept_length(self, input_shape: Shape) -> Any:
        """None, the length of rows of any; ValueError if there are more or fewer windows than steps."""
        windows = self._windows((STEPS,))
        if windows.strides != (1,) or windows.outputs != windows.inputs:
            raise ValueError(
                f"{type(self).__name__} expects rows of one length, received rows of any, {input_shape}; give it "
                "padding='causal' or 'same' and strides of 1, with which each keeps its length, or put LastStep, "
                "TimeMean or TimeMax before it."
            )
        return input_shape[0]

    def _forward_widened(self, kernel: Array, x: Array) -> Array:
        wide = kernel.shape[-2:] if self.groups > 1 else widened(kernel.shape)
        channels, filters = ((0, room - given, 0) for room, given in zip(wide, kernel.shape[-2:], strict=True))
        zero, space = jnp.zeros((), x.dtype), [(0, 0, 0)] * len(self._size)
        wider = lax.pad(kernel, zero.astype(kernel.dtype), [*space, channels, filters])
        return self._forward(wider, lax.pad(x, zero, [(0, 0, 0), *space, channels]))[..., : self.filters]

    def _forward(self, kernel: Array, x: Array) -> Array:
        windows = self._windows(x.shape[1:-1])
        return lax.conv_general_dilated(
            x,
            kernel,
            window_strides=windows.strides,
            padding=windows.padding,
            rhs_dilation=windows.dilation,
            dimension_numbers=self._layouts("NSC", "SIO", "NSC"),
            feature_group_count=self.groups,
        )

    def _delta(self, kernel: Array, inputs: Shape, dy: Array) -> Array:
        windows = self._windows(inputs)
        return lax.conv_general_dilated(
            dy,
            self._transposed(kernel),
            window_strides=(1,) * len(self._size),
            padding=self._delta_padding(windows),
            lhs_dilation=windows.strides,
            rhs_dilation=windows.dilation,
            dimension_numbers=self._layouts("NSC", "SIO", "NSC"),
            feature_group_count=self.groups,
        )

    def _delta_padding(self, windows: Windows) -> list[tuple[int, int]]:
        """Around dy, with a window's stride between its positions."""
        return [
            (extent - 1 - low, low + inputs - 1 - (outputs - 1) * stride)
            for inputs, outputs, stride, extent, (low, _) in windows.axes()
        ]

    def _gradient(self, x: Array, dy: Array, rows_first: bool) -> Array:
        windows = self._windows(x.shape[1:-1])
        padding = [
            (low, extent + (outputs - 1) * stride - inputs - low)
            for inputs, outputs, stride, extent, (low, _) in windows.axes()
        ]
        x, layouts = self._groups_as_rows(x), ("CSN", "ISO", "SNC")  # channels and rows change places
        if rows_first:
            x, dy, layouts = x.swapaxes(0, -1), jnp.moveaxis(dy, 0, -2), ("NSC", "SIO", "NSC")
        kernel = lax.conv_general_dilated(
            x,
            dy,
            window_strides=windows.dilation,
            padding=padding,
            rhs_dilation=windows.strides,
            dimension_numbers=self._layouts(*layouts),
            feature_group_count=self.groups,  # batch_group_count on x itself is up to 400 times slower on CPU
        )
        return jnp.moveaxis(kernel, 0, -2) if rows_first else kernel

    def _parts(self, kernel: Array, x: Array, dy: Array) -> int:
        row = math.prod(x.shape[1:]) + math.prod(dy.shape[1:])
        return parts_of(len(x), row * x.dtype.itemsize, kernel.size * kernel.dtype.itemsize)

    def _tiles(self, kernel: Shape, x: Array) -> winograd.Tiles | None:
        """How Winograd's convolution would cut x, if it is the faster one on a CPU."""
        windows = self._windows(x.shape[1:-1])
        if max(*windows.strides, *windows.dilation, self.groups) > 1:
            return None
        tiles = winograd.Tiles(windows.inputs, windows.outputs, tuple(low for low, _ in windows.padding), kernel[0])
        return tiles if winograd.suits(tiles, kernel, x) else None

    def _windows(self, spatial: Shape) -> Windows:
        return Windows.over(spatial, self.size, self.strides, self.padding, self.dilation)

    def _layouts(self, rows: str, kernel: str, output: str) -> tuple[str, str, str]:
        """Dimension numbers for lax, S standing for the spatial axes."""
        spatial = "DHW"[-len(self._size) :]
        return rows.replace("S", spatial), kernel.replace("S", spatial), output.replace("S", spatial)

    def _groups_as_rows(self, x: Array) -> Array:
        """x of shape (groups * batch, *spatial, channels / groups)."""
        grouped = x.reshape(*x.shape[:-1], self.groups, -1)
        return jnp.moveaxis(grouped, -2, 0).reshape(-1, *x.shape[1:-1], grouped.shape[-1])

    def _transposed(self, kernel: Array) -> Array:
        """The kernel with its windows reversed and inputs and outputs exchanged, group by group."""
        *size, inputs, filters = kernel.shape
        grouped = kernel.reshape(*size, inputs, self.groups, filters // self.groups)
        flipped = jnp.flip(grouped, range(len(size)))
        return jnp.swapaxes(flipped, -3, -1).reshape(*size, filters // self.groups, inputs * self.groups)
