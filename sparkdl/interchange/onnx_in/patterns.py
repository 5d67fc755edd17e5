"""Operators that together are one of a later version, such as those that Gelu was written with, found and replaced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.folding import axes_of
from sparkdl.interchange.onnx_in.onnx_file import OnnxFile, Operator, live

EITHER_WAY = ("Add", "Mul")  # operators whose two inputs may change places
CLOSE = 1e-4  # of a number and what is written of it in few digits

# A pattern is an operator and what it reads, of which some is left out that need not be looked at; a list of patterns,
# one of which it is; the number that a constant is; or a name: of an array, the same wherever it stands, or, with "#"
# before it, of an attribute that gets the number that a constant is.
Pattern = tuple[Any, ...] | list[Any] | float | str


class Rule(NamedTuple):
    """What a pattern is replaced by: an operator that reads some of its arrays, with attributes that were found."""

    kind: str
    pattern: Pattern
    attributes: Mapping[str, Any] = {}
    reads: tuple[str, ...] = ("x",)


def _times(*factors: Pattern) -> list[Pattern]:
    """The product of three, in whichever order."""
    one, two, three = factors
    return [("Mul", ("Mul", one, two), three), ("Mul", ("Mul", one, three), two), ("Mul", ("Mul", two, three), one)]


def _by(x: Pattern, number: float) -> list[Pattern]:
    return [("Mul", x, number), ("Div", x, 1 / number)]


_SQUARE = [("Pow", "x", 2.0), ("Mul", "x", "x")]
_CUBE = [("Pow", "x", 3.0), ("Mul", _SQUARE, "x")]
_INNER = [("Add", "x", ("Mul", _CUBE, 0.044715)), ("Mul", "x", ("Add", ("Mul", _SQUARE, 0.044715), 1.0))]
_BY_ERF = ("Add", ("Erf", _by("x", math.sqrt(0.5))), 1.0)
_BY_TANH = ("Add", ("Tanh", ("Mul", _INNER, math.sqrt(2 / math.pi))), 1.0)
_CENTRED = ("Sub", "x", ("ReduceMean", "x"))
_SPREAD = ("Sqrt", ("Add", ("ReduceMean", [("Pow", _CENTRED, 2.0), ("Mul", _CENTRED, _CENTRED)]), "#epsilon"))
_LENGTH = ("Sqrt", ("Add", ("ReduceMean", _SQUARE), "#epsilon"))
_BOUNDED = [("Clip", ("Add", "x", 3.0), 0.0, 6.0), ("Relu6", ("Add", "x", 3.0))]


_SQUARES = ("ReduceSum", ("Mul", "x", "x"))
_CATEGORY = ("Where", ("Less", "x", 0.0), "#rows", "x")


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
    Rule("Dot", ("ReduceSum", ("Mul", "x", "z")), reads=("x", "z")),
    # Categories, of which those that are none are to find nothing; and steps, of which later ones are to find that.
    Rule("Gather", ("Gather", "table", _CATEGORY), reads=("table", "x")),
    Rule("OneHotRows", ("Cast", ("Equal", ("Unsqueeze", [_CATEGORY, "x"]), "every")), reads=("x", "every")),
    Rule("FirstRows", ("Gather", "table", ("Min", ("Range", 0.0, "n", 1.0), "#count")), reads=("table",)),
    Rule("Earlier", ("Not", ("Less", ("Unsqueeze", "x"), ("Unsqueeze", "x")))),
)
SUMMED = ("ReduceMean", "ReduceSum")  # along one axis, which is the attribute "axis" of what is found


def simplified(file: OnnxFile) -> list[Operator]:
    """The operators that the outputs need, with one in place of each pattern."""
    finder = _Finder(live(file.operators, file.outputs), file.constants)
    return live([finder.replaced(operator) for operator in finder.operators], file.outputs)


class _Finder:
    """Looks for patterns among operators."""

    def __init__(self, operators: Sequence[Operator], constants: Mapping[str, Array]) -> None:
        self.operators = operators
        self.makers = {name: operator for operator in operators for name in operator.outputs if name}
        self.constants: dict[str, Any] = dict(constants)
        for operator in operators:
            if operator.kind == "Constant" and hasattr(value := operator.attributes.get("value"), "size"):
                self.constants[operator.outputs[0]] = value

    def replaced(self, operator: Operator) -> Operator:
        for rule in RULES:
            for found in self._matches(rule.pattern, operator.outputs[0], {}):
                attributes = {**rule.attributes, **{name[1:]: found[name] for name in found if name[0] == "#"}}
                attributes = {**operator.attributes, **attributes}
                reads = tuple(found[name] for name in rule.reads)
                return Operator(rule.kind, operator.name, reads, operator.outputs, attributes)
        return operator

    def _matches(self, pattern: Pattern, name: str, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the pattern's names stand for, each way that the array of that name is one of it."""
        if isinstance(pattern, list):
            for one in pattern:
                yield from self._matches(one, name, found)
        elif isinstance(pattern, float):
            if math.isclose(self._number(name), pattern, rel_tol=CLOSE):
                yield found
        elif isinstance(pattern, str):
            known = self._number(name) if pattern[0] == "#" else name
            if known == known and found.get(pattern, known) == known:
                yield found | {pattern: known}
        elif (maker := self.makers.get(name)) and maker.kind == pattern[0] and len(maker.inputs) >= len(pattern) - 1:
            if maker.kind in SUMMED:  # along one axis, which is the operator's
                axis = self._axis(maker)
                if axis is None or found.get("#axis", axis) != axis:
                    return
                found = found | {"#axis": axis}
            orders = [maker.inputs]
            if maker.kind in EITHER_WAY:
                orders.append(maker.inputs[::-1])
            for inputs in orders:
                yield from self._all(pattern[1:], inputs, found)

    def _all(
        self, patterns: Sequence[Pattern], names: Sequence[str], found: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if not patterns:
            yield found
            return
        for first in self._matches(patterns[0], names[0], found):
            yield from self._all(patterns[1:], names[1:], first)

    def _number(self, name: str) -> float:
        """That of a constant, NaN of anything else."""
        array = self.constants.get(name)
        return float(array.item()) if array is not None and array.size == 1 else math.nan

    def _axis(self, operator: Operator) -> int | None:
        """That of a reduction along one axis."""
        named = axes_of(operator, self.constants.get(operator.inputs[1]) if len(operator.inputs) > 1 else None)
        return int(named[0]) if named and len(named) == 1 else None
