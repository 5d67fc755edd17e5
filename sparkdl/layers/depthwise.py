"""Convolutions with fewer weights: each channel by itself, and after that the channels with each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sparkdl.constraints import Constraint
from sparkdl.initializers import HeNormal, Initializer
from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.convolution import Conv
from sparkdl.layers.windows import Padding, check_windows, per_axis


@dataclass(frozen=True)
class DepthwiseConv(KernelLayer):
    """A convolution that sees each channel by itself: a Conv of as many groups as there are channels.

    x        (batch, *spatial, channels)                  dx  (batch, *spatial, channels)               dL/dx
    y        (batch, *windows, channels * multiplier)     dy  (batch, *windows, channels * multiplier)  dL/dy
    weights  kernel (*size, 1, channels * multiplier), bias (channels * multiplier,)

    Channel c of x gives the channels c * multiplier to (c + 1) * multiplier - 1 of y.

    Parameters
    ----------
    size : int or tuple of int
        Window, one entry per spatial axis.
    multiplier : int, default 1
        Output channels for each channel.
    strides, padding, dilation
        As of `Conv`.
    """

    size: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"
    dilation: int | Shape = 1
    multiplier: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, self.padding, size=per_axis(self.size, 1), strides=self.strides, dilation=self.dilation)
        if not isinstance(self.multiplier, int) or self.multiplier < 1:
            raise ValueError(f"multiplier of DepthwiseConv must be a positive integer, received {self.multiplier!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != len(per_axis(self.size, 1)) + 1:
            raise ValueError(
                f"DepthwiseConv with size {self.size} expects rows of {len(per_axis(self.size, 1))} spatial axes and "
                f"then channels, received {input_shape}; give size one entry for every axis but the last."
            )
        return self._conv(input_shape).output_shape(input_shape)

    def multiply_adds(self, input_shape: Shape) -> int:
        return self._conv(input_shape).multiply_adds(input_shape)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return self._conv(input_shape).init(key, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._conv(x.shape).forward(weights, x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._conv(x.shape).delta(weights, x, y, dy)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return self._conv(x.shape).gradient(weights, x, y, dy)

    def _conv(self, shape: Shape) -> Conv:
        channels = shape[-1]
        return Conv(
            channels * self.multiplier,
            self.size,
            self.strides,
            self.padding,
            self.dilation,
            groups=channels,
            bias=self.bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
        )


@dataclass(frozen=True)
class SeparableConv(Composite):
    """A DepthwiseConv, and a Conv of size 1 that mixes the channels (Chollet 2017, "Xception").

    x        (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y        (batch, *windows, filters)      dy  (batch, *windows, filters)    dL/dy
    weights  {"depthwise": {kernel (*size, 1, channels * multiplier)},
             "pointwise": {kernel (1, ..., channels * multiplier, filters), bias (filters,)}}

    Parameters
    ----------
    filters : int
        Number of output channels.
    size, strides, padding, dilation, multiplier
        As of `DepthwiseConv`.
    bias : bool, default True
        Whether to add a learned bias to every output channel.
    kernel_initializer : Initializer or str
        Of both kernels.
    l1, l2, constraint
        Of both kernels; see `KernelLayer`.
    """

    filters: int
    size: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"
    dilation: int | Shape = 1
    multiplier: int = 1
    bias: bool = field(default=True, kw_only=True)
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)
    l1: float = field(default=0.0, kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    constraint: Constraint | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        names = ("kernel_initializer", "l1", "l2", "constraint", "trainable")
        given = {name: getattr(self, name) for name in names}
        depthwise = DepthwiseConv(
            self.size, self.strides, self.padding, self.dilation, self.multiplier, bias=False, **given
        )
        pointwise = Conv(self.filters, per_axis(1, len(per_axis(self.size, 1))), bias=self.bias, **given)
        return Child("depthwise", depthwise, (0,)), Child("pointwise", pointwise, (1,))

    def _subject(self, index: int) -> str:
        return "SeparableConv"
