"""Layers that normalize: by statistics that were learned, or of each row."""

from __future__ import annotations

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    BatchNorm,
    GroupNorm,
    L2Normalize,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
    Standardize,
)
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.normalization import Standardization


def _affine(out: Writing, weights: Weights, standard: str, x: Value) -> str:
    """standard * scale + bias, of those that there are."""
    if "scale" in weights:
        standard = out.op("Mul", standard, out.along_channels("scale", weights["scale"], x))
    if "bias" in weights:
        standard = out.op("Add", standard, out.along_channels("bias", weights["bias"], x))
    return standard


def _scale_and_bias(out: Writing, layer: Standardization, weights: Weights, size: int) -> list[str]:
    """Both, as operators ask for them: ones and zeros where the layer has none."""
    scale, bias = weights.get("scale", np.ones(size)), weights.get("bias", np.zeros(size))
    return [out.weight("scale", scale), out.weight("bias", bias)]


def _batch_norm(out: Writing, layer: BatchNorm, weights: Weights, x: Value) -> str:
    arrays = _scale_and_bias(out, layer, weights, x.shape[-1])
    arrays += [out.weight(name, weights[name]) for name in ("mean", "variance")]
    return out.op("BatchNormalization", x.name, *arrays, epsilon=float(layer.epsilon))


def _layer_norm(out: Writing, layer: LayerNorm, weights: Weights, x: Value) -> str:
    """Its operator came with opset 17."""
    if out.opset >= 17:
        arrays = _scale_and_bias(out, layer, weights, x.shape[-1])
        return out.op("LayerNormalization", x.name, *arrays, axis=-1, epsilon=float(layer.epsilon))
    centred = out.op("Sub", x.name, out.reduce("ReduceMean", x.name, [-1]))
    return _affine(out, weights, out.op("Div", centred, _root(out, centred, layer.epsilon)), x)


def _rms_norm(out: Writing, layer: RMSNorm, weights: Weights, x: Value) -> str:
    return _affine(out, weights, out.op("Div", x.name, _root(out, x.name, layer.epsilon)), x)


def _root(out: Writing, x: str, epsilon: float) -> str:
    """sqrt(mean(x * x) + epsilon) over the last axis."""
    mean = out.reduce("ReduceMean", out.op("Mul", x, x), [-1])
    return out.op("Sqrt", out.op("Add", mean, np.float32(epsilon)))


def _group_norm(out: Writing, layer: GroupNorm, weights: Weights, x: Value) -> str:
    """As InstanceNormalization of the groups; GroupNormalization came with opset 18 and changed with 21."""
    ones, zeros = np.ones(layer.groups, "float32"), np.zeros(layer.groups, "float32")
    groups = out.reshape(x.name, 0, layer.groups, int(np.prod(x.shape)) // layer.groups)
    standard = out.op("InstanceNormalization", groups, ones, zeros, epsilon=float(layer.epsilon))
    *spatial, channels = x.shape
    return _affine(out, weights, out.reshape(standard, 0, channels, *spatial), x)


def unit(out: Writing, x: str) -> str:
    """Vectors along the last axis, of length 1; zeros stay zeros."""
    squares = out.reduce("ReduceSum", out.op("Mul", x, x), [-1])
    is_zero = out.op("Equal", squares, np.float32(0))
    return out.op("Div", x, out.op("Sqrt", out.op("Where", is_zero, np.float32(1), squares)))


def _l2_normalize(out: Writing, layer: L2Normalize, weights: Weights, x: Value) -> str:
    return unit(out, x.name)


def _local_response_norm(out: Writing, layer: LocalResponseNorm, weights: Weights, x: Value) -> str:
    """The operator LRN is of images alone, to some runtimes; a product with a band matrix is of all shapes."""
    channels = x.shape[-1]
    band = np.triu(np.tri(channels, k=layer.radius, dtype="float32"), -layer.radius)
    sums = out.op("MatMul", out.op("Mul", x.name, x.name), band)
    energy = out.op("Add", out.op("Mul", sums, np.float32(layer.alpha)), np.float32(layer.bias))
    return out.op("Div", x.name, out.op("Pow", energy, np.float32(layer.beta)))


def _image_response_norm(out: Writing, layer: LocalResponseNorm, weights: Weights, x: Value) -> Value | str:
    if len(x.shape) != 3:
        return Value(_local_response_norm(out, layer, weights, out.channels_last(x)), x.shape)
    size = 2 * layer.radius + 1
    given = {"alpha": float(layer.alpha * size), "beta": float(layer.beta), "bias": float(layer.bias)}
    return out.op("LRN", x.name, size=size, **given)


def _standardize(out: Writing, layer: Standardize, weights: Weights, x: Value) -> str:
    axes, count = list(range(1, x.rank)), int(np.prod(x.shape))
    if not axes:
        return out.op("Sub", x.name, x.name)
    centred = out.op("Sub", x.name, out.reduce("ReduceMean", x.name, axes))
    variance = out.reduce("ReduceMean", out.op("Mul", centred, centred), axes)
    return out.op("Div", centred, out.op("Sqrt", out.op("Max", variance, np.float32(1 / count))))


WRITERS: dict[type[Layer], Writer] = {
    BatchNorm: Writer(_batch_norm, Takes.CHANNELS_FIRST, by_row=True),
    LayerNorm: Writer(_layer_norm),
    RMSNorm: Writer(_rms_norm),
    GroupNorm: Writer(_group_norm, Takes.CHANNELS_FIRST, by_row=True),
    L2Normalize: Writer(_l2_normalize),
    LocalResponseNorm: Writer(_image_response_norm, Takes.CHANNELS_FIRST),
    Standardize: Writer(_standardize, Takes.ANY, by_row=True),
}
