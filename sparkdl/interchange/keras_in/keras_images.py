"""Keras's convolutions and pools."""

from __future__ import annotations

import math
from typing import Any

from sparkdl.interchange.keras_in.keras_activations import activation
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable, named
from sparkdl.layers import (
    AvgPool,
    Conv,
    ConvTranspose,
    DepthwiseConv,
    GlobalAvgPool,
    GlobalMaxPool,
    Layer,
    MaxPool,
    Reshape,
    SeparableConv,
    TimeMax,
    TimeMean,
)
from sparkdl.layers.ragged import is_ragged
from sparkdl.layers.windows import per_axis


def convolution(config: LayerConfig, shapes: Any) -> Part:
    """Conv1D, Conv2D and Conv3D."""
    bias = config.flag("use_bias", True)
    layer = Conv(config.integer("filters"), **_windows(config), groups=config.integer("groups", 1), bias=bias)
    return Part((layer, *activation(config)), named("kernel", bias=bias))


def depthwise(config: LayerConfig, shapes: Any) -> Part:
    """DepthwiseConv1D and DepthwiseConv2D."""
    bias = config.flag("use_bias", True)
    layer = DepthwiseConv(**_windows(config), multiplier=config.integer("depth_multiplier", 1), bias=bias)
    kernel = Variable("depthwise_kernel" if config.version < 3 else "kernel", ("kernel",), _depthwise)
    return Part((layer, *activation(config)), (kernel, *named(bias=bias)))


def separable(config: LayerConfig, shapes: Any) -> Part:
    """SeparableConv1D and SeparableConv2D."""
    bias, multiplier = config.flag("use_bias", True), config.integer("depth_multiplier", 1)
    layer = SeparableConv(config.integer("filters"), **_windows(config), multiplier=multiplier, bias=bias)
    kernels = (
        Variable("depthwise_kernel", ("depthwise/kernel",), _depthwise),
        Variable("pointwise_kernel", ("pointwise/kernel",)),
    )
    variables = (*kernels, *[Variable("bias", ("pointwise/bias",))] * bias)
    return Part((layer, *activation(config)), variables)


def transposed(config: LayerConfig, shapes: Any) -> Part:
    """Conv1DTranspose, Conv2DTranspose and Conv3DTranspose."""
    windows, bias = _windows(config), config.flag("use_bias", True)
    size, strides, dilation = (
        per_axis(windows[name], len(windows["size"])) for name in ("size", "strides", "dilation")
    )
    extra: Any = 0
    if windows["padding"] == "valid":  # Keras gives each position of x at least as many of y as the strides
        extents = [(n - 1) * apart + 1 for n, apart in zip(size, dilation, strict=True)]
        extra = tuple(max(stride - extent, 0) for stride, extent in zip(strides, extents, strict=True))
        if config.get("output_padding") is not None:
            extra = config.sizes("output_padding")
    elif config.get("output_padding") is not None:
        raise config.wrong("output_padding", config.get("output_padding"), "None where padding is 'same'")
    layer = ConvTranspose(config.integer("filters"), **windows, extra=extra, bias=bias)
    return Part((layer, *activation(config)), named("kernel", bias=bias))


def max_pool(config: LayerConfig, shapes: Any) -> Part:
    """MaxPooling1D, MaxPooling2D and MaxPooling3D."""
    return Part((MaxPool(**_pool(config)),))


def average_pool(config: LayerConfig, shapes: Any) -> Part:
    """AveragePooling1D, AveragePooling2D and AveragePooling3D."""
    return Part((AvgPool(**_pool(config)),))


def global_average(config: LayerConfig, shapes: Any) -> Part:
    """GlobalAveragePooling1D, 2D and 3D."""
    return _global(config, shapes, TimeMean(), GlobalAvgPool())


def global_max(config: LayerConfig, shapes: Any) -> Part:
    """GlobalMaxPooling1D, 2D and 3D."""
    return _global(config, shapes, TimeMax(), GlobalMaxPool())


def _global(config: LayerConfig, shapes: Any, of_any_length: Layer, of_positions: Layer) -> Part:
    (shape,) = shapes
    config.only("data_format", "channels_last", None)
    pool = of_any_length if is_ragged(shape) else of_positions
    if not config.flag("keepdims", False):
        return Part((pool,))
    return Part((pool, Reshape((*(1 for _ in shape[:-1]), -1))))


def _depthwise(kernel: Any) -> tuple[Any, ...]:
    """(*size, channels, multiplier) as (*size, 1, channels * multiplier)."""
    return (kernel.reshape(*kernel.shape[:-2], 1, math.prod(kernel.shape[-2:])),)


def _windows(config: LayerConfig) -> dict[str, Any]:
    config.only("data_format", "channels_last", None)
    padding = config.only("padding", "valid", "same", "causal")
    sizes = {"strides": config.sizes("strides", 1), "dilation": config.sizes("dilation_rate", 1)}
    return {"size": per_axis(config.sizes("kernel_size"), 1), "padding": padding, **sizes}


def _pool(config: LayerConfig) -> dict[str, Any]:
    config.only("data_format", "channels_last", None)
    strides = config.sizes("strides") if config.get("strides") is not None else None
    padding = config.only("padding", "valid", "same")
    return {"size": config.sizes("pool_size", 2), "strides": strides, "padding": padding}
