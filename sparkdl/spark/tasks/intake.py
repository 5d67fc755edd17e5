"""From the rows that Spark gives a task to the files that its worker trains on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.classes import install
from sparkdl.decoding.image_files import ImageFiles
from sparkdl.decoding.images import contiguous
from sparkdl.losses import Loss
from sparkdl.spark.tasks.row_bytes import merged_notes
from sparkdl.spark.tasks.task_plan import TaskPlan
from sparkdl.training.data.batches import Rows, ShardWriter, check_numbers, lost_digits
from sparkdl.training.options import Training
from sparkdl.training.records.recorder import Recorder
from sparkdl.training.worker import TRAINING, VALIDATION


class _Unread(Exception):
    """Rows that Arrow cannot read."""


class Taken(NamedTuple):
    """What came of a task's rows.

    Attributes
    ----------
    rows, weighing : tuple of int
        Rows to train on and to validate on, and how many of each weigh more than 0.
    wrong : list of str
        Type and message of what is wrong; [] if nothing is.
    skipped : dict of int
        By what is wrong with them, rows that were left out; one worker knows of all.
    classes : tuple of int or None
        The least and the largest class to train on; None without any.
    rounded : str or None
        What becomes of a label (see `lost_digits`).
    """

    rows: tuple[int, int]
    weighing: tuple[int, int]
    wrong: list[str]
    skipped: dict[str, int]
    classes: tuple[int, int] | None = None
    rounded: str | None = None


def read_rows(
    batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path, worker: str, recorder: Recorder
) -> Taken:
    """Write the task's rows, which are as `row_bytes.py` makes them, to the two shards."""
    started, size = recorder.now(), 0
    took = 0.0  # Spark, to give rows

    def timed() -> Iterator[pa.RecordBatch]:
        nonlocal took, size
        while True:
            asked = time.perf_counter()
            try:
                batch = next(batches, None)
            except OSError as error:
                raise _Unread(
                    f"{worker} cannot read the rows that Spark sends: {error}; check the settings "
                    "spark.sql.execution.arrow.*, such as compression.codec."
                ) from error
            took += time.perf_counter() - asked
            if batch is None:
                return
            size += batch.nbytes
            yield batch

    taken = Taken((0, 0), (0, 0), [], {})
    try:
        taken = _written(timed(), plan, directory)
    except ValueError as error:
        taken = taken._replace(wrong=["ValueError", str(error)])
    except _Unread as error:
        taken = taken._replace(wrong=["OSError", str(error)])
    except OSError as error:
        sentence = f"{worker} cannot write its rows to {directory.parent}: {error}; free or add disk there."
        taken = taken._replace(wrong=["OSError", sentence])
    rows = sum(taken.rows)
    recorder.add("read", started, took, rows=rows, bytes=size)
    recorder.add("write", started + took, recorder.now() - started - took, rows=rows, bytes=size)
    return taken


def _written(batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path) -> Taken:
    install(plan.classes)
    training, intake = Training.from_json(plan.trainings[0]), plan.intake
    loss, shape, outputs = Loss.of(training.loss), intake.layout.shape, training.network.output_shape()
    labels = (intake.outputs,) if intake.label_list else ()

    def values(batch: pa.RecordBatch, name: str, dtype: Any, row: tuple[int, ...]) -> Any:
        return contiguous(batch.column(name)).view(dtype).reshape(batch.num_rows, *row)

    def features(batch: pa.RecordBatch) -> Any:
        if intake.files:
            return ImageFiles(batch.column("features").cast(pa.binary()), intake.layout)
        return values(batch, "features", intake.features_dtype, shape)

    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, pa.binary())], ["features"])
    empty = Rows(features(nothing), loss.encode(np.zeros((0, *labels)), outputs), np.zeros(0))
    writers = [ShardWriter(directory / name, empty) for name in (TRAINING, VALIDATION)]
    weighing = [0, 0]
    notes: list[str] = []
    bounds: list[int] = []
    rounded: str | None = None
    for batch in batches:
        noted = batch.column("note").drop_null()
        if len(noted):
            notes += noted.to_pylist()
            batch = batch.filter(pc.is_null(batch.column("note")))
        held_out = batch.column("validation").to_numpy(zero_copy_only=False)
        for number, (writer, chosen) in enumerate(zip(writers, (~held_out, held_out), strict=True)):
            part = batch if chosen.all() else batch.filter(pa.array(chosen))
            label = values(part, "label", np.float64, labels)
            if number == 0 and loss.takes_classes and not labels and len(label):
                bounds += [math.floor(label.min()), math.ceil(label.max())]  # a fraction is between two classes
            rows = Rows(features(part), loss.encode(label, outputs), part.column("weight").to_numpy())
            rounded = rounded or lost_digits(rows.labels, training.dtype)
            weighing[number] += check_numbers(rows.labels, rows.weights, training.dtype)
            writer.append(rows, part.column("key").to_numpy())
    for writer in writers:
        writer.close()
    classes = (min(bounds), max(bounds)) if bounds else None
    counts = (writers[0].rows, writers[1].rows), (weighing[0], weighing[1])
    return Taken(*counts, [], merged_notes(notes, intake.layout), classes, rounded)
