"""Matrix products, of which those of bfloat16 are added up in float32, as CPUs have instructions for."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax


def matmul(one: Array, other: Array) -> Array:
    """one @ other, in their dtype.

    For a product in bfloat16 XLA first makes float32 of both arrays on a CPU, and so it does where one of them lies in
    memory column by column, as a transposed one may. Of arrays that lie row by row, a product that is left in float32
    and rounded afterwards takes 0.2 to 0.4 of that time where the CPU multiplies bfloat16, as with AVX-512 BF16.
    """
    if one.dtype != jnp.bfloat16:
        return one @ other
    return lax.platform_dependent(one, other, cpu=_rounded, default=jnp.matmul)


def _rounded(one: Array, other: Array) -> Array:
    sums = jnp.matmul(_by_row(one), _by_row(other), preferred_element_type=jnp.float32)
    return sums.astype(jnp.bfloat16)


def _by_row(array: Array) -> Array:
    """The same, which XLA has to write out row by row: its numbers in one line are the same in any layout."""
    return lax.optimization_barrier(array.reshape(-1)).reshape(array.shape)
