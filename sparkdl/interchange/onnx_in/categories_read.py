"""Layers that read integers: rows of tables, ones in rows of zeros, and what makes categories of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly, float32
from sparkdl.interchange.onnx_in.folding import check_whole
from sparkdl.interchange.onnx_in.joining import alike
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import NoView, Value, new_axis
from sparkdl.layers import CrossCategories, Embedding, HashedEmbedding, OneHot, Segments
from sparkdl.layers.base import Layer


def embedded(build: Assembly, operator: Operator, table: Array, x: Value) -> Value:
    """Rows of a table; the last of them is that of unknown categories if there is one more than known ones."""
    if table.ndim != 2:
        raise NoView
    rows, vector = int(operator.attributes.get("rows", len(table))), new_axis(table.shape[1])
    layer: Layer = Embedding(rows, table.shape[1], unknown=rows < len(table))
    if operator.kind == "HashedRows":
        layer = HashedEmbedding(rows, table.shape[1])
    ours, theirs = (*x.ours, vector), (*x.theirs, vector)
    return build.put(operator, layer, [(x, x.ours)], ours, theirs, {"table": float32(table)})


def one_hot(build: Assembly, operator: Operator, x: Value, every: Array) -> Value:
    """1 at a category, of as many as there are numbers to compare with."""
    if not isinstance(every, np.ndarray) or not np.array_equal(check_whole(every).ravel(), np.arange(every.size)):
        raise Refused(f"its node {operator.name!r} (Equal) compares with other numbers than those of all categories")
    last, count = new_axis(every.size), int(operator.attributes.get("rows", every.size))
    layer = OneHot(count, unknown=count < every.size)
    return build.put(operator, layer, [(x, x.ours)], (*x.ours, last), (*x.theirs, last))


def crossed(build: Assembly, operator: Operator, one: Value, other: Value) -> Value:
    """A category of two."""
    one, other = alike([one, other])
    return build.put(operator, CrossCategories(), [(one, one.ours), (other, one.ours)], one.ours, one.theirs)


def segments(build: Assembly, operator: Operator, x: Value) -> Value:
    """Which part of a text each word is of."""
    layer = Segments(int(operator.attributes["separator"]), int(operator.attributes["last"]) + 1)
    return build.each(operator, layer, x)


OPERATORS: Mapping[str, Any] = {
    "OneHotRows": one_hot,
    "HashedRows": embedded,
    "CrossCategories": crossed,
    "Segments": segments,
}
