"""Which arithmetic looks a mask up, or numbers steps, as exporters write of Hugging Face's transformers."""

from __future__ import annotations

from sparkdl.interchange.onnx_in.patterns import Pattern, Rule


def _cast(x: Pattern) -> list[Pattern]:
    return [x, ("Cast", x), ("Cast", ("Cast", x))]


_TAKEN = ("x", "rows", "steps")
_EVERY = [("Unsqueeze", [("Expand", name), name]) for name in _TAKEN[1:]]
_WORDS: Pattern = _cast(("Not", ("Equal", "x", "#padding")))

STEP_RULES = (
    Rule("MaskTaken", ("Gather", ("Flatten", _cast("x")), ("Add", "steps", ("Mul", "rows", "count"))), reads=_TAKEN),
    Rule("MaskTaken", ("GatherND", _cast("x"), ("Concat", *_EVERY)), reads=_TAKEN),
    # Of a step that asks nothing in attention, which here takes 0 of others, too.
    Rule("Identity", ("Where", ("IsNaN", "x"), 0.0, "x")),
    # The steps of RoBERTa's, which are counted from behind the number that padding has.
    Rule("Numbered", ("Add", _cast(("Mul", _cast(("CumSum", _WORDS)), _WORDS)), "#padding")),
)
