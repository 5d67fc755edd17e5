"""An epoch's batches on their way to the devices, prepared while the step before runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.training.data.batches import Rows, Shard, Steps, batches, epoch_order, prefetched
from sparkdl.training.data.buckets import Arrangement, Buckets
from sparkdl.training.data.placing import place
from sparkdl.training.options import Training
from sparkdl.training.resumption import Share


def feed(
    plans: Sequence[Training],
    share: Share,
    steps: Steps,
    mesh: Mesh,
    epoch: int | None,
    first: int = 0,
    arranged: tuple[Buckets, Arrangement] | None = None,
) -> Generator[Any]:
    """The batches of an epoch from step `first`, as `place` gives them.

    Rows come in the order of the plan's seed, or in their own if `epoch` is None. Several plans get batches of their
    own along a second axis if their orders differ, else the same ones. Rows of any length come as they are arranged.
    """
    seeds = [plans[0].seed] if epoch is None else list(dict.fromkeys(plan.seed for plan in plans))
    if len(seeds) > 1:
        seeds = [plan.seed for plan in plans]

    def stream(shard: Any, worker: int, seed: int) -> Iterator[Rows]:
        if arranged:
            return _arranged_batches(shard, steps, arranged[0], arranged[1], worker - share.first, first)
        order = np.arange(len(shard)) if epoch is None else epoch_order(len(shard), seed, epoch, worker)
        return batches(shard, steps, worker, order, first)

    streams = [
        [stream(shard, worker, seed) for worker, shard in enumerate(share.shards, start=share.first)] for seed in seeds
    ]

    def placed() -> Iterator[Any]:
        for of_seeds in zip(*(zip(*workers, strict=True) for workers in streams), strict=True):
            rows = _join_rows([_join_rows(of_workers, np.concatenate) for of_workers in of_seeds], _beside)
            with jax.enable_x64(plans[0].dtype == "float64"):  # it holds for one thread, and this one is another
                batch = place(rows, mesh)
            yield batch

    return prefetched(placed())


def _arranged_batches(
    shard: Shard, steps: Steps, buckets: Buckets, arrangement: Arrangement, place: int, first: int
) -> Iterator[Rows]:
    """The batches of the process's worker number `place`, each padded as its step is."""
    padded = [shard.padded_to(level) for level in buckets.levels]
    for step in range(first, steps.count):
        yield padded[arrangement.levels[step]].take(arrangement.rows[place][step], steps.rows)


def differ(plans: Sequence[Training]) -> bool:
    """Whether `feed` gives these plans batches of their own."""
    return plans[0].shuffle and len({plan.seed for plan in plans}) > 1


def _join_rows(rows: Sequence[Rows], join: Any) -> Rows:
    return rows[0] if len(rows) == 1 else jax.tree.map(lambda *parts: join(parts), *rows)


def _beside(parts: Sequence[Any]) -> Any:
    return np.stack(parts, axis=1)
