"""Maximum, average and sum over windows or over all positions, with deltas that gather instead of scatter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import wide
from sparkdl.layers.windows import Padding, Windows, check_windows


@dataclass(frozen=True)
class WindowPool(Layer):
    """The fields and shapes of pools over windows."""

    size: int | Shape
    strides: int | Shape | None = None
    padding: Padding = "valid"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self, self.padding, size=self.size, strides=self.strides)

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape, self.size, self.strides, self.padding)
        windows = self._windows(input_shape[:-1]).checked(self)
        if any(max(pair) >= extent for pair, extent in zip(windows.padding, windows.extent, strict=True)):
            raise ValueError(
                f"padding of {type(self).__name__} must be less than size={self.size}, received {self.padding}; "
                "a window would hold nothing but padding."
            )
        return (*windows.outputs, input_shape[-1])

    def _windows(self, spatial: Shape) -> Windows:
        return Windows.over(spatial, self.size, self.size if self.strides is None else self.strides, self.padding)


def check_rank(layer: Layer, input_shape: Shape, *fields: object) -> None:
    """ValueError unless rows have one to three spatial axes, as many as a field that is a tuple has entries."""
    ranks = {len(value) for value in fields if isinstance(value, tuple)} or {1, 2, 3}
    if len(input_shape) - 1 not in ranks:
        axes = " or ".join(map(str, sorted(ranks)))
        raise ValueError(
            f"{type(layer).__name__} expects rows with {axes} spatial axes and then channels, received {input_shape}; "
            "reshape the rows, or give the layer one entry for each of their spatial axes."
        )


def covered(windows: Windows, x: Array, filler: float) -> Iterator[Array]:
    """For every position of a window, in row-major order, the inputs that the windows have there, of y's shape."""
    padding = [(0, 0, 0), *((low, high, 0) for low, high in windows.padding), (0, 0, 0)]
    padded = lax.pad(x, jnp.array(filler, x.dtype), padding)
    for position in product(*map(range, windows.size)):
        stop = [
            k + (outputs - 1) * stride + 1
            for k, outputs, stride in zip(position, windows.outputs, windows.strides, strict=True)
        ]
        yield lax.slice(padded, (0, *position, 0), (x.shape[0], *stop, x.shape[-1]), (1, *windows.strides, 1))


def sums_over(windows: Windows, x: Array) -> Array:
    """The sum of every window, in float32 at least: bfloat16 cannot count, as 256 + 1 is 256."""
    return sum(map(wide, covered(windows, x, 0.0)), wide(jnp.zeros((), x.dtype)))


def hand_to_inputs(windows: Windows, dy: Array, winner: Array | None = None) -> Array:
    """dx: hand dy to the inputs that each window covers, or only to the one that is its winner.

    Counted from the start of the padding, input `stride * tile + phase` is position `stride * step + phase` of window
    `tile - step`, so each step is one elementwise pass over (batch, tile, phase, tile, phase, ..., channels).
    """
    tiles = [-(-(low + inputs) // stride) for inputs, _, stride, _, (low, _) in windows.axes()]
    furthest = [-(-size // stride) - 1 for size, stride in zip(windows.size, windows.strides, strict=True)]

    def reaching(array: Array) -> Array:
        room = [(far, tile - n, 0) for far, tile, n in zip(furthest, tiles, windows.outputs, strict=True)]
        return lax.pad(array, jnp.zeros((), array.dtype), [(0, 0, 0), *room, (0, 0, 0)])

    def back(array: Array, steps: tuple[int, ...]) -> Array:
        here = (slice(far - step, far - step + tile) for far, step, tile in zip(furthest, steps, tiles, strict=True))
        return jnp.expand_dims(array[:, *here], range(2, 2 + 2 * len(tiles), 2))

    dy, winner = reaching(dy), winner if winner is None else reaching(winner)
    dx = wide(jnp.zeros((), dy.dtype))
    for steps in product(*(range(far + 1) for far in furthest)):
        position = positions(windows, steps)
        takes = position >= 0 if winner is None else back(winner, steps) == position.astype(winner.dtype)
        dx += wide(jnp.where(takes, back(dy, steps), jnp.zeros((), dy.dtype)))
    dx = dx.astype(dy.dtype)
    padded = (stride * tile for stride, tile in zip(windows.strides, tiles, strict=True))
    dx = dx.reshape(dy.shape[0], *padded, dy.shape[-1])
    return dx[:, *(slice(low, low + n) for n, _, _, _, (low, _) in windows.axes())]


def positions(windows: Windows, steps: tuple[int, ...]) -> np.ndarray:
    """Row-major position in its window of every phase, -1 outside, of shape (1, 1, stride, 1, stride, ..., 1)."""
    position, outside = np.zeros((), int), np.zeros((), bool)
    for step, stride, size, phase in zip(
        steps, windows.strides, windows.size, np.ix_(*map(np.arange, windows.strides)), strict=True
    ):
        position = position * size + stride * step + phase
        outside = outside | (stride * step + phase >= size)
    tiled = [n for stride in windows.strides for n in (1, stride)]
    return np.where(outside, -1, position).reshape(1, *tiled, 1)


@dataclass(frozen=True)
class MaxPool(WindowPool):
    """Maximum over windows; among equal ones the first in row-major order counts, and a NaN makes the window NaN.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, *windows, channels)     dy  (batch, *windows, channels)   dL/dy

    Forward stores the position of the maximum in its window, one byte for each output, and delta hands dy to it.

    Parameters
    ----------
    size : int or tuple of int
        Window; an integer is the same along every spatial axis.
    strides : int or tuple of int, optional
        Distance between two windows, `size` unless given.
    padding : {"valid", "same", "full"} or tuple of (int, int), default "valid"
        As in Conv; padding is never the maximum.
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._maxima(x)[0]

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return hand_to_inputs(self._windows(x.shape[1:-1]), dy, self._maxima(x)[1])

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        return self._maxima(x)

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return hand_to_inputs(self._windows(x.shape[1:-1]), dy, kept)

    def _maxima(self, x: Array) -> tuple[Array, Array]:
        """Every window's maximum, and its position in the window."""
        windows = self._windows(x.shape[1:-1])
        dtype = np.min_scalar_type(-math.prod(windows.size))
        first, *others = covered(windows, x, -math.inf)
        y, winner = first, jnp.zeros(first.shape, dtype)
        for position, value in enumerate(others, start=1):
            winner = jnp.where(value > y, jnp.array(position, dtype), winner)
            y = jnp.maximum(y, value)
        return y, lax.optimization_barrier(winner)  # else XLA fuses the search into delta, to repeat it for every input


@dataclass(frozen=True)
class AvgPool(WindowPool):
    """Average over windows, of their real elements only, as TensorFlow's and Keras's.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, *windows, channels)     dy  (batch, *windows, channels)   dL/dy

    Parameters
    ----------
    size : int or tuple of int
        Window; an integer is the same along every spatial axis.
    strides : int or tuple of int, optional
        Distance between two windows, `size` unless given.
    padding : {"valid", "same", "full"} or tuple of (int, int), default "valid"
        As in Conv.
    count_padding : bool, default False
        Average over padding too, as zeros.
    """

    count_padding: bool = False

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        windows = self._windows(x.shape[1:-1])
        sums = sums_over(windows, x)
        return (sums / self._counts(windows, sums.dtype)).astype(x.dtype)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        windows = self._windows(x.shape[1:-1])
        return hand_to_inputs(windows, dy / self._counts(windows, dy.dtype))

    def _counts(self, windows: Windows, dtype: Any) -> Array:
        """Over how many elements each window averages, of shape (1, *windows, 1)."""
        if self.count_padding:
            return jnp.full((1,) * (len(windows.size) + 2), math.prod(windows.size), dtype)
        starts = [np.arange(outputs) * stride - low for _, outputs, stride, _, (low, _) in windows.axes()]
        along = [
            np.minimum(start + size, inputs) - np.maximum(start, 0)
            for start, size, inputs in zip(starts, windows.size, windows.inputs, strict=True)
        ]
        return jnp.asarray(math.prod(np.ix_(*along)), dtype)[None, ..., None]


@dataclass(frozen=True)
class SumPool(WindowPool):
    """Sum over windows, of which padding adds nothing; see AvgPool.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, *windows, channels)     dy  (batch, *windows, channels)   dL/dy

    Parameters
    ----------
    size : int or tuple of int
        Window; an integer is the same along every spatial axis.
    strides : int or tuple of int, optional
        Distance between two windows, `size` unless given.
    padding : {"valid", "same", "full"} or tuple of (int, int), default "valid"
        As in Conv.
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return sums_over(self._windows(x.shape[1:-1]), x).astype(x.dtype)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return hand_to_inputs(self._windows(x.shape[1:-1]), dy)


@dataclass(frozen=True)
class GlobalPool(Layer):
    """The shape of pools over all positions."""

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape)
        return input_shape[-1:]


@dataclass(frozen=True)
class GlobalAvgPool(GlobalPool):
    """Average of every channel over all positions of a row.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, channels)               dy  (batch, channels)             dL/dy
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x.mean(axis=range(1, x.ndim - 1))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return at_each_position(dy / math.prod(x.shape[1:-1]), x)


@dataclass(frozen=True)
class GlobalSumPool(GlobalPool):
    """Sum of every channel over all positions of a row.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, channels)               dy  (batch, channels)             dL/dy
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x.sum(axis=range(1, x.ndim - 1))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return at_each_position(dy, x)


def at_each_position(dy: Array, x: Array) -> Array:
    """Numbers (batch, channels) in the shape of x."""
    return jnp.broadcast_to(jnp.expand_dims(dy, range(1, x.ndim - 1)), x.shape)


@dataclass(frozen=True)
class GlobalMaxPool(GlobalPool):
    """Maximum of every channel over all positions of a row; equal ones and NaN as in MaxPool.

    x  (batch, *spatial, channels)     dx  (batch, *spatial, channels)   dL/dx
    y  (batch, channels)               dy  (batch, channels)             dL/dy
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x.max(axis=range(1, x.ndim - 1))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        rows = x.reshape(x.shape[0], -1, x.shape[-1])
        position = lax.broadcasted_iota(np.int32, rows.shape, 1)
        winner = jnp.where(rows == y[:, None], position, rows.shape[1]).min(axis=1)
        return jnp.where(position == winner[:, None], dy[:, None], jnp.zeros((), dy.dtype)).reshape(x.shape)
