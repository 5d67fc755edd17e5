"""Layers over the steps of rows: recurrent ones, those that make one vector of a row, and layers for each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_curves import ONNX_CURVES
from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.write_categories import shared_out
from sparkdl.interchange.onnx_out.write_dense import product
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    AttentionPool,
    EachStep,
    FirstStep,
    GravesLstm,
    Gru,
    LastStep,
    Lstm,
    RepeatStep,
    ReverseSteps,
    SimpleRnn,
    TimeMax,
    TimeMean,
    TimeSum,
)
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.recurrent import Recurrent

LEAST = float(np.finfo("float32").min)
LSTM_ORDER, GRU_ORDER = (0, 3, 1, 2), (0, 1, 2)  # of ours i f g o, ONNX has i o f g; z r n is its own order


def _recurrent(
    out: Writing, layer: Recurrent, weights: Weights, x: Value, kind: str, order: Any, *activations: str, **given: Any
) -> Value:
    """A node of ONNX's, whose rows lie along the second axis and whose outputs have one more for directions."""
    units = layer.units

    def blocks(array: Any) -> Any:
        """(..., blocks * units) as (1, blocks * units, ...)."""
        parts = np.split(np.asarray(array, "float32"), len(order), axis=-1)
        return np.moveaxis(np.concatenate([parts[at] for at in order], axis=-1), -1, 0)[None]

    none = np.zeros(len(order) * units, "float32")
    both = [blocks(weights.get(name, none)) for name in ("bias", "recurrent_bias")]
    read = [out.op("Transpose", out.cleared(x).name, perm=[1, 0, 2])]
    read += [out.weight(name, blocks(weights[name])) for name in ("kernel", "recurrent")]
    read += [out.weight("bias", np.concatenate(both, axis=1)) if layer.bias else ""]
    read += [out.cast(x.lengths, "int32") if x.lengths else ""]
    if "peephole" in weights:
        to_i, to_f, to_o = np.asarray(weights["peephole"], "float32")
        read += ["", "", out.weight("peephole", np.concatenate([to_i, to_o, to_f])[None])]
    way = "reverse" if layer.backwards else "forward"
    names, constants = zip(*(ONNX_CURVES[activation] for activation in activations), strict=True)
    told = {"alpha": [own[0] for own in constants if own], "beta": [own[1] for own in constants if own[1:]]}
    given |= {"activations": names} | {f"activation_{name}": values for name, values in told.items() if values}
    y = out.squeeze(out.op(kind, *read, hidden_size=units, direction=way, **given), 1)
    made = Value(out.op("Transpose", y, perm=[1, 0, 2]), (x.shape[0], units), x.lengths)
    return out.cleared(made)


def _lstm(out: Writing, layer: Lstm, weights: Weights, x: Value) -> Value:
    inner, gate = layer.activation, layer.recurrent_activation
    return _recurrent(out, layer, weights, x, "LSTM", LSTM_ORDER, gate, inner, inner)


def _gru(out: Writing, layer: Gru, weights: Weights, x: Value) -> Value:
    activations = layer.recurrent_activation, layer.activation
    after = int(layer.reset_after)
    return _recurrent(out, layer, weights, x, "GRU", GRU_ORDER, *activations, linear_before_reset=after)


def _simple_rnn(out: Writing, layer: SimpleRnn, weights: Weights, x: Value) -> Value:
    return _recurrent(out, layer, weights, x, "RNN", (0,), layer.activation)


def _first_step(out: Writing, layer: FirstStep, weights: Weights, x: Value) -> str:
    return out.op("Gather", out.cleared(x).name, np.int64(0), axis=1)


def _last_step(out: Writing, layer: LastStep, weights: Weights, x: Value) -> str:
    if not x.lengths:
        return out.op("Gather", x.name, np.int64(x.shape[0] - 1), axis=1)
    last = out.op("Sub", out.unsqueeze(x.lengths, 1), np.int64(1))
    at = out.op("Equal", out.unsqueeze(out.numbers(x), 0), last)
    at = out.unsqueeze(at, *range(2, x.rank)) if x.rank > 2 else at
    return out.reduce("ReduceSum", out.op("Where", at, x.name, np.float32(0)), [1], keep=False)


def _time_sum(out: Writing, layer: Layer, weights: Weights, x: Value) -> str:
    return out.reduce("ReduceSum", out.cleared(x).name, [1], keep=False)


def _time_mean(out: Writing, layer: TimeMean, weights: Weights, x: Value) -> str:
    return shared_out(out, _time_sum(out, layer, weights, x), x, x.rank - 2)


def _time_max(out: Writing, layer: TimeMax, weights: Weights, x: Value) -> str:
    most = out.reduce("ReduceMax", out.masked(x, LEAST), [1], keep=False)
    if not x.lengths:
        return most
    some = out.op("Less", np.int64(0), x.lengths)
    some = out.unsqueeze(some, *range(1, x.rank - 1)) if x.rank > 2 else some
    return out.op("Where", some, most, np.float32(0))


def _attention_pool(out: Writing, layer: AttentionPool, weights: Weights, x: Value) -> str:
    """Of a row without steps all shares are those of zeros."""
    x = out.cleared(x)
    hidden = out.op("Tanh", product(out, x.name, weights))
    scores = out.op("MatMul", hidden, out.weight("query", np.asarray(weights["query"])[:, None]))
    shares = out.op("Softmax", out.masked(replace(x, name=scores), LEAST), axis=1)
    return out.reduce("ReduceSum", out.op("Mul", shares, x.name), [1], keep=False)


def _reverse_steps(out: Writing, layer: ReverseSteps, weights: Weights, x: Value) -> Value:
    if x.lengths:
        return replace(x, name=out.op("ReverseSequence", x.name, x.lengths, batch_axis=0, time_axis=1))
    ends = (np.array([number], "int64") for number in (-1, -x.shape[0] - 1, 1, -1))
    return replace(x, name=out.op("Slice", x.name, *ends))


def _repeat_step(out: Writing, layer: RepeatStep, weights: Weights, row: Value, like: Value) -> str | Value:
    steps = out.count(like) if like.lengths else np.array([like.shape[0]], "int64")
    sizes = out.op("Concat", np.ones(1, "int64"), steps, np.ones(len(row.shape), "int64"), axis=0)
    made = out.op("Expand", out.unsqueeze(row.name, 1), sizes)
    return out.cleared(Value(made, (like.shape[0], *row.shape), like.lengths))


def _each_step(out: Writing, layer: EachStep, weights: Weights, x: Value) -> str:
    *_, made = out.children(layer, weights, out.place, [out.steps_as_rows(x)])
    made = out.channels_last(made)
    return out.rows_as_steps(made.name, x, made.shape)


WRITERS: dict[type[Layer], Writer] = {
    Lstm: Writer(_lstm),
    GravesLstm: Writer(_lstm),
    Gru: Writer(_gru),
    SimpleRnn: Writer(_simple_rnn),
    FirstStep: Writer(_first_step),
    LastStep: Writer(_last_step),
    TimeMean: Writer(_time_mean),
    TimeSum: Writer(_time_sum),
    TimeMax: Writer(_time_max),
    AttentionPool: Writer(_attention_pool),
    RepeatStep: Writer(_repeat_step, Takes.CHANNELS_LAST),
    ReverseSteps: Writer(_reverse_steps),
    EachStep: Writer(_each_step),
}
