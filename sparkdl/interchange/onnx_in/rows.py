"""What the inputs of a file are to ours: which axis numbers the rows, which the channels, and which has no size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.folding import BATCH, STEPS
from sparkdl.interchange.onnx_in.onnx_file import Input, Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Group, Part, Value

RECURRENT = ("LSTM", "GRU", "RNN")
CHANNELS_FIRST = (
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "Resize", "Upsample", "DepthToSpace",
)  # fmt: skip
BY_NUMBER = ("Relu", "Identity", "Cast", "Mul", "Add", "Sub", "Div", "Pad")  # what may come before


def inputs_of_lengths(operators: Sequence[Operator], inputs: Sequence[Input], ours: bool) -> set[str]:
    """The inputs that are nothing but how many steps rows have: as recurrent operators ask, or as we write them."""
    names = {given.name for given in inputs}
    told = {_source(operators, name) for name in map(_lengths_of, operators) if name}
    return names & (told | {f"{name}_lengths" for name in names if ours})


def _lengths_of(operator: Operator) -> str:
    """The input of an operator that is how many steps rows have, "" if it reads none."""
    place = 4 if operator.kind in RECURRENT else 1
    known = operator.kind in (*RECURRENT, "ReverseSequence") and len(operator.inputs) > place
    return operator.inputs[place] if known else ""


def _source(operators: Sequence[Operator], name: str) -> str:
    """What an array is made of by operators that change its type alone."""
    makers = {operator.outputs[0]: operator for operator in operators if operator.kind in ("Cast", "Identity")}
    while name in makers:
        name = makers[name].inputs[0]
    return name


def input_value(name: str, given: Input, operators: Sequence[Operator], any_length: bool, ours: bool) -> Value:
    """An input as the first operators read it: rows first in ours, and the channels of images last.

    Parameters
    ----------
    name : str
        By which ours knows it.
    given : Input
    operators : sequence of Operator
    any_length : bool
        Whether the file tells lengths of its rows besides.
    ours : bool
        Whether the file has them in our order, too.

    Raises
    ------
    Refused
        A size other than those of rows and steps is left open.
    """
    rank = len(given.sizes)
    batch, channels = (0, None) if ours else _roles(given, operators)
    order = [axis for axis in range(rank) if axis not in (batch, channels)]
    order += [] if channels is None else [channels]
    groups: dict[int, Group] = {batch: (Part(_size(given.sizes[batch], BATCH), batch=True),)}
    for place, axis in enumerate(order):
        size = given.sizes[axis]
        steps = place == 0 and (not isinstance(size, int) or (any_length and not ours and rank < 4))
        if not isinstance(size, int) and not steps:
            raise Refused(
                f"its input {given.name!r} has the sizes {given.sizes}, of which rows, and steps of rows, may be of "
                "any number; export it with the others given"
            )
        length = _size(size, STEPS)
        groups[axis] = (Part(length, any_length=steps),) if length > 1 or steps else ()
    theirs: Form = tuple(groups[axis] for axis in range(rank))
    return Value(name, tuple(groups[axis] for axis in (batch, *order)), theirs)


def filled(given: Input, number: float) -> Array:
    """An input that is one number for all rows.

    Raises
    ------
    Refused
        It is none.
    """
    array = np.asarray(number)
    if array.ndim or array.dtype.kind not in "biuf" or (given.integers and array != array.astype(np.int64)):
        kind = "a whole number" if given.integers else "a number"
        raise Refused(f"constants has {number!r} for its input {given.name!r}, where {kind} was expected")
    sizes = [_size(size, STEPS if axis else BATCH) for axis, size in enumerate(given.sizes)]
    return np.broadcast_to(array.astype(np.int64 if given.integers else np.float32), sizes)


def _size(size: int | str | None, without: int) -> int:
    return size if isinstance(size, int) else without


def _roles(given: Input, operators: Sequence[Operator]) -> tuple[int, int | None]:
    """The axes of rows and, if not the last, of channels."""
    rank = len(given.sizes)
    named = [axis for axis, size in enumerate(given.sizes) if isinstance(size, str) and "batch" in size.lower()]
    for operator, axes in _readers(given.name, tuple(range(rank)), operators):
        if operator.kind in RECURRENT:
            return axes[0 if operator.attributes.get("layout", 0) else 1], None
        if operator.kind == "ReverseSequence":
            return axes[operator.attributes.get("batch_axis", 1)], None
        if operator.kind in CHANNELS_FIRST and rank > 2:
            return axes[0], axes[1]
    return (named or [0])[0], 1 if rank > 3 and not _moved_at_once(given, operators) else None


def _moved_at_once(given: Input, operators: Sequence[Operator]) -> bool:
    """Whether the first that is done with an image is to put its channels first."""
    order = [0, len(given.sizes) - 1, *range(1, len(given.sizes) - 1)]
    readers = [operator for operator in operators if given.name in operator.inputs]
    return any(operator.kind == "Transpose" and operator.attributes.get("perm") == order for operator in readers)


def _readers(
    name: str, axes: tuple[int, ...], operators: Sequence[Operator]
) -> Iterator[tuple[Operator, tuple[int, ...]]]:
    """Operators that read an array, at once or after its axes, `axes` of the input, have only been moved."""
    ahead, seen = [(name, axes)], {name}
    while ahead:
        name, axes = ahead.pop(0)
        for operator in operators:
            if name not in operator.inputs:
                continue
            yield operator, axes
            after = axes
            if operator.kind == "Transpose" and sorted(order := operator.attributes.get("perm", [])) == sorted(axes):
                after = tuple(axes[axis] for axis in order)
            elif operator.kind not in BY_NUMBER:
                continue
            if operator.outputs[0] not in seen:
                seen.add(operator.outputs[0])
                ahead.append((operator.outputs[0], after))
