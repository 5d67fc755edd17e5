"""One layer's rows taken in parts on a CPU, so that what its kernel moves through memory stays in the cache.

What `micro_batches.py` does for a whole network, these do for a layer of one that needs whole batches, as those with
batch normalization do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.layers.base import Array

# Of a part, by one core with 1 MiB of L2 cache and convolutions of 64 rows. Winograd's, (32, 32, 64) by 3x3: forward in
# parts of 1.2, 2.4, 4.7 and 9.4 MB takes 23, 23, 24 and 26 ms. The gradient of strides 2, (32, 32, 64) to 128: in parts
# of 1.6, 3.1, 6.3 and 25 MB 28, 33, 42 and 43 ms.
PART_BYTES = 2_500_000


def parts_of(rows: int, row_bytes: int, weight_bytes: int) -> int:
    """Into how many parts to cut rows; into no more than make up for the weights, which each part reads anew.

    Of the numbers up to twice the least the one that leaves the fewest rows to fill up.
    """
    fewest = max(1, min(rows, -(-rows * row_bytes // max(PART_BYTES, weight_bytes))))
    return min(range(fewest, min(rows, 2 * fewest - 1) + 1), key=lambda parts: -rows % parts, default=1)


def map_parts(function: Callable[[Array], Array], parts: int, x: Array) -> Array:
    """The function of one part of x's rows after the other, as of all of them.

    Each in a branch of a condition that always holds: XLA would else join what makes a part's rows with the copy of
    them into those of all, and such a copy took three times as long as all of Winograd's convolution before it.
    """
    if parts == 1:
        return function(x)
    cut = _cut(x, parts)
    like = jax.eval_shape(function, cut[0])

    def one(number: Array, part: Array) -> tuple[Array, Array]:
        y = lax.cond(number >= 0, function, lambda _: jnp.zeros(like.shape, like.dtype), part)
        return number + 1, y

    y = lax.scan(one, jnp.int32(0), cut)[1]
    return y.reshape(-1, *y.shape[2:])[: len(x)]


def sum_parts(function: Callable[..., Array], parts: int, *arrays: Array, blocks: int = 0) -> Array:
    """The sum of the function of one part of the arrays' rows after the other, in float32 at least.

    Where the rows do not come to equal parts, the last has rows of zeros, of which the function must give zero. With
    `blocks`, the function takes a tuple for each array, of up to so many blocks of equally many rows: XLA compiles what
    reads one slice several times, as blocks taken of a part would be, to code without vector instructions.
    """
    size = -(-len(arrays[0]) // parts)
    whole = [_filled(array, parts * size) for array in arrays]
    count = math.gcd(size, blocks) if blocks else 1

    def part(number: Array | int) -> Array:
        def cut(array: Array, block: int) -> Array:
            return lax.dynamic_slice_in_dim(array, number * size + block * (size // count), size // count)

        cuts = [tuple(cut(array, block) for block in range(count)) for array in whole]
        return function(*(cuts if blocks else (rows for (rows,) in cuts)))

    if parts == 1:
        return part(0)
    like = jax.eval_shape(part, jnp.int32(0))
    zeros = jnp.zeros(like.shape, np.promote_types(like.dtype, np.float32))
    total = lax.fori_loop(0, parts, lambda number, total: total + part(number).astype(total.dtype), zeros)
    return total.astype(like.dtype)


def _filled(array: Array, rows: int) -> Array:
    """So many rows, of which the last are zeros where the array has too few."""
    if missing := rows - len(array):
        array = lax.pad(array, jnp.zeros((), array.dtype), [(0, missing, 0), *[(0, 0, 0)] * (array.ndim - 1)])
    return array


def _cut(array: Array, parts: int) -> Array:
    """The rows as (parts, size, ...), followed by zeros where they are too few."""
    size = -(-len(array) // parts)
    return _filled(array, parts * size).reshape(parts, size, *array.shape[1:])
