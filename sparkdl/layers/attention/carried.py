"""What layers that know the steps of a row carry from one segment of it to the next: their count, keys and values.

A state is a dict of `count` (batch,), the steps that each row has had, and, of attention, `keys` and `values`, (batch,
heads, longest, size), of these steps, with zeros behind them.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.arrays import INTEGERS
from sparkdl.layers.base import Array, CannotCarry, Shape
from sparkdl.layers.ragged import Ragged, is_ragged


def first_count(rows: int) -> dict[str, Array]:
    """The state of so many rows that have had no step."""
    return {"count": jnp.zeros(rows, INTEGERS)}


def first_keys(rows: int, heads: int, size: int, dtype: Any, longest: int | None) -> dict[str, Array]:
    """The same with room for the keys and values of so many steps.

    Raises
    ------
    CannotCarry
        It is not known how many there will be.
    """
    if longest is None:
        raise CannotCarry(
            "MultiHeadAttention keeps the keys and values of all steps of a row, and expects to be told how many will "
            "come at most; give first_state longest=512 or the like. If it is a fit that is to be truncated, leave "
            "that out and cut long rows instead, by maxLength."
        )
    room = jnp.zeros((rows, heads, longest, size), dtype)
    return first_count(rows) | {"keys": room, "values": room}


def check_whole(others: Shape) -> None:
    """CannotCarry if the other rows that attention asks come in segments, too."""
    if is_ragged(others):
        raise CannotCarry(
            f"MultiHeadAttention asks all steps of other rows, {others}, of which a segment holds a part, and so "
            "cannot go from one to the next; go on with whole rows, or give that input one length, as (64, 8)."
        )


def steps_from(state: Any, x: Ragged) -> Array:
    """Numbers of the steps of a segment within its rows, (batch, steps)."""
    return state["count"][:, None] + jnp.arange(x.values.shape[1], dtype=INTEGERS)[None]


def counted(state: Any, x: Ragged) -> dict[str, Array]:
    """The count after a segment."""
    return {"count": state["count"] + jnp.asarray(x.lengths)}


def with_steps(state: Any, x: Ragged, keys: Array, values: Array) -> dict[str, Array]:
    """The state after a segment that has these keys and values; steps for which there is no room are not kept."""
    longest = state["keys"].shape[2]
    places = jnp.where(x.valid, steps_from(state, x), longest)  # of padding, none

    def put(kept: Array, place: Array, new: Array) -> Array:
        return kept.at[:, place].set(new, mode="drop")

    new = {"keys": keys, "values": values}
    return counted(state, x) | {name: jax.vmap(put)(state[name], places, part) for name, part in new.items()}


def angles(steps: Array, speeds: np.ndarray[Any, Any], dtype: Any) -> Array:
    """steps * speeds, less whole turns, as exact as the dtype, however far the steps.

    Parameters
    ----------
    steps : Array (batch, steps) of int32
        Of at least 0.
    speeds : array (n,) of float64
        Radians a step, from 0 to 2 pi.
    dtype : dtype

    Returns
    -------
    Array (batch, steps, n)
    """
    # Counted in parts of a turn, of which one has 2 ** 32, integers lose the whole turns by themselves when they
    # overflow, where floats would lose digits.
    parts = speeds / (2 * math.pi) * 2.0**32
    whole = np.floor(parts)
    turned = steps[..., None].astype("uint32") * jnp.asarray(whole.astype("uint32"))[None, None]
    rest = steps[..., None].astype(dtype) * jnp.asarray(parts - whole, dtype)[None, None]
    return (lax.bitcast_convert_type(turned, "int32").astype(dtype) + rest) * (2 * math.pi / 2**32)
