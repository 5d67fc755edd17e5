"""Keras's layers of numbers without neighbours: Dense, Embedding, and what scales columns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sparkdl.interchange.keras_in.keras_activations import activation
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable, named
from sparkdl.layers import Dense, EachStep, Embedding, Layer, MaskedEmbedding, Normalization, Rescale
from sparkdl.layers.ragged import is_ragged

EPSILON = 1e-7  # Keras's, the least deviation that Normalization divides by
COLUMNS = 1 << 20  # of which Normalization may hold a mean, so that a number in a file asks for no memory


def dense(config: LayerConfig, shapes: Any) -> Part:
    """Dense, which Keras applies to every vector of a row."""
    (shape,) = shapes
    layer: Layer = Dense(config.integer("units"), bias=config.flag("use_bias", True))
    variables = named("kernel", bias=config.flag("use_bias", True))
    for _ in range(len(shape) - 1 - is_ragged(shape)):
        layer = EachStep([replace(layer, name="dense")])
        variables = tuple(variable.within("dense") for variable in variables)
    return Part((layer, *activation(config)), variables)


def embedding(config: LayerConfig, shapes: Any) -> Part:
    """Embedding, of which 0 may be padding."""
    kind = MaskedEmbedding if config.flag("mask_zero", False) and config.masked else Embedding
    layer = kind(config.integer("input_dim"), config.integer("output_dim"))
    return Part((layer,), (Variable("embeddings", ("table",)),))


def rescaling(config: LayerConfig, shapes: Any) -> Part:
    """Rescaling by a number, or by one for each channel."""
    if not isinstance(config.get("scale"), list):
        return Part((Rescale(config.number("scale"), config.number("offset", 0.0)),))
    scales, offsets = _numbers(config, "scale"), config.get("offset", 0.0)
    offsets = _numbers(config, "offset") if isinstance(offsets, list) else [config.number("offset", 0.0)] * len(scales)
    if min(scales) <= 0 or len(offsets) != len(scales):
        raise config.wrong("scale", config.get("scale"), "a number, or positive numbers, as many as of offset")
    means = [-offset / scale for scale, offset in zip(scales, offsets, strict=True)]
    return Part((Normalization(means, [scale**-2 for scale in scales]),))


def normalization(config: LayerConfig, shapes: Any) -> Part:
    """Normalization by what its configuration holds, or by what it has learned of data."""
    (shape,) = shapes
    config.only("invert", False)
    config.last_axis(len(shape))
    if config.get("mean") is None:
        if not shape or shape[-1] > COLUMNS:
            raise config.wrong("mean", None, f"given for rows of shape {shape}")
        unknown = Normalization([0.0] * shape[-1], [1.0] * shape[-1])
        flat = Variable("mean", ("mean",), lambda array: (array.reshape(-1),), learned=False)
        variance = Variable("variance", ("variance",), lambda array: (_least(array.reshape(-1)),), learned=False)
        return Part((unknown,), (flat, variance, Variable("count", (), learned=False)))
    means, variances = _numbers(config, "mean"), _numbers(config, "variance")
    if len(means) == len(variances) == 1:
        deviation = max(math.sqrt(max(variances[0], 0.0)), EPSILON)
        return Part((Rescale(1 / deviation, -means[0] / deviation),))
    return Part((Normalization(means, [max(variance, EPSILON**2) for variance in variances]),))


def _least(variances: Any) -> Any:
    return variances.clip(EPSILON**2)


def _numbers(config: LayerConfig, name: str) -> list[float]:
    """An option that is a number or holds some, however deep."""
    flat = [config.get(name)]
    while any(isinstance(entry, list) for entry in flat):
        flat = [part for entry in flat for part in (entry if isinstance(entry, list) else [entry])]
    if not flat or not all(isinstance(entry, (int, float)) and math.isfinite(entry) for entry in flat):
        raise config.wrong(name, config.get(name), "finite numbers")
    return [float(entry) for entry in flat]
