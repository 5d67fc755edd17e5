"""Positions as rotations of queries and keys, whose dot products then know how far apart two steps are."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from sparkdl.layers.attention.carried import angles
from sparkdl.layers.base import Array
from sparkdl.layers.normalization import wide


def rotated(x: Array, base: float, back: bool = False, at: Array | None = None) -> Array:
    """Vectors of steps, turned by angles that grow with the step (Su et al. 2021, "RoFormer").

    Numbers i and i + size / 2 of step t are turned together by t * base ** (-2 i / size), a convention of GPT-NeoX and
    Llama; the paper's, which pairs neighbours, is another order of the same numbers.

    Parameters
    ----------
    x : Array (batch, ..., steps, size)
    base : float
    back : bool, default False
        Whether to turn them the other way, as slopes are.
    at : Array (batch, steps) of int32, optional
        Numbers of the steps; by default they begin with 0.
    """
    steps, size = x.shape[-2:]
    speeds, turned = base ** (-2 * np.arange(size // 2) / size), wide(x)
    shape = (1 if at is None else len(x), *(1,) * (x.ndim - 3), steps, size // 2)
    if at is None:
        known = np.arange(steps)[:, None] * speeds
        cosines, sines = (jnp.asarray(of(known).reshape(shape), turned.dtype) for of in (np.cos, np.sin))
    else:
        turns = angles(at, speeds, turned.dtype).reshape(shape)
        cosines, sines = jnp.cos(turns), jnp.sin(turns)
    if back:
        sines = -sines
    one, other = jnp.split(turned, 2, axis=-1)
    return jnp.concatenate([one * cosines - other * sines, other * cosines + one * sines], axis=-1).astype(x.dtype)
