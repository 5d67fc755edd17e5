"""Sums and products of arrays, and of arrays with constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.attention_parts import mask_added, scores_scaled
from sparkdl.interchange.onnx_in.biases import biased, scaled
from sparkdl.interchange.onnx_in.folding import once, same_along
from sparkdl.interchange.onnx_in.forms import with_last
from sparkdl.interchange.onnx_in.joining import alike
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.repeating import repeated
from sparkdl.interchange.onnx_in.views import Group, NoView, Value, new_axis, parts_of, size_of
from sparkdl.layers import (
    Add,
    Average,
    FeatureTokens,
    LeakyRelu,
    LearnedPositions,
    Maximum,
    Minimum,
    Multiply,
    PRelu,
    Scale,
    Shift,
    Subtract,
)
from sparkdl.layers.base import Layer

Handler = Callable[..., Any]


def along(x: Value, constant: Array) -> tuple[Group, Array]:
    """The axis of x that a constant varies along, of which it has the numbers; () of one that is a single number.

    Where numbers are the same for all rows, as files of a fixed batch may have them, or for all steps, they are those
    of one.

    Raises
    ------
    NoView
        It varies along several.
    """
    small = once(constant)
    if small.ndim > len(x.theirs):
        small = small.reshape(small.shape[small.ndim - len(x.theirs) :])
    axes = [axis for axis in range(-small.ndim, 0) if small.shape[axis] > 1]
    for axis in axes[:-1]:
        small = same_along(small, axis)
    axes = [axis for axis in axes if small.shape[axis] > 1]
    if len(axes) > 1 or (axes and size_of(x.theirs[axes[0]]) != small.shape[axes[0]]):
        raise NoView
    return (x.theirs[axes[0]] if axes else ()), small.ravel()


def with_constant(build: Assembly, operator: Operator, x: Value, constant: Array, kind: str) -> Value:
    """x plus a constant, or times one: a part of the layer before it where that lacks one, else a layer by itself."""
    constant = float32(once(constant))
    if (scores := (mask_added if kind == "Add" else scores_scaled)(build, operator, x, constant)) is not None:
        return scores
    try:
        group, numbers = along(x, constant)
    except NoView:
        function = _positions if kind == "Add" else _tokens
        if (found := function(build, operator, x, constant)) is not None:
            return found
        raise
    is_channels = bool(group) or not x.ours[-1]  # which may be a single one
    if is_channels and (fused := (biased if kind == "Add" else scaled)(build, operator, x, group, numbers)) is not None:
        return fused
    layer = Shift if kind == "Add" else Scale
    if not group:
        neutral = 0.0 if kind == "Add" else 1.0
        return x if numbers[0] == neutral else build.each(operator, layer(float(numbers[0])), x)
    form, weight = with_last(x.ours, group), {layer.weight: numbers}
    return build.put(operator, layer(neutral_of(kind), per_channel=True), [(x, form)], form, x.theirs, weight)


def neutral_of(kind: str) -> float:
    """The number that changes nothing where it is added, or multiplied by."""
    return 0.0 if kind == "Add" else 1.0


def _positions(build: Assembly, operator: Operator, x: Value, constant: Array) -> Value | None:
    """x plus a vector for each step."""
    table = _matrix(constant)
    if table is None or len(x.theirs) != 3 or x.theirs != x.ours:
        return None
    steps, inputs = x.theirs[1:]
    node = build.node(x)
    if node is not None and isinstance(node.layer, FeatureTokens) and table.shape == node.weights["bias"].shape:
        weights = {"kernel": node.weights["kernel"], "bias": node.weights["bias"] + table}
        return build.put(operator, node.layer, node.sources, x.ours, x.theirs, weights)
    fits = len(table) == size_of(steps) or any(part.any_length for part in steps)
    if not fits or table.shape[1] != size_of(inputs):
        return None
    return build.put(operator, LearnedPositions(len(table)), [(x, x.ours)], x.ours, x.theirs, {"table": table})


def _matrix(constant: Array) -> Array | None:
    """The numbers of a constant along its last two axes, which are the same for all rows."""
    small = same_along(constant, 0) if constant.ndim == 3 else constant
    return small.reshape(small.shape[-2:]) if small.ndim > 1 and small.size == np.prod(small.shape[-2:]) else None


def _tokens(build: Assembly, operator: Operator, x: Value, constant: Array) -> Value | None:
    """Every number of a vector times a vector of its own, to which one more may be added."""
    kernel = _matrix(constant)
    if kernel is None or len(x.theirs) != 3 or x.theirs[2]:
        return None
    numbers, size = x.theirs[1], new_axis(kernel.shape[1])
    if len(kernel) != size_of(numbers):
        return None
    form, weights = (*x.theirs[:2], size), {"kernel": kernel, "bias": np.zeros_like(kernel)}
    return build.put(operator, FeatureTokens(kernel.shape[1]), [(x, x.theirs[:2])], form, form, weights)


def several(layer: Layer, kind: str = "") -> Handler:
    """Of a layer that merges arrays, which are repeated along axes that they lack."""

    def read(build: Assembly, operator: Operator, *given: Value | Array) -> Value:
        values = [value for value in given if isinstance(value, Value)]
        if len(values) < len(given):
            arrays = [array for array in given if isinstance(array, np.ndarray)]
            if (len(values), len(arrays)) != (1, 1) or not kind:
                raise Refused(f"its node {operator.name!r} ({operator.kind}) merges a constant with what is computed")
            return with_constant(build, operator, values[0], arrays[0], kind)
        if len(values) == 1:
            return values[0]
        return merged(build, operator, layer, values)

    return read


def merged(build: Assembly, operator: Operator, layer: Layer, values: list[Value]) -> Value:
    """What a layer makes of several arrays of one shape, or that are to be repeated to be of one."""
    values = alike(values)
    axes = range(len(values[0].theirs))
    theirs = tuple(next((value.theirs[axis] for value in values if value.theirs[axis]), ()) for axis in axes)
    whole = next((value for value in values if set(parts_of(value.ours)) == set(parts_of(theirs))), None)
    form = whole.ours if whole is not None else theirs
    return build.put(
        operator, layer, [(repeated(build, operator, value, form), form) for value in values], form, theirs
    )


def subtract(build: Assembly, operator: Operator, one: Value | Array, other: Value | Array) -> Value:
    """Sub."""
    if isinstance(one, np.ndarray):
        assert isinstance(other, Value)
        return with_constant(build, operator, build.each(operator, Scale(-1.0), other), one, "Add")
    if isinstance(other, np.ndarray):
        return with_constant(build, operator, one, -once(other), "Add")
    return merged(build, operator, Subtract(), [one, other])


def divide(build: Assembly, operator: Operator, one: Value | Array, other: Value | Array) -> Value:
    """Div, by a constant."""
    if not isinstance(one, Value) or not isinstance(other, np.ndarray):
        raise Refused(f"its node {operator.name!r} (Div) divides by what is computed, where a constant can be")
    with np.errstate(divide="ignore"):  # by 0, which no layer takes
        factor = 1 / float32(once(other))
    return with_constant(build, operator, one, factor, "Mul")


def power(build: Assembly, operator: Operator, x: Value, exponent: Array) -> Value:
    """Pow, of 2; that of 3 is a Cube."""
    if not isinstance(x, Value) or exponent.size != 1 or exponent.item() not in (1, 2):
        raise Refused(f"its node {operator.name!r} (Pow) has another exponent than 2 or 3")
    return x if exponent.item() == 1 else merged(build, operator, Multiply(), [x, x])


def prelu(build: Assembly, operator: Operator, x: Value, slope: Array) -> Value:
    """PRelu, with a slope for all or for each channel."""
    group, numbers = along(x, slope)
    if not group:
        return build.each(operator, LeakyRelu(float(numbers[0])), x)
    form = with_last(x.ours, group)
    return build.put(operator, PRelu(), [(x, form)], form, x.theirs, {"slope": float32(numbers)})


OPERATORS: Mapping[str, Handler] = {
    "PRelu": prelu,
    "Add": several(Add(), "Add"),
    "Sum": several(Add(), "Add"),
    "Mul": several(Multiply(), "Mul"),
    "Max": several(Maximum()),
    "Min": several(Minimum()),
    "Mean": several(Average()),
    "Sub": subtract,
    "Div": divide,
    "Pow": power,
}
