"""A network as a model of ONNX: its inputs and outputs by name, and the nodes and arrays between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_out.layer_writers import WRITERS
from sparkdl.interchange.onnx_out.nodes import Place
from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Writing
from sparkdl.layers.base import Shape, Weights
from sparkdl.layers.composite import Composite
from sparkdl.layers.ragged import is_ragged

OLDEST, NEWEST = 13, 21  # opsets; SynapseML long declared onnxruntime 1.8, which reads 14


def onnx_model(
    network: Composite, inputs: Mapping[str, Shape], outputs: Sequence[str], weights: Weights, opset: int
) -> Any:
    """The model; see `to_onnx` of networks, which gives the shapes of its inputs and the names of its outputs.

    Raises
    ------
    ImportError
        The package onnx is missing.
    ValueError
        `opset` is none of those that are written, or a layer cannot be written.
    """
    onnx = require_onnx()
    if not isinstance(opset, int) or isinstance(opset, bool) or not OLDEST <= opset <= NEWEST:
        raise ValueError(f"opset must be an integer from {OLDEST} to {NEWEST}, received {opset!r}; 17 is usual.")
    helper, kinds = onnx.helper, onnx.TensorProto
    ragged = [name for name, shape in inputs.items() if is_ragged(shape)]
    times = {name: "time" if len(ragged) == 1 else f"{name}_time" for name in ragged}
    lengths = {name: f"{name}_lengths" for name in ragged}
    if doubled := sorted({*lengths.values()} & {*inputs, *outputs}):
        raise ValueError(
            f"{doubled[0]!r} is to be the input of the lengths of rows in ONNX, but the network has an input or an "
            "output of that name; rename it."
        )
    writing, given, values = Writing(opset, WRITERS), [], []
    for at, (name, shape) in enumerate(inputs.items()):
        kind = kinds.INT64 if at in network.integer_entries else kinds.FLOAT
        given.append(helper.make_tensor_value_info(name, kind, _sizes(shape, times.get(name))))
        values.append(Value(name, shape, lengths.get(name, "")))
    given += [helper.make_tensor_value_info(name, kinds.INT64, ["batch"]) for name in lengths.values()]
    made, put_out = writing.children(network, weights, Place("", ""), values), []
    owners = {lengths[name]: times[name] for name in ragged}
    for name, at in zip(outputs, network.exits, strict=True):
        writing.place = Place("outputs", "outputs")
        value = writing.channels_last(made[at])
        if value.lengths and value.lengths not in owners:
            raise ValueError(
                f"Output {name!r} has rows of lengths of their own, as a layer such as Masking leaves them, for which "
                "ONNX has no place; end the network in one vector of a row, by LastStep, TimeMean or TimeMax."
            )
        writing.nodes.append(helper.make_node("Identity", [value.name], [name], name=f"outputs/{name}"))
        kind = kinds.INT64 if network.children[at - network.entries].layer.gives_integers else kinds.FLOAT
        put_out.append(helper.make_tensor_value_info(name, kind, _sizes(value.shape, owners.get(value.lengths))))
    versions = [helper.make_opsetid("", opset)]
    oldest = helper.find_min_ir_version_for(versions)
    graph = helper.make_graph(writing.nodes, "sparkdl", given, put_out)
    model = helper.make_model(graph, opset_imports=versions, ir_version=oldest, producer_name="sparkdl")
    for name, array in writing.arrays.items():  # last, as onnx copies what it is given
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def _sizes(shape: Shape, time: str | None) -> list[str | int]:
    """Of a tensor of rows of that shape, with names for those that differ from batch to batch."""
    return ["batch", *(size if size is not None else time or "time" for size in shape)]
