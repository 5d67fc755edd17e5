"""Operators that give numbers mean 0 and variance 1, over a batch, a row, or a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.folding import check_size, once
from sparkdl.interchange.onnx_in.forms import channels_last, rows_first, with_last
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Value, parts_of, size_of
from sparkdl.layers import BatchNorm, GroupNorm, L2Normalize, LayerNorm, LocalResponseNorm, RMSNorm
from sparkdl.layers.base import Weights

TINY = 1e-6  # a length that only vectors of zeros are below


def batch_norm(build: Assembly, operator: Operator, x: Value, *given: Array) -> Value:
    """BatchNormalization, by the averages of training."""
    told, form = operator.attributes, with_last(x.ours, x.theirs[1])
    if told.get("training_mode", 0) or not told.get("spatial", 1) or len(given) != 4:
        raise Refused(f"its node {operator.name!r} (BatchNormalization) is as in training; export it for inference")
    names = ("scale", "bias", "mean", "variance")
    weights = {name: float32(array) for name, array in zip(names, given, strict=True)}
    layer = BatchNorm(epsilon=told.get("epsilon", 1e-5), momentum=told.get("momentum", 0.9))
    return build.put(operator, layer, [(x, form)], form, x.theirs, weights)


def layer_norm(
    build: Assembly, operator: Operator, x: Value, scale: Array | None = None, bias: Array | None = None
) -> Value:
    """LayerNormalization and RMSNormalization, over the last axis or the last ones together."""
    told, weights = operator.attributes, _weights(scale, bias)
    group = parts_of(x.theirs[x.axis(told.get("axis", -1)) :])
    form, epsilon = with_last(x.ours, group), told.get("epsilon", 1e-5)
    if operator.kind == "RMSNormalization":
        return build.put(operator, _rms(epsilon, weights), [(x, form)], form, x.theirs, weights)
    layer = LayerNorm(epsilon=epsilon, scale="scale" in weights, bias="bias" in weights)
    return build.put(operator, layer, [(x, form)], form, x.theirs, weights)


def _rms(epsilon: float, weights: Weights) -> RMSNorm:
    return RMSNorm(epsilon=epsilon, scale="scale" in weights, bias="bias" in weights)


def _weights(scale: Array | None, bias: Array | None) -> Weights:
    given = {"scale": scale, "bias": bias}
    return {name: float32(array).ravel() for name, array in given.items() if array is not None}


def _repeated(times: int, scale: Array, bias: Array) -> Weights:
    """Weights of groups, for each of a group's channels."""
    check_size(max(scale.size, bias.size), times)
    return {name: np.repeat(float32(array), times) for name, array in {"scale": scale, "bias": bias}.items()}


def instance_norm(build: Assembly, operator: Operator, x: Value, scale: Array, bias: Array) -> Value:
    """InstanceNormalization: a GroupNorm, whose groups are the channels, or those that channels were joined to."""
    groups = x.theirs[1]
    rest = tuple(part for part in parts_of(x.theirs[2:]))
    form = rows_first(x.ours)
    if form[-1][: len(groups)] != groups:
        form = channels_last(x.theirs)
    within = form[-1][len(groups) :]
    if any(part not in rest for part in within):
        raise Refused(f"its node {operator.name!r} (InstanceNormalization) is over other axes than positions")
    plain = np.all(once(scale) == 1) and not np.any(once(bias))
    layer = GroupNorm(
        size_of(groups), epsilon=operator.attributes.get("epsilon", 1e-5), scale=not plain, bias=not plain
    )
    weights = {} if plain else _repeated(size_of(within), scale, bias)
    return build.put(operator, layer, [(x, form)], form, x.theirs, weights)


def group_norm(build: Assembly, operator: Operator, x: Value, scale: Array, bias: Array) -> Value:
    """GroupNormalization, whose scale and bias are of channels, or of groups as up to opset 20."""
    groups, form = operator.attributes["num_groups"], channels_last(x.theirs)
    weights = _repeated(size_of(form[-1]) // len(scale), scale, bias)
    layer = GroupNorm(groups, epsilon=operator.attributes.get("epsilon", 1e-5))
    return build.put(operator, layer, [(x, form)], form, x.theirs, weights)


def local_response(build: Assembly, operator: Operator, x: Value) -> Value:
    """LRN."""
    told, form = operator.attributes, channels_last(x.theirs)
    size = told["size"]
    if size % 2 == 0:
        raise Refused(f"its node {operator.name!r} (LRN) is over {size} channels, where an odd number is known")
    alpha, beta, bias = told.get("alpha", 1e-4), told.get("beta", 0.75), told.get("bias", 1.0)
    own: Form = form
    layer = LocalResponseNorm(size // 2, bias, alpha / size, beta)
    return build.put(operator, layer, [(x, own)], own, x.theirs)


def unit_length(build: Assembly, operator: Operator, x: Value) -> Value:
    """Vectors of length 1, along one axis."""
    if operator.attributes.get("epsilon", 0) > TINY:
        raise Refused(f"its node {operator.name!r} divides by lengths of at least {operator.attributes['epsilon']}")
    form = with_last(x.ours, x.theirs[x.axis(operator.attributes["axis"])])
    return build.put(operator, L2Normalize(), [(x, form)], form, x.theirs)


OPERATORS: Mapping[str, Any] = {
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "RMSNormalization": layer_norm,
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    "LRN": local_response,
    "L2Normalize": unit_length,
}
