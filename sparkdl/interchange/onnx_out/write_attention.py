"""Attention, and what tells it the steps apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.write_dense import product
from sparkdl.interchange.onnx_out.writing import Writer, Writing
from sparkdl.layers import (
    ClassToken,
    LearnedPositions,
    LearnedSelfAttention,
    MultiHeadAttention,
    RecurrentAttention,
    SinusoidalPositions,
)
from sparkdl.layers.base import Layer, Weights

UNSEEN = np.float32(-1e30)  # a score whose share is 0, but no NaN where there are no others
QUARTER = 0.25  # of a turn, by which a cosine is ahead of a sine


def _attention(
    out: Writing, layer: MultiHeadAttention, weights: Weights, asking: Value, asked: Value | None = None
) -> Value:
    asking = out.cleared(asking)
    asked = asking if asked is None else out.cleared(asked)
    few, size = np.shape(weights["key"]["kernel"])[1:]
    queries = _heads(out, layer, weights, "query", asking)
    keys, values = (_heads(out, layer, weights, name, asked) for name in ("key", "value"))
    group = layer.heads // few
    if group > 1:  # queries of neighbouring heads read the same keys
        queries = out.reshape(queries, 0, few, group, -1, size)
        keys, values = (out.unsqueeze(array, 2) for array in (keys, values))
    rank = 4 + (group > 1)
    taken = _taken(out, queries, keys, values, size, rank, _seen(out, layer, asked, rank))
    if group > 1:
        taken = out.reshape(taken, 0, layer.heads, -1, size)
    rows = out.reshape(out.op("Transpose", taken, perm=[0, 2, 1, 3]), 0, 0, layer.heads * size)
    kernel = np.asarray(weights["output"]["kernel"])
    flat = {**weights["output"], "kernel": kernel.reshape(-1, kernel.shape[-1])}
    y = out.cleared(replace(asking, name=product(out, rows, flat, "output/"), cleared=False))
    return _only_answered(out, y, asking, asked)


def _taken(out: Writing, queries: str, keys: str, values: str, size: int, rank: int, seen: str) -> str:
    """What queries take of values; all three are (..., steps, size), of that rank."""
    scores = out.op("MatMul", queries, out.op("Transpose", keys, perm=[*range(rank - 2), rank - 1, rank - 2]))
    scores = out.op("Mul", scores, np.float32(1 / math.sqrt(size)))
    if seen:
        scores = out.op("Where", seen, scores, UNSEEN)
    return out.op("MatMul", out.op("Softmax", scores, axis=-1), values)


def _heads(out: Writing, layer: MultiHeadAttention, weights: Weights, name: str, x: Value) -> str:
    """Queries, keys or values, (batch, heads, steps, size)."""
    heads, size = np.shape(weights[name]["kernel"])[1:]
    flat = {part: np.reshape(array, (*np.shape(array)[:-2], heads * size)) for part, array in weights[name].items()}
    made = out.reshape(product(out, x.name, flat, f"{name}/"), 0, 0, heads, size)
    made = out.op("Transpose", made, perm=[0, 2, 1, 3])
    return _rotated(out, layer.rotary, made, x, size) if layer.rotary and name != "value" else made


def _rotated(out: Writing, base: float, heads: str, x: Value, size: int) -> str:
    """Heads turned by angles that grow with the step."""
    half = size // 2
    speeds = np.tile(base ** (-2 * np.arange(half) / size), 2)
    sines, cosines = (_waves(out, x, speeds, np.full(size, ahead)) for ahead in (0, QUARTER))
    one, other = (out.cut(heads, [start], [start + half], [3]) for start in (0, half))
    crossed = out.op("Concat", out.op("Neg", other), one, axis=3)
    return out.op("Add", out.op("Mul", heads, cosines), out.op("Mul", crossed, sines))


def _waves(out: Writing, x: Value, speeds: Any, ahead: Any) -> str:
    """sin(step * speeds + ahead), (steps, n); steps are counted in turns, of which whole ones do not count.

    Parameters
    ----------
    x : Value
        Of rows of as many steps.
    speeds : array (n,)
        Radians a step.
    ahead : array (n,)
        In turns.
    """
    parts = speeds / (2 * math.pi)
    if not x.lengths:
        turns = np.arange(x.shape[0])[:, None] * parts + ahead
        return out.constant(np.sin(2 * math.pi * turns).astype("float32"))
    steps = out.unsqueeze(out.cast(out.numbers(x), "float64"), 1)
    turns = out.op("Add", out.op("Mul", steps, np.asarray(parts, "float64")), np.asarray(ahead, "float64"))
    rest = out.cast(out.op("Mod", turns, np.float64(1), fmod=1), "float32")
    return out.op("Sin", out.op("Mul", rest, np.float32(2 * math.pi)))


def _seen(out: Writing, layer: MultiHeadAttention, asked: Value, rank: int) -> str:
    """Which keys a query sees, in a shape that is broadcast to the scores; "" if all."""
    seen = ""
    if asked.lengths:
        seen = out.unsqueeze(out.valid(asked), *range(1, rank - 1))
    if layer.causal:
        if asked.lengths:
            numbers = out.numbers(asked)
            before = out.op("Not", out.op("Less", out.unsqueeze(numbers, 1), out.unsqueeze(numbers, 0)))
        else:
            before = out.constant(np.tri(asked.shape[0], dtype=bool))
        seen = out.op("And", seen, before) if seen else before
    return seen


def _only_answered(out: Writing, y: Value, asking: Value, asked: Value) -> Value:
    """y with zeros where there is no step to ask."""
    if not asked.lengths or asked.lengths == asking.lengths:
        return y
    some = out.unsqueeze(out.op("Less", np.int64(0), asked.lengths), 1, 2)
    return replace(y, name=out.op("Where", some, y.name, np.float32(0)))


def _learned_self_attention(out: Writing, layer: LearnedSelfAttention, weights: Weights, x: Value) -> Value:
    """Attention of steps of a single row, the queries, to each row of x."""
    queries = np.asarray(weights["queries"])[None]
    asking = Value(out.weight("queries", queries), queries.shape[1:])
    if layer.project:
        return _attention(out, layer._asking, weights, asking, x)
    x = out.cleared(x)
    seen = out.unsqueeze(out.valid(x), 1) if x.lengths else ""
    y = _taken(out, asking.name, x.name, x.name, queries.shape[2], 3, seen)
    return _only_answered(out, replace(asking, name=y), asking, x)


def _recurrent_attention(out: Writing, layer: RecurrentAttention, weights: Weights, x: Value) -> Value:
    """A loop over the steps, which hands on what the next one reads of the row: nothing at first."""
    x = out.cleared(x)
    size = layer.head_size or layer.units // layer.heads

    def projected(name: str, rows: str) -> str:
        if not layer.project:
            return rows
        kernel = np.asarray(weights[name])
        return out.op("MatMul", rows, out.weight(name, kernel.reshape(len(kernel), -1)))

    keys, values = (out.reshape(projected(name, x.name), 0, 0, layer.heads, size) for name in ("key", "value"))
    keys = out.op("Mul", out.op("Transpose", keys, perm=[0, 2, 3, 1]), np.float32(1 / math.sqrt(size)))
    values = out.op("Transpose", values, perm=[0, 2, 1, 3])
    seen = out.unsqueeze(out.valid(x), 1, 2) if x.lengths else ""

    def step(state: str, z: str) -> tuple[str, str]:
        y = out.op(layer.activation.capitalize(), out.op("Add", z, state))
        scores = out.op("MatMul", out.reshape(projected("query", y), 0, layer.heads, 1, size), keys)
        scores = out.op("Where", seen, scores, UNSEEN) if seen else scores
        taken = out.op("MatMul", out.op("Softmax", scores, axis=-1), values)
        taken = out.reshape(taken, 0, layer.heads * size)
        if layer.project:
            output = np.reshape(weights["output"], (-1, layer.units))
            taken = out.op("MatMul", taken, out.weight("output", output))
        return out.op("MatMul", taken, out.weight("recurrent", weights["recurrent"])), y

    start = out.op("Expand", np.float32(0), _sizes(out, x, layer.units))
    y = out.scan(step, start, product(out, x.name, weights))
    return out.cleared(Value(y, (x.shape[0], layer.units), x.lengths))


def _learned_positions(out: Writing, layer: LearnedPositions, weights: Weights, x: Value) -> Value:
    """Steps beyond the table get NaN."""
    table = np.asarray(weights["table"], "float32")
    if not x.lengths:
        vectors = out.weight("table", table[: x.shape[0]])
    else:
        table = np.concatenate([table, np.full((1, table.shape[1]), np.nan, "float32")])
        at = out.op("Min", out.numbers(x), np.int64(layer.length))
        vectors = out.op("Gather", out.weight("table", table), at, axis=0)
    return _added(out, x, vectors)


def _sinusoidal_positions(out: Writing, layer: SinusoidalPositions, weights: Weights, x: Value) -> Value:
    size = x.shape[1]
    speeds = layer.base ** (-2 * (np.arange(size) // 2) / size)
    return _added(out, x, _waves(out, x, speeds, np.where(np.arange(size) % 2, QUARTER, 0)))


def _added(out: Writing, x: Value, vectors: str) -> Value:
    return out.cleared(replace(x, name=out.op("Add", x.name, vectors), cleared=False))


def _class_token(out: Writing, layer: ClassToken, weights: Weights, x: Value) -> str:
    tokens = out.op("Expand", out.weight("token", weights["token"]), _sizes(out, x, 1, x.shape[1]))
    return out.op("Concat", tokens, x.name, axis=1)


def _sizes(out: Writing, x: Value, *sizes: int) -> str:
    """The shape of a tensor that has so many numbers for each row."""
    return out.op("Concat", out.cut(out.op("Shape", x.name), [0], [1], [0]), np.array(sizes, "int64"), axis=0)


WRITERS: dict[type[Layer], Writer] = {
    MultiHeadAttention: Writer(_attention),
    LearnedSelfAttention: Writer(_learned_self_attention),
    RecurrentAttention: Writer(_recurrent_attention),
    LearnedPositions: Writer(_learned_positions),
    SinusoidalPositions: Writer(_sinusoidal_positions),
    ClassToken: Writer(_class_token),
}
