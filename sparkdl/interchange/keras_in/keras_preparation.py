"""Keras's layers that prepare rows, and those that vary images in training."""

from __future__ import annotations

from typing import Any

from sparkdl.interchange.keras_in.keras_shapes import METHODS
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.layers import (
    Bucketize,
    Crop,
    RandomAffine,
    RandomBrightness,
    RandomContrast,
    RandomFlip,
    RandomInvert,
    Resize,
)
from sparkdl.specs import is_number


def center_crop(config: LayerConfig, shapes: Any) -> Part:
    """CenterCrop of images that are large enough, as Keras enlarges others first."""
    _channels_last(config)
    sizes = {name: config.integer(name) for name in ("height", "width")}
    (shape,) = shapes
    margins = []
    for (name, size), whole in zip(sizes.items(), shape[:2], strict=False):
        if size > whole:
            raise config.wrong(name, size, f"at most that of the images, {whole}")
        before = (whole - size) // 2
        margins.append((before, whole - size - before))
    return Part((Crop(tuple(margins)),))


def resizing(config: LayerConfig, shapes: Any) -> Part:
    """Resizing to a height and a width, whatever that makes of shapes."""
    _channels_last(config)
    for name in ("crop_to_aspect_ratio", "pad_to_aspect_ratio"):
        config.only(name, False)
    config.get("fill_mode"), config.get("fill_value")  # of what is padded
    size = (config.integer("height"), config.integer("width"))
    method = METHODS[config.only("interpolation", "bilinear", "nearest", "bicubic")]
    return Part((Resize(size, method, antialias=config.flag("antialias", False)),))


def discretization(config: LayerConfig, shapes: Any) -> Part:
    """Discretization by boundaries that are given or learned."""
    config.only("output_mode", "int")
    config.get("num_bins"), config.get("epsilon")  # of how boundaries are learned
    boundaries = config.get("bin_boundaries")
    if not isinstance(boundaries, list) or not all(map(is_number, boundaries)):
        raise config.wrong("bin_boundaries", boundaries, "a list of numbers")
    return Part((Bucketize([float(each) for each in boundaries]),))


def random_flip(config: LayerConfig, shapes: Any) -> Part:
    """RandomFlip along one axis or both."""
    _channels_last(config)
    mode = config.only("mode", "horizontal_and_vertical", "horizontal", "vertical")
    return Part(tuple(RandomFlip(axis) for axis in mode.split("_and_")))


def random_rotation(config: LayerConfig, shapes: Any) -> Part:
    """RandomRotation by fractions of a full turn."""
    low, high = _factors(config, "factor")
    return Part((RandomAffine(rotation=(360 * low, 360 * high), **_beyond(config)),))


def random_translation(config: LayerConfig, shapes: Any) -> Part:
    """RandomTranslation."""
    down, right = _factors(config, "height_factor"), _factors(config, "width_factor")
    return Part((RandomAffine(shift=down, width_shift=right, **_beyond(config)),))


def random_zoom(config: LayerConfig, shapes: Any) -> Part:
    """RandomZoom of both axes alike, or of each."""
    width = None if config.get("width_factor") is None else _factors(config, "width_factor")
    return Part((RandomAffine(zoom=_factors(config, "height_factor"), width_zoom=width, **_beyond(config)),))


def random_brightness(config: LayerConfig, shapes: Any) -> Part:
    """RandomBrightness, as much darker as brighter."""
    _channels_last(config)
    low, high = _factors(config, "factor")
    if low != -high:
        raise config.wrong("factor", config.get("factor"), "a number, or two that differ in their sign")
    least, greatest = _value_range(config)
    return Part((RandomBrightness(high * (greatest - least), (least, greatest)),))


def random_contrast(config: LayerConfig, shapes: Any) -> Part:
    """RandomContrast, whose factors Keras gives as distances from 1."""
    _channels_last(config)
    alone = isinstance(config.get("factor"), (int, float))
    below, above = (config.number("factor"),) * 2 if alone else _factors(config, "factor")
    return Part((RandomContrast(1 - below, 1 + above, _value_range(config)),))


def random_invert(config: LayerConfig, shapes: Any) -> Part:
    """RandomInvert of every other image, on average."""
    _channels_last(config)
    if sum(_factors(config, "factor", least=0.0)) != 1:
        raise config.wrong("factor", config.get("factor"), "1.0, or two numbers that are 1 together")
    least, greatest = _value_range(config)
    if least != 0:
        raise config.wrong("value_range", config.get("value_range"), "one that begins with 0")
    return Part((RandomInvert((least, greatest)),))


def _channels_last(config: LayerConfig) -> None:
    config.only("data_format", "channels_last", None)


def _beyond(config: LayerConfig) -> Any:
    """What `RandomAffine` fills with; of interpolations, we have that between pixels."""
    _channels_last(config)
    config.only("interpolation", "bilinear")
    fill = config.only("fill_mode", "reflect", "nearest", "wrap", "constant")
    return {"fill": fill, "value": config.number("fill_value", 0.0)}


def _factors(config: LayerConfig, name: str, least: float | None = None) -> tuple[float, float]:
    """Two bounds, or a number f, which stands for -f (or another least one) to f."""
    given = config.get(name)
    if isinstance(given, (int, float)):
        return (-abs(config.number(name)) if least is None else least, abs(config.number(name)))
    return _two(config, name)


def _value_range(config: LayerConfig) -> tuple[float, float]:
    return _two(config, "value_range", [0, 255])


def _two(config: LayerConfig, name: str, default: Any = None) -> tuple[float, float]:
    given = config.get(name, default)
    if not isinstance(given, (list, tuple)) or len(given) != 2 or not all(map(is_number, given)):
        raise config.wrong(name, given, "two numbers")
    return float(min(given)), float(max(given))
