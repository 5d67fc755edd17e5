"""The nodes and constants of an ONNX graph in the making, in the form that its opset asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_extra import require_onnx

Input = str | Array | np.generic  # of a node: the name of a tensor, or a constant


class Place(NamedTuple):
    """Of a layer in its network.

    Attributes
    ----------
    path : str
        With which the names of its nodes begin.
    weights : str
        With which those of its arrays do: another path where these are also another layer's.
    """

    path: str
    weights: str

    def within(self, name: str, key: str = "") -> Place:
        """Of a layer within that one."""
        return Place(
            *(f"{above}/{own}" if above else own for above, own in zip(self, (name, key or name), strict=True))
        )


class Nodes:
    """Nodes in the order of computation, and the arrays that they read.

    Parameters
    ----------
    opset : int
        Version of the operators.

    Attributes
    ----------
    place : Place
        Of the layer that is being written.
    nodes : list of onnx.NodeProto
    arrays : dict of arrays
        By name, weights and constants.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.place = Place("", "")
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self._helper = require_onnx().helper
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: Input, **attributes: Any) -> str:
        """The name of what a new node puts out, the first of it where that is several; "" leaves an input out."""
        return self.ops(1, kind, *inputs, **attributes)[0]

    def ops(self, count: int, kind: str, *inputs: Input, **attributes: Any) -> list[str]:
        """The names of what a new node puts out, the first `count` of it."""
        name = self._unused(f"{self.place.path}/{kind}")
        names = [name, *(self._unused(f"{name}_{at}") for at in range(1, count))]
        read = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(self._helper.make_node(kind, read, names, name=name, **attributes))
        return names

    def scan(self, step: Callable[[str, str], tuple[str, str]], start: str, rows: str) -> str:
        """What `step` puts out at every step of rows (batch, steps, ...), in an array of such.

        Parameters
        ----------
        step : callable
            Of the names of (state, row), it writes nodes and gives those of (next state, output); all are of float32,
            (batch, ...). It may read any tensor made before.
        start : str
            The state before the first step.
        """
        name, around = self._unused(f"{self.place.path}/Scan"), self.nodes
        self.nodes, given = [], (f"{name}/state", f"{name}/row")
        made = step(*given)
        kind = self._helper.np_dtype_to_tensor_dtype(np.dtype("float32"))
        ends = [[self._helper.make_tensor_value_info(end, kind, None) for end in side] for side in (given, made)]
        body, self.nodes = self._helper.make_graph(self.nodes, f"{name}/body", *ends), around
        along: dict[str, Any] = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}
        out = [f"{name}/last", name]
        self.nodes.append(self._helper.make_node("Scan", [start, rows], out, name=name, body=body, **along))
        return name

    def constant(self, value: Any) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._unused("constants/number" if array.ndim == 0 else "constants/array")
            self.arrays[self._constants[key]] = array
        return self._constants[key]

    def weight(self, name: str, array: Any) -> str:
        """The name of an array of the layer's weights as float32; what layers share is there once."""
        array = np.asarray(array, "float32")
        wanted = f"{self.place.weights}/{name}"
        known = self.arrays.get(wanted)
        if known is not None and known.shape == array.shape and np.array_equal(known, array, equal_nan=True):
            return wanted
        name = self._unused(wanted)
        self.arrays[name] = array
        return name

    def reduce(self, kind: str, x: Input, axes: Sequence[int], keep: bool = True) -> str:
        """A sum, mean or maximum over axes, which became an input with opset 18, and of ReduceSum with 13."""
        if kind == "ReduceSum" or self.opset >= 18:
            return self.op(kind, x, np.array(axes, "int64"), keepdims=int(keep))
        return self.op(kind, x, axes=list(axes), keepdims=int(keep))

    def unsqueeze(self, x: Input, *axes: int) -> str:
        """x with axes of size 1 at these places."""
        return self.op("Unsqueeze", x, np.array(axes, "int64"))

    def squeeze(self, x: Input, *axes: int) -> str:
        """x without these axes of size 1."""
        return self.op("Squeeze", x, np.array(axes, "int64"))

    def reshape(self, x: Input, *sizes: int) -> str:
        """x in another shape; 0 keeps a size, -1 stands for what is left."""
        return self.op("Reshape", x, np.array(sizes, "int64"))

    def cut(self, x: Input, starts: Sequence[int], stops: Sequence[int], axes: Sequence[int]) -> str:
        """x from `starts` to below `stops` along some axes."""
        return self.op("Slice", x, *(np.array(numbers, "int64") for numbers in (starts, stops, axes)))

    def cast(self, x: Input, dtype: str) -> str:
        """x as numbers of another type."""
        return self.op("Cast", x, to=int(self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))

    def _unused(self, wanted: str) -> str:
        count = self._counts[wanted] = self._counts.get(wanted, 0) + 1
        return wanted if count == 1 else f"{wanted}_{count}"
