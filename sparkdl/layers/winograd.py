"""Convolution with stride 1 by fewer multiplications, for CPUs (Winograd 1980; Lavin and Gray 2016).

Along one axis, m outputs of a kernel of r entries come from the product of two polynomials, which their values at
m + r - 1 points determine: ``y = A.T ((G kernel) * (B.T x))``. A tile of m x m outputs then takes (m + r - 1)^2
multiplications for each pair of channels instead of (m r)^2: 36 instead of 144 for m = 4 and r = 3. For all tiles of
some rows these are one matrix product (tiles, channels) by (channels, filters) for each pair of points. The delta is
such a convolution of dy, and the gradient the product of transformed x and dy. In float32 the results differ from the
direct sum by 2 to 6e-6 of their size (root of mean square). Of bfloat16 they are computed in float32.

The maps A, G and B are taken one axis after the other, as sums of slices whose factors are mostly 0 or 1. Moving tiles
through memory costs less than the multiplications save where they stay in the cache, so that a batch is taken in parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array, Shape
from sparkdl.layers.row_parts import map_parts, parts_of, sum_parts

DTYPES = (jnp.bfloat16, np.float32, np.float64)
OUTPUTS = 4  # of a tile along an axis: m
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))  # and infinity


class Tiles(NamedTuple):
    """How rows (*inputs, channels) fall into tiles that overlap by r - 1.

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
    def points(self) -> int:
        """Inputs of a tile along an axis, and the points that stand for them: m + r - 1, at most 2 m."""
        return OUTPUTS + self.size - 1

    @property
    def counts(self) -> Shape:
        """Tiles along each axis."""
        return tuple(-(-outputs // OUTPUTS) for outputs in self.outputs)

    @property
    def back(self) -> Tiles:
        """Those of the convolution of dy that is the delta."""
        return Tiles(self.outputs, self.inputs, tuple(self.size - 1 - low for low in self.low), self.size)

    def transform_inputs(self, x: Array) -> Array:
        """B.T x of every tile, (points^2, rows * tiles, channels)."""
        (down, across), matrix = self.counts, matrices(self.size)[2].T
        room = [
            (low, (count + 1) * OUTPUTS - low - inputs, 0)
            for count, low, inputs in zip(self.counts, self.low, self.inputs, strict=True)
        ]
        x = _padded(x, room)
        by_row = x.reshape(len(x), down + 1, OUTPUTS, *x.shape[2:])
        lines = [by_row[:, i // OUTPUTS : down + i // OUTPUTS, i % OUTPUTS] for i in range(self.points)]
        half = _combined(matrix, lines)
        by_column = half.reshape(*half.shape[:3], across + 1, OUTPUTS, x.shape[-1])
        lines = [by_column[..., j // OUTPUTS : across + j // OUTPUTS, j % OUTPUTS, :] for j in range(self.points)]
        return _combined(matrix, lines).reshape(self.points**2, -1, x.shape[-1])

    def transform_slopes(self, dy: Array) -> Array:
        """A dy of every tile, (points^2, rows * tiles, filters)."""
        (down, across), matrix = self.counts, matrices(self.size)[0]
        room = [(0, count * OUTPUTS - n, 0) for count, n in zip(self.counts, self.outputs, strict=True)]
        dy = _padded(dy, room)
        by_row = dy.reshape(len(dy), down, OUTPUTS, *dy.shape[2:])
        half = _combined(matrix, [by_row[:, :, i] for i in range(OUTPUTS)])
        by_column = half.reshape(*half.shape[:3], across, OUTPUTS, dy.shape[-1])
        return _combined(matrix, [by_column[..., j, :] for j in range(OUTPUTS)]).reshape(
            self.points**2, -1, dy.shape[-1]
        )

    def transform_kernel(self, kernel: Array, flipped: bool = False) -> Array:
        """G kernel, (points^2, channels, filters); of one with its positions reversed if that is `flipped`."""
        matrix = _kernel_map(self.size)
        points = _product(matrix[:, ::-1] if flipped else matrix, kernel.astype(_widened(kernel.dtype)))
        return points.reshape(self.points**2, *kernel.shape[2:])

    def kernel_of(self, transformed: Array) -> Array:
        """The transpose of `transform_kernel`: a gradient (r, r, channels, filters) from that of what it gives."""
        kernel = _product(_kernel_map(self.size).T, transformed)
        return kernel.reshape(self.size, self.size, *transformed.shape[1:])

    def outputs_of(self, products: Array) -> Array:
        """A.T of every tile, joined to (rows, *outputs, filters)."""
        (down, across), matrix, filters = self.counts, matrices(self.size)[0].T, products.shape[-1]
        half = _product(matrix, products).reshape(OUTPUTS, self.points, -1, down, across, filters)
        lines = [[half[j, q] for q in range(self.points)] for j in range(OUTPUTS)]
        y = jnp.stack([jnp.stack([_sum(row, line) for line in lines], axis=3) for row in matrix], axis=2)
        y = y.reshape(-1, down * OUTPUTS, across * OUTPUTS, filters)
        return y[:, : self.outputs[0], : self.outputs[1]]


def suits(tiles: Tiles, kernel: Shape, x: Array) -> bool:
    """Whether the convolution of x with a kernel of shape (r, r, channels, filters) is faster this way on a CPU."""
    *size, channels, filters = kernel
    if len(size) != 2 or size[0] != size[1] or size[0] not in (3, 5) or x.dtype not in DTYPES:
        return False
    return min(channels, filters) >= 32 and min(tiles.outputs) >= OUTPUTS


def forward(tiles: Tiles, kernel: Array, x: Array) -> Array:
    """y (batch, *outputs, filters) of x (batch, *inputs, channels) and kernel (r, r, channels, filters)."""
    return _convolved(tiles, tiles.transform_kernel(kernel), x, contracted=1)


def delta(tiles: Tiles, kernel: Array, dy: Array) -> Array:
    """dL/dx from dL/dy."""
    return _convolved(tiles.back, tiles.transform_kernel(kernel, flipped=True), dy, contracted=2)


def gradient(tiles: Tiles, x: Array, dy: Array) -> Array:
    """dL/dkernel, summed over the batch."""

    def correlate(x: Array, dy: Array) -> Array:
        return _by_point(tiles.transform_inputs(x), tiles.transform_slopes(dy), ((1,), (1,)))

    points = jax.ShapeDtypeStruct((tiles.points**2, x.shape[-1], dy.shape[-1]), _widened(x.dtype))
    return tiles.kernel_of(sum_parts(correlate, _parts(tiles, points, x), x, dy)).astype(x.dtype)


def _convolved(tiles: Tiles, points: Array, x: Array, contracted: int) -> Array:
    """The convolution of x with a transformed kernel, which is summed over its axis `contracted`."""

    def convolve(x: Array) -> Array:
        y = tiles.outputs_of(_by_point(tiles.transform_inputs(x), points, ((2,), (contracted,))))
        return y.astype(x.dtype)

    return map_parts(convolve, _parts(tiles, points, x), x)


def _parts(tiles: Tiles, points: Array | jax.ShapeDtypeStruct, x: Array) -> int:
    """Into how many parts to cut x, whose transformed rows are read beside a transformed kernel."""
    row = tiles.points**2 * math.prod(tiles.counts) * max(points.shape[1:])
    return parts_of(len(x), row * points.dtype.itemsize, points.size * points.dtype.itemsize)


def _widened(dtype: Any) -> Any:
    """float32 at least."""
    return np.promote_types(dtype, np.float32)


def _padded(x: Array, room: Sequence[tuple[int, int, int]]) -> Array:
    wide = x.astype(_widened(x.dtype))
    return lax.pad(wide, jnp.zeros((), wide.dtype), [(0, 0, 0), *room, (0, 0, 0)])


def _combined(matrix: np.ndarray[Any, Any], lines: Sequence[Array]) -> Array:
    """The matrix by the lines, stacked."""
    return jnp.stack([_sum(row, lines) for row in matrix])


def _sum(factors: np.ndarray[Any, Any], lines: Sequence[Array]) -> Array:
    """The sum of the lines, each times its factor."""
    terms = [line * factor.astype(line.dtype) for factor, line in zip(factors, lines, strict=True) if factor]
    return reduce(jnp.add, terms)


def _product(matrix: np.ndarray[Any, Any], values: Array) -> Array:
    return jnp.asarray(matrix, values.dtype) @ values.reshape(matrix.shape[1], -1)


def _by_point(left: Array, right: Array, contracted: tuple[Shape, Shape]) -> Array:
    return lax.dot_general(left, right, (contracted, ((0,), (0,))))


def _kernel_map(size: int) -> np.ndarray[Any, Any]:
    """G of both axes at once, (points^2, r^2): the points across come before those down, as inputs have them."""
    matrix = matrices(size)[1]
    return np.einsum("pj,qi->pqij", matrix, matrix).reshape(len(matrix) ** 2, size**2)


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
