"""Operators that turn the places along an axis round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.folding import once
from sparkdl.interchange.onnx_in.forms import batch_of, without
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Value
from sparkdl.layers import ReverseSteps


def turned(build: Assembly, operator: Operator, x: Value, axis: int) -> Value:
    """All places along an axis, from the last to the first."""
    group = x.theirs[axis]
    if any(part.batch for part in group):
        raise Refused(f"its node {operator.name!r} ({operator.kind}) puts rows into another order")
    if not group:
        return x
    batch, *others = without(x.ours, group)
    form = x.ours if x.ours[1] == group else (batch, group, *others)
    return build.put(operator, ReverseSteps(), [(x, form)], form, x.theirs)


def by_lengths(build: Assembly, operator: Operator, x: Value) -> Value:
    """ReverseSequence, by the lengths that rows have within."""
    if x.theirs[x.axis(operator.attributes.get("batch_axis", 1))] != batch_of(x.theirs):
        raise Refused(f"its node {operator.name!r} (ReverseSequence) has lengths of something else than of rows")
    return turned(build, operator, x, _time(operator, x))


def _time(operator: Operator, x: Value) -> int:
    return x.axis(operator.attributes.get("time_axis", 0))


def reverse_sequence(build: Assembly, operator: Operator, x: Value, lengths: Any) -> Value:
    """ReverseSequence of whole rows."""
    time = _time(operator, x)
    if isinstance(lengths, Value) or np.any(once(lengths) != x.sizes[time]):
        raise Refused(
            f"its node {operator.name!r} (ReverseSequence) turns round other steps than all of a row, or as many as an "
            "input of lengths has"
        )
    return turned(build, operator, x, time)


OPERATORS: Mapping[str, Any] = {"ReverseSequence": reverse_sequence}
