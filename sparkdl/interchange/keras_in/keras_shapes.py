"""Keras's layers that move positions about."""

from __future__ import annotations

from typing import Any

from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.layers import Crop, Flatten, Permute, RepeatVector, Reshape, UpSample, ZeroPad

METHODS = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


def flatten(config: LayerConfig, shapes: Any) -> Part:
    """Flatten."""
    config.only("data_format", "channels_last", None)
    return Part((Flatten(),))


def reshape(config: LayerConfig, shapes: Any) -> Part:
    """Reshape."""
    return Part((Reshape(_several(config, "target_shape")),))


def permute(config: LayerConfig, shapes: Any) -> Part:
    """Permute, whose axes Keras counts from 1."""
    return Part((Permute(tuple(axis - 1 for axis in _several(config, "dims"))),))


def repeat_vector(config: LayerConfig, shapes: Any) -> Part:
    """RepeatVector."""
    return Part((RepeatVector(config.integer("n")),))


def zero_padding(config: LayerConfig, shapes: Any) -> Part:
    """ZeroPadding1D, ZeroPadding2D and ZeroPadding3D."""
    config.only("data_format", "channels_last", None)
    return Part((ZeroPad(_margins(config, "padding")),))


def cropping(config: LayerConfig, shapes: Any) -> Part:
    """Cropping1D, Cropping2D and Cropping3D."""
    config.only("data_format", "channels_last", None)
    return Part((Crop(_margins(config, "cropping")),))


def up_sampling(config: LayerConfig, shapes: Any) -> Part:
    """UpSampling1D, UpSampling2D and UpSampling3D."""
    config.only("data_format", "channels_last", None)
    return Part((UpSample(config.sizes("size", 2), METHODS[config.only("interpolation", *METHODS)]),))


def _several(config: LayerConfig, name: str) -> tuple[int, ...]:
    sizes = config.sizes(name)
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) for size in sizes):
        raise config.wrong(name, sizes, "a list of integers")
    return sizes


def _margins(config: LayerConfig, name: str) -> Any:
    """(before, after) by axis; Keras writes those of a single axis without a list around them."""
    margins = config.sizes(name)
    return (margins,) if config.kind.endswith("1D") and isinstance(margins, tuple) else margins
