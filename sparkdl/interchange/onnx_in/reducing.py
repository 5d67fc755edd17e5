"""Operators that make one number of many along some axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.arithmetic import merged, several, subtract
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.folding import axes_of
from sparkdl.interchange.onnx_in.forms import without
from sparkdl.interchange.onnx_in.joining import alike
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Value, parts_of
from sparkdl.layers import (
    Distance,
    Dot,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    Multiply,
    TimeMax,
    TimeMean,
    TimeSum,
)
from sparkdl.layers.base import Layer

POOLS: Mapping[str, tuple[Layer, Layer]] = {  # over positions, and over steps; others than these are sums
    "ReduceMean": (GlobalAvgPool(), TimeMean()),
    "ReduceMax": (GlobalMaxPool(), TimeMax()),
}


def reduce(build: Assembly, operator: Operator, x: Value, axes: Array | None = None) -> Value:
    """ReduceMean, ReduceMax and sums: a pool over all positions, or over steps."""
    told, rank = operator.attributes, len(x.theirs)
    named = axes_of(operator, axes)
    if not named and told.get("noop_with_empty_axes", 0):
        return x
    reduced = {x.axis(axis) for axis in (named or range(rank))}
    parts = parts_of(tuple(x.theirs[axis] for axis in sorted(reduced)))
    if any(part.batch for part in parts):
        raise Refused(f"its node {operator.name!r} ({operator.kind}) makes one number of several rows")
    keep = bool(told.get("keepdims", 1))
    theirs = tuple(
        () if axis in reduced else group for axis, group in enumerate(x.theirs) if keep or axis not in reduced
    )
    batch, *others = without(x.ours, parts)
    left = [group for group in others if group]
    of_positions, of_steps = POOLS.get(operator.kind, (GlobalSumPool(), TimeSum()))
    ours = (batch, *(left or [()]))
    if len(x.ours) > 3 and set(parts) == set(parts_of(x.ours[1:-1])) and x.ours[-1]:
        return build.put(operator, of_positions, [(x, x.ours)], ours, theirs)
    group = tuple(part for part in parts_of(x.ours) if part in parts)
    return build.put(operator, of_steps, [(x, (batch, group, *ours[1:]))], ours, theirs)


def dot(build: Assembly, operator: Operator, one: Value | Array, other: Value | Array) -> Value:
    """The sum of products along an axis: of vectors a Dot."""
    if (made := _of_vectors(build, operator, Dot(), one, other)) is not None:
        return made
    product = several(Multiply(), "Mul")(build, operator, one, other)
    return reduce(build, operator, product, _axis(operator))


def distance(build: Assembly, operator: Operator, one: Value | Array, other: Value | Array) -> Value:
    """The root of the sum of the squares of differences along an axis, or that sum."""
    squared = bool(operator.attributes["squared"])
    if (made := _of_vectors(build, operator, Distance(squared), one, other)) is not None:
        return made
    if not squared:
        raise Refused(f"its node {operator.name!r} takes the distance of other arrays than vectors")
    apart = subtract(build, operator, one, other)
    return reduce(build, operator, merged(build, operator, Multiply(), [apart, apart]), _axis(operator))


def _of_vectors(build: Assembly, operator: Operator, layer: Layer, one: Any, other: Any) -> Value | None:
    """What a layer makes of two vectors; None of other arrays."""
    if not isinstance(one, Value) or not isinstance(other, Value) or one.node == other.node:
        return None
    one, other = alike([one, other])
    form = one.theirs
    if len(form) != 2 or one.axis(operator.attributes["axis"]) != 1 or not all((*form, *other.theirs)):
        return None
    theirs = (form[0], ()) if operator.attributes.get("keepdims", 1) else form[:1]
    return build.put(operator, layer, [(one, form), (other, form)], (form[0], ()), theirs)


def _axis(operator: Operator) -> Array:
    return np.array([operator.attributes["axis"]])


OPERATORS: Mapping[str, Any] = {
    "ReduceMean": reduce,
    "ReduceMax": reduce,
    "ReduceSum": reduce,
    "Dot": dot,
    "Distance": distance,
}
