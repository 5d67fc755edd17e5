"""Capsules."""

from __future__ import annotations

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Writer, Writing
from sparkdl.layers import Capsules, CapsuleStrength, Squash
from sparkdl.layers.base import Layer, Weights


def _squares(out: Writing, x: str, keep: bool = True) -> str:
    return out.reduce("ReduceSum", out.op("Mul", x, x), [-1], keep)


def _squashed(out: Writing, x: str) -> str:
    squares = _squares(out, x)
    return out.op("Mul", x, out.op("Div", out.op("Sqrt", squares), out.op("Add", squares, np.float32(1))))


def _squash(out: Writing, layer: Squash, weights: Weights, x: Value) -> str:
    return _squashed(out, x.name)


def _strength(out: Writing, layer: CapsuleStrength, weights: Weights, x: Value) -> str:
    return out.op("Sqrt", _squares(out, x.name, keep=False))


def _capsules(out: Writing, layer: Capsules, weights: Weights, x: Value) -> Value:
    """Forecasts are (batch, inputs, capsules, size), and what is summed over capsules below keeps that axis."""
    kernel = out.weight("kernel", weights["kernel"])
    forecasts = out.squeeze(out.op("MatMul", out.unsqueeze(x.name, 2, 3), kernel), 3)
    y = _squashed(out, out.op("Mul", out.reduce("ReduceSum", forecasts, [1]), np.float32(1 / layer.capsules)))
    agreement = ""
    for _ in range(layer.routings - 1):
        gained = out.reduce("ReduceSum", out.op("Mul", forecasts, y), [3])
        agreement = out.op("Add", agreement, gained) if agreement else gained
        shares = out.op("Softmax", agreement, axis=2)
        y = _squashed(out, out.reduce("ReduceSum", out.op("Mul", shares, forecasts), [1]))
    return Value(out.squeeze(y, 1), (layer.capsules, layer.size))


WRITERS: dict[type[Layer], Writer] = {
    Squash: Writer(_squash),
    CapsuleStrength: Writer(_strength),
    Capsules: Writer(_capsules),
}
