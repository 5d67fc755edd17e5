"""What a file does with the lengths of rows, which it is told besides: all of it is what layers do of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.attention_parts import SCORES, hidden
from sparkdl.interchange.onnx_in.folding import STEPS, axes_of, check_whole, once
from sparkdl.interchange.onnx_in.forms import without
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.views import Form, Group, Value, parts_of, size_of
from sparkdl.layers import LastStep, SinusoidalPositions, TimeMean

LENGTHS = "the lengths of rows"
VALID = "which steps are no padding"
SOME = "which rows have steps"
AT_LAST = "which step is a row's last"
LAST = "steps of which the last is left"
WAVES = "sines of the numbers of steps"
TOTAL = "the sum of the steps of rows of any length"
PARTS = (LENGTHS, VALID, SOME, AT_LAST, LAST, WAVES, TOTAL)


def lengths_value(build: Assembly, name: str, batch: Group) -> Value:
    """The input of the lengths, which ours has not, as its rows have their lengths within."""
    return build.leave(Operator("Input", name, (), (name,)), LENGTHS, [], (batch,), less=0)


def of_lengths(build: Assembly, operator: Operator, given: list[Any]) -> Value | None:
    """What an operator makes of the lengths, or of what was made of them; None if it reads neither."""
    values = [value for value in given if isinstance(value, Value)]
    if operator.kind == "Waves":
        return _left(build, operator, WAVES, values, speeds=check_whole(given[0]), ahead=check_whole(given[1]))
    if operator.kind == "Earlier" and _counts(once(given[0])):
        return _left(build, operator, VALID, values, causal=True)
    kinds = {what for what in PARTS for value in values if build.unfinished(value, what)}
    function = next(
        (FUNCTIONS[operator.kind, kind] for kind in PARTS if (operator.kind, kind) in FUNCTIONS and kind in kinds), None
    )
    if function is not None:
        return function(build, operator, *given)
    if operator.kind == "ReduceSum" and values and isinstance(given[0], Value):
        return _total(build, operator, *given)
    return None


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
    return _left(build, operator, VALID, [other], causal=False) if _counts(numbers) else None


def _subtracted(build: Assembly, operator: Operator, one: Value, other: Array) -> Value | None:
    known = isinstance(one, Value) and isinstance(other, np.ndarray) and other.size == 1 and other.item() == 1
    return _left(build, operator, LENGTHS, [one], less=1) if known else None


def _equal(build: Assembly, operator: Operator, one: Any, other: Any) -> Value | None:
    lengths, numbers = (one, other) if isinstance(one, Value) else (other, one)
    told = build.unfinished(lengths, LENGTHS)
    known = told is not None and told.told["less"] == 1 and isinstance(numbers, np.ndarray) and _counts(once(numbers))
    return _left(build, operator, AT_LAST, [lengths]) if known else None


def _both(build: Assembly, operator: Operator, one: Any, other: Any) -> Value | None:
    """Both of two conditions, of which one may be that steps are no later ones."""
    known = [build.unfinished(value, VALID) for value in (one, other) if isinstance(value, Value)]
    if len(known) < 2 or None in known:
        return None
    return _left(build, operator, VALID, [one, other], causal=any(told.told["causal"] for told in known if told))


def _where_valid(build: Assembly, operator: Operator, condition: Value, x: Value, other: Any) -> Value | None:
    """x, at whose padding no layer looks; or scores of attention, which layers do not ask at padding."""
    told = build.unfinished(condition, VALID)
    if told is None or not isinstance(x, Value) or isinstance(other, Value):
        return None
    if build.unfinished(x, SCORES):
        return hidden(build, operator, x, np.triu(np.ones((2, 2), bool), 1)) if told.told["causal"] else x
    return None if told.told["causal"] else x


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


def _total(build: Assembly, operator: Operator, x: Value, axes: Array | None = None) -> Value | None:
    reduced = _reduced(operator, x, axes)
    return None if reduced is None else build.leave(operator, TOTAL, [x], reduced[1], ours=reduced[0])


def _reduced(operator: Operator, x: Value, axes: Array | None) -> tuple[Form, Form] | None:
    """Ours and theirs without the steps, if these alone are reduced and are of any length."""
    named = axes_of(operator, axes)
    if not named or len(named) != 1 or operator.attributes.get("keepdims", 1):
        return None
    axis = x.axis(named[0])
    group = x.theirs[axis]
    if len(x.ours) < 3 or group != x.ours[1] or not any(part.any_length for part in parts_of((group,))):
        return None
    return without(x.ours, group), (*x.theirs[:axis], *x.theirs[axis + 1 :])


def _shared_out(build: Assembly, operator: Operator, total: Value, lengths: Any) -> Value | None:
    """The mean of the steps of each row."""
    told = build.unfinished(total, TOTAL)
    if told is None or not isinstance(lengths, Value) or not build.unfinished(lengths, LENGTHS):
        return None
    (steps,) = told.values
    return build.put(operator, TimeMean(), [(steps, steps.ours)], told.told["ours"], total.theirs)


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


def _counts(numbers: Array) -> bool:
    """Whether these are the numbers of the steps."""
    return numbers.size == STEPS and np.array_equal(numbers.ravel(), np.arange(STEPS))


FUNCTIONS: dict[tuple[str, str], Callable[..., Value | None]] = {
    ("Max", LENGTHS): _greatest,
    ("Less", LENGTHS): _less,
    ("Sub", LENGTHS): _subtracted,
    ("Equal", LENGTHS): _equal,
    ("And", VALID): _both,
    ("Where", VALID): _where_valid,
    ("Where", SOME): _where_some,
    ("Where", AT_LAST): _where_last,
    ("ReduceSum", LAST): _last,
    ("Div", TOTAL): _shared_out,
    ("Add", WAVES): _with_waves,
}
