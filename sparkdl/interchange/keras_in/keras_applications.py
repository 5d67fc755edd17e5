"""Layers of Keras's own that only its ready networks (`keras.applications`) have: of ConvNeXt and InceptionResNetV2."""

from __future__ import annotations

from typing import Any

from sparkdl.graph import Graph
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers import Add, Scale, StochasticDepth


def layer_scale(config: LayerConfig, shapes: Any) -> Part:
    """LayerScale, a factor of each channel that is learned."""
    config.only("projection_dim", shapes[0][-1])
    layer = Scale(config.number("init_values"), per_channel=True)
    return Part((layer,), (Variable("variable" if config.version >= 3 else "gamma", ("scale",)),))


def stochastic_depth(config: LayerConfig, shapes: Any) -> Part:
    """StochasticDepth, which drops whole rows."""
    return Part((StochasticDepth(config.number("drop_path_rate")),))


def scaled_sum(config: LayerConfig, shapes: Any) -> Part:
    """CustomScaleLayer, x + scale * y."""
    x, y = shapes
    nodes = {"scaled": (Scale(config.number("scale")), "y"), "sum": (Add(), "x", "scaled")}
    return Part((Graph({"x": x, "y": y}, nodes, "sum"),))
