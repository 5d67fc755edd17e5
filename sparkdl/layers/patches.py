"""Convolution of images smaller than the kernel: on a CPU one product of all windows, written out, with the kernel.

XLA leaves these to plain loops. (2, 2, 512) by 3x3 to 512 filters, 32 rows: 570 ms for 7; (4, 4, 128) by 5x5: 75 for 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array, Shape


def suits(kernel: Array, x: Array, groups: int) -> bool:
    """Whether x (batch, *spatial, channels) has fewer positions than the kernel (*size, channels, filters)."""
    return groups == 1 and math.prod(x.shape[1:-1]) < math.prod(kernel.shape[:-2])


def convolve(
    kernel: Array, x: Array, strides: Shape, padding: Sequence[tuple[int, int]], dilation: Shape, spacing: Shape
) -> Array:
    """y (batch, *windows, filters), as of `lax.conv_general_dilated`; `spacing` is its `lhs_dilation`."""
    around = [(low, high, step - 1) for (low, high), step in zip(padding, spacing, strict=True)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *around, (0, 0, 0)])
    size, filters = kernel.shape[:-2], kernel.shape[-1]
    spans = [  # from the first position that some position of the windows reads to the last
        (length - (count - 1) * apart - 1) // stride * stride + 1
        for length, count, apart, stride in zip(padded.shape[1:-1], size, dilation, strides, strict=True)
    ]
    read = []
    for position in np.ndindex(*size):
        first = [at * apart for at, apart in zip(position, dilation, strict=True)]
        last = [start + span for start, span in zip(first, spans, strict=True)]
        read.append(lax.slice(padded, [0, *first, 0], [len(x), *last, x.shape[-1]], [1, *strides, 1]))
    windows = jnp.concatenate(read, axis=-1)
    y = windows.reshape(-1, windows.shape[-1]) @ kernel.reshape(-1, filters)
    return y.reshape(*windows.shape[:-1], filters)
