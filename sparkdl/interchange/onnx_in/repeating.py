"""Arrays that lack an axis which others have, and so are repeated along it."""

from __future__ import annotations

from dataclasses import replace

from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Value, parts_of, size_of
from sparkdl.layers import RepeatVector


def repeated(build: Assembly, operator: Operator, value: Value, form: Form) -> Value:
    """The array with all parts of a form, again and again along those that it lacks."""
    lacks = tuple(part for part in parts_of(form) if part not in parts_of(value.ours))
    if not lacks:
        return value
    if any(part.batch or part.any_length for part in lacks):
        raise Refused(f"its node {operator.name!r} ({operator.kind}) repeats rows, or steps of rows of any length")
    own = replace(operator, name=f"{operator.name}_repeated")
    ours = (value.ours[0], lacks, *value.ours[1:])
    return build.put(own, RepeatVector(size_of(lacks)), [(value, value.ours)], ours, ours)
