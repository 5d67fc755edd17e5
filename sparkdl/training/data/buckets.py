"""Rows of any length in steps of rows of like lengths, so that little of a batch is padding.

All workers must give a step's arrays equal shapes. Within windows of some steps each worker sorts its rows by length
and cuts them into the steps' batches, so that a step holds like quantiles of every worker's lengths; then the window's
steps change places, for all workers alike. What a step is padded to is the least of a few numbers, one program each,
that is enough for the longest row of all workers. The order depends on the seed and the data alone, and every row comes
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jax.sharding import Mesh

from sparkdl.arrays import Array
from sparkdl.training.data.batches import Steps, epoch_order
from sparkdl.training.data.placing import spread
from sparkdl.training.group.collectives import gather_from_all
from sparkdl.training.resumption import Share

WINDOW = 50  # steps among which rows of like lengths are brought together


@dataclass(frozen=True)
class Arrangement:
    """The rows of an epoch's steps.

    Attributes
    ----------
    rows : list of list of arrays
        For every worker of this process the indices of its rows in each step.
    levels : array (steps,) of int
        Which of `Buckets.levels` each step is padded to.
    fill : float
        The share of its rows' padded steps that are no padding, over all workers.
    """

    rows: list[list[Array]]
    levels: Array
    fill: float


@dataclass(frozen=True)
class Buckets:
    """To how many steps batches pad their rows of any length.

    Attributes
    ----------
    levels : tuple of dict of int
        Ascending; by part of the features that has such rows its steps.
    """

    levels: tuple[Mapping[str, int], ...]

    @classmethod
    def of(cls, share: Share, steps: Steps, mesh: Mesh, seed: int, epoch: int | None, most: int) -> Buckets:
        """At most so many levels, which suit an epoch as of `arrange`; every process of the mesh calls this."""
        _, greatest, _ = _all_taken(share, steps, mesh, seed, epoch)
        ends = {name: _ends(own.tolist(), most) for name, own in greatest.items()}
        count = max(map(len, ends.values()))
        return cls(
            tuple({name: own[max(0, len(own) - count + at)] for name, own in ends.items()} for at in range(count))
        )

    def arrange(self, share: Share, steps: Steps, mesh: Mesh, seed: int, epoch: int | None) -> Arrangement:
        """Of an epoch, or in the rows' own order if it is None; every process of the mesh calls this."""
        rows, greatest, (valid, counts) = _all_taken(share, steps, mesh, seed, epoch)
        ends = np.array([[level[name] for name in greatest] for level in self.levels])
        enough = ends[:, :, None] >= np.stack(list(greatest.values()))[None]
        levels = enough.all(axis=1).argmax(axis=0)
        padded = float(counts @ ends.sum(axis=1)[levels])
        return Arrangement(rows, levels, float(valid.sum()) / padded if padded else 1.0)


def _all_taken(
    share: Share, steps: Steps, mesh: Mesh, seed: int, epoch: int | None
) -> tuple[list[list[Array]], dict[str, Array], Array]:
    """The rows of this process's workers in each step; of all workers' rows the greatest length by part of the
    features, and (2, steps) the sum of lengths and the number of rows."""
    names, rows, own = list(share.shards[0].padded_steps), [], []
    for worker, shard in enumerate(share.shards, start=share.first):
        lengths = np.stack([shard.lengths(name) for name in names])
        rows.append(rows_of_steps(lengths, steps, worker, seed, epoch))
        chosen = [lengths[:, indices] for indices in rows[-1]]
        greatest = np.stack([part.max(axis=1, initial=0) for part in chosen], axis=1)
        own.append([*greatest, [part.sum() for part in chosen], [part.shape[1] for part in chosen]])
    every = gather_from_all(spread(np.array(own, np.int32), mesh), mesh).astype(np.int64)
    return rows, dict(zip(names, every[:, :-2].max(axis=0), strict=True)), every[:, -2:].sum(axis=0)


def rows_of_steps(lengths: Array, steps: Steps, worker: int, seed: int, epoch: int | None) -> list[Array]:
    """The indices of a worker's rows, whose lengths (parts, n) are given, in each step of an epoch."""
    count = lengths.shape[1]
    order = np.arange(count) if epoch is None else epoch_order(count, seed, epoch, worker)
    pieces = np.split(order, [steps.bounds(worker, step)[1] for step in range(steps.count - 1)])
    if epoch is None:
        return pieces
    size = (lengths / np.maximum(1, lengths.max(axis=1, initial=1))[:, None]).sum(axis=0)
    found: list[Array] = []
    for first in range(0, steps.count, WINDOW):
        window = pieces[first : first + WINDOW]
        rows = np.concatenate(window)
        rows = rows[np.argsort(size[rows], kind="stable")]
        cut = np.split(rows, np.cumsum([len(piece) for piece in window])[:-1])
        places = np.random.default_rng((seed, epoch, first, len(window))).permutation(len(window))
        found += [cut[place] for place in places]
    return found


def _ends(greatest: list[int], most: int) -> list[int]:
    """Up to so many lengths to pad to, of the greatest in each step: neighbours are joined while joining pads least."""
    reached = Counter(map(_rounded, greatest))
    ends, steps = sorted(reached), [reached[end] for end in sorted(reached)]
    while len(ends) > most:
        cost = [(above - end) * count for end, above, count in zip(ends, ends[1:], steps, strict=False)]
        least = cost.index(min(cost))
        moved, _ = steps.pop(least), ends.pop(least)
        steps[least] += moved
    return ends


def _rounded(length: int) -> int:
    """The length, or one of 32 numbers in a doubling above it, so that like data have equal programs."""
    unit = max(1, 1 << max(0, (length - 1).bit_length() - 5))
    return max(1, -(-length // unit)) * unit
