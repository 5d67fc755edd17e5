"""Attention of several heads, recognised by what it computes: dense layers of queries, keys, values and the output."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, Node, float32
from sparkdl.interchange.onnx_in.attention_parts import TAKEN, Asked
from sparkdl.interchange.onnx_in.biases import INNER
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Group, Value, new_axis, parts_of, size_of
from sparkdl.layers import Dense, EachStep, MultiHeadAttention, Scale, Subset, Unstack
from sparkdl.layers.base import Weights

CLOSE = 1e-3  # of the factor of the scores, which files have in few digits


class Projected(NamedTuple):
    """Steps that a dense layer made something of.

    Attributes
    ----------
    source : (Value, Form)
        What the layer reads.
    kernel : array (inputs, *sizes of the parts)
    bias : array (*sizes of the parts) or None
    parts : Group
        Of what it puts out.
    """

    source: tuple[Value, Form]
    kernel: Array
    bias: Array | None
    parts: Group


def attention(build: Assembly, operator: Operator, taken: Value, kernel: Array, bias: Array | None) -> Value | None:
    """The output's dense layer with all of attention before it; None if that is not what it reads.

    Raises
    ------
    Refused
        It is attention, but other than that of MultiHeadAttention.
    """
    if (known := build.unfinished(taken, TAKEN)) is None:
        return None
    asked: Asked = known.told["asked"]
    assert asked.values is not None
    query, key, value = (_projected(build, each) for each in (asked.queries, asked.keys, asked.values))
    if query is None or key is None or value is None or key.source != value.source:
        raise Refused(f"its node {operator.name!r} ends attention whose queries, keys and values are not all Dense")
    pairs = {"query": (query, asked.queries), "key": (key, asked.keys), "value": (value, asked.values)}
    weights: Weights = {name: _by_heads(operator, *pair) for name, pair in pairs.items()}
    inputs, heads, size = weights["query"]["kernel"].shape
    if {own["kernel"].shape[1:] for own in weights.values()} != {(heads, size)} or kernel.shape[1] != inputs:
        shapes = {name: own["kernel"].shape for name, own in weights.items()}
        raise Refused(f"its node {operator.name!r} ends attention of kernels {shapes} and {kernel.shape}")
    factor = asked.factor * math.sqrt(size)
    if not math.isclose(factor, 1, rel_tol=CLOSE):
        weights["query"] = {name: array * np.float32(factor) for name, array in weights["query"].items()}
    weights["output"] = {"kernel": _rows(operator, asked, taken.theirs[-1], kernel).reshape(heads, size, inputs)}
    has_bias = bias is not None or any("bias" in own for own in weights.values())
    if has_bias:
        none = np.zeros((heads, size), np.float32)
        weights = {name: {"bias": none} | own for name, own in weights.items()}
        weights["output"]["bias"] = float32(np.zeros(inputs) if bias is None else bias)
    sources = [query.source] if query.source == key.source else [query.source, key.source]
    units = new_axis(inputs)
    layer = MultiHeadAttention(heads, size, causal=asked.causal, dropout=asked.dropout, bias=has_bias)
    ours, theirs = (*query.source[1][:-1], units), (*taken.theirs[:-1], units)
    return build.put(operator, layer, sources, ours, theirs, weights)


def _projected(build: Assembly, value: Value) -> Projected | None:
    """The dense layer that made a value, or those of its numbers that the value is of; None if none did."""
    node = build.node(value)
    if node is None:
        return None
    layer, before = node.layer, node.sources[0][0]
    if (dense := _dense(node)) is not None:
        kernel, bias = dense["kernel"], dense.get("bias")
        made: Projected | None = Projected(node.sources[0], kernel, bias, parts_of(node.ours[-1:]))
    elif (made := _projected(build, before)) is None:
        return None
    elif isinstance(layer, Scale) and not layer.per_channel:
        bias = None if made.bias is None else made.bias * np.float32(layer.number)
        made = made._replace(kernel=made.kernel * np.float32(layer.number), bias=bias)
    elif isinstance(layer, (Subset, Unstack)):
        made = _chosen(made, layer, node)
    else:
        return None
    if made is None:
        return None
    parts = tuple(part for part in parts_of(value.ours) if part not in parts_of(made.source[1]))
    sizes, bias = tuple(part.size for part in parts), made.bias
    if math.prod(sizes) != made.kernel[0].size:
        return None
    return Projected(made.source, made.kernel.reshape(-1, *sizes), None if bias is None else bias.reshape(sizes), parts)


def _dense(node: Node) -> Weights | None:
    if isinstance(node.layer, Dense):
        return node.weights
    if isinstance(node.layer, EachStep) and isinstance(node.layer.layers[0], Dense):
        return node.weights[INNER]
    return None


def _chosen(made: Projected, layer: Subset | Unstack, node: Node) -> Projected | None:
    """Those numbers that a layer chooses of what a dense layer made."""
    form = node.sources[0][1]
    group = form[1] if isinstance(layer, Unstack) else form[-1]
    if any(part not in made.parts for part in group):
        return None
    axes = [made.parts.index(part) for part in group]

    def choice(array: Array | None, more: int) -> Array | None:
        if array is None:
            return None
        moved = np.moveaxis(array, [axis + more for axis in axes], range(-len(axes), 0))
        flat = moved.reshape(*moved.shape[: moved.ndim - len(axes)], -1)
        return flat[..., layer.index] if isinstance(layer, Unstack) else flat[..., layer.start : layer.stop]

    kernel = choice(made.kernel, 1)
    assert kernel is not None
    return Projected(made.source, kernel, choice(made.bias, 0), ())


def _by_heads(operator: Operator, made: Projected, value: Value) -> Weights:
    """Kernel (inputs, heads, size) and bias (heads, size), of a value whose axes are rows, heads, steps and numbers."""
    *before, steps, numbers = value.theirs
    heads = tuple(part for part in parts_of(before) if not part.batch)
    if made.source[1][1:-1] != (steps,) or {*heads, *numbers} != set(made.parts):
        raise Refused(f"its node {operator.name!r} ends attention whose axes are not rows, heads, steps and numbers")
    order = [made.parts.index(part) for part in (*heads, *numbers)]
    shape = (size_of(heads), size_of(numbers))
    kernel = made.kernel.transpose(0, *(axis + 1 for axis in order)).reshape(-1, *shape)
    found = {"kernel": float32(kernel)}
    return found if made.bias is None else found | {"bias": float32(made.bias.transpose(order).reshape(shape))}


def _rows(operator: Operator, asked: Asked, group: Group, kernel: Array) -> Array:
    """The output's kernel with its rows in the order of heads, and of numbers within each."""
    assert asked.values is not None
    heads = [part for part in parts_of(asked.queries.theirs[:-2]) if not part.batch]
    wanted = [*heads, *asked.values.theirs[-1]]
    if set(wanted) != set(group):
        raise Refused(f"its node {operator.name!r} reads what attention gives otherwise than with all heads of a step")
    sizes = [part.size for part in group]
    rows = kernel.reshape(*sizes, -1).transpose(*(group.index(part) for part in wanted), len(sizes))
    return float32(rows.reshape(kernel.shape))
