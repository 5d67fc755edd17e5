"""Operators that take number by number what one array has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.attention_parts import shares_dropped, softmax_of_scores
from sparkdl.interchange.onnx_in.forms import with_last
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Group, Value, parts_of
from sparkdl.layers import (
    Celu,
    Cube,
    Dropout,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    HardTanh,
    LeakyRelu,
    LogSigmoid,
    LogSoftmax,
    Mish,
    RationalTanh,
    RectifiedTanh,
    Relu,
    Relu6,
    Scale,
    Selu,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)
from sparkdl.layers.base import Layer

Handler = Callable[..., Any]
NEAR = 1e-4  # of a number that a layer has within and a file tells in few digits
LEAST_THRESHOLD = 15  # of x, from where on softplus(x) is x to float32


def activation(layer: Callable[[Mapping[str, Any]], Layer]) -> Handler:
    """Of a layer that takes each number by itself, by the operator's attributes."""

    def read(build: Assembly, operator: Operator, x: Value) -> Value:
        return build.each(operator, layer(operator.attributes), x)

    return read


def _selu(told: Mapping[str, Any]) -> Layer:
    alpha, gamma = told.get("alpha", 1.67326319), told.get("gamma", 1.05070102)
    if not math.isclose(alpha, 1.67326319, rel_tol=NEAR) or not math.isclose(gamma, 1.05070102, rel_tol=NEAR):
        raise Refused(f"it has a Selu of alpha {alpha} and gamma {gamma}, where it is known with its own alone")
    return Selu()


def _hard_sigmoid(told: Mapping[str, Any]) -> Layer:
    alpha, beta = told.get("alpha", 0.2), told.get("beta", 0.5)
    if not math.isclose(alpha, 1 / 6, rel_tol=NEAR) or not math.isclose(beta, 0.5, rel_tol=NEAR):
        raise Refused(f"it has a HardSigmoid of alpha {alpha} and beta {beta}, where 1/6 and 0.5 are known")
    return HardSigmoid()


def clip(build: Assembly, operator: Operator, x: Value, least: Array | None = None, most: Array | None = None) -> Value:
    """Clip, to what Relu, Relu6 and HardTanh leave."""
    told = operator.attributes
    low = told.get("min", -math.inf) if least is None else least.item()
    high = told.get("max", math.inf) if most is None else most.item()
    if low == 0 and (high == 6 or high > 1e38):
        return build.each(operator, Relu6() if high == 6 else Relu(), x)
    if -1e38 < low < high < 1e38:
        return build.each(operator, HardTanh(low, high), x)
    raise Refused(
        f"its node {operator.name!r} (Clip) bounds numbers by {low} and {high}, where 0 alone is known, or two that "
        "are finite and the lower one first"
    )


def ended_softplus(build: Assembly, operator: Operator, x: Value) -> Value:
    """PyTorch's softplus(beta * x) / beta, which leaves x alone where beta * x is above a threshold."""
    beta, threshold = operator.attributes.get("beta", 1.0), operator.attributes["threshold"]
    if threshold < LEAST_THRESHOLD:
        raise Refused(
            f"its node {operator.name!r} (Where) ends a Softplus at {threshold}, where {LEAST_THRESHOLD} or more was "
            "expected, from where on a Softplus leaves numbers as they are"
        )
    if beta == 1:
        return build.each(operator, Softplus(), x)
    scaled = build.each(replace(operator, name=f"{operator.name}_scaled"), Scale(beta), x)
    y = build.each(replace(operator, name=f"{operator.name}_softplus"), Softplus(), scaled)
    return build.each(operator, Scale(1 / beta), y)


def softmax(build: Assembly, operator: Operator, x: Value) -> Value:
    """Softmax along one axis, or up to opset 12 along it and those behind it together."""
    if (scores := softmax_of_scores(build, operator, x, _normed(operator, x))) is not None:
        return scores
    return _along(build, operator, Softmax(), x)


def log_softmax(build: Assembly, operator: Operator, x: Value) -> Value:
    """LogSoftmax, of whose axes the same is true."""
    return _along(build, operator, LogSoftmax(), x)


def _normed(operator: Operator, x: Value) -> Group:
    """The axis, or the axes together, along which it makes numbers one sum."""
    axis = x.axis(operator.attributes.get("axis", -1))
    return parts_of(x.theirs[axis:]) if operator.attributes.get("together") else x.theirs[axis]


def _along(build: Assembly, operator: Operator, layer: Layer, x: Value) -> Value:
    form = with_last(x.ours, _normed(operator, x))
    return build.put(operator, layer, [(x, form)], form, x.theirs)


def cube(build: Assembly, operator: Operator, x: Value | Array) -> Value | Array:
    """The third power, of constants, too, as it is no operator of the standard's."""
    return build.each(operator, Cube(), x) if isinstance(x, Value) else x * x * x


def dropout(build: Assembly, operator: Operator, x: Value, ratio: Array | None = None, *others: Any) -> Value:
    """Dropout, which acts in training alone."""
    rate = operator.attributes.get("ratio", 0.5) if ratio is None else float(ratio.item())
    if (shares := shares_dropped(build, operator, x, rate)) is not None:
        return shares
    return build.each(operator, Dropout(rate), x) if rate else x


OPERATORS: Mapping[str, Handler] = {
    "Relu": activation(lambda told: Relu()),
    "LeakyRelu": activation(lambda told: LeakyRelu(told.get("alpha", 0.01))),
    "Elu": activation(lambda told: Elu(told.get("alpha", 1.0))),
    "Selu": activation(_selu),
    "Gelu": activation(lambda told: Gelu(told.get("approximate", "none") == "tanh")),
    "Swish": activation(lambda told: Silu()),
    "Sigmoid": activation(lambda told: Sigmoid()),
    "HardSigmoid": activation(_hard_sigmoid),
    "Tanh": activation(lambda told: Tanh()),
    "Softsign": activation(lambda told: Softsign()),
    "Mish": activation(lambda told: Mish()),
    "Celu": activation(lambda told: Celu(told.get("alpha", 1.0))),
    "ThresholdedRelu": activation(lambda told: ThresholdedRelu(told.get("alpha", 1.0))),
    "LogSigmoid": activation(lambda told: LogSigmoid()),
    "RationalTanh": activation(lambda told: RationalTanh()),
    "RectifiedTanh": activation(lambda told: RectifiedTanh()),
    "Cube": cube,
    "Softplus": activation(lambda told: Softplus()),
    "EndedSoftplus": ended_softplus,
    "Neg": activation(lambda told: Scale(-1.0)),
    "HardSwish": activation(lambda told: HardSwish()),
    "Clip": clip,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "Dropout": dropout,
}
