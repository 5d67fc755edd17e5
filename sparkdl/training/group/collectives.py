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

from sparkdl.shared_programs import kept_by_every_process
from sparkdl.training.data.placing import local_workers, spread
from sparkdl.training.exchanges.exchange import WORKERS

FRAME_BYTES = 1 << 20
HEADER_BYTES = 8
NOTHING = b"\xff" * HEADER_BYTES  # in place of a length


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


def from_worker(data: bytes | None, giver: int, mesh: Mesh) -> bytes | None:
    """The data of one worker's process, every process of the mesh calling this; the others' own is not looked at.

    Summed as words to which all others add zeros, so that it arrives bit by bit, in frames of one size, so that one
    program serves all. The first begins with the length.
    """
    gives = mesh.devices.flat[giver].process_index == jax.process_index()
    own = memoryview(data if gives and data else b"")
    header = NOTHING if gives and data is None else len(own).to_bytes(HEADER_BYTES, "little")  # others add 0

    def sent(first: int) -> bytes:
        begin = first - HEADER_BYTES
        frame = own[begin : begin + FRAME_BYTES] if first else header + own[: FRAME_BYTES - HEADER_BYTES]
        everyone = np.zeros((local_workers(mesh), FRAME_BYTES), np.uint8)
        everyone[0, : len(frame)] = np.frombuffer(frame, np.uint8)
        return np.asarray(summed(everyone.view("<u4"), mesh).addressable_data(0)).astype("<u4").tobytes()

    beginning = sent(0)
    if beginning.startswith(NOTHING):
        return None
    end = HEADER_BYTES + int.from_bytes(beginning[:HEADER_BYTES], "little")
    frames = [beginning, *map(sent, range(FRAME_BYTES, end, FRAME_BYTES))]
    frames[-1] = frames[-1][: end - FRAME_BYTES * (len(frames) - 1)]
    frames[0] = frames[0][HEADER_BYTES:]
    return b"".join(frames)


@cache
def _sum(mesh: Mesh) -> Callable[[Array], Array]:
    return _over_workers(lambda value: lax.psum(value[0], WORKERS), mesh)


@cache
def _gather(mesh: Mesh) -> Callable[[Any], Any]:
    return _over_workers(lambda tree: jax.tree.map(lambda array: lax.all_gather(array[0], WORKERS), tree), mesh)


def _over_workers(function: Callable[[Any], Any], mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P(WORKERS), out_specs=P(), check_vma=False))
