"""What is said of layers by their paths, in few words: of all within one, and of all that are numbered alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TypeVar

Value = TypeVar("Value")


def stands_for(name: str, path: str) -> bool:
    """Whether a name stands for the layer, or the array, of a path.

    It does for the path that it is, and for all within: "block_0" for "block_0" and "block_0/dense_1", and not for
    "block_01"; and where names go on with "_" and a number, for these: "block" for "block_0", "block_1" and all within.
    """
    return re.match(rf"{re.escape(name)}(_\d+)?(/|$)", path) is not None


def value_at(values: Mapping[str, Value], path: str, default: Value) -> Value:
    """The value of the longest of the names that stand for this path, or the default if none does."""
    names = [name for name in values if stands_for(name, path)]
    return values[max(names, key=len)] if names else default


def check_names(subject: str, names: Collection[str], paths: Collection[str]) -> None:
    """ValueError if one of `names` stands for none of the `paths`, which are those of all that it may stand for."""
    for name in names:
        if not any(stands_for(name, path) for path in paths):
            near = get_close_matches(name, paths, 3, 0.5) or [path for path in paths if "/" not in path]
            raise ValueError(
                f"{subject} names {name!r}, which stands for no layer that trains weights; nearest are "
                f"{', '.join(near) or 'none, as the network trains none'}."
            )
