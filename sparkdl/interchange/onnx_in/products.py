"""Products with matrices: dense layers, by whichever axis of the file's array they sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.attending import attention
from sparkdl.interchange.onnx_in.attention_parts import product_of_values
from sparkdl.interchange.onnx_in.biases import INNER
from sparkdl.interchange.onnx_in.forms import without
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Group, NoView, Value, new_axis, size_of
from sparkdl.layers import Conv, Dense, EachStep
from sparkdl.layers.base import Layer, Weights


def matmul(build: Assembly, operator: Operator, one: Value | Array, other: Value | Array) -> Value:
    """MatMul: with a matrix of weights, or within attention."""
    if isinstance(one, Value) and isinstance(other, Value):
        return product_of_values(build, operator, one, other)
    if not isinstance(one, Value) or not isinstance(other, np.ndarray):
        raise Refused(f"its node {operator.name!r} (MatMul) has its constant first, where it can come second")
    if other.size != np.prod(other.shape[-2:]) or other.ndim < 2:
        raise Refused(f"its node {operator.name!r} (MatMul) multiplies by an array of shape {other.shape}, no matrix")
    return dense(build, operator, one, other.reshape(other.shape[-2:]), None)


def gemm(build: Assembly, operator: Operator, x: Value, kernel: Array, bias: Array | None = None) -> Value:
    """Gemm: a dense layer with its bias."""
    told = operator.attributes
    if not isinstance(kernel, np.ndarray) or isinstance(bias, Value) or not isinstance(x, Value) or told.get("transA"):
        raise Refused(f"its node {operator.name!r} (Gemm) multiplies other than what is computed by a constant")
    kernel = float32(kernel.T if told.get("transB") else kernel) * np.float32(told.get("alpha", 1.0))
    if bias is not None:
        bias = np.broadcast_to(float32(bias) * np.float32(told.get("beta", 1.0)), (1, kernel.shape[1]))[0]
    return dense(build, operator, x, kernel, bias)


def dense(build: Assembly, operator: Operator, x: Value, kernel: Array, bias: Array | None) -> Value:
    """x times a matrix (inputs, units), plus a bias (units,), along the last axis of theirs."""
    group = x.theirs[-1]
    if len(kernel) != size_of(group):
        raise NoView
    if (made := attention(build, operator, x, float32(kernel), bias)) is not None:
        return made
    inputs = tuple(part for own in x.ours for part in own if part in group)
    batch, *lead = (own for own in without(x.ours, group) if own)
    kernel, units = _rows_in_order(kernel, group, inputs), new_axis(kernel.shape[1])
    weights: Weights = {"kernel": kernel} if bias is None else {"kernel": kernel, "bias": float32(bias)}
    layer: Layer = Dense(kernel.shape[1], bias=bias is not None)
    if len(lead) == 1 and not any(part.any_length for part in lead[0]):
        layer, weights = EachStep([Dense(kernel.shape[1], bias=bias is not None, name=INNER)]), {INNER: weights}
    elif len(lead) > 1:
        layer = Conv(kernel.shape[1], (1,) * len(lead), bias=bias is not None)
        weights["kernel"] = kernel.reshape(*(1,) * len(lead), *kernel.shape)
    ours = (batch, *lead, units)
    return build.put(operator, layer, [(x, (batch, *lead, inputs))], ours, (*x.theirs[:-1], units), weights)


def _rows_in_order(kernel: Array, theirs: Group, ours: Group) -> Array:
    """A matrix whose rows are in the order of parts of theirs, with them in that of ours."""
    cut = kernel.reshape(*(part.size for part in theirs), -1)
    return float32(cut.transpose(*(theirs.index(part) for part in ours), len(theirs)).reshape(kernel.shape))


OPERATORS: Mapping[str, Any] = {"MatMul": matmul, "Gemm": gemm}
