"""Local SGD: workers train by themselves for some steps, then average their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from sparkdl.specs import is_integer
from sparkdl.training.exchanges.exchange import (
    WORKERS,
    Agreed,
    Array,
    Exchange,
    Moment,
    Params,
    Sums,
    Update,
    reciprocal,
    ring_bytes,
    scaled,
)


@dataclass(frozen=True)
class ParameterAveraging(Exchange):
    """Each worker takes `frequency` steps on its own rows; then weights are averaged, weighted by the rows seen.

    Every row counts: an epoch's last steps are averaged however many they are, and schedules count true steps. A worker
    whose rows since the last average weigh nothing contributes nothing. With frequency 1 and plain SGD this is
    `AllReduce`. Running statistics, as of batch normalization, are of a worker's own rows and averaged likewise.

    Parameters
    ----------
    frequency : int, default 5
        Steps from one average to the next.
    average_optimizer_state : bool, default True
        Whether the optimizer's state (momenta, second moments) is averaged too; else each worker keeps its own.

    Notes
    -----
    Loss and metric are summed when weights are averaged.
    """

    frequency: int = 5
    average_optimizer_state: bool = True

    synchronous = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_integer(self.frequency, 1):
            raise ValueError(
                f"frequency of ParameterAveraging must be a number of steps of at least 1, received {self.frequency!r}."
            )

    def init(self, learned: Any, totals: int = 3) -> Any:
        """Sums of loss, metric and weight since the last average."""
        leaves = jax.tree.leaves(learned)
        return jnp.zeros(totals, leaves[0].dtype if leaves else jnp.float32)

    def agrees_after(self, step: int) -> bool:
        """Whether the step was averaged."""
        return step % self.frequency == 0

    def apply(self, sums: Sums, params: Params, state: Any, update: Update, moment: Moment) -> Agreed:
        params = update(params, scaled(sums.gradient, reciprocal(sums.totals[2])))
        seen = state + sums.totals.astype(state.dtype)
        workers = lax.psum(1, WORKERS)
        if workers == 1:
            return Agreed(params, jnp.zeros_like(seen), seen, jnp.float32(0))

        def averaged() -> tuple[Params, Array, Array, Array]:
            kept = params if self.average_optimizer_state else params._replace(optimizer=())
            leaves, structure = jax.tree.flatten(kept)
            numbers = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]  # counters agree as they are
            flat, restore = ravel_pytree([scaled(numbers, seen[2]), seen])
            means, totals = restore(lax.psum(flat, WORKERS))
            # Nobody has seen a row of weight: leave everything as it is.
            means = jax.tree.map(
                lambda mean, own: jnp.where(totals[2] > 0, mean, own), scaled(means, reciprocal(totals[2])), numbers
            )
            merged = iter(means)
            result = jax.tree.unflatten(
                structure, [next(merged) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf for leaf in leaves]
            )
            result = result if self.average_optimizer_state else result._replace(optimizer=params.optimizer)
            return result, jnp.zeros_like(seen), totals, jnp.float32(ring_bytes(flat.nbytes, workers))

        def alone() -> tuple[Params, Array, Array, Array]:
            return params, seen, jnp.zeros_like(seen), jnp.float32(0)

        due = ((moment.step + 1) % self.frequency == 0) | (moment.step + 1 == moment.steps)
        return Agreed(*lax.cond(due, averaged, alone))
