"""Keras's layers that make one array of several."""

from __future__ import annotations

from typing import Any

from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.layers import Add, Average, Concatenate, Dot, Layer, Maximum, Minimum, Multiply, Subtract

BY_KIND: dict[str, Layer] = {
    "Add": Add(),
    "Average": Average(),
    "Maximum": Maximum(),
    "Minimum": Minimum(),
    "Multiply": Multiply(),
    "Subtract": Subtract(),
}
BY_MODE: dict[str, Layer] = {"concat": Concatenate(), "sum": Add(), "mul": Multiply(), "ave": Average()}


def merged(config: LayerConfig, shapes: Any) -> Part:
    """Those without options."""
    return Part((BY_KIND[config.kind],))


def concatenated(config: LayerConfig, shapes: Any) -> Part:
    """Concatenate along the last axis."""
    config.last_axis(len(shapes[0]))
    return Part((Concatenate(),))


def dot(config: LayerConfig, shapes: Any) -> Part:
    """Dot of two vectors."""
    config.only("axes", 1, -1, [1, 1], [-1, -1])
    return Part((Dot(config.flag("normalize", False)),))
