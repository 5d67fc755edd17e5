"""What we write of categories, hashes and steps that are numbered, as the layer that it was."""

from __future__ import annotations

import math

from sparkdl.interchange.onnx_in.patterns import Pattern, Rule

WORD = float(1 << 32)  # integers of 32 bits are counted from 0 to below it


def _bits(number: Pattern) -> Pattern:
    return ("Mod", ("Div", ("Unsqueeze", number), "powers"), 2.0)


def _shifted(bits: int) -> Rule:
    """x ^ (x >> bits), bit by bit."""
    both = ("Add", _bits("x"), _bits(("Div", "x", float(1 << bits))))
    return Rule(f"XorShifted{bits}", ("ReduceSum", ("Mul", ("Mod", both, 2.0), "powers")))


def _times(factor: int) -> Rule:
    """The lower 32 bits of a product, by halves of the factor."""
    high = ("Mod", ("Mul", "x", float(factor >> 16)), float(1 << 16))
    both = ("Add", ("Mul", high, float(1 << 16)), ("Mul", "x", float(factor & 0xFFFF)))
    return Rule(f"Times{factor}", ("Mod", both, WORD))


FACTORS = (0x85EBCA6B, 0xC2B2AE35)  # of the finalizer of MurmurHash3
_first = (f"Times{FACTORS[0]}", ("XorShifted16", ("Mod", "x", WORD)))
_mixed = ("XorShifted16", (f"Times{FACTORS[1]}", ("XorShifted13", _first)))
_crossed = ("Mod", ("Add", ("Times31", _mixed), ("Mod", "z", WORD)), WORD)
# Categories, of which those that are none are to find nothing.
_outside = [("Less", "x", 0.0), ("Or", ("Less", "x", 0.0), ("Less", "#last", "x"))]
_category = ("Where", _outside, "#rows", "x")
_numbers = ("Range", 0.0, "count", 1.0)  # of steps
_turns = ("Mod", ("Add", ("Mul", ("Unsqueeze", ("Cast", _numbers)), "speeds"), "ahead"), 1.0)

CATEGORY_RULES = (
    _shifted(16),
    _shifted(13),
    *map(_times, (*FACTORS, 31)),
    Rule("HashedRows", ("Gather", "table", ("Mod", _mixed, "#rows")), reads=("table", "x")),
    Rule(
        "CrossCategories",
        ("Where", ("Less", WORD / 2 - 1, _crossed), ("Sub", _crossed, WORD), _crossed),
        reads=("x", "z"),
    ),
    Rule("Gather", ("Gather", "table", _category), reads=("table", "x")),
    Rule("OneHotRows", ("Cast", ("Equal", ("Unsqueeze", [_category, "x"]), "every")), reads=("x", "every")),
    Rule("Segments", ("Min", ("CumSum", ("Cast", ("Equal", "x", "#separator"))), "#last")),
    # Steps that are numbered, of which later ones than a table has are to find NaN.
    Rule("FirstRows", ("Gather", "table", ("Min", _numbers, "#count")), reads=("table",)),
    Rule("Earlier", ("Not", ("Less", ("Unsqueeze", "x"), ("Unsqueeze", "x")))),
    Rule("Waves", ("Sin", ("Mul", ("Cast", _turns), 2 * math.pi)), reads=("speeds", "ahead")),
)
