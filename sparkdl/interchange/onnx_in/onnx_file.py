"""ONNX files, read and checked: operators, constants and inputs as plain values, and nothing that could be run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_in.onnx_tensors import array_of
from sparkdl.interchange.onnx_in.refusal import Refused

MOST_BYTES = 1 << 31  # of a protobuf; more lies beside it
MOST_NODES = 100_000
OURS = "sparkdl"  # as the producer of a file
OLDEST = 9  # version of the operators
STANDARD = ("", "ai.onnx")  # domains of the operators that all know


@dataclass(frozen=True)
class Operator:
    """A node of the file.

    Attributes
    ----------
    kind, name : str
        The type of operator, such as "Conv", and the node's name.
    inputs, outputs : tuple of str
        Names of arrays; "" where one is left out.
    attributes : dict
        Numbers, strings, arrays and lists of them.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """What the network reads: its sizes, None or a name where they may differ, and whether it is integers or truths."""

    name: str
    sizes: tuple[int | str | None, ...]
    integers: bool


@dataclass(frozen=True)
class OnnxFile:
    """What a file holds.

    Attributes
    ----------
    operators : tuple of Operator
        In an order in which each comes after those that it reads.
    constants : dict of arrays
        By name.
    inputs : tuple of Input
        Those that are no constants.
    outputs : tuple of str
    ours : bool
        Whether sparkdl wrote it, whose images have their channels last in files, too.
    """

    operators: tuple[Operator, ...]
    constants: dict[str, Array]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    ours: bool


def read_onnx(path: str) -> OnnxFile:
    """What the file at `path` holds.

    Raises
    ------
    OSError
        The file, or one that it keeps arrays in, is not there or cannot be read.
    Refused
        It is no ONNX file, or damaged, or has what no network of ours is made of.
    """
    onnx = require_onnx()
    if os.path.getsize(path) >= MOST_BYTES:
        raise Refused("it has 2 GiB or more, where a file of ONNX has less and keeps large arrays beside it")
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception:  # protobuf's own, of which more than one kind
        raise Refused("it is no ONNX file, or not whole") from None
    graph, folder = model.graph, os.path.dirname(os.path.realpath(path))
    versions = [entry.version for entry in model.opset_import if entry.domain in STANDARD]
    if not versions or not graph.node or not graph.output:
        raise Refused("it is no ONNX file, or not whole, as it has no nodes")
    if versions[0] < OLDEST:
        raise Refused(f"its operators are of opset {versions[0]}; export it anew with one of at least {OLDEST}")
    if len(graph.node) > MOST_NODES:
        raise Refused(f"it has {len(graph.node)} nodes, more than the {MOST_NODES} that are read")
    if graph.sparse_initializer:
        raise Refused("it has sparse constants; export them as dense ones")
    constants = {tensor.name: array_of(tensor, folder) for tensor in graph.initializer}
    return OnnxFile(
        tuple(_operator(node, folder, versions[0]) for node in graph.node),
        constants,
        tuple(_input(given) for given in graph.input if given.name not in constants),
        tuple(output.name for output in graph.output),
        model.producer_name == OURS,
    )


def live(operators: Iterable[Operator], outputs: Iterable[str]) -> list[Operator]:
    """Those operators that the outputs depend on, in the same order."""
    needed, found = set(outputs), []
    for operator in reversed(list(operators)):
        if needed & set(operator.outputs):
            needed.update(operator.inputs)
            found.append(operator)
    return found[::-1]


def _operator(node: Any, folder: str, opset: int) -> Operator:
    name = node.name or next(iter(node.output), "")
    if node.domain not in STANDARD:
        raise Refused(f"its node {name!r} is a {node.op_type} of {node.domain!r}, not of the standard operators")
    attributes = {entry.name: _attribute(entry, name, folder) for entry in node.attribute}
    if node.op_type in ("Softmax", "LogSoftmax") and opset < 13:  # over all axes from the one that is named on
        attributes = {"axis": 1, **attributes, "together": 1}
    return Operator(node.op_type, name, tuple(node.input), tuple(node.output), attributes)


def _attribute(entry: Any, node: str, folder: str) -> Any:
    """The value of an attribute; graphs and the like, which no operator has that is known, as None."""
    kinds = require_onnx().AttributeProto
    if entry.ref_attr_name:
        raise Refused(f"its node {node!r} has an attribute of a function, where it is in none")
    read = {
        kinds.INT: lambda: int(entry.i),
        kinds.FLOAT: lambda: float(entry.f),
        kinds.STRING: lambda: entry.s.decode("utf-8", "replace"),
        kinds.TENSOR: lambda: array_of(entry.t, folder),
        kinds.INTS: lambda: list(entry.ints),
        kinds.FLOATS: lambda: list(entry.floats),
        kinds.STRINGS: lambda: [text.decode("utf-8", "replace") for text in entry.strings],
    }.get(entry.type)
    return None if read is None else read()


def _input(given: Any) -> Input:
    kinds = require_onnx().TensorProto
    told = given.type.tensor_type
    if not given.type.HasField("tensor_type") or not told.HasField("shape"):
        raise Refused(f"its input {given.name!r} is no array of known rank")
    sizes = tuple(
        int(size.dim_value) if size.HasField("dim_value") else size.dim_param or None for size in told.shape.dim
    )
    if not sizes or any(isinstance(size, int) and size < 1 for size in sizes):
        raise Refused(f"its input {given.name!r} has the sizes {sizes}, where rows of something were expected")
    integers = (kinds.INT64, kinds.INT32, kinds.INT16, kinds.INT8, kinds.UINT8, kinds.BOOL)
    return Input(given.name, sizes, told.elem_type in integers)
