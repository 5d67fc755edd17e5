"""A network on its way into ONNX: its layers one by one, and what their functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from sparkdl.interchange.onnx_out.nodes import Place
from sparkdl.interchange.onnx_out.tensors import Tensors
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
    ANY = 3  # it takes each number by itself, or all of a row together, or knows of both orders


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


class Writing(Tensors):
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

    def children(self, composite: Composite, weights: Weights, place: Place, values: Sequence[Value]) -> list[Value]:
        """What a composite reads, followed by what each of its children puts out."""
        found = list(values)
        for child in composite.children:
            read = read_by(child, found)
            own = weights.get(child.key, {})
            several = read if isinstance(read, tuple) else (read,)
            found.append(self.layer(child.layer, own, place.within(child.name, child.key), *several))
        return found

    def layer(self, layer: Layer, weights: Weights, place: Place, *values: Value) -> Value:
        """What a layer puts out.

        Raises
        ------
        ValueError
            There is no function for its class.
        """
        if isinstance(layer, Composite) and type(layer).forward is Composite.forward:
            return self.children(layer, weights, place, values)[layer.exits[0]]
        writer = self.writers.get(type(layer))
        if writer is None:
            raise ValueError(
                f"Layer {place.path!r} must be one of sparkdl.layers, or a Composite of such, to be written as ONNX, "
                f"received a {type(layer).__name__}; make it of such layers, or write those before it, as up_to gives "
                "them."
            )
        shapes = tuple(value.shape for value in values)
        shape = steps.output_shape(layer, shapes if len(shapes) > 1 else shapes[0])
        before, self.place = self.place, place
        made = self._written(writer, layer, weights, values, shape)
        self.place = before
        return made

    def _written(self, writer: Writer, layer: Layer, weights: Weights, values: tuple[Value, ...], shape: Any) -> Value:
        if writer.by_row and values[0].lengths:
            rows = (self.steps_as_rows(self.channels_last(value)) for value in values)
            made = self.channels_last(self._written(writer, layer, weights, tuple(rows), shape[1:]))
            made = Value(self.rows_as_steps(made.name, self.channels_last(values[0]), made.shape), shape)
        else:
            made = self._as_value(writer, self._in_order(values, writer.takes), layer, weights, shape)
        lengths = next((value.lengths for value in (made, *values) if value.lengths), "") if is_ragged(shape) else ""
        return replace(made, shape=shape, lengths=lengths)

    def _as_value(self, writer: Writer, read: tuple[Value, ...], layer: Layer, weights: Weights, shape: Any) -> Value:
        made = writer.write(self, layer, weights, *read)
        if isinstance(made, Value):
            return made
        first = read[0].channels_first and len(shape) == len(read[0].shape)
        return Value(made, shape, channels_first=first, image=read[0].image if writer.takes is Takes.ANY else ())

    def _in_order(self, values: tuple[Value, ...], takes: Takes) -> tuple[Value, ...]:
        if takes is Takes.ANY and len({(value.channels_first, value.image) for value in values}) == 1:
            return values
        if takes is Takes.CHANNELS_FIRST:
            return tuple(map(self.channels_first, values))
        alike = len({len(value.shape) for value in values}) == 1
        if takes is not Takes.CHANNELS_LAST and alike and any(value.channels_first for value in values):
            return tuple(map(self.channels_first, values))
        return tuple(map(self.channels_last, values))
