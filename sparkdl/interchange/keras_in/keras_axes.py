"""Keras's operations that take positions of rows, sum them up, or move axes, as of `x[:, 0]` or `keras.ops.mean(x, 1)`.

Each is given what it is called with by place, and the shapes of rows; what has no counterpart gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkdl.interchange.keras_in.calls import Tensor
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.layers import (
    Crop,
    FirstStep,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    LastStep,
    Layer,
    Permute,
    Reshape,
    ReverseSteps,
    Stack,
    Subset,
    TimeMax,
    TimeMean,
    TimeSum,
    Unstack,
)
from sparkdl.layers.base import Shape
from sparkdl.layers.ragged import is_ragged

Reading = Callable[[LayerConfig, Sequence[Any], Sequence[Shape]], Part | None]
FLOATS = ("float16", "bfloat16", "float32", "float64")


def mean(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Of each channel over all positions of a row."""
    return _over_positions(config, shapes, TimeMean(), GlobalAvgPool())


def total(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Of each channel over all positions of a row."""
    return _over_positions(config, shapes, TimeSum(), GlobalSumPool())


def largest(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Of each channel over all positions of a row."""
    config.only("initial", None)
    return _over_positions(config, shapes, TimeMax(), GlobalMaxPool())


def take(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x[:, 0] or another step, x[..., :2] and other neighbouring channels, or x[:, 1:-1], neighbouring positions."""
    match args:
        case [Tensor(), list(keys)] if len(shapes) == 1:
            (shape,) = shapes
            axes = _by_axis(keys, 1 + len(shape))
        case _:
            return None
    if axes is None or axes[0] != (None, None):  # of rows
        return None
    _, *own = axes
    if own and isinstance(own[0], int):
        return _step(own[0], shape) if set(own[1:]) <= {(None, None)} else None
    return None if any(isinstance(key, int) for key in own) else _cut(own, shape)


def flip(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """The steps of a row in the opposite order."""
    (shape,) = shapes
    reverses = len(shape) > 1 and config.get("axis") is not None and _axes(config, len(shape) + 1) == {1}
    return Part((ReverseSteps(),)) if reverses else None


def expand_dims(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """An axis of one more."""
    (shape,) = shapes
    axis = _axis(config.integer("axis"), len(shape) + 2)
    if not 0 < axis < len(shape) + 2 or is_ragged(shape):
        return None
    return Part((Reshape((*shape[: axis - 1], 1, *shape[axis - 1 :])),))


def squeeze(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Without axes of one."""
    (shape,) = shapes
    ones = {axis for axis, size in enumerate(shape, 1) if size == 1}
    gone = ones if config.get("axis") is None else _axes(config, len(shape) + 1)
    if not gone <= ones or is_ragged(shape):
        return None
    left = tuple(size for axis, size in enumerate(shape, 1) if axis not in gone)
    return Part((Reshape(left),) if gone else ())


def transpose(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """The axes of a row in another order."""
    match config.get("axes"):
        case [0, *axes] if all(type(axis) is int for axis in axes):
            return Part((Permute(tuple(axis - 1 for axis in axes)),))
    return None


def stack(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Arrays along a new axis before those of a row."""
    match args:
        case [list(arrays)] if all(isinstance(array, Tensor) for array in arrays):
            return Part((Stack(),)) if config.get("axis") == 1 and len(arrays) > 1 else None
    return None


def cast(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """To floating-point numbers, as all rows are here."""
    return Part(()) if config.get("dtype") in FLOATS else None


def _of_one(reading: Reading) -> Reading:
    """Of an operation on one array."""

    def checked(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
        return reading(config, args, shapes) if len(args) == 1 and isinstance(args[0], Tensor) else None

    return checked


def _over_positions(
    config: LayerConfig, shapes: Sequence[Shape], of_any_length: Layer, of_positions: Layer
) -> Part | None:
    (shape,) = shapes
    if len(shape) < 2 or config.get("axis") is None or _axes(config, len(shape) + 1) != {*range(1, len(shape))}:
        return None
    pool = of_any_length if is_ragged(shape) else of_positions
    return Part((pool, Reshape((*(1 for _ in shape[:-1]), -1))) if config.flag("keepdims", False) else (pool,))


def _axes(config: LayerConfig, rank: int) -> set[int]:
    axes = config.sizes("axis")
    return {_axis(axis, rank) for axis in (axes if isinstance(axes, tuple) else (axes,))}


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def _by_axis(keys: Sequence[Any], rank: int) -> list[int | tuple[int | None, int | None]] | None:
    """An index, or where a slice starts and stops, of each axis; None of what is neither."""
    found: list[int | tuple[int | None, int | None]] = []
    for key in keys:
        match key:
            case int() if not isinstance(key, bool):
                found.append(key)
            case {"class_name": "__ellipsis__"}:
                found += [(None, None)] * (rank + 1 - len(keys))
            case {"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": None | 1}}:
                if not all(end is None or type(end) is int for end in (start, stop)):
                    return None
                found.append((start, stop))
            case _:
                return None
    found += [(None, None)] * (rank - len(found))
    return found if len(found) == rank else None


def _step(index: int, shape: Shape) -> Part | None:
    """That of an index; the last of rows of any length where it is -1."""
    if len(shape) < 2:
        return None
    if index == 0 or is_ragged(shape):
        return {0: Part((FirstStep(),)), -1: Part((LastStep(),))}.get(index)
    index = _axis(index, shape[0])
    return Part((Unstack(index),)) if 0 <= index < shape[0] else None


def _cut(keys: Sequence[Any], shape: Shape) -> Part | None:
    """Neighbouring positions, and of these neighbouring channels."""
    margins: list[tuple[int, int]] = []
    for key, size in zip(keys, shape, strict=True):
        if key == (None, None):
            margins.append((0, 0))
            continue
        if size is None:
            return None
        start, stop, _ = slice(*key).indices(size)
        if start >= stop:
            return None
        margins.append((start, size - stop))
    layers: list[Layer] = [Crop(tuple(margins[:-1]))] if any(map(any, margins[:-1])) else []
    if margins and any(margins[-1]):
        layers.append(Subset(margins[-1][0], shape[-1] - margins[-1][1]))
    return Part(tuple(layers))


OPERATIONS: dict[str, Reading] = {
    "Cast": _of_one(cast),
    "ExpandDims": _of_one(expand_dims),
    "Flip": _of_one(flip),
    "GetItem": take,
    "Max": _of_one(largest),
    "Mean": _of_one(mean),
    "Squeeze": _of_one(squeeze),
    "Stack": stack,
    "Sum": _of_one(total),
    "Transpose": _of_one(transpose),
}
