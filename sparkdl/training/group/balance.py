"""Rows from workers that hold more than their share to those that hold less, before a fit trains.

Rows come to a worker by their hash, of 512 perhaps 266 to one and 246 to the other. As the batches of all workers have
one shape, which is that of the largest share, both would take 34 rows a step where 32 do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jax.sharding import Mesh

from sparkdl.arrays import Array
from sparkdl.training.data.batches import Shard
from sparkdl.training.data.shard_file import KEY, open_shard, stored_batches
from sparkdl.training.group.collectives import from_worker
from sparkdl.training.records import pulse

PIECE_BYTES = 4 << 20  # of rows sent at once, which every worker holds for a moment


class Move(NamedTuple):
    """So many rows of one worker for another."""

    giver: int
    taker: int
    rows: int


def moves(held: Sequence[int], shares: Sequence[int]) -> list[Move]:
    """What brings all workers to their shares of what they hold; none both gives and takes."""
    spare = [own - share for own, share in zip(held, shares, strict=True)]
    found: list[Move] = []
    taker = 0
    for giver in range(len(spare)):
        while spare[giver] > 0:
            while spare[taker] >= 0:
                taker += 1
            rows = min(spare[giver], -spare[taker])
            spare[giver] -= rows
            spare[taker] += rows
            found.append(Move(giver, taker, rows))
    return found


def shared_shard(path: Path, held: Sequence[int], shares: Sequence[int], rank: int, mesh: Mesh) -> Shard:
    """This worker's share of the rows; the processes of all workers call this.

    Which rows move follows from their keys alone: those with the largest of their worker. They go by the workers' own
    connections, in pieces, and those that come are kept on disk.

    Parameters
    ----------
    path : Path
        The file that a ShardWriter wrote, beside which what comes is kept.
    held : sequence of int
        Rows that the workers' files hold, in the order of ranks.
    shares : sequence of int
        Rows that they are to have, as many in all.
    rank : int
    mesh : jax.sharding.Mesh
    """
    kept, came = shares[rank], path.with_suffix(".came.arrow")
    with ExitStack() as stack:
        writer: pa.ipc.RecordBatchFileWriter | None = None
        given = kept
        for move in moves(held, shares):
            pieces: Iterator[bytes] = iter(())
            if move.giver == rank:
                pieces = _pieces(path, given, given + move.rows)
                given += move.rows
            while (piece := from_worker(next(pieces, None), move.giver, mesh)) is not None:
                pulse.beat()
                if move.taker == rank:
                    with pa.ipc.open_stream(piece) as stream:
                        writer = writer or stack.enter_context(pa.ipc.new_file(str(came), stream.schema))
                        writer.write(stream.read_all())
    return open_shard([path, came] if writer else [path], kept)


def _pieces(path: Path, first: int, last: int) -> Iterator[bytes]:
    """The rows of a file from the `first` to the `last` (exclusive) in the order of their keys, as Arrow's streams."""
    batches = stored_batches(path)
    chosen = np.argsort(np.concatenate([batch[KEY].to_numpy() for batch in batches]), kind="stable")[first:last]
    start = 0
    for batch in batches:
        own = chosen[(chosen >= start) & (chosen < start + len(batch))] - start
        start += len(batch)
        size = max(1, PIECE_BYTES * len(batch) // max(1, batch.nbytes))
        for cut in range(0, len(own), size):
            yield _stream(batch, own[cut : cut + size])


def _stream(batch: pa.RecordBatch, rows: Array) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch.take(pa.array(rows)))
    return sink.getvalue().to_pybytes()
