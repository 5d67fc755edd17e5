"""Keeps lines of docstrings that are aligned in columns, such as the shapes of x and y, as they are written."""

from __future__ import annotations

import re
from typing import Any

import griffe

ALIGNED = re.compile(r"\S {2,}\S")


class Aligned(griffe.Extension):
    """Makes code blocks of such lines, with the lines that go on below them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_blocks(obj.docstring.value)


def as_blocks(text: str) -> str:
    """The text with every run of aligned lines at its left margin as a code block."""
    done: list[str] = []
    within = False
    for line in text.split("\n"):
        aligned = not line.startswith(" ") and ALIGNED.search(line) is not None
        goes_on = within and line.startswith("  ")
        if (aligned or goes_on) != within:
            done.append("")
            within = not within
        done.append(f"    {line}" if within else line)
    return "\n".join(done)
