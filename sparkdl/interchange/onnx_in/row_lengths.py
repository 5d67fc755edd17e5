"""What a file does with the lengths of rows, which it is told besides: all of it is what layers do of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in import masks
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.folding import axes_of, check_whole, counts, once
from sparkdl.interchange.onnx_in.forms import without
from sparkdl.interchange.onnx_in.masks import NO_PADDING, VALID, is_valid, left, made_of_steps, mask_of
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.reducing import reduce
from sparkdl.interchange.onnx_in.reversing import by_lengths
from sparkdl.interchange.onnx_in.views import Form, Group, Value, size_of
from sparkdl.layers import LastStep, SinusoidalPositions, TimeMean, TimeSum

LENGTHS = "the lengths of rows"
SOME = "which rows have steps"
AT_LAST = "which step is a row's last"
LAST = "steps of which the last is left"
WAVES = "sines of the numbers of steps"
PARTS = (LENGTHS, VALID, SOME, AT_LAST, LAST, WAVES)


def lengths_value(build: Assembly, name: str, batch: Group) -> Value:
    """The input of the lengths, which ours has not, as its rows have their lengths within."""
    return build.leave(Operator("Input", name, (), (name,)), LENGTHS, [], (batch,), less=0)


def of_lengths(build: Assembly, operator: Operator, given: list[Any]) -> Value | None:
    """What an operator makes of the lengths, or of what was made of them; None if it reads neither."""
    values = [value for value in given if isinstance(value, Value)]
    if operator.kind == "Waves":
        return _left(build, operator, WAVES, values, speeds=check_whole(given[0]), ahead=check_whole(given[1]))
    if (mask := made_of_steps(build, operator, given)) is not None:
        return mask
    kinds = {what for what in PARTS for value in values if build.unfinished(value, what)}
    function = next(
        (FUNCTIONS[operator.kind, kind] for kind in PARTS if (operator.kind, kind) in FUNCTIONS and kind in kinds), None
    )
    return None if function is None else function(build, operator, *given)


def _left(build: Assembly, operator: Operator, what: str, values: list[Value], **told: Any) -> Value:
    theirs = max((value.theirs for value in values), key=len, default=((), ()))
    return build.leave(operator, what, values, theirs, **told)


def _greatest(build: Assembly, operator: Operator, one: Any, other: Any) -> Value:
    """The lengths, or 1 of a row without steps."""
    return one if isinstance(one, Value) else other


def _less(build: Assembly, operator: Operator, one: Array, other: Value) -> Value | None:
    if not isinstance(one, np.ndarray):
        return None
    numbers = once(one)
    if numbers.size == 1 and numbers.item() == 0:
        return _left(build, operator, SOME, [other])
    return left(build, operator, [other], NO_PADDING) if counts(numbers) else None


def _subtracted(build: Assembly, operator: Operator, one: Value, other: Array) -> Value | None:
    known = isinstance(one, Value) and isinstance(other, np.ndarray) and other.size == 1 and other.item() == 1
    return _left(build, operator, LENGTHS, [one], less=1) if known else None


def _equal(build: Assembly, operator: Operator, one: Any, other: Any) -> Value | None:
    lengths, numbers = (one, other) if isinstance(one, Value) else (other, one)
    told = build.unfinished(lengths, LENGTHS)
    known = told is not None and told.told["less"] == 1 and isinstance(numbers, np.ndarray) and counts(once(numbers))
    return _left(build, operator, AT_LAST, [lengths]) if known else None


def _counted(build: Assembly, operator: Operator, mask: Value, axes: Array | None = None) -> Value | None:
    """How many steps count."""
    named, keep = axes_of(operator, axes), operator.attributes.get("keepdims", 1)
    if not is_valid(build, mask) or not named or len(named) != 1:
        return None
    axis = mask.axis(named[0])
    if not _is_any_length(mask.theirs[axis]):
        return None
    theirs = (*mask.theirs[:axis], *([()] if keep else []), *mask.theirs[axis + 1 :])
    return build.leave(operator, LENGTHS, [mask], theirs, less=0)


def _clipped(build: Assembly, operator: Operator, lengths: Value, least: Any = None, most: Any = None) -> Value | None:
    """The lengths, or of a row without steps a number that 0 can be divided by."""
    told = operator.attributes
    low = told.get("min", 0) if least is None else least.item()
    return lengths if low <= 1 and most is None and "max" not in told else None


def _where_some(build: Assembly, operator: Operator, condition: Value, x: Value, other: Any) -> Value | None:
    return x if isinstance(x, Value) and isinstance(other, np.ndarray) and not np.any(once(other)) else None


def _where_last(build: Assembly, operator: Operator, condition: Value, x: Value, other: Any) -> Value | None:
    if not isinstance(x, Value) or isinstance(other, Value) or np.any(once(other)):
        return None
    return build.leave(operator, LAST, [x], x.theirs)


def _last(build: Assembly, operator: Operator, x: Value, axes: Array | None = None) -> Value | None:
    """The last step of each row."""
    told = build.unfinished(x, LAST)
    assert told is not None
    (steps,) = told.values
    reduced = _reduced(operator, steps, axes)
    if reduced is None:
        return None
    ours, theirs = reduced
    return build.put(operator, LastStep(), [(steps, steps.ours)], ours, theirs)


def _reduced(operator: Operator, x: Value, axes: Array | None) -> tuple[Form, Form] | None:
    """Ours and theirs without the steps, if these alone are reduced and are of any length."""
    named = axes_of(operator, axes)
    if not named or len(named) != 1 or operator.attributes.get("keepdims", 1):
        return None
    axis = x.axis(named[0])
    group = x.theirs[axis]
    if len(x.ours) < 3 or group != x.ours[1] or not _is_any_length(group):
        return None
    return without(x.ours, group), (*x.theirs[:axis], *x.theirs[axis + 1 :])


def _is_any_length(group: Group) -> bool:
    return any(part.any_length for part in group)


def _total_of_valid(build: Assembly, operator: Operator, one: Value, other: Value) -> Value | None:
    """The sum of the steps that count."""
    x, mask = (other, one) if mask_of(build, other) is None else (one, other)
    if not is_valid(build, mask) or not build.is_finished(x):
        return None
    return reduce(build, operator, x, np.asarray([operator.attributes["axis"]]))


def _shared_out(build: Assembly, operator: Operator, total: Value, lengths: Any) -> Value | None:
    """The mean of the steps of each row."""
    node = build.node(total) if isinstance(total, Value) else None
    if node is None or node.layer != TimeSum() or not isinstance(lengths, Value):
        return None
    return build.put(operator, TimeMean(), node.sources, total.ours, total.theirs)


def _reversed(build: Assembly, operator: Operator, x: Value, lengths: Value) -> Value | None:
    """The steps of each row turned round, by its own length."""
    told = build.unfinished(lengths, LENGTHS)
    return by_lengths(build, operator, x) if told is not None and not told.told["less"] else None


def _with_waves(build: Assembly, operator: Operator, one: Value, other: Value) -> Value | None:
    """Steps with the sines and cosines of their numbers added."""
    x, waves = (other, one) if build.unfinished(one, WAVES) else (one, other)
    told = build.unfinished(waves, WAVES)
    if told is None or not isinstance(x, Value) or x.ours != x.theirs or len(x.ours) != 3:
        return None
    speeds, ahead = told.told["speeds"] * 2 * np.pi, told.told["ahead"]
    size = size_of(x.ours[2])
    numbers, base = np.arange(size), float(speeds[-1]) ** (-size / (2 * ((size - 1) // 2))) if size > 2 else 1e4
    known = np.allclose(speeds, base ** (-2 * (numbers // 2) / size)) and np.allclose(ahead, numbers % 2 / 4)
    return build.each(operator, SinusoidalPositions(base), x) if known else None


FUNCTIONS: dict[tuple[str, str], Callable[..., Value | None]] = {
    **masks.FUNCTIONS,
    ("Max", LENGTHS): _greatest,
    ("Less", LENGTHS): _less,
    ("Sub", LENGTHS): _subtracted,
    ("Equal", LENGTHS): _equal,
    ("ReduceSum", VALID): _counted,
    ("Dot", VALID): _total_of_valid,
    ("Clip", LENGTHS): _clipped,
    ("Where", SOME): _where_some,
    ("Where", AT_LAST): _where_last,
    ("ReduceSum", LAST): _last,
    ("Div", LENGTHS): _shared_out,
    ("ReverseSequence", LENGTHS): _reversed,
    ("Add", WAVES): _with_waves,
}
