"""What an exchange is: how the workers of a fit agree on an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.layers.factored import is_factored
from sparkdl.optimizers import LBFGS, Optimizer
from sparkdl.specs import Spec

WORKERS = "workers"  # the mesh axis of the batch


class Sums(NamedTuple):
    """What a worker's rows add up to in a step; the global batch's sums are these summed over workers.

    Attributes
    ----------
    gradient : nested dict of arrays
        Sum over rows of weight * dloss/dweights.
    totals : Array, shape (3,)
        Sums over rows of weight * (loss + regularization), weight * metric, and weight; of a network of several outputs
        more numbers follow (see `Objective`).
    """

    gradient: Any
    totals: Array


class Params(NamedTuple):
    """What a step advances.

    Attributes
    ----------
    learned : nested dict of arrays
    optimizer : pytree
        optax's state, of this worker's `Exchange.part`.
    statistics : nested dict of arrays
        Running statistics, as of batch normalization, already those after this step.
    """

    learned: Any
    optimizer: Any
    statistics: Any


class Moment(NamedTuple):
    """Where in its epoch a step stands.

    Attributes
    ----------
    step : Array, int32
        Steps of the epoch before this one.
    steps : int
        Steps in an epoch.
    """

    step: Array
    steps: int


class Agreed(NamedTuple):
    """What an exchange makes of a step.

    Attributes
    ----------
    params : Params
    state : pytree
        The exchange's own, of this worker.
    totals : Array
        `Sums.totals` summed over all workers; an exchange that does not talk in every step gives zeros until it does,
        and then the sums of all steps since, at the latest in an epoch's last step.
    sent : Array, float32
        Bytes that this worker sent, by the usual algorithms: `ring_bytes`, `gathered_bytes`.
    """

    params: Params
    state: Any
    totals: Array
    sent: Array


Update = Callable[[Params, Any], Params]


@dataclass(frozen=True)
class Exchange(Spec):
    """How the workers of a fit agree; its methods run inside the compiled step, on every worker.

    The state of an exchange is whatever a worker remembers from step to step; it lives as long as the fit and travels
    in checkpoints. One that sets `takes_factored` is given the gradients of dense kernels `Factored` where layers leave
    them so. One that is not `synchronous` lets workers hold different weights within an epoch, and their layers look at
    their own batches only. Under one that is `sharded` each worker updates its `part` of the learned weights only, and
    holds the optimizer's state of that alone.
    """

    takes_factored: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True
    sharded: ClassVar[bool] = False

    def init(self, learned: Any) -> Any:
        """A worker's state before the first step, a pytree of arrays.

        An exchange that keeps totals writes `init(self, learned, totals)`, and is told how many `Sums.totals` holds.
        """
        return ()

    def carried(self, state: Any, fresh: Any, before: Any, learned: Any) -> Any:
        """A worker's state when more layers begin to learn, between two epochs: by default as before the first step.

        Parameters
        ----------
        state, fresh : pytrees
            That so far, and what `init` gives for all that is learned from now on.
        before, learned : nested dicts of arrays
            What was learned so far, and what is from now on.
        """
        return fresh

    def part(self, tree: Any, worker: Any, workers: int) -> Any:
        """Of a tree like that of the learned weights what the worker of a number updates: by default all of it."""
        return tree

    def check(self, optimizer: Optimizer) -> None:
        """Raise a ValueError for an optimizer that it cannot serve."""
        if optimizer.is_lazy and not self.takes_factored:
            raise ValueError(
                f"lazy=True of {type(optimizer).__name__} lets rows of a table rest with the exchange AllReduce alone, "
                f"received {type(self).__name__}; leave it out, or take that one."
            )
        if isinstance(optimizer, LBFGS) and not self.takes_factored:
            raise ValueError(
                "LBFGS compares sums over all rows as they are, which the exchange AllReduce alone gives, received "
                f"{type(self).__name__}; take that one."
            )

    def agrees_after(self, step: int) -> bool:
        """Whether workers hold equal weights after this step of an epoch; they do at its end."""
        return True

    def apply(self, sums: Sums, params: Params, state: Any, update: Update, moment: Moment) -> Agreed:
        """Take one step.

        Parameters
        ----------
        sums : Sums
            Of this worker's rows.
        params : Params
        state : pytree
            This worker's.
        update : callable
            `update(params, gradient)` advances learned weights and optimizer by a mean gradient, all of them of this
            worker's `part`.
        moment : Moment
        """
        raise NotImplementedError


def first_state(exchange: Exchange, learned: Any, totals: int) -> Any:
    """What `init` gives, whether it asks for the number of totals or not."""
    told = {"totals": totals} if "totals" in signature(exchange.init).parameters else {}
    return exchange.init(learned, **told)


def ring_bytes(count: float, workers: int) -> float:
    """Bytes that each worker sends while `count` bytes are summed over all: a ring's, the least there can be."""
    return 2 * (workers - 1) / workers * count


def gathered_bytes(count: float, workers: int) -> float:
    """Bytes that each worker sends while every one gets the `count` bytes of each."""
    return (workers - 1) * count


def reciprocal(weight: Array) -> Array:
    """1 / weight, and 0 for a weight of 0."""
    return jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0)


def scaled(tree: Any, factor: Array) -> Any:
    """Every array of a tree, or factored matrix, times a number."""

    def times(part: Any) -> Any:
        return part.scaled(factor.astype(part.slopes.dtype)) if is_factored(part) else part * factor.astype(part.dtype)

    return jax.tree.map(times, tree, is_leaf=is_factored)
