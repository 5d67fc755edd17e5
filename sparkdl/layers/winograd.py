"""Convolution with stride 1 by fewer multiplications, for CPUs (Winograd 1980; Lavin and Gray 2016).

Along one axis, m outputs of a kernel of r entries come from the product of two polynomials, which their values at
m + r - 1 points determine: ``y = A.T ((G kernel) * (B.T x))``. A tile of m x m outputs then takes (m + r - 1)^2
multiplications for each pair of channels instead of (m r)^2: 64 instead of 400 for m = 4 and r = 5. For all tiles of a
batch these are one matrix product (tiles, channels) by (channels, filters) for each pair of points. Delta and gradient
are the transposes of the same three maps. In float32 the results differ from the direct sum by 4e-6 of their size (root
of mean square).

Moving tiles through memory costs what the multiplications save, unless there are many channels and the tiles of a batch
stay in the cache; `suits` decides by shape.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array, Shape

OUTPUTS = 4  # of a tile along an axis: m
# Time of all three kernels over that of XLA's convolution, one core, 1 MiB of L2 cache, by the size of the transformed
# batch: 0.45 at 5 MB (12x12x64, 5x5, 16 rows), 0.64 at 9 MB (7x7x512, 3x3, 32 rows), 1.75 at 15 MB (56x56x64, 3x3, 8
# rows). With 16 channels 1.0 to 1.4 whatever the size.
CACHE_BYTES = 10_000_000
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))  # and infinity


class Tiles(NamedTuple):
    """How a batch (batch, *inputs, channels) falls into tiles that overlap by r - 1.

    Attributes
    ----------
    inputs, outputs : (int, int)
        Extent of a row of x and of y.
    low : (int, int)
        Zeros before a row, along each axis.
    size : int
        Extent r of the kernel.
    """

    inputs: Shape
    outputs: Shape
    low: Shape
    size: int

    @property
    def extent(self) -> int:
        """Inputs of a tile along an axis, as many as there are points."""
        return OUTPUTS + self.size - 1

    @property
    def counts(self) -> Shape:
        """Tiles along each axis."""
        return tuple(-(-outputs // OUTPUTS) for outputs in self.outputs)

    @property
    def blocks(self) -> int:
        """Blocks of m inputs that a tile reaches into, along an axis."""
        return -(-self.extent // OUTPUTS)

    def cut(self, x: Array) -> Array:
        """x as (extent^2, batch * tiles * channels): an entry of every tile after the other."""
        (rows, columns), (batch, *_, channels) = self.counts, x.shape
        room = [
            (low, (count + self.blocks - 1) * OUTPUTS - low - inputs, 0)
            for count, low, inputs in zip(self.counts, self.low, self.inputs, strict=True)
        ]
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *room, (0, 0, 0)])
        x = x.reshape(batch, rows + self.blocks - 1, OUTPUTS, columns + self.blocks - 1, OUTPUTS, channels)
        x = x.transpose(2, 4, 0, 1, 3, 5)
        shifted = [[x[:, :, :, i : i + rows, j : j + columns] for j in range(self.blocks)] for i in range(self.blocks)]
        x = jnp.concatenate([jnp.concatenate(along, axis=1) for along in shifted])
        return x[: self.extent, : self.extent].reshape(self.extent**2, -1)

    def overlapped(self, tiles: Array, batch: int) -> Array:
        """The transpose of `cut`: x from tiles that are added up where they overlap."""
        spare = (0, self.blocks * OUTPUTS - self.extent, 0)
        tiles = tiles.reshape(self.extent, self.extent, batch, *self.counts, -1)
        tiles = lax.pad(tiles, jnp.zeros((), tiles.dtype), [spare, spare, *[(0, 0, 0)] * 4])
        tiles = tiles.reshape(self.blocks, OUTPUTS, self.blocks, OUTPUTS, *tiles.shape[2:])
        total = jnp.zeros((), tiles.dtype)
        for i, j in product(range(self.blocks), repeat=2):
            shift = [(0, 0, 0)] * 3 + [(at, self.blocks - 1 - at, 0) for at in (i, j)] + [(0, 0, 0)]
            total += lax.pad(tiles[i, :, j], jnp.zeros((), tiles.dtype), shift)
        return _join_tiles(total, [(low, low + n) for low, n in zip(self.low, self.inputs, strict=True)])

    def cut_outputs(self, y: Array) -> Array:
        """y as (m^2, batch * tiles * filters)."""
        (rows, columns), (batch, *_, filters) = self.counts, y.shape
        room = [(0, count * OUTPUTS - n, 0) for count, n in zip(self.counts, self.outputs, strict=True)]
        y = lax.pad(y, jnp.zeros((), y.dtype), [(0, 0, 0), *room, (0, 0, 0)])
        y = y.reshape(batch, rows, OUTPUTS, columns, OUTPUTS, filters)
        return y.transpose(2, 4, 0, 1, 3, 5).reshape(OUTPUTS**2, -1)

    def join_outputs(self, tiles: Array, batch: int) -> Array:
        """The inverse of `cut_outputs`."""
        tiles = tiles.reshape(OUTPUTS, OUTPUTS, batch, *self.counts, -1)
        return _join_tiles(tiles, [(0, n) for n in self.outputs])


def suits(tiles: Tiles, kernel: Shape, x: Array) -> bool:
    """Whether the convolution of x with a kernel of shape (r, r, channels, filters) is faster this way on a CPU."""
    *size, channels, filters = kernel
    if len(size) != 2 or size[0] != size[1] or size[0] not in (3, 5) or x.dtype not in (np.float32, np.float64):
        return False
    transformed = tiles.extent**2 * x.shape[0] * math.prod(tiles.counts) * max(channels, filters) * x.dtype.itemsize
    return min(channels, filters) >= 32 and min(tiles.outputs) >= OUTPUTS and transformed <= CACHE_BYTES


def forward(tiles: Tiles, kernel: Array, x: Array) -> Array:
    """y (batch, *outputs, filters) of x (batch, *inputs, channels) and kernel (r, r, channels, filters)."""
    products = _by_point(_inputs(tiles, x), _kernel(tiles, kernel), ((2,), (1,)))
    return tiles.join_outputs(_apply(_maps(tiles)[0].T, products), x.shape[0])


def delta(tiles: Tiles, kernel: Array, dy: Array) -> Array:
    """dL/dx from dL/dy."""
    dinputs = _by_point(_outputs(tiles, dy), _kernel(tiles, kernel), ((2,), (2,)))
    return tiles.overlapped(_apply(_maps(tiles)[2], dinputs), dy.shape[0])


def gradient(tiles: Tiles, x: Array, dy: Array) -> Array:
    """dL/dkernel, summed over the batch."""
    dkernel = _by_point(_inputs(tiles, x), _outputs(tiles, dy), ((1,), (1,)))
    return _apply(_maps(tiles)[1].T, dkernel).reshape(tiles.size, tiles.size, x.shape[-1], dy.shape[-1])


def _inputs(tiles: Tiles, x: Array) -> Array:
    return _apply(_maps(tiles)[2].T, tiles.cut(x)).reshape(tiles.extent**2, -1, x.shape[-1])


def _kernel(tiles: Tiles, kernel: Array) -> Array:
    return _apply(_maps(tiles)[1], kernel).reshape(tiles.extent**2, *kernel.shape[2:])


def _outputs(tiles: Tiles, dy: Array) -> Array:
    return _apply(_maps(tiles)[0], tiles.cut_outputs(dy)).reshape(tiles.extent**2, -1, dy.shape[-1])


def _apply(matrix: np.ndarray[Any, Any], values: Array) -> Array:
    return jnp.asarray(matrix, values.dtype) @ values.reshape(matrix.shape[1], -1)


def _by_point(left: Array, right: Array, contracted: tuple[Shape, Shape]) -> Array:
    return lax.dot_general(left, right, (contracted, ((0,), (0,))))


def _join_tiles(tiles: Array, bounds: list[tuple[int, int]]) -> Array:
    """(batch, height, width, channels) of tiles (m, m, batch, rows, columns, channels) that do not overlap."""
    _, _, batch, rows, columns, channels = tiles.shape
    whole = tiles.transpose(2, 3, 0, 4, 1, 5).reshape(batch, rows * OUTPUTS, columns * OUTPUTS, channels)
    (top, bottom), (left, right) = bounds
    return whole[:, top:bottom, left:right]


def _maps(tiles: Tiles) -> tuple[np.ndarray[Any, Any], ...]:
    """A (points^2, m^2), G (points^2, r^2) and B (extent^2, points^2), for both axes at once."""
    return tuple(np.kron(matrix, matrix) for matrix in matrices(tiles.size))


@cache
def matrices(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """A (points, m), G (points, r) and B (m + r - 1, points) along one axis, by Toom and Cook's construction."""
    points = POINTS[: OUTPUTS + size - 2]
    others = [[other for other in points if other is not point] for point in points]
    scales = [math.prod(point - other for other in rest) for point, rest in zip(points, others, strict=True)]
    a = [[point**i for i in range(OUTPUTS)] for point in points]
    g = [[point**i / scale for i in range(size)] for point, scale in zip(points, scales, strict=True)]
    b = [[*_polynomial(rest), Fraction(0)] for rest in others]
    a.append([Fraction(i == OUTPUTS - 1) for i in range(OUTPUTS)])  # infinity
    g.append([Fraction(i == size - 1) for i in range(size)])
    b.append(_polynomial(list(points)))
    return np.array(a, float), np.array(g, float), np.array(b, float).T


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients, lowest first, of the product of (x - root)."""

    def times(factors: list[Fraction], root: Fraction) -> list[Fraction]:
        return [low - root * high for low, high in zip([Fraction(0), *factors], [*factors, Fraction(0)], strict=True)]

    return reduce(times, roots, [Fraction(1)])
