"""Convolution on a CPU by products of the windows' values with the kernel, where XLA's own is slow.

XLA leaves images smaller than the kernel to plain loops: (2, 2, 512) by 3x3 to 512 filters, 32 rows, takes 570 ms for
7 of one product of all windows, written out; (4, 4, 128) by 5x5 75 for 5. And it makes float32 of bfloat16 before it
convolves: (14, 14, 256) by 3x3, 8 rows, takes 14 ms for 4.2 of the sum of 9 products, one for each position of the
kernel, on a CPU that multiplies bfloat16; (28, 28, 128) 15 for 7.5. Of fewer channels a sum costs more than it saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array, Shape
from sparkdl.layers.products import matmul
from sparkdl.layers.row_parts import map_parts, parts_of

CHANNELS = 128  # of bfloat16, and more


def suits(kernel: Array, x: Array, groups: int, spacing: Shape) -> bool:
    """Whether to convolve x (batch, *spatial, channels) with a kernel (*size, channels, filters) so."""
    many = x.dtype == jnp.bfloat16 and kernel.shape[-2] >= CHANNELS and max(spacing) == 1
    return groups == 1 and (many or _is_small(kernel, x))


def convolve(
    kernel: Array, x: Array, strides: Shape, padding: Sequence[tuple[int, int]], dilation: Shape, spacing: Shape
) -> Array:
    """y (batch, *windows, filters), as of `lax.conv_general_dilated`; `spacing` is its `lhs_dilation`."""
    around = [(low, high, step - 1) for (low, high), step in zip(padding, spacing, strict=True)]
    whole = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *around, (0, 0, 0)])
    if _is_small(kernel, x):
        windows = jnp.concatenate(list(_read(kernel, whole, strides, dilation)), axis=-1)
        y = matmul(_flat(windows), kernel.reshape(-1, kernel.shape[-1]))
        return y.reshape(*windows.shape[:-1], -1)

    def add_up(part: Array) -> Array:
        read = list(_read(kernel, part, strides, dilation))
        each = kernel.reshape(len(read), *kernel.shape[-2:])
        products = [
            jnp.matmul(_flat(values), own, preferred_element_type=jnp.float32)
            for values, own in zip(read, each, strict=True)
        ]
        return reduce(jnp.add, products).astype(x.dtype).reshape(*read[0].shape[:-1], -1)

    row = math.prod(x.shape[1:-1]) * kernel.shape[-1] * np.dtype(np.float32).itemsize  # of sums
    return map_parts(add_up, parts_of(len(x), row, kernel.size * kernel.dtype.itemsize), whole)


def _is_small(kernel: Array, x: Array) -> bool:
    """Whether a row of x has fewer positions than the kernel."""
    return math.prod(x.shape[1:-1]) < math.prod(kernel.shape[:-2])


def _read(kernel: Array, padded: Array, strides: Shape, dilation: Shape) -> Iterator[Array]:
    """For each position of the kernel what it reads, (batch, *windows, channels)."""
    size = kernel.shape[:-2]
    spans = [  # from the first position that some position of the windows reads to the last
        (length - (count - 1) * apart - 1) // stride * stride + 1
        for length, count, apart, stride in zip(padded.shape[1:-1], size, dilation, strides, strict=True)
    ]
    for position in np.ndindex(*size):
        first = [at * apart for at, apart in zip(position, dilation, strict=True)]
        last = [start + span for start, span in zip(first, spans, strict=True)]
        yield lax.slice(padded, [0, *first, 0], [len(padded), *last, padded.shape[-1]], [1, *strides, 1])


def _flat(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])
