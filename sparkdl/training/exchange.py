"""How workers agree on an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sparkdl.layers.factored import Factored, is_factored, map_factored, multiplied
from sparkdl.specs import Spec
from sparkdl.training.compilation import kept_by_every_process

WORKERS = "workers"  # the mesh axis of the batch

Array = jax.Array


def meet(mesh: Mesh) -> None:
    """Wait until all workers have come here, by a sum over nothing; the first one opens their connections."""
    with kept_by_every_process():
        jax.block_until_ready(_sum_of_nothing(mesh)())


@cache
def _sum_of_nothing(mesh: Mesh) -> Callable[[], Array]:
    return jax.jit(jax.shard_map(lambda: lax.psum(jnp.zeros(()), WORKERS), mesh=mesh, in_specs=(), out_specs=P()))


class Sums(NamedTuple):
    """What a worker's rows add up to in a step; the global batch's sums are these summed over workers.

    Attributes
    ----------
    gradient : nested dict of arrays
        Sum over rows of weight * dloss/dweights.
    totals : Array, shape (3,)
        Sums over rows of weight * loss, weight * metric, and weight.
    """

    gradient: Any
    totals: Array


@dataclass(frozen=True)
class Exchange(Spec):
    """How the workers of a fit agree; its methods run inside the compiled step, on every worker.

    `state` is whatever the exchange remembers from step to step. One that sets `takes_factored` is given the gradients
    of dense kernels `Factored` where layers leave them so.
    """

    takes_factored: ClassVar[bool] = False

    def init(self, learned: Any) -> Any:
        """The state before the first step."""
        return ()

    def apply(self, sums: Sums, params: Any, state: Any, update: Callable[[Any, Any], Any]) -> tuple[Any, Any, Array]:
        """Take one step.

        Parameters
        ----------
        sums : Sums
            Of this worker's rows.
        params : pytree
            What `update(params, gradient)` advances by a mean gradient: learned weights and optimizer state.

        Returns
        -------
        params, state, totals
            `totals` summed over all workers.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AllReduce(Exchange):
    """Synchronous SGD: gradients are summed over workers, then divided once by the summed row weights.

    Every worker takes the step that one machine would take on the whole batch. All sums travel as one flat vector: one
    collective a step instead of one an array. A `Factored` gradient whose rows, of all workers, are fewer numbers than
    the matrix is exchanged as these rows, and every worker multiplies.
    """

    takes_factored = True

    def apply(self, sums: Sums, params: Any, state: Any, update: Callable[[Any, Any], Any]) -> tuple[Any, Any, Array]:
        gradient, totals = _over_workers(sums, lax.psum(1, WORKERS))
        weight = totals[2]
        scale = jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0)
        return update(params, jax.tree.map(lambda part: part * scale.astype(part.dtype), gradient)), state, totals


def _over_workers(sums: Sums, workers: int) -> Sums:
    """Everything summed over the workers, and multiplied."""
    if workers == 1:
        return multiplied(sums)

    def smaller(pair: Factored) -> Factored | Array:
        travelling = workers * (pair.rows.size + pair.slopes.size)
        return pair if travelling < pair.rows.shape[1] * pair.slopes.shape[1] else pair.product()

    leaves, structure = jax.tree.flatten(map_factored(smaller, sums), is_leaf=is_factored)
    pairs, arrays = ([leaf for leaf in leaves if is_factored(leaf) is kind] for kind in (True, False))
    if pairs and workers == 2:
        # To gather costs two workers the bytes of a sum, and one collective costs less than two.
        flat, restore = ravel_pytree((pairs, arrays))
        everyone, each = jax.vmap(restore)(lax.all_gather(flat, WORKERS))
        summed = iter(jax.tree.map(lambda part: part.sum(axis=0), each))
    else:
        flat, restore = ravel_pytree(arrays)
        summed = iter(restore(lax.psum(flat, WORKERS)))
        flat, restore = ravel_pytree(pairs)
        everyone = jax.vmap(restore)(lax.all_gather(flat, WORKERS)) if pairs else []
    products = (Factored(*(part.reshape(-1, part.shape[-1]) for part in pair)).product() for pair in everyone)
    return jax.tree.unflatten(structure, [next(products) if is_factored(leaf) else next(summed) for leaf in leaves])
