"""What drivers on the hosts are told to do: plain arguments in, JSON values out."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark import BarrierTaskContext
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkdl import DeepClassificationModel, DeepClassifier, Network, register_function
from sparkdl.layers import BatchNorm, Dense, Dropout, Layer, Lstm, Relu
from sparkdl.series import SeriesWindows
from sparkdl.spark.driver.remote import registered_slots
from sparkdl.weights import named_arrays

FEATURES, ROWS = 8, 240
NETWORK = Network([Dense(16), BatchNorm(), Relu(), Dropout(0.1), Dense(3)], input_shape=(FEATURES,))


def table(rows: int = ROWS) -> pd.DataFrame:
    """Rows of three classes, which differ in their means."""
    random = np.random.default_rng(5)
    labels = np.arange(rows) % 3
    features = random.normal(size=(rows, FEATURES)) + labels[:, None]
    return pd.DataFrame({"id": np.arange(rows), "features": list(features), "label": labels.astype(float)})


def frame(session: SparkSession) -> DataFrame:
    """The rows in several partitions, so that all hosts have some."""
    return session.createDataFrame(table()).repartition(4, "id")


def estimator(**params: Any) -> DeepClassifier:
    """A network that needs every worker in every step."""
    return DeepClassifier(network=NETWORK, optimizer="adam", stepSize=0.01, seed=3, batchSize=48, **params)


def digest(weights: Any) -> str:
    """A fingerprint of the bits of all weights."""
    whole = hashlib.sha256()
    for name, array in named_arrays(weights):
        whole.update(name.encode() + str(array.dtype).encode() + np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def fit(session: SparkSession, **params: Any) -> dict[str, Any]:
    """Train: weights, where workers were, and what the summary says."""
    began = time.time()
    model = estimator(**params).fit(frame(session))
    events = model.summary.timeline
    return {
        "timings": model.summary.timings,
        "span": None if events.empty else float((events["start"] + events["seconds"]).max()),  # from the first start
        "weights": digest(model.weights),
        "hosts": [worker["host"] for worker in model.summary.workers],
        "rows": [worker["rows"] for worker in model.summary.workers],
        "resumed": model.summary.resumedFrom,
        "seconds": time.time() - began,
    }


def clocks(session: SparkSession, slots: int) -> dict[str, float]:
    """What Python's clock says on the host of each slot, by host."""

    def told(_: Any) -> Any:
        context = BarrierTaskContext.get()
        context.barrier()
        yield context.getTaskInfos()[context.partitionId()].address.rpartition(":")[0], time.time()

    return dict(session.sparkContext.parallelize(range(slots), slots).barrier().mapPartitions(told).collect())


def rows_of(scored: DataFrame) -> str:
    """A fingerprint of the bits of scored rows, whatever their order."""
    columns = [column for column in ("id", "prediction", "probability", "score") if column in scored.columns]
    table = scored.select(columns).toPandas().sort_values("id")
    whole = hashlib.sha256()
    for column in columns:
        values = [value.toArray() if hasattr(value, "toArray") else value for value in table[column]]
        whole.update(np.asarray(values, np.float64).tobytes())
    return f"{len(table)} rows {whole.hexdigest()}"


def live(session: SparkSession, folder: str, workers: int) -> dict[str, Any]:
    """All that a model goes through, with fingerprints of what comes of it; `folder` is on every host."""
    rows = frame(session)
    model = estimator(numWorkers=workers, maxIter=3).fit(rows)
    found: dict[str, Any] = {"weights": digest(model.weights), "scored": rows_of(model.transform(rows))}
    evaluation = model.evaluate(rows)
    found["evaluation"] = [evaluation.accuracy, evaluation.loss]
    path = f"{folder}/model"
    model.save(path)
    loaded = DeepClassificationModel.load(path)
    found["loaded"] = [digest(loaded.weights), rows_of(loaded.transform(rows))]
    register_function(session, "score", loaded)
    rows.createOrReplaceTempView("rows")
    found["sql"] = rows_of(session.sql("SELECT id, score(features) AS score FROM rows"))
    rows.write.parquet(f"{folder}/rows")
    stream = model.transform(session.readStream.schema(rows.schema).parquet(f"{folder}/rows"))
    query = (
        stream.select("id", "prediction", "probability")
        .writeStream.format("memory")
        .queryName("scored")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found["stream"] = rows_of(session.table("scored"))
    return found


def cross_validate(session: SparkSession, workers: int, parallelism: int) -> list[float]:
    """The mean accuracies of two step sizes; of folds that are given, as Spark's own depend on the order of rows."""
    one = estimator(numWorkers=workers, maxIter=2)
    grid = ParamGridBuilder().addGrid(one.stepSize, [1e-4, 0.05]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    tuned = CrossValidator(
        estimator=one, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, foldCol="fold", parallelism=parallelism
    ).fit(frame(session).withColumn("fold", F.col("id").cast("int") % 2))
    return list(tuned.avgMetrics)


def await_failure(session: SparkSession, within: float) -> float | None:
    """The time at which a task of a stage that runs failed, or at which such a stage was found to run again."""
    tracker = session.sparkContext.statusTracker()
    deadline = time.time() + within
    while time.time() < deadline:
        for stage in tracker.getActiveStageIds():
            told = tracker.getStageInfo(stage)
            if told and (told.numFailedTasks or told.currentAttemptId):
                return time.time()
        time.sleep(0.05)
    return None


def await_slots(session: SparkSession, slots: int, within: float, steady: float = 0) -> int:
    """How many tasks can run at once, as soon as there are `slots`, of the same executors for `steady` seconds."""
    deadline = time.time() + within
    executors, since = None, time.time()
    while time.time() < deadline:
        found = session.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",")
        if found != executors or (registered_slots(session) or 0) < slots:
            executors, since = found, time.time()
        elif time.time() - since >= steady:
            break
        time.sleep(0.2)
    return registered_slots(session) or 0


def await_fewer_slots(session: SparkSession, than: int, within: float) -> int:
    """How many tasks can run at once, as soon as the driver knows of fewer than `than`."""
    deadline = time.time() + within
    while (slots := registered_slots(session) or 0) >= than and time.time() < deadline:
        time.sleep(0.05)
    return slots


def await_idleness(session: SparkSession, within: float) -> bool:
    """Whether for a second no stage has run; as soon as it is so, or at the end."""
    tracker = session.sparkContext.statusTracker()
    deadline, since = time.time() + within, time.time()
    while time.time() < deadline and time.time() - since < 1:
        since = time.time() if tracker.getActiveStageIds() else since
        time.sleep(0.02)
    return time.time() - since >= 1


def fit_read_late(session: SparkSession, folder: str, **params: Any) -> dict[str, Any]:
    """A fit whose rows are read once there is the file `read` in a folder, where tasks that wait leave `waiting`."""

    def wait(batches: Any) -> Any:
        Path(folder, "waiting").touch()
        deadline = time.time() + 60
        while not Path(folder, "read").exists() and time.time() < deadline:
            time.sleep(0.02)
        yield from batches

    rows = frame(session)
    model = estimator(**params).fit(rows.mapInArrow(wait, rows.schema))
    return {"weights": digest(model.weights)}


def fit_both(session: SparkSession, first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Two fits at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda params: fit(session, **params), (first, second)))


def fit_in_a_flood(session: SparkSession, pool: str, **params: Any) -> dict[str, Any]:
    """A fit in a scheduler's pool, while small jobs come in another."""
    over = threading.Event()

    def flood() -> int:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "flood")
        jobs = 0
        while not over.is_set():
            session.range(100).repartition(3).count()
            jobs += 1
        return jobs

    with ThreadPoolExecutor(1) as other:
        flooding = other.submit(flood)
        try:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            told = fit(session, **params)
        finally:
            over.set()
        return told | {"flood": flooding.result(60)}


@dataclass(frozen=True)
class Halved(Layer):
    """A layer of the user's own, whose module only the driver has."""

    def forward(self, weights: Any, x: Any) -> Any:
        return x / 2


def fit_own_layer(session: SparkSession, workers: int) -> str:
    """The weights of a network with a layer of one's own."""
    network = Network([Dense(8), Halved(), Dense(3)], input_shape=(FEATURES,))
    return digest(estimator(numWorkers=workers, maxIter=2).setNetwork(network).fit(frame(session)).weights)


def fit_sequences(session: SparkSession, workers: int) -> dict[str, Any]:
    """Weights, and how full batches were, of a fit to series of a long table, each step of which has a label."""
    random = np.random.default_rng(7)
    keys = np.repeat(np.arange(90), random.integers(1, 30, 90))
    steps = pd.DataFrame({"key": keys, "at": np.arange(len(keys)), "value": random.normal(size=len(keys)).round(3)})
    windows = SeriesWindows(keyCols="key", timeCol="at", valueCols="value")
    series = windows.transform(session.createDataFrame(steps).repartition(5))
    labelled = series.withColumn("label", F.transform("history", lambda step: (step[0] > 0).cast("double")))
    network = Network([Lstm(6), Dense(2)], input_shape=(None, 1))
    model = DeepClassifier(
        network=network,
        featuresCol="history",
        optimizer="adam",
        seed=3,
        batchSize=30,
        maxIter=2,
        numWorkers=workers,
        lengthBuckets=3,
        truncated=8,
    ).fit(labelled)
    return {"weights": digest(model.weights), "fill": model.summary.fill, "programs": model.summary.programs}
