"""sparkdl's side of the CIFAR-10 benchmark on Spark: the whole path, from a DataFrame of bytes to a model."""

from __future__ import annotations

import math
import time
from functools import cache
from pathlib import Path

import pyarrow as pa
from contestants import order, tutorial
from contestants.ours import LOSS, NETWORK, OPTIMIZER
from contestants.serve import Spec, Taker, Turn
from contestants.tutorial import BATCH, SEED
from pyspark.sql import DataFrame, SparkSession

from sparkdl import DeepClassifier
from sparkdl.spark import local_session


def frame(session: SparkSession, images: tutorial.Array, labels: tutorial.Array) -> DataFrame:
    """A cached DataFrame of features (binary), label and id."""
    parts = {"features": [image.tobytes() for image in images], "label": labels, "id": range(len(labels))}
    dataset = session.createDataFrame(pa.table(parts)).cache()
    dataset.count()
    return dataset


def classifier(workers: int, epochs: int) -> DeepClassifier:
    """The tutorial's training as an estimator."""
    return DeepClassifier(
        network=NETWORK,
        loss=LOSS,
        optimizer=OPTIMIZER,
        stepSize=tutorial.STEP_SIZE,
        batchSize=BATCH,
        maxIter=epochs,
        seed=SEED,
        numWorkers=workers,
        deviceType="cpu",
        progress="off",
    )


def fit(spec: Spec) -> Taker:
    """Fits of two epochs, with a worker for each core.

    A turn's seconds are those of the second, for which the first has warmed up; its `wall` is the whole fit's.
    """
    workers = len(spec.cores)
    session = local_session(f"local[{workers}]", "sparkdl-benchmark")

    @cache
    def dataset(steps: int) -> DataFrame:
        return frame(session, *tutorial.read_rows(Path(spec.folder), "train", steps * BATCH))

    def take(steps: int) -> Turn:
        rows = dataset(steps)
        started = time.perf_counter()
        epoch = classifier(workers, 2).fit(rows).summary.history[1]
        wall = time.perf_counter() - started
        return {"seconds": epoch.seconds, "steps": steps, "loss": epoch.loss, "wall": wall}

    take(spec.steps)
    return take


def learn(spec: Spec) -> Taker:
    """A fit over all rows, of as many whole epochs as hold the steps; leaves the order of its batches to the others."""
    workers, folder = len(spec.cores), Path(spec.folder)
    session = local_session(f"local[{workers}]", "sparkdl-benchmark")
    train, test = (frame(session, *tutorial.read_lesson(folder, split, spec.steps)) for split in ("train", "test"))
    shares = order.shares(train, "features", "label", workers)
    steps_per_epoch = math.ceil(sum(map(len, shares)) / BATCH)

    def take(steps: int) -> Turn:
        epochs = math.ceil(steps / steps_per_epoch)
        tutorial.write_order(folder, order.global_batches(shares, BATCH, SEED, epochs))
        model = classifier(workers, epochs).fit(train)
        summary = model.summary
        right = model.transform(test).where("prediction = label").count()
        seconds = sum(epoch.seconds for epoch in summary.history)
        return tutorial.lesson(seconds, epochs * steps_per_epoch, summary.objectiveHistory, right / test.count())

    return take
