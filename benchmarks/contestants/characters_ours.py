"""sparkdl's side of the benchmark of the character model: fits on Spark."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from contestants.characters_case import BATCH, LENGTH, SEED, STEP_SIZE, TRUNCATED, Cut, network_of, read_turn
from contestants.serve import Spec, Taker, Turn
from pyspark.sql import DataFrame, SparkSession

from sparkdl import DeepClassifier, Network
from sparkdl.spark import local_session


def classifier(network: Network, workers: int, epochs: int, **others: Any) -> DeepClassifier:
    """The training that all contestants do."""
    return DeepClassifier(
        network=network,
        optimizer="adam",
        stepSize=STEP_SIZE,
        batchSize=BATCH,
        truncated=TRUNCATED,
        maxIter=epochs,
        seed=SEED,
        numWorkers=workers,
        deviceType="cpu",
        progress="off",
        **others,
    )


def frame(session: SparkSession, rows: Cut, characters: tuple[str, ...] = ()) -> DataFrame:
    """A cached DataFrame of the rows; features are text if the characters are given, else their numbers."""
    features: list[Any] = list(rows.features)
    if characters:
        features = ["".join(row) for row in np.array(characters)[rows.features]]
    labels = pa.array(list(rows.labels), pa.list_(pa.int32()))
    dataset = session.createDataFrame(pa.table({"features": features, "label": labels})).cache()
    dataset.count()
    return dataset


def fit(spec: Spec) -> Taker:
    """Fits of two epochs, with a worker for each core; a turn's seconds are those of the second."""
    workers, folder = len(spec.cores), Path(spec.folder)
    session = local_session(f"local[{workers}]", "sparkdl-benchmark")
    network = network_of(spec.settings["characters"])

    @cache
    def dataset(steps: int) -> DataFrame:
        return frame(session, read_turn(folder, steps))

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        epoch = classifier(network, workers, 2).fit(dataset(steps)).summary.history[1]
        wall = time.perf_counter() - started
        return {"seconds": epoch.seconds, "steps": steps * LENGTH // TRUNCATED, "loss": epoch.loss, "wall": wall}

    take(spec.steps)
    return take
