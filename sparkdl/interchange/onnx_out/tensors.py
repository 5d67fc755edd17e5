"""Tensors of rows: in which order they hold the numbers, and where rows of any length end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_out.nodes import Nodes
from sparkdl.interchange.onnx_out.value import Value
from sparkdl.layers.ragged import is_ragged


class Tensors(Nodes):
    """Nodes, and those that put the tensors of rows into another order, or tell their padding.

    Parameters
    ----------
    opset : int
        Version of the operators.
    """

    def __init__(self, opset: int) -> None:
        super().__init__(opset)
        self._made: dict[tuple[str, ...], str] = {}

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
