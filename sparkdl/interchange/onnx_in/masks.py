"""Masks of steps, of which a file reads one beside its rows, or makes one itself: layers know padding without one.

What a file computes with a mask is told by four numbers: that of steps that count, of padding, of steps that count but
are later than the one that asks, and of later padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.attention_parts import NOTHING, SCORES, hidden
from sparkdl.interchange.onnx_in.folding import FOLDS, MOST, STEPS, counts, listed, once
from sparkdl.interchange.onnx_in.onnx_file import Input, Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Value, new_axis, size_of

VALID = "which steps are no padding"
PLACES = "the places of all steps of all rows"
LATER = np.triu(np.ones((2, 2), bool), 1)
NO_PADDING = np.array([True, False, True, False])  # of steps that count, of padding, and of both where they are later
NOT_LATER = np.array([True, True, False, False])
NUMBER_BY_NUMBER = (
    "Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Not", "And", "Or",
    "Where", "Min", "Max",
)  # fmt: skip


def inputs_of_masks(inputs: Sequence[Input], ours: bool) -> set[str]:
    """The inputs that tell which steps of the rows count: integers or truths by row and step, named a mask."""
    of_steps = [given for given in inputs if given.integers or len(given.sizes) > 2]
    found = set()
    for given in inputs:
        beside = any(other.sizes[:2] == given.sizes for other in of_steps if other is not given)
        if given.integers and len(given.sizes) == 2 and beside and "mask" in given.name.lower() and not ours:
            found.add(given.name)
    return found


def mask_value(build: Assembly, value: Value, name: str) -> Value:
    """The input of a mask, which ours has not, as its rows have their lengths within.

    Of a mask of padding, as `src_key_padding_mask`, the steps that count are 0, and of others 1.
    """
    mask = NO_PADDING if "padding" not in name.lower() else ~NO_PADDING
    return build.leave(Operator("Input", name, (), (name,)), VALID, [], value.theirs, mask=mask)


def mask_of(build: Assembly, value: Any) -> Array | None:
    """The four numbers of a value that is made of a mask; None of another."""
    known = build.unfinished(value, VALID) if isinstance(value, Value) else None
    return None if known is None else known.told["mask"]


def left(build: Assembly, operator: Operator, values: Sequence[Value], mask: Array) -> Value:
    """What stands for a mask."""
    theirs = max((value.theirs for value in values), key=len, default=((), ()))
    return build.leave(operator, VALID, values, theirs, mask=mask)


def made_of_steps(build: Assembly, operator: Operator, given: list[Any]) -> Value | None:
    """A mask that is made of the numbers of steps of any length, of which later ones are hidden; None of all else."""
    arrays = [once(array) for array in given if isinstance(array, np.ndarray)]
    if operator.kind == "Earlier" and counts(arrays[0]):
        return left(build, operator, [], NOT_LATER)
    if len(arrays) < len(given) or not arrays:
        return None
    if operator.kind == "Trilu" and given[0].shape[-2:] == (STEPS, STEPS) and arrays[0].size == 1:
        number, shift = arrays[0].item(), arrays[1].item() if len(arrays) > 1 else 0
        side = (operator.attributes.get("upper", 1), shift)
        if side in ((0, 0), (1, 1)):
            return left(build, operator, [], np.where(NOT_LATER if side == (0, 0) else ~NOT_LATER, number, 0))
        return None
    if operator.kind in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual") and len(arrays) == 2:
        return _compared(build, operator, *arrays)
    too_many = operator.kind == "Add" and np.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MOST
    if too_many:  # of which it is their shape alone that is asked for
        theirs = tuple(map(new_axis, np.broadcast_shapes(*(array.shape for array in given))))
        return build.leave(operator, PLACES, [], theirs)
    return None


def _compared(build: Assembly, operator: Operator, one: Array, other: Array) -> Value | None:
    """Whether the steps that are asked, along the last axis, come later than those that ask, along the one before."""
    shapes = [(1, 1, *array.shape)[-2:] for array in (one, other)]
    if sorted(shapes) != [(1, STEPS), (STEPS, 1)] or not all(counts(array, array.flat[0]) for array in (one, other)):
        return None
    asked, asking = np.arange(4) + one.flat[0], np.arange(4)[:, None] + other.flat[0]
    if shapes[0] == (STEPS, 1):
        asked, asking = np.arange(4)[:, None] + one.flat[0], np.arange(4) + other.flat[0]
    is_so, later = FOLDS[operator.kind](operator, asked, asking), np.triu(np.ones((4, 4), bool), 1)
    if np.array_equal(is_so, later):
        return left(build, operator, [], ~NOT_LATER)
    return left(build, operator, [], NOT_LATER) if np.array_equal(is_so, ~later) else None


def number_by_number(build: Assembly, operator: Operator, *given: Any) -> Value | None:
    """What is computed of a mask, with numbers or other masks."""
    masks = [mask_of(build, value) if isinstance(value, Value) else _mask_of_constant(value) for value in given]
    if any(mask is None for mask in masks):
        return None
    values = [value for value in given if isinstance(value, Value)]
    return left(build, operator, values, FOLDS[operator.kind](operator, *masks))


def _mask_of_constant(array: Any) -> Array | None:
    """A constant that is one number, or one for steps up to the one that asks and another for those behind it."""
    small = once(array)
    if small.size and np.all(small == small.flat[0]):
        return np.full(4, small.flat[0])
    steps = small.shape[-1]
    if small.ndim < 2 or small.size != steps * steps or small.shape[-2] != steps:
        return None
    first, last = small.flat[0], small.flat[steps - 1]
    later = np.triu(np.ones((steps, steps), bool), 1)
    is_causal = np.array_equal(small.reshape(steps, steps), np.where(later, last, first))
    return np.where(NOT_LATER, first, last) if is_causal else None


def added(build: Assembly, operator: Operator, one: Any, other: Any) -> Value | None:
    """Scores of attention, with nothing added where steps count, and else what makes them as good as none."""
    scores, mask = (other, one) if mask_of(build, other) is None else (one, other)
    if not isinstance(scores, Value) or not build.unfinished(scores, SCORES):
        return number_by_number(build, operator, one, other)
    numbers = mask_of(build, mask)
    assert numbers is not None
    gone = numbers <= NOTHING
    return _hidden(build, operator, scores, gone) if not np.any(numbers[~gone]) else None


def multiplied(build: Assembly, operator: Operator, one: Any, other: Any) -> Value | None:
    """Steps of which padding becomes 0, at which no layer looks."""
    x, mask = (other, one) if mask_of(build, other) is None else (one, other)
    if not build.is_finished(x):
        return number_by_number(build, operator, one, other)
    return x if is_valid(build, mask) else None


def is_valid(build: Assembly, value: Any) -> bool:
    """Whether a value is 1 where a step counts, and 0 where it is padding."""
    return np.array_equal(mask_of(build, value), NO_PADDING)  # type: ignore[arg-type]


def chosen(build: Assembly, operator: Operator, condition: Value, one: Any, other: Any) -> Value | None:
    """Steps, at whose padding no layer looks; or scores of attention, which layers do not ask at padding."""
    numbers = mask_of(build, condition)
    values = [value for value in (one, other) if isinstance(value, Value) and mask_of(build, value) is None]
    if numbers is None or not values:
        return number_by_number(build, operator, condition, one, other)
    x, fill = (one, other) if values[0] is one else (other, one)
    if isinstance(fill, Value):
        return None
    gone = numbers.astype(bool) if x is other else ~numbers.astype(bool)
    if build.unfinished(x, SCORES):
        return _hidden(build, operator, x, gone) if not np.any(once(fill) > NOTHING) else None
    return x if np.array_equal(gone, ~NO_PADDING) else None


def _hidden(build: Assembly, operator: Operator, scores: Value, gone: Array) -> Value:
    """Scores without those that are gone; they are of padding, which layers never ask, or of later steps."""
    if gone[0]:
        raise Refused(
            f"its node {operator.name!r} ({operator.kind}) hides the steps that a mask counts; an input of which "
            "padding is 1, and steps that count are 0, is to have 'padding' in its name"
        )
    return hidden(build, operator, scores, LATER) if gone[2] else scores


def expanded(build: Assembly, operator: Operator, mask: Value, wanted: Array) -> Value:
    """A mask, the same along more axes."""
    sizes = np.broadcast_shapes(mask.sizes, tuple(listed(wanted)))
    mask = mask.unsqueezed(range(len(sizes) - len(mask.theirs)))
    theirs = tuple(own or new_axis(size) for own, size in zip(mask.theirs, sizes, strict=True))
    return build.leave(operator, VALID, [mask], theirs, mask=mask_of(build, mask))


def gathered(build: Assembly, operator: Operator, mask: Value, places: Array) -> Value | None:
    """GatherND, by places that are (..., 2)."""
    few = once(places)
    return taken(build, operator, mask, few[..., 0], few[..., 1]) if few.shape[-1] == len(mask.theirs) == 2 else None


def taken(build: Assembly, operator: Operator, mask: Value, rows: Array, steps: Array) -> Value | None:
    """A mask of which every row and step is looked up where it is, for each step that asks."""
    known = all(
        np.array_equal(np.unique(once(places)), np.arange(min(size_of(group), once(places).size)))
        for places, group in zip((rows, steps), mask.theirs, strict=True)
    )
    batch, length = mask.theirs
    return build.leave(operator, VALID, [mask], (batch, (), (), length), mask=mask_of(build, mask)) if known else None


FUNCTIONS: dict[tuple[str, str], Callable[..., Value | None]] = {
    **{(kind, VALID): number_by_number for kind in NUMBER_BY_NUMBER},
    ("Add", VALID): added,
    ("Mul", VALID): multiplied,
    ("Where", VALID): chosen,
    ("Expand", VALID): expanded,
    ("GatherND", VALID): gathered,
    ("MaskTaken", VALID): taken,
}
