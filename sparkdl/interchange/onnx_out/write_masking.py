"""Layers that leave steps out, as ONNX: those that are kept stand first, which TopK finds."""

from __future__ import annotations

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.write_categories import embedding
from sparkdl.interchange.onnx_out.writing import Writer, Writing
from sparkdl.layers import MaskedEmbedding, Masking
from sparkdl.layers.base import Layer, Weights


def _masking(out: Writing, layer: Masking, weights: Weights, x: Value) -> Value:
    kept = out.op("Not", out.op("Equal", x.name, np.float32(layer.value)))
    if x.rank > 2:
        some = out.reduce("ReduceMax", out.cast(kept, "float32"), list(range(2, x.rank)), keep=False)
        kept = out.op("Less", np.float32(0), some)
    return out.cleared(_without_steps(out, x, kept))


def _masked_embedding(out: Writing, layer: MaskedEmbedding, weights: Weights, x: Value) -> Value:
    read = _without_steps(out, x, out.op("Not", out.op("Equal", x.name, np.int64(0))))
    return Value(embedding(out, layer, weights, read), (None, layer.size), read.lengths)  # type: ignore[arg-type]


def _without_steps(out: Writing, x: Value, kept: str) -> Value:
    """x without the steps that are not `kept`, (batch, steps) of bool; others stand in their place."""
    if x.lengths:
        kept = out.op("And", kept, out.valid(x))
    counted, steps = out.cast(kept, "int64"), out.count(x)
    # Greater for a step that is kept than for any other, and for an earlier one than for a later.
    order = out.op("Sub", out.op("Mul", counted, steps), out.numbers(x))
    _, places = out.ops(2, "TopK", order, steps, axis=1)
    if x.rank > 2:
        places = out.op("Expand", out.unsqueeze(places, *range(2, x.rank)), out.op("Shape", x.name))
    found, lengths = out.op("GatherElements", x.name, places, axis=1), out.reduce("ReduceSum", counted, [1], keep=False)
    return Value(found, (None, *x.shape[1:]), lengths)  # type: ignore[arg-type]


WRITERS: dict[type[Layer], Writer] = {
    Masking: Writer(_masking),
    MaskedEmbedding: Writer(_masked_embedding),
}
