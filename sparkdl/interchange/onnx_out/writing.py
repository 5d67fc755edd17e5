"""A network on its way into ONNX: its layers one by one, and what their functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from sparkdl.interchange.onnx_out.nodes import Nodes
from sparkdl.interchange.onnx_out.value import Value
from sparkdl.layers import steps
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.composite import Composite, read_by
from sparkdl.layers.ragged import is_ragged


class Takes(Enum):
    """In which order of numbers a layer's function takes the tensors that it reads; it puts out the same."""

    CHANNELS_LAST = 0
    CHANNELS_FIRST = 1
    EITHER = 2  # it asks where the channels are
    ANY = 3  # it takes each number by itself, or all of a row together


class Writer(NamedTuple):
    """How a kind of layer is written.

    Attributes
    ----------
    write : callable
        Of (writing, layer, weights, *values); it gives the name of the layer's output, or a Value where that is not
        held as what it reads.
    takes : Takes
    by_row : bool
        Whether steps of rows of any length are to be handed to it as rows.
    """

    write: Callable[..., str | Value]
    takes: Takes = Takes.CHANNELS_LAST
    by_row: bool = False


class Writing(Nodes):
    """The nodes of a network in the making.

    Parameters
    ----------
    opset : int
        Version of the operators.
    writers : dict
        A `Writer` for each class of layers but composites that only hand on from child to child.
    """

    def __init__(self, opset: int, writers: Mapping[type[Layer], Writer]) -> None:
        super().__init__(opset)
        self.writers = writers
        self._made: dict[tuple[str, ...], str] = {}

    def children(self, composite: Composite, weights: Weights, path: str, values: list[Value]) -> list[Value]:
        """What a composite reads, followed by what each of its children puts out."""
        values = list(values)
        for child in composite.children:
            read = read_by(child, values)
            place = f"{path}/{child.key}" if path else child.key
            own = weights.get(child.key, {})
            values.append(self.layer(child.layer, own, place, *(read if isinstance(read, tuple) else (read,))))
        return values

    def layer(self, layer: Layer, weights: Weights, path: str, *values: Value) -> Value:
        """What a layer puts out.

        Raises
        ------
        ValueError
            There is no function for its class.
        """
        if isinstance(layer, Composite) and type(layer).forward is Composite.forward:
            return self.children(layer, weights, path, list(values))[layer.exits[0]]
        writer = self.writers.get(type(layer))
        if writer is None:
            raise ValueError(
                f"Layer {path!r} must be one of sparkdl.layers, or a Composite of such, to be written as ONNX, "
                f"received a {type(layer).__name__}; make it of such layers, or write those before it, as up_to gives "
                "them."
            )
        shapes = tuple(value.shape for value in values)
        shape = steps.output_shape(layer, shapes if len(shapes) > 1 else shapes[0])
        before, self.path = self.path, path
        made = self._written(writer, layer, weights, values, shape)
        self.path = before
        return made

    def _written(self, writer: Writer, layer: Layer, weights: Weights, values: tuple[Value, ...], shape: Any) -> Value:
        if writer.by_row and values[0].lengths:
            rows = (self.steps_as_rows(self.channels_last(value)) for value in values)
            made = self.channels_last(self._written(writer, layer, weights, tuple(rows), shape[1:]))
            made = Value(self.rows_as_steps(made.name, self.channels_last(values[0]), made.shape), shape)
        else:
            made = self._as_value(writer, self._in_order(values, writer.takes), layer, weights, shape)
        lengths = next((value.lengths for value in values if value.lengths), "") if is_ragged(shape) else ""
        return replace(made, shape=shape, lengths=lengths)

    def _as_value(self, writer: Writer, read: tuple[Value, ...], layer: Layer, weights: Weights, shape: Any) -> Value:
        made = writer.write(self, layer, weights, *read)
        if isinstance(made, Value):
            return made
        first = read[0].channels_first and len(shape) == len(read[0].shape)
        return Value(made, shape, channels_first=first, image=read[0].image if writer.takes is Takes.ANY else ())

    # In which order the numbers are held

    def _in_order(self, values: tuple[Value, ...], takes: Takes) -> tuple[Value, ...]:
        if takes is Takes.ANY and len({(value.channels_first, value.image) for value in values}) == 1:
            return values
        if takes is Takes.CHANNELS_FIRST:
            return tuple(map(self.channels_first, values))
        alike = len({len(value.shape) for value in values}) == 1
        if takes is not Takes.CHANNELS_LAST and alike and any(value.channels_first for value in values):
            return tuple(map(self.channels_first, values))
        return tuple(map(self.channels_last, values))

    def channels_first(self, x: Value) -> Value:
        """x with its channels before its positions."""
        x = self.in_our_order(x)
        if x.channels_first or len(x.shape) < 2:
            return x
        name = self._once("Transpose", x, perm=[0, x.rank - 1, *range(1, x.rank - 1)])
        return replace(x, name=name, channels_first=True)

    def channels_last(self, x: Value) -> Value:
        """x as our layers hold it."""
        x = self.in_our_order(x)
        if not x.channels_first:
            return x
        return replace(x, name=self._once("Transpose", x, perm=[0, *range(2, x.rank), 1]), channels_first=False)

    def in_our_order(self, x: Value) -> Value:
        """x as it is, or a vector that was an image in the order of channels last."""
        if not x.image:
            return x
        *spatial, channels = x.image
        image = Value(self.reshape(x.name, 0, channels, *spatial), x.image, channels_first=True)
        return replace(x, name=self.reshape(self.channels_last(image).name, 0, *x.shape), image=())

    def _once(self, kind: str, x: Value, **attributes: Any) -> str:
        """A node that is made once, though several layers ask for it."""
        key = (kind, x.name)
        if key not in self._made:
            self._made[key] = self.op(kind, x.name, **attributes)
        return self._made[key]

    def along_channels(self, name: str, array: Any, x: Value) -> str:
        """A weight (channels,) in a shape that is broadcast along x's channels."""
        array = np.asarray(array, "float32")
        return self.weight(name, array.reshape(-1, *(1,) * (x.rank - 2)) if x.channels_first else array)

    # Rows of any length

    def count(self, x: Value) -> str:
        """How many steps the rows have with their padding, (1,)."""
        axis = 2 if x.channels_first else 1
        return self._of_steps("count", x, lambda: self.cut(self.op("Shape", x.name), [axis], [axis + 1], [0]))

    def numbers(self, x: Value) -> str:
        """The steps' numbers, (steps,) of int64."""
        zero, one = np.int64(0), np.int64(1)
        return self._of_steps("numbers", x, lambda: self.op("Range", zero, self.squeeze(self.count(x), 0), one))

    def valid(self, x: Value) -> str:
        """Which steps are no padding, (batch, steps) of bool."""

        def made() -> str:
            return self.op("Less", self.unsqueeze(self.numbers(x), 0), self.unsqueeze(x.lengths, 1))

        return self._of_steps("valid", x, made)

    def masked(self, x: Value, other: float | int = 0) -> str:
        """x with a number in place of the padding."""
        if not x.lengths:
            return x.name
        valid, more = self.valid(x), len(x.shape) - 1
        if more:
            axes = [1] if x.channels_first else list(range(2, 2 + more))
            valid = self._of_steps(f"valid {axes}", x, lambda: self.unsqueeze(valid, *axes))
        return self.op("Where", valid, x.name, np.float32(other) if isinstance(other, float) else np.int64(other))

    def cleared(self, x: Value) -> Value:
        """x with zeros for padding."""
        return x if x.cleared or not x.lengths else replace(x, name=self.masked(x, 0.0), cleared=True)

    def _of_steps(self, what: str, x: Value, make: Callable[[], str]) -> str:
        """What all tensors of the same rows have in common, made once."""
        key = (what, x.lengths or x.name)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def steps_as_rows(self, x: Value) -> Value:
        """The steps of x as rows."""
        return Value(self.reshape(x.name, -1, *x.shape[1:]), x.shape[1:])

    def rows_as_steps(self, name: str, like: Value, shape: Any) -> str:
        """Rows of a shape as the steps of rows like these."""
        if not is_ragged(like.shape):
            return self.reshape(name, -1, like.shape[0], *shape)
        rows = self.cut(self.op("Shape", like.name), [0], [2], [0])
        return self.op("Reshape", name, self.op("Concat", rows, np.array(shape, "int64"), axis=0))
