"""Orders of axes that layers ask for: the batch first, the channels last."""

from __future__ import annotations

from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Group, Value


def batch_of(form: Form) -> Group:
    """The axis that numbers the rows.

    Raises
    ------
    Refused
        It is joined with another.
    """
    for group in form:
        if any(part.batch for part in group):
            if len(group) == 1:
                return group
            break
    raise Refused("it joins its rows with another axis where each is to be by itself")


def rows_first(form: Form) -> Form:
    """The axes with the batch first, and else in their order."""
    batch = batch_of(form)
    return (batch, *(group for group in form if group is not batch))


def channels_last(form: Form) -> Form:
    """The axes with the batch first, the second of the others last."""
    batch, *others = rows_first(form)
    return (batch, *others[1:], *others[:1])


def of_output(value: Value, as_theirs: bool) -> Form:
    """How an output is given: as ours has it if that is in the order of theirs, or of theirs with the channels last."""
    first = rows_first(value.theirs)
    if as_theirs:
        return first
    if value.ours in (first, channels_last(value.theirs)):
        return value.ours
    return channels_last(value.theirs) if len(first) > 3 else first


def without(form: Form, group: Group) -> Form:
    """The axes without these parts, and so without an axis that has no other."""
    left = [(tuple(part for part in own if part not in group), own) for own in form]
    return tuple(kept for kept, own in left if kept or not own)


def with_last(form: Form, group: Group) -> Form:
    """The axes with this one, of the parts that it is to have, last."""
    return form if form[-1] == group else (*without(form, group), group)
