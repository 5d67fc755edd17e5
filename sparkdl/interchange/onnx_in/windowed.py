"""Operators with windows over positions: convolutions, pools and changes of size, of arrays with the channels first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.folding import listed
from sparkdl.interchange.onnx_in.forms import channels_last
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Value, new_axis, size_of
from sparkdl.layers import (
    AvgPool,
    Conv,
    ConvTranspose,
    DepthwiseConv,
    GlobalAvgPool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    TimeMax,
    TimeMean,
    UpSample,
)
from sparkdl.layers.base import Layer, Shape, Weights
from sparkdl.layers.windows import Padding, Windows

Pairs = tuple[tuple[int, int], ...]


class _Told:
    """The attributes that operators with windows share.

    Parameters
    ----------
    operator : Operator
    size : tuple of int
        Of a window, unless the operator tells it.
    """

    def __init__(self, operator: Operator, size: Shape = ()) -> None:
        told, self.operator = operator.attributes, operator
        self.size: Shape = tuple(told.get("kernel_shape", size))
        ones = (1,) * len(self.size)
        self.strides: Shape = tuple(told.get("strides") or ones)
        self.dilation: Shape = tuple(told.get("dilations") or ones)
        pads = told.get("pads") or [0] * 2 * len(self.size)
        self.pads: Pairs = tuple(zip(pads[: len(self.size)], pads[len(self.size) :], strict=True))
        self.auto = told.get("auto_pad", "NOTSET")
        if min(pads, default=0) < 0:
            raise Refused(f"its node {operator.name!r} ({operator.kind}) takes positions away, by pads of {pads}")

    def padding(self, spatial: Shape) -> Padding:
        """The padding of rows of these positions."""
        if self.auto in ("VALID", "SAME_UPPER"):
            return {"VALID": "valid", "SAME_UPPER": "same"}[self.auto]
        if self.auto == "SAME_LOWER":
            pairs = Windows.over(spatial, self.size, self.strides, "same", self.dilation).padding
            return tuple((high, low) for low, high in pairs)
        return self.pads if any(map(any, self.pads)) else "valid"


def _axes(form: Form, spatial: Shape) -> Form:
    """The axes of positions of these sizes; one that stays as it is is the same."""
    pairs = zip(form[1:-1], spatial, strict=True)
    return tuple(own if size is None or size_of(own) == size else new_axis(size) for own, size in pairs)


def _put(
    build: Assembly, operator: Operator, layer: Layer, x: Value, weights: Weights | None = None, channels: int = 0
) -> Value:
    """What a layer puts out that reads positions and then channels, of which it gives as many or so many."""
    form = channels_last(x.theirs)
    row: Any = tuple(None if any(part.any_length for part in own) else size_of(own) for own in form[1:])
    spatial = _axes(form, layer.output_shape(row)[:-1])
    last = new_axis(channels) if channels else form[-1]
    return build.put(operator, layer, [(x, form)], (form[0], *spatial, last), (form[0], last, *spatial), weights)


def conv(build: Assembly, operator: Operator, x: Value, kernel: Array, bias: Array | None = None) -> Value:
    """Conv, of one group, of some, or of as many as there are channels."""
    if not isinstance(kernel, np.ndarray) or isinstance(bias, Value):
        raise Refused(f"its node {operator.name!r} (Conv) has a computed kernel, where a constant is known")
    filters, _, *size = kernel.shape
    told, groups = _Told(operator, tuple(size)), operator.attributes.get("group", 1)
    channels = size_of(x.theirs[1])
    weights: Weights = {"kernel": float32(kernel.transpose(*range(2, kernel.ndim), 1, 0))}
    weights |= {} if bias is None else {"bias": float32(bias)}
    windows = (told.size, told.strides, told.padding(x.sizes[2:]), told.dilation)
    if groups == channels > 1:
        layer: Layer = DepthwiseConv(*windows, filters // channels, bias=bias is not None)
    else:
        layer = Conv(filters, *windows, groups, bias=bias is not None)
    return _put(build, operator, layer, x, weights, filters)


def conv_transpose(build: Assembly, operator: Operator, x: Value, kernel: Array, bias: Array | None = None) -> Value:
    """ConvTranspose, of one group."""
    _, filters, *size = kernel.shape
    told, extra = _Told(operator, tuple(size)), tuple(operator.attributes.get("output_padding") or (0,) * len(size))
    if operator.attributes.get("group", 1) != 1 or "output_shape" in operator.attributes or told.auto != "NOTSET":
        raise Refused(f"its node {operator.name!r} (ConvTranspose) has groups, or sizes that it does not say by pads")
    weights: Weights = {"kernel": float32(kernel.transpose(*range(2, kernel.ndim), 1, 0))}
    weights |= {} if bias is None else {"bias": float32(bias)}
    padding = told.padding(x.sizes[2:])
    layer = ConvTranspose(filters, told.size, told.strides, padding, told.dilation, extra, bias=bias is not None)
    return _put(build, operator, layer, x, weights, filters)


def pool(build: Assembly, operator: Operator, x: Value) -> Value:
    """MaxPool, AveragePool and LpPool."""
    told, spatial = _Told(operator), x.sizes[2:]
    average, counts = operator.kind == "AveragePool", bool(operator.attributes.get("count_include_pad", 0))
    if len(operator.outputs) > 1 or max(told.dilation) > 1:
        raise Refused(
            f"its node {operator.name!r} ({operator.kind}) has dilations, or tells where it found the largest"
        )
    padding = told.padding(spatial)
    if operator.attributes.get("ceil_mode", 0):
        pairs = Windows.over(spatial, told.size, told.strides, padding).padding
        ceiled = tuple(_ceiled(*each) for each in zip(spatial, told.size, told.strides, pairs, strict=True))
        if ceiled != pairs and counts:
            raise Refused(f"its node {operator.name!r} (AveragePool) counts padding and has a window beyond it")
        padding = ceiled
    layer: Layer
    if average:
        layer = AvgPool(told.size, told.strides, padding, counts and padding != "valid")
    elif operator.kind == "LpPool":
        layer = LpPool(told.size, told.strides, padding, _norm(operator))
    else:
        layer = MaxPool(told.size, told.strides, padding)
    return _put(build, operator, layer, x)


def _norm(operator: Operator) -> int:
    """The p of LpPool and GlobalLpPool."""
    return operator.attributes.get("p", 2)


def _ceiled(inputs: int, size: int, stride: int, pair: tuple[int, int]) -> tuple[int, int]:
    """The padding with which the last window, which begins before the end of what is padded, is whole."""
    low, high = pair
    windows = -(-(inputs + low + high - size) // stride) + 1
    if (windows - 1) * stride >= inputs + low:
        windows -= 1
    return low, max(high, (windows - 1) * stride + size - inputs - low)


def global_pool(build: Assembly, operator: Operator, x: Value) -> Value:
    """GlobalAveragePool, GlobalMaxPool and GlobalLpPool."""
    form = channels_last(x.theirs)
    any_length = any(part.any_length for group in form for part in group)
    average = operator.kind == "GlobalAveragePool"
    layer: Layer = GlobalAvgPool() if average else GlobalMaxPool()
    if operator.kind == "GlobalLpPool":
        layer = GlobalLpPool(_norm(operator))
    elif any_length:
        layer = TimeMean() if average else TimeMax()
    ours = (form[0], form[-1])
    return build.put(operator, layer, [(x, form)], ours, (*ours, *((),) * (len(form) - 2)))


def resize(build: Assembly, operator: Operator, x: Value, *given: Array | None) -> Value:
    """Resize and Upsample, to a multiple of the positions."""
    told, rank = operator.attributes, len(x.theirs)
    arrays = [array for array in given if array is not None and array.size == rank]
    scales: list[float] = (told.get("scales") or []) if not arrays else listed(arrays[-1])
    if scales and arrays and arrays[-1].dtype.kind == "i":
        scales = [1.0, *(size / own for size, own in zip(scales[1:], x.sizes[1:], strict=True))]
    mode, how = told.get("mode", "nearest"), told.get("coordinate_transformation_mode", "half_pixel")
    whole = bool(scales) and all(scale >= 1 and math.isclose(scale, round(scale)) for scale in scales)
    nearest = mode == "nearest" and (operator.kind == "Upsample" or _repeats(how, told))
    if not whole or scales[:2] != [1, 1] or not (nearest or (mode == "linear" and how == "half_pixel")):
        raise Refused(
            f"its node {operator.name!r} ({operator.kind}) resizes by {scales}, mode {mode!r} and {how!r}, where "
            "multiples of the positions are known, by 'nearest', or by 'linear' and 'half_pixel'"
        )
    size = tuple(round(scale) for scale in scales[2:])
    return _put(build, operator, UpSample(size, "nearest" if nearest else "linear"), x)


def _repeats(how: str, told: Mapping[str, Any]) -> bool:
    """Whether the nearest position is that which is repeated."""
    rounding = told.get("nearest_mode", "round_prefer_floor")
    known = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
    return (how, rounding) in known


OPERATORS: Mapping[str, Any] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool,
    "AveragePool": pool,
    "LpPool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalLpPool": global_pool,
    "GlobalMaxPool": global_pool,
    "Resize": resize,
    "Upsample": resize,
}
