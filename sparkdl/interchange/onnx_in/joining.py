"""Operators that put arrays side by side, or zeros around positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.folding import listed, same_along
from sparkdl.interchange.onnx_in.forms import channels_last, rows_first, without
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Value, aligned, new_axis, size_of
from sparkdl.layers import ClassToken, Concatenate, ConcatenateSteps, ZeroPad


def alike(values: Sequence[Value], skip: Sequence[int] = ()) -> list[Value]:
    """Arrays of which all have axes of the same parts, but for those of `skip`."""
    first, found = values[0], list[Value]()
    for _ in range(2):  # what a later one is cut to, those before it are, too
        found = []
        for value in values[1:]:
            first, other = aligned(first, value, skip)
            found.append(other)
    return [first, *found]


def concatenate(build: Assembly, operator: Operator, *given: Value | Array) -> Value | Array:
    """Concat: along steps, behind a step that all rows have, or of channels."""
    values = [value for value in given if isinstance(value, Value)]
    axis = values[0].axis(operator.attributes["axis"])
    if len(values) < len(given):
        return _with_token(build, operator, axis, *given)
    if len(values) == 1:
        return values[0]
    values = alike(values, (axis,))
    first = values[0]
    own = first.theirs[axis]
    new = new_axis(sum(size_of(value.theirs[axis]) for value in values))
    theirs = (*first.theirs[:axis], new, *first.theirs[axis + 1 :])
    others = without(first.ours, own)
    if _are_steps(first, axis):
        forms = [(value.ours[0], *filter(None, value.theirs[axis : axis + 1]), *others[1:]) for value in values]
        ours: Form = (others[0], new, *others[1:])
        return build.put(operator, ConcatenateSteps(), list(zip(values, forms, strict=True)), ours, theirs)
    if not own and len(first.ours) > 1 and not first.ours[-1]:
        others = first.ours[:-1]
    forms = [(*others, value.theirs[axis]) for value in values]
    return build.put(operator, Concatenate(), list(zip(values, forms, strict=True)), (*others, new), theirs)


def _are_steps(x: Value, axis: int) -> bool:
    """Whether the axis is of steps, or is of one, of which x is the vector."""
    own = x.theirs[axis]
    vector = not own and axis == 1 and len(x.theirs) == 3 and len(x.ours) == 2
    return vector or (len(x.ours) == 3 and bool(own) and own == x.ours[1])


def _with_token(build: Assembly, operator: Operator, axis: int, *given: Value | Array) -> Value | Array:
    """Steps with constant ones before them."""
    *before, x = given
    for token in reversed(before):
        x = _one_before(build, operator, axis, token, x)
    return x


def _one_before(build: Assembly, operator: Operator, axis: int, token: Value | Array, x: Value | Array) -> Value:
    """Steps with one before them that is the same for all rows."""
    if axis == 1 and isinstance(token, np.ndarray) and isinstance(x, Value):
        form, one = rows_first(x.theirs), same_along(token, 0)
        if form == x.theirs and len(form) == 3 and one.shape == (1, 1, size_of(form[2])):
            theirs = (form[0], new_axis(size_of(form[1]) + 1), form[2])
            return build.put(operator, ClassToken(), [(x, form)], theirs, theirs, {"token": float32(one[0, 0])})
    raise Refused(
        f"its node {operator.name!r} (Concat) joins constants to rows, which only single steps before all can be"
    )


def pad(build: Assembly, operator: Operator, x: Value, *given: Array | None) -> Value:
    """Pad, with zeros around positions."""
    told = operator.attributes.get("pads") if not given or given[0] is None else listed(given[0])
    fill = given[1].item() if len(given) > 1 and given[1] is not None and given[1].size else 0
    fill = operator.attributes.get("value", fill)
    rank = len(x.theirs)
    axes = list(range(rank)) if len(given) < 3 or given[2] is None else [x.axis(int(axis)) for axis in listed(given[2])]
    pairs = {axis: (told[place], told[place + len(axes)]) for place, axis in enumerate(axes)} if told else {}
    moved = {axis: pair for axis, pair in pairs.items() if any(pair)}
    if operator.attributes.get("mode", "constant") != "constant" or fill:
        raise Refused(f"its node {operator.name!r} (Pad) pads with something else than zeros")
    form = x.ours
    if any(x.theirs[axis] not in form[1:-1] for axis in moved):
        form = channels_last(x.theirs)
    spatial = form[1:-1]
    if any(x.theirs[axis] not in spatial or min(pair) < 0 for axis, pair in moved.items()):
        raise Refused(f"its node {operator.name!r} (Pad) pads {pairs}, where only positions can be, by zeros or more")
    by_group = {x.theirs[axis]: pair for axis, pair in moved.items()}
    new = {group: new_axis(size_of(group) + sum(pair)) for group, pair in by_group.items()}
    margins = tuple(by_group.get(group, (0, 0)) for group in spatial)
    ours, theirs = (tuple(new.get(group, group) for group in known) for known in (form, x.theirs))
    return build.put(operator, ZeroPad(margins), [(x, form)], ours, theirs)


OPERATORS: Mapping[str, Any] = {"Concat": concatenate, "Pad": pad}
