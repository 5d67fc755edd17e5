"""What a run goes on from when layers that have rested begin to learn: all that it has, and fresh state for these."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.network import BaseNetwork
from sparkdl.training.data.placing import local_workers, replicate, spread
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.step.compiled_phase import stacked
from sparkdl.training.step.state import State


def carried(
    state: State, fresh: State, exchange: Exchange, before: BaseNetwork, network: BaseNetwork, mesh: Mesh
) -> State:
    """The state with which the next phase of a run begins; every process of the mesh calls this, between two epochs.

    Parameters
    ----------
    state : State
        Of all workers, after the last step of the phase before.
    fresh : State
        Of one worker, of the next phase's network before any step.
    exchange : Exchange
    before, network : Network or Graph
        Of the phase before and of the next, in which all learns that did before.
    mesh : Mesh

    Returns
    -------
    State
        Of all workers. What the optimizer keeps of layers that have learned goes on, and so does its count of steps.
    """
    kept = dict(jax.tree.leaves_with_path(state.optimizer))
    optimizer = jax.tree.map_with_path(
        lambda path, leaf: kept[path] if path in kept else replicate(leaf, mesh), fresh.optimizer
    )
    if not jax.tree.leaves(fresh.exchange):
        return State(state.weights, optimizer, fresh.exchange, state.step)
    own = _own((state.weights, state.exchange))
    each = []
    for worker in range(local_workers(mesh)):
        weights, remembered = jax.tree.map(itemgetter(worker), own)
        each.append(exchange.carried(remembered, fresh.exchange, before.learned(weights), network.learned(weights)))
    return State(state.weights, optimizer, spread(stacked(each), mesh), state.step)


def _own(tree: Any) -> Any:
    """What this process's workers hold, on the host, with a first axis of them."""

    def held(leaf: Any) -> Any:
        shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])

    return jax.tree.map(held, tree)
