"""What is added to a layer's output by channel, or multiplies it, made a part of the layer where that lacks it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, Node
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.views import Group, Value
from sparkdl.layers import EachStep, MultiHeadAttention
from sparkdl.layers.base import KernelLayer, Layer, Weights
from sparkdl.layers.normalization import Standardization
from sparkdl.layers.recurrent import Recurrent

INNER = "dense"  # the name of a Dense within EachStep


def biased(build: Assembly, operator: Operator, x: Value, group: Group, numbers: Array) -> Value | None:
    """What x is with these numbers as the bias of its layer; None if that has one, or is of another kind."""
    node = _lacking(build, x, group)
    if node is None:
        return None
    layer, weights = node.layer, node.weights
    if isinstance(layer, MultiHeadAttention):
        if np.any(weights["output"].get("bias", 0)):
            return None
        weights = {name: {"bias": _zeros(own["kernel"]), **own} for name, own in weights.items()}
        weights |= {"output": _with(weights["output"], numbers)}
        return _instead(build, operator, x, node, replace(layer, bias=True), weights)
    if isinstance(layer, EachStep):
        (inner,) = layer.layers
        if getattr(inner, "bias", True):
            return None
        outer = replace(layer, layers=[_changed(inner, bias=True)])
        return _instead(build, operator, x, node, outer, {INNER: _with(weights[INNER], numbers)})
    fits = isinstance(layer, (KernelLayer, Standardization)) and not isinstance(layer, Recurrent)
    if not fits or getattr(layer, "bias", True):
        return None
    return _instead(build, operator, x, node, _changed(layer, bias=True), _with(weights, numbers))


def scaled(build: Assembly, operator: Operator, x: Value, group: Group, numbers: Array) -> Value | None:
    """What x is with these numbers as the scale of its layer; None if that has one, or a bias, or is no such layer."""
    node = _lacking(build, x, group)
    if node is None or not isinstance(node.layer, Standardization) or node.layer.scale or node.layer.bias:
        return None
    return _instead(build, operator, x, node, _changed(node.layer, scale=True), node.weights | {"scale": numbers})


def _lacking(build: Assembly, x: Value, group: Group) -> Node | None:
    """The node of x, if nothing else reads that and its channels are this axis."""
    node = build.node(x)
    if node is None or x.ours[-1] != group or build.readers.get(node.operator.outputs[0], 0) > 1:
        return None
    return node


def _instead(build: Assembly, operator: Operator, x: Value, node: Node, layer: Layer, weights: Weights) -> Value:
    """What a node gives with more weights; that without them, which nothing else reads, is left behind."""
    return build.put(operator, layer, node.sources, x.ours, x.theirs, weights)


def _changed(layer: Layer, **changes: Any) -> Layer:
    assert set(changes) <= {field.name for field in fields(layer)}
    return replace(layer, **changes)


def _with(weights: Weights, bias: Array) -> Weights:
    return {**weights, "bias": bias}


def _zeros(kernel: Array) -> Array:
    """The bias of a query, key or value that has none."""
    return np.zeros(kernel.shape[1:], np.float32)
