"""Layers that read integers, and what makes integers of numbers; integers are int64 in ONNX."""

from __future__ import annotations

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Writer, Writing
from sparkdl.layers import (
    Bucketize,
    CrossCategories,
    Embedding,
    EmbeddingBag,
    HashedEmbedding,
    HashedEmbeddingBag,
    OneHot,
    Segments,
)
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.embedding import Categories

WORD = 1 << 32  # integers of 32 bits are counted from 0 to below it


def _ids(out: Writing, layer: Categories, x: Value) -> str:
    """Numbers of rows; of padding 0, of what is no category one beyond the last, where a runtime finds nothing."""
    ids = out.masked(x)
    if isinstance(layer, HashedEmbedding):
        hashed = _mixed(out, out.op("Mod", ids, np.int64(WORD)))
        return out.op("Mod", hashed, np.int64(layer.rows))
    outside = out.op("Less", ids, np.int64(0))
    if layer.unknown:
        outside = out.op("Or", outside, out.op("Less", np.int64(layer.rows - 1), ids))
    return out.op("Where", outside, np.int64(layer.rows), ids)


def _mixed(out: Writing, bits: str) -> str:
    """The finalizer of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = _times(out, _with_shifted(out, bits, shift), factor)
    return _with_shifted(out, bits, 16)


def _with_shifted(out: Writing, bits: str, shift: int) -> str:
    """bits ^ (bits >> shift), bit by bit, as operators for it came with opset 18."""
    powers = np.array([1 << at for at in range(32)], "int64")

    def apart(number: str) -> str:
        return out.op("Mod", out.op("Div", out.unsqueeze(number, -1), powers), np.int64(2))

    both = out.op("Add", apart(bits), apart(out.op("Div", bits, np.int64(1 << shift))))
    return out.reduce("ReduceSum", out.op("Mul", out.op("Mod", both, np.int64(2)), powers), [-1], keep=False)


def _times(out: Writing, bits: str, factor: int) -> str:
    """The lower 32 bits of bits * factor, the upper and the lower half of the factor apart, so that none overflows."""
    high = out.op("Mod", out.op("Mul", bits, np.int64(factor >> 16)), np.int64(1 << 16))
    low = out.op("Mul", bits, np.int64(factor & 0xFFFF))
    return out.op("Mod", out.op("Add", out.op("Mul", high, np.int64(1 << 16)), low), np.int64(WORD))


def _one_hot(out: Writing, layer: OneHot, weights: Weights, x: Value) -> str:
    every = np.arange(layer.rows + layer.unknown)
    return out.cast(out.op("Equal", out.unsqueeze(_ids(out, layer, x), -1), every), "float32")


def embedding(out: Writing, layer: Embedding, weights: Weights, x: Value) -> str:
    """Rows of the table."""
    return out.op("Gather", out.weight("table", weights["table"]), _ids(out, layer, x), axis=0)


def _embedding_bag(out: Writing, layer: EmbeddingBag, weights: Weights, x: Value) -> str:
    vectors = Value(embedding(out, layer, weights, x), (*x.shape, layer.size), x.lengths)
    total = out.reduce("ReduceSum", out.cleared(vectors).name, [1], keep=False)
    return total if layer.mode == "sum" else shared_out(out, total, x)


def shared_out(out: Writing, total: str, x: Value, more: int = 1) -> str:
    """Sums over the steps of x, with `more` axes besides that of the batch, over how many steps there are."""
    if not x.lengths:
        return out.op("Div", total, np.float32(x.shape[0]))
    count = out.cast(out.op("Max", x.lengths, np.int64(1)), "float32")
    return out.op("Div", total, out.unsqueeze(count, *range(1, 1 + more)) if more else count)


def _cross_categories(out: Writing, layer: CrossCategories, weights: Weights, *values: Value) -> str:
    first, *others = (out.op("Mod", value.name, np.int64(WORD)) for value in values)
    for other in others:
        mixed = _times(out, _mixed(out, first), 31)
        first = out.op("Mod", out.op("Add", mixed, other), np.int64(WORD))
    upper = out.op("Less", np.int64(WORD // 2 - 1), first)
    return out.op("Where", upper, out.op("Sub", first, np.int64(WORD)), first)


def _bucketize(out: Writing, layer: Bucketize, weights: Weights, x: Value) -> str:
    reached = out.op("Less", out.unsqueeze(x.name, -1), np.array(layer.boundaries, "float32"))
    return out.reduce("ReduceSum", out.cast(out.op("Not", reached), "int64"), [-1], keep=False)


def _segments(out: Writing, layer: Segments, weights: Weights, x: Value) -> str:
    ends = out.cast(out.op("Equal", x.name, np.int64(layer.separator)), "int64")
    number = out.op("Min", out.op("CumSum", ends, np.int64(1), exclusive=1), np.int64(layer.most - 1))
    return out.masked(Value(number, x.shape, x.lengths))


WRITERS: dict[type[Layer], Writer] = {
    OneHot: Writer(_one_hot),
    Embedding: Writer(embedding),
    HashedEmbedding: Writer(embedding),
    EmbeddingBag: Writer(_embedding_bag),
    HashedEmbeddingBag: Writer(_embedding_bag),
    CrossCategories: Writer(_cross_categories),
    Bucketize: Writer(_bucketize),
    Segments: Writer(_segments),
}
