"""Names of columns in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name as Spark's expressions and schemas read it, dots, slashes and all."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
