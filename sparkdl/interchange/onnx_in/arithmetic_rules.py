"""Which arithmetic is an activation, a norm or a product of a kind that has an operator, in a later version or here."""

from __future__ import annotations

import math

from sparkdl.interchange.onnx_in.patterns import Pattern, Rule


def _times(*factors: Pattern) -> list[Pattern]:
    """The product of three, in whichever order."""
    one, two, three = factors
    return [("Mul", ("Mul", one, two), three), ("Mul", ("Mul", one, three), two), ("Mul", ("Mul", two, three), one)]


def _by(x: Pattern, number: float) -> list[Pattern]:
    return [("Mul", x, number), ("Div", x, 1 / number)]


_SQUARE = [("Pow", "x", 2.0), ("Mul", "x", "x")]
_CUBE = [("Pow", "x", 3.0), ("Mul", _SQUARE, "x"), ("Cube", "x")]
_INNER = [("Add", "x", ("Mul", _CUBE, 0.044715)), ("Mul", "x", ("Add", ("Mul", _SQUARE, 0.044715), 1.0))]
_BY_ERF = ("Add", ("Erf", _by("x", math.sqrt(0.5))), 1.0)
_BY_TANH = ("Add", ("Tanh", ("Mul", _INNER, math.sqrt(2 / math.pi))), 1.0)
_CENTRED = ("Sub", "x", ("ReduceMean", "x"))
_SPREAD = ("Sqrt", ("Add", ("ReduceMean", [("Pow", _CENTRED, 2.0), ("Mul", _CENTRED, _CENTRED)]), "#epsilon"))
_LENGTH = ("Sqrt", ("Add", ("ReduceMean", _SQUARE), "#epsilon"))
_BOUNDED = ("Clip", ("Add", "x", 3.0), 0.0, 6.0)
_SQUARES = [("ReduceSum", ("Mul", "x", "x")), ("Dot", "x", "x")]
_SCALED = ("Mul", "x", "#beta")
_PART = ("Clip", ("Mul", "x", 2 / 3), -1e6, 1e6)  # of RationalTanh
_SIZE = ("Abs", _PART)
_INNER_PART = ("Add", ("Add", _SIZE, ("Mul", [("Cube", _SIZE), ("Mul", ("Mul", _SIZE, _SIZE), _SIZE)], 1.41645)), 1.0)
_OVER = ("Add", ("Mul", _SIZE, _INNER_PART), 1.0)
_LONG = ("Clip", ("ReduceL2", "x"), "#epsilon")


def _by_itself(x: Pattern) -> list[Pattern]:
    return [("Mul", x, x), ("Pow", x, 2.0)]


def _divided(x: Pattern, by: Pattern) -> list[Pattern]:
    return [("Div", x, by), ("Mul", x, ("Reciprocal", by)), ("Mul", x, ("Div", 1.0, by))]


RULES = (
    Rule("Gelu", _times("x", _BY_ERF, 0.5)),
    Rule("Gelu", _times("x", _BY_TANH, 0.5), {"approximate": "tanh"}),
    Rule("Swish", ("Mul", "x", ("Sigmoid", "x"))),
    Rule("HardSwish", _by(("Mul", "x", _BOUNDED), 1 / 6)),
    Rule("HardSigmoid", _by(_BOUNDED, 1 / 6), {"alpha": 1 / 6, "beta": 0.5}),
    Rule("LayerNormalization", _divided(_CENTRED, _SPREAD)),
    Rule("RMSNormalization", _divided("x", _LENGTH)),
    Rule("L2Normalize", ("Div", "x", ("Sqrt", ("Where", ("Equal", _SQUARES, 0.0), 1.0, _SQUARES)))),
    Rule("Distance", ("ReduceSum", _by_itself(("Sub", "x", "z"))), {"squared": 1}, ("x", "z")),
    Rule("Distance", ("Sqrt", ("Distance", "x", "z")), {"squared": 0}, ("x", "z")),
    Rule("L2Normalize", ("Div", "x", [_LONG, ("Expand", _LONG)])),
    Rule("Dot", ("ReduceSum", ("Mul", "x", "z")), reads=("x", "z")),
    # What PyTorch's exporters write, and what is written here, of activations that have no operator in every opset.
    Rule("Softplus", ("Where", ("Greater", "x", 20.0), "x", ("Softplus", "x"))),
    Rule("EndedSoftplus", ("Where", ("Greater", "x", "#threshold"), "x", ("Softplus", "x"))),
    Rule("EndedSoftplus", ("Where", ("Greater", _SCALED, "#threshold"), "x", ("Div", ("Softplus", _SCALED), "#beta"))),
    Rule("Mish", ("Mul", "x", ("Tanh", ("Softplus", "x")))),
    Rule("Softsign", _divided("x", ("Add", ("Abs", "x"), 1.0))),
    Rule("LogSigmoid", [("Log", ("Sigmoid", "x")), ("Neg", ("Softplus", ("Neg", "x")))]),
    Rule("RectifiedTanh", ("Max", ("Tanh", "x"), 0.0)),
    Rule("RationalTanh", ("Mul", ("Div", ("Mul", _PART, _INNER_PART), _OVER), 1.7159)),
    Rule("Cube", _CUBE),
)
