"""What workers tell each other outside of a step: small programs that every process of a mesh runs at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.step.compilation import kept_by_every_process
from sparkdl.training.step.step import local_workers, spread


def meet(mesh: Mesh) -> None:
    """Wait until all workers have come here; the first one opens their connections."""
    jax.block_until_ready(summed(np.zeros(local_workers(mesh), np.int32), mesh))


def summed(values: np.ndarray[Any, Any], mesh: Mesh) -> Array:
    """The sum over all workers of (workers of this process, ...), still on its way."""
    with kept_by_every_process():
        return _sum(mesh)(spread(values, mesh))


def gather_from_all(tree: Any, mesh: Mesh) -> Any:
    """Every worker's arrays, on the host of each process: of (workers, ...) spread over the mesh, the whole."""
    with kept_by_every_process():
        return jax.tree.map(lambda array: np.array(array.addressable_data(0)), _gather(mesh)(tree))


def from_first(data: bytes | None, mesh: Mesh) -> bytes | None:
    """The data of the first worker's process; the others' own is not looked at.

    Summed as words to which all others add zeros, so that it arrives bit by bit and nobody holds more than two copies.
    """
    local = local_workers(mesh)
    first = mesh.devices.flat[0].process_index == jax.process_index()

    def sent(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        everyone = np.zeros((local, len(words)), np.uint32)
        everyone[0] = words if first else 0
        return np.asarray(summed(everyone, mesh).addressable_data(0))

    length = 0 if data is None or not first else len(data) + 1
    low, high = sent(np.array([length & 0xFFFFFFFF, length >> 32], np.uint32)).tolist()
    length = low | high << 32
    if not length:
        return None
    padded = np.zeros(-(-(length - 1) // 4), "<u4")
    if first and data is not None:
        padded.view(np.uint8)[: length - 1] = np.frombuffer(data, np.uint8)
    return sent(padded).astype("<u4").tobytes()[: length - 1]


@cache
def _sum(mesh: Mesh) -> Callable[[Array], Array]:
    return _over_workers(lambda value: lax.psum(value[0], WORKERS), mesh)


@cache
def _gather(mesh: Mesh) -> Callable[[Any], Any]:
    return _over_workers(lambda tree: jax.tree.map(lambda array: lax.all_gather(array[0], WORKERS), tree), mesh)


def _over_workers(function: Callable[[Any], Any], mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P(WORKERS), out_specs=P(), check_vma=False))
