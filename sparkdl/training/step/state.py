"""What a step reads and writes, before the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.compiler import ONCE
from sparkdl.network import BaseNetwork
from sparkdl.optimizers import Optimizer
from sparkdl.training.exchanges.exchange import Exchange, first_state


class State(NamedTuple):
    """Everything a step reads and writes, of one worker or, with a first axis of workers, of all.

    Attributes
    ----------
    weights : nested dict
        All of the network's.
    optimizer : pytree
        optax's state for the learned part of them, or for the worker's own part of that under a sharded exchange.
    exchange : pytree
    step : Array
        Steps taken, int32.
    """

    weights: Any
    optimizer: Any
    exchange: Any
    step: Array


class Settings(NamedTuple):
    """What runs of one compiled program may differ in; equal on all workers.

    Attributes
    ----------
    step_size, weight_decay : Array
    key : Array (2,) of uint32
        Of random layers.
    """

    step_size: Any
    weight_decay: Any
    key: Any

    @classmethod
    def of(cls, optimizer: Optimizer, step_size: float, seed: int) -> Settings:
        """Those of a run."""
        step_size, weight_decay = np.asarray((step_size, optimizer.weight_decay), jax.dtypes.canonicalize_dtype(float))
        return cls(step_size, weight_decay, np.asarray(_key_data(np.int64(seed))))


def initial_state(
    network: BaseNetwork,
    weights: Any,
    optimizer: Optimizer,
    exchange: Exchange,
    workers: int = 1,
    totals: int = 3,
    begun: Mapping[str, int] | None = None,
) -> State:
    """The state of each worker before the first step; `totals` is how many numbers `Objective.totals` adds up."""
    others = _others(optimizer, exchange, workers, totals, begun)(network.learned(weights))
    return State(weights, *others, jnp.asarray(np.int32(0)))


@lru_cache(16)
def _others(
    optimizer: Optimizer, exchange: Exchange, workers: int, totals: int, begun: Mapping[str, int] | None
) -> Callable[[Any], tuple[Any, Any]]:
    """The states of optimizer and exchange in one program, since each operation on its own would be one as well."""

    def others(learned: Any) -> tuple[Any, Any]:
        part = exchange.part(learned, 0, workers)  # of the others, where they differ, the shapes alone count
        return optimizer.first_state(part, **as_argument(begun)), first_state(exchange, learned, totals)

    return jax.jit(others, compiler_options=ONCE)


def as_argument(begun: Mapping[str, int] | None) -> dict[str, Any]:
    """The argument of `transformation` that one of a user's own may lack, which layers that rest ask for alone."""
    return {} if begun is None else {"begun": begun}


@partial(jax.jit, compiler_options=ONCE)
def _key_data(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed))
