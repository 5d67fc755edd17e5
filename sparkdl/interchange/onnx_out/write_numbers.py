"""Layers that take each number by itself, or with those of its channel: activations, factors, noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    AlphaDropout,
    Celu,
    Cube,
    Dropout,
    Elu,
    GaussianDropout,
    GaussianNoise,
    Gelu,
    HardSigmoid,
    HardSwish,
    HardTanh,
    LeakyRelu,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Normalization,
    PRelu,
    RandomAffine,
    RandomBrightness,
    RandomContrast,
    RandomErasing,
    RandomFlip,
    RandomInvert,
    RationalTanh,
    RectifiedTanh,
    Relu,
    Relu6,
    Rescale,
    Scale,
    Selu,
    Shift,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Softsign,
    SpatialDropout,
    StochasticDepth,
    Tanh,
    ThresholdedRelu,
)
from sparkdl.layers.base import Layer, Weights

SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
NOISE = (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    RandomAffine,
    RandomBrightness,
    RandomContrast,
    RandomErasing,
    RandomFlip,
    RandomInvert,
    SpatialDropout,
    StochasticDepth,
)  # which at inference do nothing


def _plain(kind: str) -> Writer:
    return Writer(lambda out, layer, weights, x: out.op(kind, x.name), Takes.ANY)


def _same(out: Writing, layer: Layer, weights: Weights, x: Value) -> Value:
    return x


def _relu6(out: Writing, layer: Relu6, weights: Weights, x: Value) -> str:
    return out.op("Clip", x.name, np.float32(0), np.float32(6))


def _leaky_relu(out: Writing, layer: LeakyRelu, weights: Weights, x: Value) -> str:
    return out.op("LeakyRelu", x.name, alpha=float(layer.slope))


def _prelu(out: Writing, layer: PRelu, weights: Weights, x: Value) -> str:
    return out.op("PRelu", x.name, out.along_channels("slope", weights["slope"], x))


def _elu(out: Writing, layer: Elu, weights: Weights, x: Value) -> str:
    return out.op("Elu", x.name, alpha=float(layer.alpha))


def _selu(out: Writing, layer: Selu, weights: Weights, x: Value) -> str:
    return out.op("Selu", x.name, **SELU)


def _hard_sigmoid(out: Writing, layer: HardSigmoid, weights: Weights, x: Value) -> str:
    return out.op("HardSigmoid", x.name, alpha=1 / 6, beta=0.5)


def _hard_swish(out: Writing, layer: HardSwish, weights: Weights, x: Value) -> str:
    """By what it is made of before opset 14, with which HardSwish came."""
    if out.opset >= 14:
        return out.op("HardSwish", x.name)
    bounded = out.op("Clip", out.op("Add", x.name, np.float32(3)), np.float32(0), np.float32(6))
    return out.op("Mul", out.op("Mul", x.name, bounded), np.float32(1 / 6))


def _silu(out: Writing, layer: Silu, weights: Weights, x: Value) -> str:
    return out.op("Mul", x.name, out.op("Sigmoid", x.name))


def _gelu(out: Writing, layer: Gelu, weights: Weights, x: Value) -> str:
    """By Erf, as Gelu came with opset 20."""
    half = out.op("Mul", x.name, np.float32(0.5))
    if layer.approximate:
        cube = out.op("Mul", out.op("Mul", out.op("Mul", x.name, x.name), x.name), np.float32(0.044715))
        turned = out.op("Tanh", out.op("Mul", out.op("Add", x.name, cube), np.float32(math.sqrt(2 / math.pi))))
    else:
        turned = out.op("Erf", out.op("Mul", x.name, np.float32(math.sqrt(0.5))))
    return out.op("Mul", half, out.op("Add", turned, np.float32(1)))


def _softmax(out: Writing, layer: Softmax | LogSoftmax, weights: Weights, x: Value) -> str:
    return out.op(type(layer).__name__, x.name, axis=x.channel_axis)


def _log_sigmoid(out: Writing, layer: LogSigmoid, weights: Weights, x: Value) -> str:
    return out.op("Neg", out.op("Softplus", out.op("Neg", x.name)))


def _mish(out: Writing, layer: Mish, weights: Weights, x: Value) -> str:
    """By what it is made of, as Mish came with opset 18."""
    return out.op("Mul", x.name, out.op("Tanh", out.op("Softplus", x.name)))


def _celu(out: Writing, layer: Celu, weights: Weights, x: Value) -> str:
    return out.op("Celu", x.name, alpha=float(layer.alpha))


def _thresholded_relu(out: Writing, layer: ThresholdedRelu, weights: Weights, x: Value) -> str:
    return out.op("ThresholdedRelu", x.name, alpha=float(layer.theta))


def _hard_tanh(out: Writing, layer: HardTanh, weights: Weights, x: Value) -> str:
    return out.op("Clip", x.name, np.float32(layer.low), np.float32(layer.high))


def _rational_tanh(out: Writing, layer: RationalTanh, weights: Weights, x: Value) -> str:
    """Bounded where it is 1 to float32, that no power of what is beyond is infinite."""
    u = out.op("Clip", out.op("Mul", x.name, np.float32(2 / 3)), np.float32(-1e6), np.float32(1e6))
    size = out.op("Abs", u)
    cube = out.op("Mul", out.op("Mul", size, size), size)
    inner = out.op("Add", out.op("Add", size, out.op("Mul", cube, np.float32(1.41645))), np.float32(1))
    ratio = out.op("Div", out.op("Mul", u, inner), out.op("Add", out.op("Mul", size, inner), np.float32(1)))
    return out.op("Mul", ratio, np.float32(1.7159))


def _rectified_tanh(out: Writing, layer: RectifiedTanh, weights: Weights, x: Value) -> str:
    return out.op("Max", out.op("Tanh", x.name), np.float32(0))


def _cube(out: Writing, layer: Cube, weights: Weights, x: Value) -> str:
    return out.op("Mul", out.op("Mul", x.name, x.name), x.name)


def _rescale(out: Writing, layer: Rescale, weights: Weights, x: Value) -> str:
    y = out.op("Mul", x.name, np.float32(layer.scale))
    return out.op("Add", y, np.float32(layer.offset)) if layer.offset else y


def _number(out: Writing, layer: Scale | Shift, weights: Weights, x: Value) -> Any:
    if layer.per_channel:
        return out.along_channels(layer.weight, weights[layer.weight], x)
    return np.float32(layer.number)


def _scale(out: Writing, layer: Scale, weights: Weights, x: Value) -> str:
    return out.op("Mul", x.name, _number(out, layer, weights, x))


def _shift(out: Writing, layer: Shift, weights: Weights, x: Value) -> str:
    return out.op("Add", x.name, _number(out, layer, weights, x))


def _normalization(out: Writing, layer: Normalization, weights: Weights, x: Value) -> str:
    variance = np.asarray(weights["variance"], "float64")
    factor = 1 / np.sqrt(np.where(variance > 0, variance, 1))
    centred = out.op("Sub", x.name, out.along_channels("mean", weights["mean"], x))
    return out.op("Mul", centred, out.along_channels("factor", factor, x))


WRITERS: dict[type[Layer], Writer] = {
    **dict.fromkeys(NOISE, Writer(_same, Takes.ANY)),
    Relu: _plain("Relu"),
    Relu6: Writer(_relu6, Takes.ANY),
    LeakyRelu: Writer(_leaky_relu, Takes.ANY),
    PRelu: Writer(_prelu, Takes.EITHER),
    Elu: Writer(_elu, Takes.ANY),
    Selu: Writer(_selu, Takes.ANY),
    Gelu: Writer(_gelu, Takes.ANY),
    Silu: Writer(_silu, Takes.ANY),
    Sigmoid: _plain("Sigmoid"),
    Tanh: _plain("Tanh"),
    Softplus: _plain("Softplus"),
    Softmax: Writer(_softmax, Takes.EITHER),
    HardSigmoid: Writer(_hard_sigmoid, Takes.ANY),
    HardSwish: Writer(_hard_swish, Takes.ANY),
    LogSigmoid: Writer(_log_sigmoid, Takes.ANY),
    LogSoftmax: Writer(_softmax, Takes.EITHER),
    Mish: Writer(_mish, Takes.ANY),
    Celu: Writer(_celu, Takes.ANY),
    ThresholdedRelu: Writer(_thresholded_relu, Takes.ANY),
    Softsign: _plain("Softsign"),
    HardTanh: Writer(_hard_tanh, Takes.ANY),
    RationalTanh: Writer(_rational_tanh, Takes.ANY),
    RectifiedTanh: Writer(_rectified_tanh, Takes.ANY),
    Cube: Writer(_cube, Takes.ANY),
    Rescale: Writer(_rescale, Takes.ANY),
    Scale: Writer(_scale, Takes.EITHER),
    Shift: Writer(_shift, Takes.EITHER),
    Normalization: Writer(_normalization, Takes.EITHER),
}
