"""From the rows that Spark gives a task to the files that its worker trains on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparkdl.losses import Loss
from sparkdl.spark import columns
from sparkdl.spark.task_plan import TaskPlan
from sparkdl.training.batches import Rows, ShardWriter
from sparkdl.training.options import Training
from sparkdl.training.recorder import Recorder
from sparkdl.training.worker import TRAINING, VALIDATION


def read_rows(
    batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path, worker: str, recorder: Recorder
) -> tuple[tuple[int, int], list[str]]:
    """Write the task's rows to the two shards; how many there are in each, and type and message of what is wrong."""
    started, rows, size = recorder.now(), (0, 0), 0
    took = 0.0  # Spark, to give rows

    def timed() -> Iterator[pa.RecordBatch]:
        nonlocal took, size
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            took += time.perf_counter() - asked
            if batch is None:
                return
            size += batch.nbytes
            yield batch

    try:
        rows, wrong = _written(timed(), plan, directory), []
    except ValueError as error:
        wrong = ["ValueError", str(error)]
    except OSError as error:
        wrong = ["OSError", f"{worker} cannot write its rows to {directory.parent}: {error}; free or add disk there."]
    recorder.add("read", started, took, rows=sum(rows), bytes=size)
    recorder.add("write", started + took, recorder.now() - started - took, rows=sum(rows), bytes=size)
    return rows, wrong


def _written(batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path) -> tuple[int, int]:
    training = Training.from_json(plan.training)
    loss, shape, outputs = Loss.of(training.loss), training.network.input_shape, training.network.output_shape()
    assert shape is not None
    names = plan.names
    no_labels = np.zeros((0, *outputs) if plan.label_list else 0)
    empty = Rows(np.zeros((0, *shape), plan.features_dtype), loss.encode(no_labels, outputs), np.zeros(0))
    writers = [ShardWriter(directory / name, empty) for name in (TRAINING, VALIDATION)]
    for batch in batches:
        rows = Rows(
            columns.decode_features(batch["features"], names["features"], shape),
            loss.encode(columns.decode_labels(batch["label"], names["label"]), outputs),
            columns.decode_weights(batch["weight"], names["weight"]) if "weight" in names else np.ones(len(batch)),
        )
        held_out = np.zeros(len(batch), bool)
        if "validation" in names:
            held_out = columns.decode_flags(batch["validation"], names["validation"])
        keys = batch["key"].to_numpy()
        for writer, chosen in zip(writers, (~held_out, held_out), strict=True):
            whole = chosen.all()
            writer.append(rows if whole else Rows(*(part[chosen] for part in rows)), keys if whole else keys[chosen])
    for writer in writers:
        writer.close()
    return writers[0].rows, writers[1].rows
