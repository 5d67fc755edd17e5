"""Which rows a fit on Spark takes in every step, found out from outside, so that others can train on the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkdl.arrays import FEATURES, LABEL
from sparkdl.decoding.layout import Layout
from sparkdl.spark.tasks.row_bytes import FeaturesPart, Intake, LabelPart, prepared
from sparkdl.training.data.batches import Steps, epoch_order, even_shares
from sparkdl.training.group.balance import moves

Array = np.ndarray[Any, Any]


def shares(dataset: DataFrame, features: str, label: str, workers: int, dtype: str = "float32") -> list[Array]:
    """For every worker the ids of its rows, in the order of its shard.

    A row's hash decides both (see `sparkdl.spark.tasks.row_bytes`), and which rows go from workers with more than an
    even share to those with less; rows that are equal may change places.

    Parameters
    ----------
    dataset : DataFrame
        With a column `id` of integers besides those that a fit reads. Its rows come to the driver.
    features, label : str
        The columns that the fit reads: arrays or bytes, and numbers.
    workers : int
    dtype : str
        The fit's `computeDtype`.
    """
    names = ["id", f"features/{FEATURES}/0", f"labels/{LABEL}"]
    table = dataset.select("id", features, label).toArrow().rename_columns(names)
    width = len(table[1][0].as_py())
    kind = "uint8" if pa.types.is_binary(table[1].type) else dtype
    layout = Layout((features,), (width,), dtype, binary="raw")
    intake = Intake({FEATURES: FeaturesPart(layout, kind)}, {LABEL: LabelPart(label, False, 1)})
    keys = np.concatenate([batch["key"].to_numpy() for batch in prepared(iter(table.to_batches()), intake)])
    rows = pa.table({"id": table["id"].to_numpy(), "key": keys})
    placed = dataset.sparkSession.createDataFrame(rows).repartition(workers, "key")
    found = placed.withColumn("worker", F.spark_partition_id()).toArrow()
    ids, keys, owners = (found[name].to_numpy() for name in ("id", "key", "worker"))
    order = np.argsort(keys, kind="stable")
    own = [order[owners[order] == worker] for worker in range(workers)]
    held = [len(places) for places in own]
    even = even_shares(held)
    parts, given = [[places[:share]] for places, share in zip(own, even, strict=True)], list(even)
    for move in moves(held, even):
        parts[move.taker].append(own[move.giver][given[move.giver] :][: move.rows])
        given[move.giver] += move.rows
    whole = [np.concatenate(places) for places in parts]
    return [ids[places[np.argsort(keys[places], kind="stable")]] for places in whole]


def global_batches(shares: list[Array], batch_size: int, seed: int, epochs: int) -> list[list[Array]]:
    """The ids of the rows that all workers together take, for every step of every epoch."""
    steps = Steps(tuple(map(len, shares)), batch_size)
    result = []
    for epoch in range(epochs):
        orders = [share[epoch_order(len(share), seed, epoch, worker)] for worker, share in enumerate(shares)]
        result.append(
            [
                np.concatenate([order[slice(*steps.bounds(worker, step))] for worker, order in enumerate(orders)])
                for step in range(steps.count)
            ]
        )
    return result
