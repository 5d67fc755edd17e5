"""Rows and other arrays on the devices of a mesh of workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sparkdl.training.data.batches import Rows, Shard
from sparkdl.training.exchanges.exchange import WORKERS


def place(rows: Rows, mesh: Mesh) -> Rows:
    """The rows of this process on its devices, as its part of the arrays of all workers; zeros where they weigh 0."""
    sharding = NamedSharding(mesh, P(WORKERS))
    features, labels, weights = jax.tree.map(_storable, rows)
    features = jax.tree.map(partial(_zeroed, where=weights == 0), features)
    return jax.tree.map(
        lambda part: jax.make_array_from_process_local_data(sharding, part), Rows(features, labels, weights)
    )


def abstract_rows(shard: Shard, rows: int, mesh: Mesh) -> Rows:
    """The shapes that `place` gives when every worker's batch has `rows` rows like the shard's."""
    sharding = NamedSharding(mesh, P(WORKERS))

    def shape(part: Any) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.canonicalize_dtype(part.dtype)
        return jax.ShapeDtypeStruct((rows * mesh.size, *part.shape[1:]), dtype, sharding=sharding)

    return jax.tree.map(shape, shard.take(np.zeros(0, np.int64), 0))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """The tree's arrays once for every worker, along a new first axis."""
    return spread(jax.tree.map(lambda leaf: np.broadcast_to(leaf, (local_workers(mesh), *np.shape(leaf))), tree), mesh)


def spread(tree: Any, mesh: Mesh) -> Any:
    """Copies of arrays whose first axis is the workers of this process, as their part of the arrays of all workers.

    Copies, as a step puts its results elsewhere if the memory of what it was given is another array's, too.
    """
    sharding = NamedSharding(mesh, P(WORKERS))
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.array(leaf)), tree)


def local_workers(mesh: Mesh) -> int:
    """Workers of the mesh that this process drives."""
    return sum(device.process_index == jax.process_index() for device in mesh.devices.flat)


def _zeroed(values: np.ndarray[Any, Any], where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values with zeros in these rows: 0 times what overflows within the network would be NaN."""
    if values[where].any():
        values = values.copy()
        values[where] = 0
    return values


def _storable(part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float64 and int64 narrowed on the host where JAX holds 32 bits, so that half the bytes travel."""
    return part.astype(jax.dtypes.canonicalize_dtype(part.dtype), copy=False)
