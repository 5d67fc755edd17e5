"""Synchronous SGD whose workers divide the update: each moves its own part of the weights, then all gather them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from sparkdl.optimizers import Optimizer
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
    scaled,
)


@dataclass(frozen=True)
class ShardedAllReduce(Exchange):
    """`AllReduce` with 1 / N of the update and of the optimizer's state on each of N workers.

    A worker is sent the others' sums for its own N-th of every array (padded to a multiple of N), adds them up, updates
    these weights, and all gather what was updated. So a step has two collectives, each of one flat vector, in which
    together as many bytes travel as in the sum of `AllReduce`; momenta and second moments take 1 / N of the memory, but
    for the moment of a checkpoint, which gathers them.

    It takes optimizers that move every element by itself, with any clipping, and LAMB: their norms are taken over all
    parts. Own ones say `by_element = True`.

    Notes
    -----
    With 2 workers and no norms every weight comes from the same operations on the same numbers as under `AllReduce`, so
    the results are equal bit for bit where these are rounded as written. XLA's CPU compiler may round a product and a
    sum that it fuses once instead of twice, and fuses arrays and parts of them differently, which can show in an
    element's last bit; with SGD it did not. With more workers sums are added up in the order of the workers, a ring's
    in another; norms are added up by part; and `AllReduce` multiplies the rows of all workers for dense kernels with
    more weights than these rows have numbers: there the two differ by rounding, too. All workers hold equal weights and
    totals in any case, and a run repeats itself bit for bit.

    After Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, SC 2020, stage 2.
    """

    sharded = True

    def check(self, optimizer: Optimizer) -> None:
        super().check(optimizer)
        if not optimizer.says("by_element"):
            raise ValueError(
                "ShardedAllReduce cuts arrays into parts, which takes an optimizer whose class says by_element = True, "
                f"received {type(optimizer).__name__}; say so there if its rule looks at no element but the one that "
                "it moves, or use AllReduce."
            )

    def part(self, tree: Any, worker: Any, workers: int) -> Any:
        """Of every array the worker's part, as a vector."""
        if workers == 1:
            return tree
        return jax.tree.map(lambda array: lax.dynamic_index_in_dim(_cut(array, workers), worker, keepdims=False), tree)

    def apply(self, sums: Sums, params: Params, state: Any, update: Update, moment: Moment) -> Agreed:
        workers = lax.axis_size(WORKERS)
        if workers == 1:
            mean = scaled(sums.gradient, reciprocal(sums.totals[2]))
            return Agreed(update(params, mean), state, sums.totals, jnp.float32(0))
        parts = jax.tree.map(lambda array: _cut(array, workers), sums.gradient)
        everyones = jnp.broadcast_to(sums.totals, (workers, *sums.totals.shape))
        messages = jax.vmap(lambda *message: ravel_pytree(message)[0])(parts, everyones)
        # One addition after the other, in the same order on all workers: their totals must not differ in a bit.
        flat = lax.all_to_all(messages, WORKERS, 0, 0).sum(axis=0)
        _, restore = ravel_pytree(jax.tree.map(lambda array: array[0], (parts, everyones)))
        gradient, totals = restore(flat)
        own = params._replace(learned=self.part(params.learned, lax.axis_index(WORKERS), workers))
        new = update(own, scaled(gradient, reciprocal(totals[2])))
        moved, restore = ravel_pytree(new.learned)
        everyone = jax.vmap(restore)(lax.all_gather(moved, WORKERS)) if moved.size else new.learned
        learned = jax.tree.map(_join_parts, everyone, params.learned)
        sent = jnp.float32(gathered_bytes(flat.nbytes + moved.nbytes, workers))
        return Agreed(new._replace(learned=learned), state, totals, sent)


def _cut(array: Array, workers: int) -> Array:
    """Its elements as (workers, ...), with zeros at the end."""
    flat = array.reshape(-1)
    return jnp.pad(flat, (0, -flat.size % workers)).reshape(workers, -(-flat.size // workers))


def _join_parts(parts: Array, like: Array) -> Array:
    """The inverse."""
    return parts.reshape(-1)[: like.size].reshape(like.shape)
