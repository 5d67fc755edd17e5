"""Layers that move, repeat, add or take away positions of rows (*spatial, channels)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.image import image_shape
from sparkdl.layers.pooling import check_rank
from sparkdl.layers.windows import check_windows, per_axis
from sparkdl.specs import check_integers, is_integer

Margins = int | tuple[int, ...] | tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class UpSample(Layer):
    """More positions: each repeated, or between two of them what lies between.

    x  (batch, *spatial, channels)           dx  of x's shape   dL/dx
    y  (batch, *spatial * size, channels)    dy  of y's shape   dL/dy

    Parameters
    ----------
    size : int or tuple of int, default 2
        Positions for each, by spatial axis or for all.
    method : {"nearest", "linear", "cubic"}, default "nearest"
        Repetition, or interpolation as of `Resize`.
    """

    size: int | Shape = 2
    method: str = "nearest"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, "valid", size=self.size)
        if self.method not in ("nearest", "linear", "cubic"):
            raise ValueError(f"method of UpSample must be 'nearest', 'linear' or 'cubic', received {self.method!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape, self.size)
        *spatial, channels = input_shape
        return (*(n * times for n, times in zip(spatial, per_axis(self.size, len(spatial)), strict=True)), channels)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        shape = (x.shape[0], *self.output_shape(x.shape[1:]))
        if self.method != "nearest":
            return jax.image.resize(x, shape, self.method)
        return jnp.broadcast_to(x.reshape(self._split(x)), self._split(x, self._times(x))).reshape(shape)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        if self.method != "nearest":
            return super().delta(weights, x, y, dy)
        parts = dy.reshape(self._split(x, self._times(x)))
        return parts.sum(axis=tuple(range(2, parts.ndim - 1, 2)))

    def _times(self, x: Array) -> Shape:
        return per_axis(self.size, x.ndim - 2)

    def _split(self, x: Array, times: Shape = ()) -> Shape:
        """(batch, n, times, n, times, ..., channels), or 1 for each of the times."""
        spatial = x.shape[1:-1]
        pairs = zip(spatial, times or (1,) * len(spatial), strict=True)
        return (x.shape[0], *(size for pair in pairs for size in pair), x.shape[-1])


@dataclass(frozen=True)
class Edging(Layer):
    """Base of the layers that add positions around those of a row, or take some away.

    x  (batch, *spatial, channels)     dx  of x's shape   dL/dx
    y  (batch, *spatial, channels)     dy  of y's shape   dL/dy
    """

    margins: Margins

    def __post_init__(self) -> None:
        super().__post_init__()
        entries = self.margins if isinstance(self.margins, tuple) else (self.margins,)
        pairs = [entry if isinstance(entry, tuple) else (entry, entry) for entry in entries]
        whole = all(len(pair) == 2 and all(is_integer(n, 0) for n in pair) for pair in pairs)
        if not whole or not 1 <= len(entries) <= 3:
            raise ValueError(
                f"margins of {type(self).__name__} must be an integer of at least 0, or one or a pair of them for each "
                f"of one to three spatial axes, received {self.margins!r}."
            )

    def _pairs(self, shape: Shape) -> list[tuple[int, int]]:
        """(low, high) by spatial axis of rows of this shape."""
        entries = self.margins if isinstance(self.margins, tuple) else (self.margins,) * (len(shape) - 1)
        return [entry if isinstance(entry, tuple) else (entry, entry) for entry in entries]

    def _padded(self, x: Array, sign: int) -> Array:
        """x with the margins added, or, for a sign of -1, taken away."""
        edges = [(0, 0, 0), *((sign * low, sign * high, 0) for low, high in self._pairs(x.shape[1:])), (0, 0, 0)]
        return lax.pad(x, jnp.zeros((), x.dtype), edges)


@dataclass(frozen=True)
class ZeroPad(Edging):
    """Zeros around the positions of a row.

    Parameters
    ----------
    margins : int, or tuple of int or (int, int)
        How many on every side; or by spatial axis on both sides, or as (before, after).
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape, self.margins)
        *spatial, channels = input_shape
        return (*(n + sum(pair) for n, pair in zip(spatial, self._pairs(input_shape), strict=True)), channels)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._padded(x, 1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._padded(dy, -1)


@dataclass(frozen=True)
class Crop(Edging):
    """The positions of a row without those at its edges.

    Parameters
    ----------
    margins : int, or tuple of int or (int, int)
        How many to take away on every side; or by spatial axis on both sides, or as (before, after).
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape, self.margins)
        *spatial, channels = input_shape
        left = [n - sum(pair) for n, pair in zip(spatial, self._pairs(input_shape), strict=True)]
        if min(left) < 1:
            raise ValueError(f"Crop must leave something of a row, received rows of shape {input_shape} for {self}.")
        return (*left, channels)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._padded(x, -1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._padded(dy, 1)


@dataclass(frozen=True)
class OfBlocks(Layer):
    """A layer of square blocks of positions, of a height and width of `size`."""

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "size")


@dataclass(frozen=True)
class SpaceToDepth(OfBlocks):
    """Every block of positions of an image becomes one position with the channels of all: no number is lost.

    x  (batch, height, width, channels)                          dx  of x's shape   dL/dx
    y  (batch, height / size, width / size, size ** 2 * channels)  dy  of y's shape   dL/dy

    Channels of y are in the order of row, column and channel of the block, as TensorFlow's `tf.nn.space_to_depth`.

    Parameters
    ----------
    size : int
        Height and width of a block.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        height, width, channels = image_shape(self, input_shape)
        if height % self.size or width % self.size:
            raise ValueError(
                f"SpaceToDepth expects rows whose height and width are multiples of {self.size}, received "
                f"{input_shape}; put ZeroPad or Crop before it."
            )
        return (height // self.size, width // self.size, self.size**2 * channels)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _deepened(x, self.size)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return _flattened(dy, self.size)


@dataclass(frozen=True)
class DepthToSpace(OfBlocks):
    """The way back from SpaceToDepth: the channels of a position become a block of positions (Shi et al. 2016).

    x  (batch, height, width, size ** 2 * channels)       dx  of x's shape   dL/dx
    y  (batch, height * size, width * size, channels)     dy  of y's shape   dL/dy

    Parameters
    ----------
    size : int
        Height and width of a block.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        height, width, channels = image_shape(self, input_shape)
        if channels % self.size**2:
            raise ValueError(
                f"DepthToSpace expects rows whose channels are a multiple of {self.size**2}, received {input_shape}."
            )
        return (height * self.size, width * self.size, channels // self.size**2)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _flattened(x, self.size)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return _deepened(dy, self.size)


def _deepened(x: Array, size: int) -> Array:
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height // size, size, width // size, size, channels)
    return blocks.swapaxes(2, 3).reshape(batch, height // size, width // size, size * size * channels)


def _flattened(x: Array, size: int) -> Array:
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height, width, size, size, channels // (size * size))
    return blocks.swapaxes(2, 3).reshape(batch, height * size, width * size, channels // (size * size))
