"""Rows as tests make and choose them, and training on them with a worker for each share."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.training import Training
from sparkdl.training.data.batches import Rows, Shard
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.results import Result

Shares = tuple[int, ...]


def rows_of(features: Any, labels: Any, weights: Any) -> Rows:
    """Rows of a network with one input and one output."""
    return Rows({"features": features}, {"label": labels}, weights)


def trained(plan: Training, rows: Rows, shares: Shares) -> Result:
    """What training comes to with one worker, a device of this process, for each share of the rows."""
    parts = pairwise([0, *accumulate(shares)])
    shards = [Shard.from_arrays(*chosen(rows, slice(first, last))) for first, last in parts]
    mesh = Mesh(np.array(jax.local_devices()[: len(shares)]), (WORKERS,))
    with jax.enable_x64(plan.dtype == "float64"):
        return train(plan, Share(shards, shares, 0), Share([], (), 0), mesh)


def chosen(rows: Rows, which: Any) -> Rows:
    """Some of the rows, as NumPy indexes them."""
    return jax.tree.map(lambda part: part[which], rows)
