"""Between rows of steps, two of which may meet in attention, and the heads that it sees them by."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array
from sparkdl.layers.ragged import Ragged


def is_several(shape: Any) -> bool:
    """Whether it is a tuple of shapes."""
    return any(isinstance(part, tuple) for part in shape)


def two_of(x: Any) -> tuple[Any, Any]:
    """(what asks, what is asked)."""
    return x if isinstance(x, tuple) else (x, x)


def without_padding(rows: Any) -> Array:
    """Values with zeros for padding."""
    return jnp.where(rows.valid[..., None], rows.values, 0) if isinstance(rows, Ragged) else rows


def only_answered(y: Array, asking: Any, asked: Any) -> Array:
    """(batch, steps, n) with zeros where a row has no such step or there is none for it to ask."""
    if isinstance(asking, Ragged):
        y = jnp.where(asking.valid[..., None], y, 0)
    if isinstance(asked, Ragged) and asked is not asking:
        y = jnp.where((jnp.asarray(asked.lengths) > 0)[:, None, None], y, 0)
    return y


def flat_heads(heads: Array) -> Array:
    """(batch, ..., steps, size) as (batch * steps, heads * size)."""
    heads = heads.reshape(len(heads), -1, *heads.shape[-2:])
    return heads.swapaxes(1, 2).reshape(-1, heads.shape[1] * heads.shape[3])


def as_heads(flat: Array, like: Array) -> Array:
    """The inverse of `flat_heads`."""
    heads = flat.reshape(len(like), like.shape[-2], -1, like.shape[-1])
    return heads.swapaxes(1, 2).reshape(like.shape)
