"""Runs a fit on the cluster: checks what can be known before, submits one barrier job, assembles its results."""

from __future__ import annotations

import io
import json
import os
import re
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkdl.layers.base import Weights
from sparkdl.losses import Loss
from sparkdl.network import nested_weights
from sparkdl.spark import progress
from sparkdl.spark.task import RESULT_SCHEMA, failure_in, run_task
from sparkdl.spark.task_plan import TaskPlan
from sparkdl.training.options import Training
from sparkdl.training.recorder import split_exchanges
from sparkdl.training.results import Epoch
from sparkdl.training.step import kept_dtype
from sparkdl.training.worker import FACTS


class Fitted(NamedTuple):
    """What a fit on the cluster returns.

    Attributes
    ----------
    weights : nested dict of NumPy arrays
    history : list of Epoch
    workers : list of dict
        For every rank: host, device, rows.
    timings : dict
        Seconds of wall time by phase, in order: spark (scheduling and shuffle), read, start, compile, training, return.
    facts : dict
        How the run ended, as `Result` has it: stop_reason, best, checks, resumed, notes.
    events : list of list of dict
        For every rank what it did when, on rank 0's clock (see `training/recorder.py`); empty without statistics.
    """

    weights: Weights
    history: list[Epoch]
    workers: list[dict[str, Any]]
    timings: dict[str, float]
    facts: dict[str, Any]
    events: list[list[dict[str, Any]]]


def check_cluster(session: SparkSession, workers: int) -> None:
    """ValueError if the session cannot run that many tasks at once, as far as can be known before trying."""
    if workers < 1:
        raise ValueError(f"numWorkers must be at least 1, received {workers}.")
    master = _setting(session, "spark.master", "")
    slots = _slots(master, int(_setting(session, "spark.task.cpus", "1")))
    if slots is not None and workers > slots:
        remedy = f" or use local[{workers}]" if master.startswith("local[") or master == "local" else ""
        tasks = "1 task" if slots == 1 else f"{slots} tasks"
        raise ValueError(f"numWorkers is {workers} but {master} can run {tasks} at once; lower numWorkers{remedy}.")
    if _setting(session, "spark.dynamicAllocation.enabled", "false") == "true":
        raise ValueError(
            "spark.dynamicAllocation.enabled is true, but workers that train together need executors that stay; "
            "set it to false for sessions that train."
        )


def fit(
    dataset: DataFrame,
    columns: dict[str, Column],
    workers: int,
    plan: Training,
    names: dict[str, str],
    device: str,
    shown: bool,
    worker_logs: bool,
    initial: bytes | None,
) -> Fitted:
    """Train on the rows of a DataFrame.

    Parameters
    ----------
    dataset : DataFrame
    columns : dict of Column
        Normalised (see `columns.py`): features, label, and perhaps weight and validation.
    workers : int
        Barrier tasks.
    plan : Training
    names : dict of str
        The user's names of these columns, for messages.
    device : str
        auto, cpu or gpu.
    shown : bool
        Whether to draw a progress bar.
    worker_logs : bool
        Whether to log what workers print.
    initial : bytes or None
        Packed weights to start from.

    Raises
    ------
    ValueError
        The rows do not fit the network or the loss.
    RuntimeError
        A worker failed; the message names it and gives its reason.
    """
    session = dataset.sparkSession
    began = time.time()
    # The rows' own hash decides which worker gets them and in which order, so that the same rows train alike however
    # the DataFrame happens to be partitioned, and equal inputs give bit-identical weights.
    rows = dataset.select(*(column.alias(name) for name, column in columns.items()))
    rows = rows.withColumn("key", F.xxhash64(*columns)).repartition(workers, "key")
    kinds = dict(rows.dtypes)
    host = _setting(session, "spark.driver.host", "localhost")
    bind = _setting(session, "spark.driver.bindAddress", host)
    with progress.Receiver(host, bind, Loss.of(plan.loss).metric, shown, worker_logs) as receiver:
        task = TaskPlan(
            training=plan.to_json(),
            workers=workers,
            names=names,
            features_dtype="uint8" if kinds["features"] == "binary" else kept_dtype(plan.dtype),
            label_list=kinds["label"] != "double",
            device=device,
            progress=receiver.address,
            worker_logs=worker_logs,
            initial=initial,
        )
        # Spark aborts a job whose last stage is a failed barrier stage, but tries again one that feeds a shuffle.
        results = rows.mapInArrow(partial(run_task, plan=task), RESULT_SCHEMA, barrier=True).repartition(1)
        try:
            table = results.toArrow()
        except Exception as error:
            message = failure_in(str(error))
            if message is None:
                raise
            raise RuntimeError(message) from None
    return _assembled(table.to_pylist(), began)


def _assembled(results: list[dict[str, Any]], began: float) -> Fitted:
    rows = sorted(results, key=lambda row: (row["kind"], row["rank"], row["number"]))
    failures = [json.loads(row["payload"]) for row in rows if row["kind"] == "failure"]
    if failures:  # the first that is not the consequence of another
        failure = min(failures, key=lambda failure: failure["secondary"])
        raise (ValueError if failure["type"] == "ValueError" else RuntimeError)(failure["message"])
    done = [json.loads(row["payload"]) for row in rows if row["kind"] == "done"]
    data = b"".join(row["payload"] for row in rows if row["kind"] == "weights")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        weights = nested_weights(dict(arrays))
    first = done[0]
    if first["events"]:
        back = max(0.0, time.time() - first["ended"])
        first["events"].append({"phase": "return", "start": first["ended"], "seconds": back, "bytes": len(data)})
    marks = [began, *(max(event[mark] for event in done) for mark in ("began", "read", "joined")), first["ended"]]
    spark, read, start, run = np.diff(marks)
    timings = {
        "spark": spark,
        "read": read,
        "start": start,
        "compile": first["compile_seconds"],
        "training": first["training_seconds"],
        "return": run - first["compile_seconds"] - first["training_seconds"] + time.time() - first["ended"],
    }
    return Fitted(
        weights,
        [Epoch(**epoch) for epoch in first["history"]],
        [{"rank": rank} | {key: event[key] for key in ("host", "device", "rows")} for rank, event in enumerate(done)],
        {phase: float(seconds) for phase, seconds in timings.items()},
        {name: first[name] for name in FACTS},
        split_exchanges([event["events"] for event in done]),
    )


def _slots(master: str, cpus: int) -> int | None:
    """Tasks a local master can run at once; None where that is not known from its name."""
    if master == "local":
        return 1
    if found := re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master):
        cores = os.cpu_count() or 1 if found[1] == "*" else int(found[1])
        return cores // cpus
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * (int(found[2]) // cpus)
    return None


def _setting(session: SparkSession, key: str, default: str) -> str:
    return session.conf.get(key, default) or default
