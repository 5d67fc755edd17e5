"""Operators that choose a part of an array: a step, some channels, positions, or rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.categories_read import embedded
from sparkdl.interchange.onnx_in.folding import listed, slices
from sparkdl.interchange.onnx_in.forms import without
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.reversing import turned
from sparkdl.interchange.onnx_in.views import Value, new_axis, size_of
from sparkdl.layers import Crop, FirstStep, LastStep, Subset, Unstack
from sparkdl.layers.base import Layer


def gather(build: Assembly, operator: Operator, x: Value | Array, at: Array | Value) -> Value:
    """Gather: of one place along an axis, or of the rows of a table, which is an Embedding."""
    if isinstance(x, np.ndarray) and isinstance(at, Value) and not operator.attributes.get("axis", 0):
        return embedded(build, operator, x, at)
    if not isinstance(x, Value) or not isinstance(at, np.ndarray):
        raise Refused(f"its node {operator.name!r} (Gather) chooses by computed places what is no table")
    axis = x.axis(operator.attributes.get("axis", 0))
    if at.size != 1:
        raise Refused(f"its node {operator.name!r} (Gather) chooses several places at once, where one can be chosen")
    place, size = int(at.item()), size_of(x.theirs[axis])
    chosen = one_of(build, operator, x, axis, place + size if place < 0 else place)
    return chosen if at.ndim == 0 else chosen.unsqueezed([axis])


def slice_(build: Assembly, operator: Operator, x: Value, *ends: Array | None) -> Value:
    """Slice, of neighbouring places, or of all the other way round."""
    for axis, told in enumerate(slices(operator, len(x.theirs), *ends)):
        size = size_of(x.theirs[axis])
        start, stop, step = told.indices(size)
        if (start, stop, step) == (size - 1, -1, -1):
            x = turned(build, operator, x, axis)
            continue
        if step != 1 and stop != start + 1:
            raise Refused(f"its node {operator.name!r} (Slice) leaves places out, by a step of {step}")
        x = some_of(build, operator, x, axis, start, stop)
    return x


def split(build: Assembly, operator: Operator, x: Value, lengths: Array | None = None) -> tuple[Value, ...]:
    """Split."""
    axis, count = x.axis(operator.attributes.get("axis", 0)), len(operator.outputs)
    each = -(-size_of(x.theirs[axis]) // count)
    told = operator.attributes.get("split") if lengths is None else listed(lengths)
    ends = np.minimum(np.cumsum([0, *(told or [each] * count)]), size_of(x.theirs[axis])).tolist()
    pairs = zip(ends, ends[1:], strict=False)
    return tuple(some_of(build, operator, x, axis, start, stop) for start, stop in pairs)


def one_of(build: Assembly, operator: Operator, x: Value, axis: int, place: int) -> Value:
    """One place along an axis, which goes."""
    group, theirs = x.theirs[axis], (*x.theirs[:axis], *x.theirs[axis + 1 :])
    if any(part.batch for part in group) or not 0 <= place < max(1, size_of(group)):
        raise Refused(f"its node {operator.name!r} ({operator.kind}) chooses a row, or what is not there")
    if not group:
        return x.squeezed([axis])
    if group == x.ours[1] and len(x.ours) > 2 and place in (0, size_of(group) - 1):
        layer: Layer = LastStep() if place else FirstStep()
        return build.put(operator, layer, [(x, x.ours)], (x.ours[0], *x.ours[2:]), theirs)
    others = without(x.ours, group)
    return build.put(operator, Unstack(place), [(x, (others[0], group, *others[1:]))], others, theirs)


def some_of(build: Assembly, operator: Operator, x: Value, axis: int, start: int, stop: int) -> Value:
    """Places from `start` to below `stop` along an axis."""
    group, size = x.theirs[axis], size_of(x.theirs[axis])
    if (start, stop) == (0, size):
        return x
    if any(part.batch for part in group) or stop <= start:
        raise Refused(f"its node {operator.name!r} ({operator.kind}) chooses rows, or nothing")
    if stop == start + 1 and group == x.ours[1] and start in (0, size - 1):
        return one_of(build, operator, x, axis, start).unsqueezed([axis])
    if any(part.any_length for part in group):
        raise Refused(f"its node {operator.name!r} ({operator.kind}) cuts rows of any length")
    new = new_axis(stop - start)
    theirs = (*x.theirs[:axis], new, *x.theirs[axis + 1 :])
    if group in x.ours[1:-1]:
        place = x.ours.index(group)
        margins = tuple((start, size - stop) if at == place else (0, 0) for at in range(1, len(x.ours) - 1))
        ours = (*x.ours[:place], new, *x.ours[place + 1 :])
        return build.put(operator, Crop(margins), [(x, x.ours)], ours, theirs)
    others = without(x.ours, group)
    return build.put(operator, Subset(start, stop), [(x, (*others, group))], (*others, new), theirs)


OPERATORS: Mapping[str, Any] = {"Gather": gather, "Slice": slice_, "Split": split}
