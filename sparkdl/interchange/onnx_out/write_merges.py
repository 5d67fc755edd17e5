"""Layers that make one array of several."""

from __future__ import annotations

import functools

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.write_norms import unit
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    Add,
    Average,
    Concatenate,
    ConcatenateSteps,
    Distance,
    Dot,
    DotInteractions,
    Maximum,
    Minimum,
    Multiply,
    Stack,
    Subtract,
)
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.ragged import step_shape


def _folded(kind: str) -> Writer:
    """An operator of two, one after the other."""

    def write(out: Writing, layer: Layer, weights: Weights, *values: Value) -> str:
        return functools.reduce(lambda one, other: out.op(kind, one, other), [value.name for value in values])

    return Writer(write, Takes.ANY)


def _average(out: Writing, layer: Average, weights: Weights, *values: Value) -> str:
    total = functools.reduce(lambda one, other: out.op("Add", one, other), [value.name for value in values])
    return out.op("Div", total, np.float32(len(values)))


def _concatenate(out: Writing, layer: Concatenate, weights: Weights, *values: Value) -> str:
    """Where a row, or a step, is one number, it is taken for a vector of one."""
    names = [value.name if step_shape(value.shape) else out.unsqueeze(value.name, -1) for value in values]
    return out.op("Concat", *names, axis=values[0].channel_axis)


def _stacked(out: Writing, values: tuple[Value, ...]) -> str:
    """Along a new axis before those of a row, or of a step."""
    axis = -len(step_shape(values[0].shape)) - 1
    return out.op("Concat", *(out.unsqueeze(value.name, axis) for value in values), axis=axis)


def _stack(out: Writing, layer: Stack, weights: Weights, *values: Value) -> str:
    return _stacked(out, values)


def _dot(out: Writing, layer: Dot, weights: Weights, one: Value, other: Value) -> str:
    names = [unit(out, value.name) if layer.normalize else value.name for value in (one, other)]
    return out.reduce("ReduceSum", out.op("Mul", *names), [-1])


def _distance(out: Writing, layer: Distance, weights: Weights, one: Value, other: Value) -> str:
    apart = out.op("Sub", one.name, other.name)
    squares = out.reduce("ReduceSum", out.op("Mul", apart, apart), [-1])
    return squares if layer.squared else out.op("Sqrt", squares)


def _dot_interactions(out: Writing, layer: DotInteractions, weights: Weights, *values: Value) -> str:
    count = len(values)
    vectors = _stacked(out, values)
    products = out.op("MatMul", vectors, out.op("Transpose", vectors, perm=[0, 2, 1]))
    rows, columns = np.tril_indices(count, 0 if layer.itself else -1)
    return out.op("Gather", out.reshape(products, 0, count * count), rows * count + columns, axis=1)


def _concatenate_steps(out: Writing, layer: ConcatenateSteps, weights: Weights, *values: Value) -> str:
    names = [value.name if len(value.shape) == 2 else out.unsqueeze(value.name, 1) for value in values]
    return out.op("Concat", *names, axis=1)


WRITERS: dict[type[Layer], Writer] = {
    Add: _folded("Add"),
    Subtract: _folded("Sub"),
    Multiply: _folded("Mul"),
    Maximum: _folded("Max"),
    Minimum: _folded("Min"),
    Average: Writer(_average, Takes.ANY),
    Concatenate: Writer(_concatenate, Takes.EITHER),
    Stack: Writer(_stack),
    Dot: Writer(_dot),
    Distance: Writer(_distance),
    DotInteractions: Writer(_dot_interactions, by_row=True),
    ConcatenateSteps: Writer(_concatenate_steps),
}
