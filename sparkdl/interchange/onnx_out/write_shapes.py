"""Layers that change the shape of rows, move their positions, or take a part of them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    Crop,
    DepthToSpace,
    Flatten,
    GaussianSample,
    Permute,
    RandomCrop,
    RepeatVector,
    Reshape,
    Resize,
    SpaceToDepth,
    Subset,
    Unstack,
    UpSample,
    ZeroPad,
)
from sparkdl.layers.base import Layer, Shape, Weights
from sparkdl.layers.spatial import Edging
from sparkdl.layers.windows import per_axis


def _flatten(out: Writing, layer: Flatten, weights: Weights, x: Value) -> Value:
    """Channels first stay so, which a Dense behind it knows how to read."""
    size = int(np.prod(x.shape))
    mixed = x.channels_first and x.shape[-1] > 1 and size > x.shape[-1]
    return Value(out.reshape(x.name, 0, size), (size,), image=x.shape if mixed else ())


def _reshape(out: Writing, layer: Reshape, weights: Weights, x: Value) -> str:
    return out.reshape(x.name, 0, *layer.output_shape(x.shape))


def _permute(out: Writing, layer: Permute, weights: Weights, x: Value) -> str:
    return out.op("Transpose", x.name, perm=[0, *(axis + 1 for axis in layer.axes)])


def _repeat_vector(out: Writing, layer: RepeatVector, weights: Weights, x: Value) -> str:
    sizes = [1, layer.times, *(1 for _ in x.shape)]
    return out.op("Expand", out.unsqueeze(x.name, 1), np.array(sizes, "int64"))


def _unstack(out: Writing, layer: Unstack, weights: Weights, x: Value) -> str:
    return out.op("Gather", x.name, np.int64(layer.index), axis=1)


def _subset(out: Writing, layer: Subset, weights: Weights, x: Value) -> str:
    return out.cut(x.name, [layer.start], [layer.stop], [x.rank + x.channel_axis])


def _means(out: Writing, layer: GaussianSample, weights: Weights, x: Value) -> str:
    return out.cut(x.name, [0], [x.shape[-1] // 2], [x.rank + x.channel_axis])


def _random_crop(out: Writing, layer: RandomCrop, weights: Weights, x: Value) -> str:
    starts = [(n - size) // 2 for n, size in zip(x.shape, layer.size, strict=False)]
    stops = [start + size for start, size in zip(starts, layer.size, strict=True)]
    return out.cut(x.name, starts, stops, x.spatial_axes)


def _margins(layer: Edging, shape: Shape) -> list[tuple[int, int]]:
    entries = layer.margins if isinstance(layer.margins, tuple) else (layer.margins,) * (len(shape) - 1)
    return [entry if isinstance(entry, tuple) else (entry, entry) for entry in entries]


def _zero_pad(out: Writing, layer: ZeroPad, weights: Weights, x: Value) -> str:
    pads = np.zeros((2, x.rank), "int64")
    pads[:, x.spatial_axes] = np.transpose(_margins(layer, x.shape))
    return out.op("Pad", x.name, pads.reshape(-1))


def _crop(out: Writing, layer: Crop, weights: Weights, x: Value) -> str:
    pairs = _margins(layer, x.shape)
    stops = [n - high for n, (_, high) in zip(x.shape, pairs, strict=False)]
    return out.cut(x.name, [low for low, _ in pairs], stops, x.spatial_axes)


def _space_to_depth(out: Writing, layer: SpaceToDepth, weights: Weights, x: Value) -> str:
    return out.op("SpaceToDepth", x.name, blocksize=layer.size)


def _depth_to_space(out: Writing, layer: DepthToSpace, weights: Weights, x: Value) -> str:
    return out.op("DepthToSpace", x.name, blocksize=layer.size, mode="DCR")


def _resampled(out: Writing, x: Value, sizes: Sequence[int], method: str, smooth: bool = True) -> str:
    """x with other sizes of its spatial axes, as products with matrices that say what each position is made of."""
    name = x.name
    for axis, (before, after) in enumerate(zip(x.shape, sizes, strict=False), start=2):
        if before == after:
            continue
        parts = np.asarray(jax.image.resize(jnp.eye(before, dtype="float32"), (after, before), method, smooth))
        order = list(range(x.rank))
        order[axis], order[-1] = order[-1], axis
        turned = name if axis == x.rank - 1 else out.op("Transpose", name, perm=order)
        name = out.op("MatMul", turned, np.ascontiguousarray(parts.T))
        name = name if axis == x.rank - 1 else out.op("Transpose", name, perm=order)
    return name


def _resize(out: Writing, layer: Resize, weights: Weights, x: Value) -> Value:
    resampled = _resampled(out, x, layer.size, layer.method, layer.antialias)
    return Value(resampled, x.shape, channels_first=True)


def _up_sample(out: Writing, layer: UpSample, weights: Weights, x: Value) -> str:
    times = per_axis(layer.size, len(x.shape) - 1)
    if layer.method != "nearest":
        return _resampled(out, x, layer.output_shape(x.shape)[:-1], layer.method)
    scales = np.array([1, 1, *times], "float32")
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return out.op("Resize", x.name, "", scales, **given)


WRITERS: dict[type[Layer], Writer] = {
    Flatten: Writer(_flatten, Takes.EITHER),
    Reshape: Writer(_reshape),
    Permute: Writer(_permute),
    RepeatVector: Writer(_repeat_vector),
    Unstack: Writer(_unstack),
    Subset: Writer(_subset, Takes.EITHER),
    GaussianSample: Writer(_means, Takes.EITHER),
    RandomCrop: Writer(_random_crop, Takes.EITHER),
    ZeroPad: Writer(_zero_pad, Takes.EITHER),
    Crop: Writer(_crop, Takes.EITHER),
    SpaceToDepth: Writer(_space_to_depth, Takes.CHANNELS_FIRST),
    DepthToSpace: Writer(_depth_to_space, Takes.CHANNELS_FIRST),
    Resize: Writer(_resize, Takes.CHANNELS_FIRST),
    UpSample: Writer(_up_sample, Takes.CHANNELS_FIRST),
}
