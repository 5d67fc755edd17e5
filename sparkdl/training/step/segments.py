"""Truncated back-propagation through time: rows of any length a segment after the other, each from the state before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from sparkdl.layers.ragged import Ragged
from sparkdl.training.data.batches import Rows


def padded_to_segments(rows: Rows, length: int) -> Rows:
    """The rows of any length padded to a multiple of so many steps, all to the same one."""
    steps = max(part.values.shape[1] for part in rows.features.values() if isinstance(part, Ragged))
    whole = -(-steps // length) * length

    def pad(part: Any) -> Any:
        if not isinstance(part, Ragged):
            return part
        values = part.values[:, :whole]  # of labels, which are padded to the steps of the longest of all inputs
        padding = [(0, 0), (0, whole - values.shape[1]), *[(0, 0)] * (values.ndim - 2)]
        return Ragged(jnp.pad(values, padding), part.lengths)

    return _map_parts(pad, rows)


def segment_of(rows: Rows, first: Any, length: int) -> Rows:
    """So many steps of the rows from the `first` on, with what is left of their lengths; parts of one length whole."""

    def cut(part: Any) -> Any:
        if not isinstance(part, Ragged):
            return part
        lengths = jnp.clip(part.lengths - first.astype(part.lengths.dtype), 0, length)
        return Ragged(lax.dynamic_slice_in_dim(part.values, first, length, axis=1), lengths)

    return _map_parts(cut, rows)


def segments_of(rows: Rows, length: int, greatest: Callable[[Array], Array]) -> Array:
    """How many segments of so many steps the longest row has; `greatest` is that of all workers' numbers."""
    longest = [part.lengths.max(initial=0) for part in rows.features.values() if isinstance(part, Ragged)]
    return -(-greatest(jnp.stack(longest).max()) // length)


def summed_over_time(
    sums: Callable[[Array, Rows, Any], tuple[Any, Any, Any]], rows: Rows, states: Any, length: int
) -> tuple[Any, Any, Any]:
    """`sums(part, rows, states)`, which gives sums, statistics and states, over parts of so many steps of each row.

    Sums are added up, statistics averaged, and states handed on, as constants: nothing flows back from part to part.
    """
    steps = next(part.values.shape[1] for part in rows.features.values() if isinstance(part, Ragged))
    parts = steps // length

    def add(carry: tuple[Any, Any, Any], index: Array) -> tuple[tuple[Any, Any, Any], None]:
        total, statistics, states = carry
        own, each, states = sums(index, segment_of(rows, index * length, length), states)
        share = jax.tree.map(lambda mean, array: mean + array / parts, statistics, each)
        return (jax.tree.map(jnp.add, total, own), share, states), None

    if parts == 1:
        return sums(jnp.int32(0), rows, states)
    shapes = jax.eval_shape(sums, jnp.int32(0), segment_of(rows, jnp.int32(0), length), states)
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes[:2])
    (total, statistics, states), _ = lax.scan(add, (*zeros, states), jnp.arange(parts, dtype=jnp.int32))
    return total, statistics, states


def _map_parts(function: Callable[[Any], Any], rows: Rows) -> Rows:
    features, labels = ({name: function(part) for name, part in parts.items()} for parts in rows[:2])
    return Rows(features, labels, rows.weights)
