"""Synchronous SGD: all workers take the step that one machine would take on the whole batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from sparkdl.arrays import INTEGERS
from sparkdl.layers.factored import TableRows, is_factored, is_table_rows, map_factored, multiplied
from sparkdl.optimizers import LBFGS, Optimizer
from sparkdl.training.exchanges.exchange import (
    WORKERS,
    Agreed,
    Array,
    Exchange,
    Moment,
    Params,
    Sums,
    Update,
    gathered_bytes,
    reciprocal,
    ring_bytes,
    scaled,
)

MESSAGE_BYTES = 32 << 20  # of a collective, at most, but for an array that has more


@dataclass(frozen=True)
class AllReduce(Exchange):
    """Gradients are summed over workers, then divided once by the summed row weights.

    All sums travel as one flat vector, or one for every 32 MiB: one collective a step instead of one an array. A
    factored gradient whose rows, of all workers, are fewer numbers than the matrix is exchanged as these rows, and
    every worker multiplies; those of a table are handed on as they are.

    Parameters
    ----------
    dtype : str, default "float32"
        What gradients travel in: "float32" (float64 where that is what layers compute in), or "bfloat16" for half the
        bytes at a relative error of 2**-9; sums are float32 all the same, and equal on all workers.
    """

    dtype: str = "float32"

    takes_factored = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype of AllReduce must be float32 or bfloat16, received {self.dtype!r}.")

    def check(self, optimizer: Optimizer) -> None:
        super().check(optimizer)
        if isinstance(optimizer, LBFGS) and self.dtype != "float32":
            raise ValueError(
                f"LBFGS compares gradients that differ in few digits, which AllReduce({self.dtype!r}) rounds; leave "
                "its dtype out."
            )

    def apply(self, sums: Sums, params: Params, state: Any, update: Update, moment: Moment) -> Agreed:
        workers = lax.psum(1, WORKERS)
        if workers == 1:
            summed, sent = map_factored(_whole_but_for_tables, sums), 0.0
        elif self.dtype == "bfloat16":
            summed, sent = _rounded_over_workers(multiplied(sums), workers)
        else:
            summed, sent = _over_workers(sums, workers)
        gradient = jax.tree.map(_told_apart, sums.gradient, summed.gradient, is_leaf=is_factored)
        mean = scaled(gradient, reciprocal(summed.totals[2]))
        return Agreed(update(params, mean), state, summed.totals, jnp.float32(sent))


def _over_workers(sums: Sums, workers: int) -> tuple[Sums, float]:
    """Everything summed over the workers, and multiplied but for tables; and the bytes that took."""

    def smaller(pair: Any) -> Any:
        travelling = workers * sum(part.size for part in jax.tree.leaves(pair))
        return _as_numbers(pair) if travelling < math.prod(pair.shape) else pair.product()

    leaves, structure = jax.tree.flatten(map_factored(smaller, sums), is_leaf=is_factored)
    pairs, arrays = ([leaf for leaf in leaves if is_factored(leaf) is kind] for kind in (True, False))
    messages = _messages(arrays)
    # To gather costs two workers the bytes of a sum, and one collective costs less than two.
    beside = messages.pop(0) if pairs and workers == 2 and _bytes_of(messages[0]) <= MESSAGE_BYTES else []
    flat, restore = ravel_pytree((pairs, beside))
    gathered = lax.all_gather(flat, WORKERS) if pairs else flat[None]
    everyone, _ = jax.vmap(restore)(gathered)
    added = list(map(jnp.add, *(restore(own)[1] for own in gathered))) if beside else []
    sent = gathered_bytes(flat.nbytes, workers)
    for message in messages:
        flat, restore = ravel_pytree(message)
        added += restore(lax.psum(flat, WORKERS))
        sent += ring_bytes(flat.nbytes, workers)
    summed = iter(added)
    joined = jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), everyone)
    products = iter([_whole_but_for_tables(_with_ids(pair)) for pair in joined])
    merged = [next(products) if is_factored(leaf) else next(summed) for leaf in leaves]
    return jax.tree.unflatten(structure, merged), sent


def _messages(arrays: list[Array]) -> list[list[Array]]:
    """The arrays in their order, in lists of which each travels as one vector.

    What is exchanged of a large network is so in memory about once, not as arrays, as a vector and as a sum of vectors.
    """
    messages: list[list[Array]] = [[]]
    for array in arrays:
        if messages[-1] and _bytes_of([*messages[-1], array]) > MESSAGE_BYTES:
            messages.append([])
        messages[-1].append(array)
    return messages


def _bytes_of(arrays: list[Array]) -> int:
    return sum(array.nbytes for array in arrays)


def _as_numbers(pair: Any) -> Any:
    """With ids as floats, which they are exactly, so that all can be one vector."""
    return replace(pair, ids=pair.ids.astype(pair.slopes.dtype)) if is_table_rows(pair) else pair


def _with_ids(pair: Any) -> Any:
    """The inverse."""
    return replace(pair, ids=pair.ids.astype(INTEGERS)) if is_table_rows(pair) else pair


def _whole_but_for_tables(pair: Any) -> Any:
    """The matrix, or rows of a table that are fewer than it has."""
    return pair if is_table_rows(pair) and len(pair.ids) < pair.rows else pair.product()


def _told_apart(own: Any, summed: Any) -> Any:
    """The sum of a table, as rows of which others are told apart if they are to be."""
    told = not is_table_rows(own) or not own.lazy or is_table_rows(summed)
    return summed if told else TableRows.of(summed)


def _rounded_over_workers(sums: Sums, workers: int) -> tuple[Sums, float]:
    """The same with gradients in bfloat16 on the network, and added up in float32.

    Each worker adds up one piece of the vector and hands the rounded sum to all, as a ring does. XLA's own sum would
    not do: on CPUs it widens 16-bit numbers before they travel.
    """
    flat, restore = ravel_pytree(sums.gradient)
    pieces = jnp.pad(flat, (0, -flat.size % workers)).reshape(workers, -1)
    own = _from_bits(lax.all_to_all(_as_bits(pieces), WORKERS, 0, 0)).sum(axis=0)
    gathered = _from_bits(lax.all_gather(_as_bits(own), WORKERS)).reshape(-1)[: flat.size]
    totals = lax.psum(sums.totals, WORKERS)
    sent = ring_bytes(2 * pieces.size + totals.nbytes, workers)
    return Sums(restore(gathered.astype(flat.dtype)), totals), sent


def _as_bits(array: Array) -> Array:
    return lax.bitcast_convert_type(array.astype(jnp.bfloat16), jnp.uint16)


def _from_bits(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.bfloat16).astype(jnp.float32)
