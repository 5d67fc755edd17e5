"""Layers with windows over the positions of rows: convolutions and pools."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from sparkdl.arrays import STEPS
from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    AvgPool,
    Conv,
    ConvTranspose,
    DepthwiseConv,
    GlobalAvgPool,
    GlobalLpPool,
    GlobalMaxPool,
    GlobalSumPool,
    LocallyConnected,
    LpPool,
    MaxPool,
    SumPool,
)
from sparkdl.layers.base import Layer, Shape, Weights
from sparkdl.layers.ragged import is_ragged
from sparkdl.layers.temporal import WidthMatch
from sparkdl.layers.windows import Windows, per_axis


def _given(windows: Windows) -> dict[str, Any]:
    """The attributes of a node with windows."""
    pads = [pair[end] for end in (0, 1) for pair in windows.padding]
    return {"kernel_shape": windows.size, "strides": windows.strides, "pads": pads}


def _outputs_first(kernel: Any) -> Any:
    """(*size, inputs, outputs) as (outputs, inputs, *size)."""
    return np.moveaxis(np.asarray(kernel), (-1, -2), (0, 1))


def _bias(out: Writing, weights: Weights) -> list[str]:
    return [out.weight("bias", weights["bias"])] if "bias" in weights else []


def _convolved(out: Writing, layer: Conv | DepthwiseConv, weights: Weights, x: Value, groups: int) -> Value:
    spatial = (STEPS,) if is_ragged(x.shape) else x.shape[:-1]
    windows = Windows.over(spatial, layer.size, layer.strides, layer.padding, layer.dilation)
    kernel = out.weight("kernel", _outputs_first(weights["kernel"]))
    given = {**_given(windows), "dilations": windows.dilation, "group": groups}
    y = out.op("Conv", out.cleared(x).name, kernel, *_bias(out, weights), **given)
    return out.cleared(Value(y, x.shape, x.lengths, channels_first=True))


def _conv(out: Writing, layer: Conv, weights: Weights, x: Value) -> Value:
    return _convolved(out, layer, weights, x, layer.groups)


def _depthwise_conv(out: Writing, layer: DepthwiseConv, weights: Weights, x: Value) -> Value:
    return _convolved(out, layer, weights, x, x.shape[-1])


def _width_match(out: Writing, layer: WidthMatch, weights: Weights, x: Value) -> Value:
    return _conv(out, Conv(layer.filters, 1), weights, x) if weights else out.cleared(x)


def _conv_transpose(out: Writing, layer: ConvTranspose, weights: Weights, x: Value) -> str:
    spatial = x.shape[:-1]
    larger = layer.output_shape(x.shape)[:-1]
    windows = Windows.over(larger, layer.size, layer.strides, layer.padding, layer.dilation)
    needed = [
        (n - 1) * stride + extent - low - high
        for n, (_, _, stride, extent, (low, high)) in zip(spatial, windows.axes(), strict=True)
    ]
    extra = [size - least for size, least in zip(larger, needed, strict=True)]
    given = {**_given(windows), "dilations": windows.dilation, "output_padding": extra}
    kernel = out.weight("kernel", _outputs_first(weights["kernel"]))
    return out.op("ConvTranspose", x.name, kernel, *_bias(out, weights), **given)


def _locally_connected(out: Writing, layer: LocallyConnected, weights: Weights, x: Value) -> str:
    """Each window's numbers are gathered, then multiplied with the window's own kernel."""
    *spatial, channels = x.shape
    windows = Windows.over(tuple(spatial), per_axis(layer.size, 1), layer.strides, layer.padding)
    ends = [[0, *(pair[end] for pair in windows.padding), 0] for end in (0, 1)]
    padded = out.op("Pad", x.name, np.array(ends[0] + ends[1], "int64"))
    sizes = [n + low + high for n, _, _, _, (low, high) in windows.axes()]
    rows = out.reshape(padded, 0, int(np.prod(sizes)), channels)
    seen = out.op("Gather", rows, _places(windows, sizes), axis=1)
    count, size, filters = int(np.prod(windows.outputs)), int(np.prod(windows.size)) * channels, layer.filters
    kernel = out.weight("kernel", np.asarray(weights["kernel"]).reshape(count, size, filters))
    y = out.op("MatMul", out.reshape(seen, 0, count, 1, size), kernel)
    y = out.reshape(y, 0, *windows.outputs, filters)
    return out.op("Add", y, *_bias(out, weights)) if layer.bias else y


def _places(windows: Windows, sizes: list[int]) -> Any:
    """For every window the positions that it covers, counted in row-major order, (windows, positions)."""
    strides = np.array(windows.strides)
    starts = np.array(list(product(*map(range, windows.outputs)))) * strides
    within = np.array(list(product(*map(range, windows.size))))
    covered = starts[:, None] + within[None]
    return np.ravel_multi_index(tuple(np.moveaxis(covered, -1, 0)), sizes).astype("int64")


def _pooled(layer: MaxPool | AvgPool | SumPool | LpPool, shape: Shape) -> dict[str, Any]:
    strides = layer.size if layer.strides is None else layer.strides
    return _given(Windows.over(shape[:-1], layer.size, strides, layer.padding))


def _max_pool(out: Writing, layer: MaxPool, weights: Weights, x: Value) -> str:
    return out.op("MaxPool", x.name, **_pooled(layer, x.shape))


def _avg_pool(out: Writing, layer: AvgPool, weights: Weights, x: Value) -> str:
    return out.op("AveragePool", x.name, **_pooled(layer, x.shape), count_include_pad=int(layer.count_padding))


def _sum_pool(out: Writing, layer: SumPool, weights: Weights, x: Value) -> str:
    """An average that counts padding, times how many numbers it counts."""
    given = _pooled(layer, x.shape)
    averages = out.op("AveragePool", x.name, **given, count_include_pad=1)
    return out.op("Mul", averages, np.float32(np.prod(given["kernel_shape"])))


def _lp_pool(out: Writing, layer: LpPool, weights: Weights, x: Value) -> str:
    return out.op("LpPool", x.name, **_pooled(layer, x.shape), p=layer.p)


def _global(kind: str) -> Writer:
    def write(out: Writing, layer: Layer, weights: Weights, x: Value) -> str:
        given = {"p": layer.p} if isinstance(layer, GlobalLpPool) else {}
        return out.op("Flatten", out.op(kind, x.name, **given), axis=1)

    return Writer(write, Takes.CHANNELS_FIRST)


def _global_sum_pool(out: Writing, layer: GlobalSumPool, weights: Weights, x: Value) -> str:
    return out.reduce("ReduceSum", x.name, x.spatial_axes, keep=False)


WRITERS: dict[type[Layer], Writer] = {
    Conv: Writer(_conv, Takes.CHANNELS_FIRST),
    DepthwiseConv: Writer(_depthwise_conv, Takes.CHANNELS_FIRST),
    WidthMatch: Writer(_width_match, Takes.CHANNELS_FIRST),
    ConvTranspose: Writer(_conv_transpose, Takes.CHANNELS_FIRST),
    LocallyConnected: Writer(_locally_connected),
    MaxPool: Writer(_max_pool, Takes.CHANNELS_FIRST),
    AvgPool: Writer(_avg_pool, Takes.CHANNELS_FIRST),
    SumPool: Writer(_sum_pool, Takes.CHANNELS_FIRST),
    LpPool: Writer(_lp_pool, Takes.CHANNELS_FIRST),
    GlobalAvgPool: _global("GlobalAveragePool"),
    GlobalLpPool: _global("GlobalLpPool"),
    GlobalMaxPool: _global("GlobalMaxPool"),
    GlobalSumPool: Writer(_global_sum_pool, Takes.EITHER),
}
