"""Operators over steps: LSTM, GRU and RNN, one way or both, and with the number of each row's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_curves import ONNX_CURVES
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.folding import check_whole, once
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Group, Value, new_axis, size_of
from sparkdl.layers import Bidirectional, Concatenate, FirstStep, GravesLstm, Gru, LastStep, Lstm, SimpleRnn, Subset
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.recurrent import Recurrent

BLOCKS = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}  # of theirs (i o f c; z r h), in our order
PEEPHOLES = (0, 2, 1)  # of theirs (i o f), in our order
USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
OURS = {(kind, tuple(round(one, 6) for one in constants)): name for name, (kind, constants) in ONNX_CURVES.items()}
# Alpha and beta where a file tells none; others have no such.
UNTOLD = {"Affine": (1.0, 0.0), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5)}


def recurrent(
    build: Assembly,
    operator: Operator,
    x: Value,
    kernels: Array,
    recurrents: Array,
    biases: Array | None = None,
    lengths: Any = None,
    *more: Any,
) -> tuple[Value, ...]:
    """LSTM, GRU and RNN; of what they put out last, the state that is put out as well, and not the cell's."""
    told = operator.attributes
    peepholes = more[2] if len(more) > 2 else None
    _check(operator, more[:2], (kernels, recurrents, biases, peepholes))
    direction = told.get("direction", "forward")
    ways = [_weights(operator, *_of_way(way, kernels, recurrents, biases, peepholes)) for way in range(len(kernels))]
    steps, rows = (1, 0) if told.get("layout", 0) else (0, 1)
    batch, time, numbers = x.theirs[rows], x.theirs[steps], x.theirs[2]
    layer = _layer(operator, recurrents.shape[-1], biases is not None, peepholes is not None, direction == "reverse")
    side, way = new_axis(layer.units), new_axis(len(ways))
    ours: Form = (batch, time, (*way, *side))
    theirs = (batch, time, way, side) if told.get("layout", 0) else (time, way, batch, side)
    source = [(x, (batch, time, numbers))]
    if direction == "bidirectional":
        weights = dict(zip(("forward", "backward"), ways, strict=True))
        every = build.put(operator, Bidirectional(layer), source, ours, theirs, weights)
    else:
        every = build.put(operator, layer, source, ours, theirs, ways[0])
    if not any(operator.outputs[1:2]):
        return (every,)
    if build.readers.get(operator.outputs[1], 0) == 0:
        return every, every
    return every, _last(build, operator, every, direction)


def _check(operator: Operator, states: Sequence[Any], weights: Sequence[Any]) -> None:
    told, kind = operator.attributes, operator.kind
    if any(isinstance(array, Value) for array in weights):
        raise Refused(f"its node {operator.name!r} ({kind}) has computed weights, where constants are known")
    if any(isinstance(state, Value) or (state is not None and np.any(once(state))) for state in states):
        raise Refused(f"its node {operator.name!r} ({kind}) starts from a given state, where one of zeros is known")
    if told.get("clip") or told.get("input_forget", 0):
        raise Refused(f"its node {operator.name!r} ({kind}) has clip or input_forget, which are not known")


def _activations(operator: Operator) -> list[str]:
    """Ours, of one way; both have the same."""
    attributes, usual = operator.attributes, USUAL[operator.kind]
    given = tuple(attributes.get("activations") or usual)
    constants = [iter(attributes.get(name) or ()) for name in ("activation_alpha", "activation_beta")]
    found = []
    for name in given:
        own = tuple(round(next(told, one), 6) for told, one in zip(constants, UNTOLD.get(name, ()), strict=False))
        found.append(OURS.get((name, own), ""))
    first = found[: len(usual)]
    if not all(found) or found != first * (len(found) // len(first)) or len(set(first[1:])) > 1:
        raise Refused(f"its node {operator.name!r} ({operator.kind}) has activations {given}, which are not known so")
    return first


def _of_way(way: int, *arrays: Array | None) -> list[Any]:
    return [None if array is None else array[way] for array in arrays]


def _layer(operator: Operator, units: int, bias: bool, peepholes: bool, backwards: bool) -> Recurrent:
    given: dict[str, Any] = {"bias": bias, "backwards": backwards}
    gate, *inner = _activations(operator)
    if operator.kind == "RNN":
        return SimpleRnn(units, gate, **given)
    given |= {"activation": inner[0], "recurrent_activation": gate}
    if operator.kind == "GRU":
        return Gru(units, reset_after=bool(operator.attributes.get("linear_before_reset", 0)), **given)
    return (GravesLstm if peepholes else Lstm)(units, **given)


def _weights(operator: Operator, kernel: Any, recurrent: Any, bias: Any, peephole: Any) -> Weights:
    """One way's weights, of theirs, whose rows are in blocks of units, and the biases of x and of the state in two."""

    def ordered(array: Array, blocks: Sequence[int]) -> Array:
        parts = np.split(check_whole(array), len(blocks))
        return np.concatenate([parts[block] for block in blocks])

    blocks = BLOCKS[operator.kind]
    weights = {"kernel": float32(ordered(kernel, blocks).T), "recurrent": float32(ordered(recurrent, blocks).T)}
    if bias is not None:
        own, of_state = (ordered(half, blocks) for half in np.split(float32(bias), 2))
        if operator.kind == "GRU" and operator.attributes.get("linear_before_reset", 0):
            weights |= {"bias": own, "recurrent_bias": of_state}
        else:
            weights["bias"] = own + of_state
    if peephole is not None:
        weights["peephole"] = float32(ordered(peephole, PEEPHOLES).reshape(3, -1))
    return weights


def _last(build: Assembly, operator: Operator, every: Value, direction: str) -> Value:
    """The state after all steps, of each way."""
    batch, _, both = every.ours
    units = every.theirs[-1]

    def at(value: Value, layer: Layer, group: Group) -> Value:
        return build.put(operator, layer, [(value, value.ours)], (batch, group), (batch, group))

    way = every.theirs[2] if operator.attributes.get("layout", 0) else every.theirs[1]
    if direction == "bidirectional":
        size = size_of(units)
        sides: list[tuple[int, Layer]] = [(0, LastStep()), (1, FirstStep())]
        ours: Form = (*every.ours[:2], units)
        ends = []
        for number, layer in sides:
            choice = Subset(number * size, (number + 1) * size)
            ends.append(at(build.put(operator, choice, [(every, every.ours)], ours, ours), layer, units))
        found = build.put(operator, Concatenate(), [(end, end.ours) for end in ends], (batch, both), (batch, both))
    else:
        found = at(every, FirstStep() if direction == "reverse" else LastStep(), both)
    theirs = (batch, way, units) if operator.attributes.get("layout", 0) else (way, batch, units)
    return Value(found.node, found.ours, theirs)


OPERATORS: Mapping[str, Any] = dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent)
