"""How the exchange benchmark's tables look, and how they get into a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

TALKING = (
    "allreduce",
    "allreduce_bfloat16",
    "sharded",
    "averaging",
    "averaging_momentum",
    "threshold_bitmap",
    "threshold",
)
NAMES = {
    "silent": "none",
    "allreduce": "AllReduce()",
    "tree": "AllReduce(), as a tree",
    "allreduce_bfloat16": 'AllReduce("bfloat16")',
    "sharded": "ShardedAllReduce()",
    "averaging": "ParameterAveraging(5)",
    "averaging_momentum": "ParameterAveraging(5), Momentum",
    "threshold_bitmap": 'ThresholdSharing(form="bitmap")',
    "threshold": "ThresholdSharing()",
}


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def refreshed(text: str, tables: Mapping[str, str]) -> str:
    """The document with what stands between <!-- NAME --> and <!-- / --> replaced."""

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{tables[match[1]]}\n\n<!-- / -->"

    return re.sub(r"<!-- ([\w ]+) -->\n.*?<!-- / -->", replaced, text, flags=re.DOTALL)
