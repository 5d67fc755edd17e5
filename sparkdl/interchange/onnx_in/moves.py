"""Operators that move, join and cut axes, which mostly changes no more than how an array is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.folding import axes_of, listed, shape_of, target
from sparkdl.interchange.onnx_in.forms import batch_of, channels_last
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.repeating import repeated
from sparkdl.interchange.onnx_in.views import NoView, Value, new_axis, parts_of, size_of
from sparkdl.layers import DepthToSpace, Reshape, SpaceToDepth


def same(build: Assembly, operator: Operator, x: Value, *others: Any) -> Value:
    """What gives x as it is."""
    return x


def cast(build: Assembly, operator: Operator, x: Value) -> Value:
    """Cast, of which ours decides by what reads it: integers are those of an input, or of a layer that gives them."""
    kind = np.dtype(require_onnx().helper.tensor_dtype_to_np_dtype(operator.attributes["to"])).kind
    node = build.node(x)
    if kind in "iub" and node is not None and not node.layer.gives_integers:
        raise Refused(f"its node {operator.name!r} (Cast) makes integers of what is computed, which layers do not")
    return x


def transpose(build: Assembly, operator: Operator, x: Value) -> Value:
    """Transpose."""
    return x.transposed(operator.attributes.get("perm") or range(len(x.theirs))[::-1])


def unsqueeze(build: Assembly, operator: Operator, x: Value, axes: Array | None = None) -> Value:
    """Unsqueeze."""
    return x.unsqueezed(axes_of(operator, axes) or ())


def squeeze(build: Assembly, operator: Operator, x: Value, axes: Array | None = None) -> Value:
    """Squeeze."""
    return x.squeezed(axes_of(operator, axes))


def shape(build: Assembly, operator: Operator, x: Value) -> Array:
    """Shape, in which the batch has the size that stands for it."""
    return shape_of(operator, x.sizes)


def numbered(build: Assembly, operator: Operator, x: Value) -> Array:
    """The numbers of steps behind that of padding, of rows that have no padding within."""
    return np.broadcast_to(int(operator.attributes["padding"]) + 1 + np.arange(x.sizes[-1]), x.sizes)


def flatten(build: Assembly, operator: Operator, x: Value) -> Value:
    """Flatten."""
    axis = operator.attributes.get("axis", 1)
    return x.reshaped((size_of(parts_of(x.theirs[:axis])), size_of(parts_of(x.theirs[axis:]))))


def reshape(build: Assembly, operator: Operator, x: Value, wanted: Array) -> Value:
    """Reshape: another view, or a layer where sizes do not divide one another."""
    sizes = target(operator, x.sizes, wanted)
    try:
        return x.reshaped(sizes)
    except NoView:
        if x.theirs[0] != batch_of(x.theirs) or sizes[:1] != x.sizes[:1] or np.prod(sizes) != np.prod(x.sizes):
            raise
        form = (x.theirs[0], *map(new_axis, sizes[1:]))
        return build.put(operator, Reshape(sizes[1:]), [(x, x.theirs)], form, form)


def expand(build: Assembly, operator: Operator, x: Value, wanted: Array) -> Value:
    """Expand: numbers again and again, along axes of size 1."""
    sizes = np.broadcast_shapes(x.sizes, tuple(listed(wanted)))
    x = x.unsqueezed(range(len(sizes) - len(x.theirs)))
    new = [new_axis(size) if size != own else () for size, own in zip(sizes, x.sizes, strict=True)]
    made = repeated(build, operator, x, (*x.ours, *new))
    return replace(made, theirs=tuple(own or more for own, more in zip(x.theirs, new, strict=True)))


def depth_to_space(build: Assembly, operator: Operator, x: Value) -> Value:
    """DepthToSpace, in either order of the channels."""
    size, form = operator.attributes["blocksize"], channels_last(x.theirs)
    batch, height, width, channels = form
    left = size_of(channels) // size**2
    if operator.attributes.get("mode", "DCR") == "DCR":
        grown = (new_axis(size_of(height) * size), new_axis(size_of(width) * size), new_axis(left))
        ours = (batch, *grown)
        return build.put(operator, DepthToSpace(size), [(x, form)], ours, (batch, grown[2], grown[0], grown[1]))
    cut = x.reshaped((x.sizes[0], left, size, size, *x.sizes[2:]))
    return cut.transposed((0, 1, 4, 2, 5, 3)).reshaped((x.sizes[0], left, x.sizes[2] * size, x.sizes[3] * size))


def space_to_depth(build: Assembly, operator: Operator, x: Value) -> Value:
    """SpaceToDepth."""
    size, form = operator.attributes["blocksize"], channels_last(x.theirs)
    batch, *spatial, channels = form
    smaller, deep = [new_axis(size_of(own) // size) for own in spatial], new_axis(size_of(channels) * size**2)
    ours, theirs = (batch, *smaller, deep), (batch, deep, *smaller)
    return build.put(operator, SpaceToDepth(size), [(x, form)], ours, theirs)


OPERATORS: Mapping[str, Any] = {
    "Identity": same, "Cast": cast, "Transpose": transpose, "Unsqueeze": unsqueeze, "Squeeze": squeeze,
    "Shape": shape, "Numbered": numbered, "Flatten": flatten, "Reshape": reshape, "Expand": expand,
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
}  # fmt: skip
