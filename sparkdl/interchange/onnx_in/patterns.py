"""Operators that together are one of a later version, such as those that Gelu was written with, found and replaced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.folding import axes_of
from sparkdl.interchange.onnx_in.onnx_file import OnnxFile, Operator, live

EITHER_WAY = ("Add", "Mul")  # operators whose two inputs may change places
OF_ANY_NUMBER = ("Max", "Min")  # of inputs, so that a pattern has all of them
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


def simplified(file: OnnxFile, rules: Sequence[Rule]) -> list[Operator]:
    """The operators that the outputs need, with one in place of each pattern."""
    finder = _Finder(live(file.operators, file.outputs), file.constants, rules)
    return live([finder.replaced(operator) for operator in finder.operators], file.outputs)


SUMMED = ("ReduceMean", "ReduceSum", "ReduceL2", "Dot", "Distance")  # along one axis, which the outcome has, too


class _Finder:
    """Looks for patterns among operators."""

    def __init__(self, operators: Sequence[Operator], constants: Mapping[str, Array], rules: Sequence[Rule]) -> None:
        self.operators, self.rules = operators, rules
        self.makers = {name: operator for operator in operators for name in operator.outputs if name}
        self.constants: dict[str, Any] = dict(constants)
        for operator in operators:
            if operator.kind == "Constant" and hasattr(value := operator.attributes.get("value"), "size"):
                self.constants[operator.outputs[0]] = value

    def replaced(self, operator: Operator) -> Operator:
        """What stands in the operator's place, there and in the patterns of those that come after it."""
        made = self._replacement(operator)
        self.makers |= dict.fromkeys(filter(None, made.outputs), made)
        return made

    def _replacement(self, operator: Operator) -> Operator:
        for rule in self.rules:
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
            number = self._number(name)
            if number == pattern or (not pattern.is_integer() and math.isclose(number, pattern, rel_tol=CLOSE)):
                yield found
        elif isinstance(pattern, str):
            known = self._number(name) if pattern[0] == "#" else name
            if known == known and found.get(pattern, known) == known:
                yield found | {pattern: known}
        elif (maker := self.makers.get(name)) and maker.kind == pattern[0] and len(maker.inputs) >= len(pattern) - 1:
            if maker.kind in OF_ANY_NUMBER and len(maker.inputs) > len(pattern) - 1:
                return
            if maker.kind in SUMMED:
                axis = maker.attributes["axis"] if "axis" in maker.attributes else self._axis(maker)
                if axis is None or found.get("#axis", axis) != axis:
                    return
                found = found | {"#axis": axis, "#keepdims": maker.attributes.get("keepdims", 1)}
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
