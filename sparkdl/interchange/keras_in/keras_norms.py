"""Keras's layers that normalize, and those that disturb."""

from __future__ import annotations

from typing import Any

from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers import (
    AlphaDropout,
    BatchNorm,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    GroupNorm,
    L2Normalize,
    LayerNorm,
    RMSNorm,
    SpatialDropout,
    StochasticDepth,
)


def batch_normalization(config: LayerConfig, shapes: Any) -> Part:
    """BatchNormalization."""
    config.last_axis(len(shapes[0]))
    config.only("renorm", False)
    config.read.update({"renorm_clipping", "renorm_momentum"})  # of what is off
    given, variables = _affine(config)
    running = tuple(Variable(f"moving_{name}", (name,), learned=False) for name in ("mean", "variance"))
    layer = BatchNorm(config.number("momentum", 0.99), epsilon=config.number("epsilon", 1e-3), **given)
    return Part((layer,), (*variables, *running))


def layer_normalization(config: LayerConfig, shapes: Any) -> Part:
    """LayerNormalization over the last axis."""
    config.last_axis(len(shapes[0]))
    given, variables = _affine(config)
    return Part((LayerNorm(epsilon=config.number("epsilon", 1e-3), **given),), variables)


def group_normalization(config: LayerConfig, shapes: Any) -> Part:
    """GroupNormalization; -1 group is one a channel."""
    (shape,) = shapes
    config.last_axis(len(shape))
    given, variables = _affine(config)
    groups = config.integer("groups", 32)
    layer = GroupNorm(shape[-1] if groups == -1 else groups, epsilon=config.number("epsilon", 1e-3), **given)
    return Part((layer,), variables)


def rms_normalization(config: LayerConfig, shapes: Any) -> Part:
    """RMSNormalization over the last axis."""
    config.last_axis(len(shapes[0]))
    return Part((RMSNorm(epsilon=config.number("epsilon", 1e-6)),), (Variable("scale", ("scale",)),))


def unit_normalization(config: LayerConfig, shapes: Any) -> Part:
    """UnitNormalization over the last axis."""
    config.last_axis(len(shapes[0]))
    return Part((L2Normalize(),))


def dropout(config: LayerConfig, shapes: Any) -> Part:
    """Dropout, of single numbers or of whole rows."""
    noise = config.get("noise_shape")
    if noise is not None and noise != [None, *(1 for _ in shapes[0])]:
        raise config.wrong("noise_shape", noise, "None, or 1 for all axes but that of the rows")
    return Part(((Dropout if noise is None else StochasticDepth)(config.number("rate")),))


def spatial_dropout(config: LayerConfig, shapes: Any) -> Part:
    """SpatialDropout1D, SpatialDropout2D and SpatialDropout3D."""
    config.only("data_format", "channels_last", None)
    config.only("noise_shape", None)
    return Part((SpatialDropout(config.number("rate")),))


def gaussian_dropout(config: LayerConfig, shapes: Any) -> Part:
    """GaussianDropout."""
    return Part((GaussianDropout(config.number("rate")),))


def gaussian_noise(config: LayerConfig, shapes: Any) -> Part:
    """GaussianNoise."""
    return Part((GaussianNoise(config.number("stddev")),))


def alpha_dropout(config: LayerConfig, shapes: Any) -> Part:
    """AlphaDropout."""
    config.only("noise_shape", None)
    return Part((AlphaDropout(config.number("rate")),))


def _affine(config: LayerConfig) -> tuple[dict[str, Any], tuple[Variable, ...]]:
    """Whether there is a scale and a bias, and the variables that they are."""
    scale, center = config.flag("scale", True), config.flag("center", True)
    gamma, beta = [Variable("gamma", ("scale",))] * scale, [Variable("beta", ("bias",))] * center
    return {"scale": scale, "bias": center}, (*gamma, *beta)
