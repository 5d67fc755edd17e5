"""From the rows that Spark gives a task to the files that its worker trains on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.classes import install
from sparkdl.decoding.image_files import ImageFiles
from sparkdl.decoding.images import contiguous
from sparkdl.decoding.labels import LabelPart
from sparkdl.decoding.ragged_rows import RaggedRows, numbers_of
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.spark.tasks.row_bytes import FeaturesPart, Intake, cut_rows, merged_notes
from sparkdl.spark.tasks.task_plan import TaskPlan
from sparkdl.training.data.batches import Rows, check_numbers, lost_digits
from sparkdl.training.data.shard_file import ShardWriter
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
    longest : dict of int
        Steps of the longest row by part of the features, of those whose rows are of any length.
    cut : dict of int
        By part of the features, rows that lost steps to maxLength; one worker knows of all.
    """

    rows: tuple[int, int]
    weighing: tuple[int, int]
    wrong: list[str]
    skipped: dict[str, int]
    classes: tuple[int, int] | None = None
    rounded: str | None = None
    longest: Mapping[str, int] = MappingProxyType({})
    cut: Mapping[str, int] = MappingProxyType({})


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
    objective, network = training.objective, training.network
    nothing = pa.RecordBatch.from_pydict(
        {name: pa.nulls(0, pa.binary()) for name in intake.parts} | {"weight": pa.nulls(0, pa.float64())}
    )
    empty = _rows(nothing, intake, objective, network)
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
            rows = _rows(part, intake, objective, network)
            if number == 0 and not objective.several:
                bounds += _bounds(part, intake, objective)
            rounded = rounded or next(
                filter(None, (lost_digits(own, training.dtype) for own in rows.labels.values())), None
            )
            weighing[number] += check_numbers(rows, training.dtype)
            writer.append(rows, part.column("key").to_numpy())
    for writer in writers:
        writer.close()
    classes = (min(bounds), max(bounds)) if bounds else None
    counts = (writers[0].rows, writers[1].rows), (weighing[0], weighing[1])
    longest = {name: max(writer.longest[name] for writer in writers) for name in writers[0].longest}
    return Taken(*counts, [], merged_notes(notes, intake), classes, rounded, longest, cut_rows(notes))


def _bounds(batch: pa.RecordBatch, intake: Intake, objective: Objective) -> list[int]:
    """The least and the largest class of the only output, if it is to have several; a fraction is between two."""
    ((name, part),) = intake.labels.items()
    label = numbers_of(_labels(batch, name, part))
    label = label[~np.isnan(label)] if part.follows else label  # of steps some may have none
    loss = objective.losses[name]
    if loss.one_class or not loss.takes_classes or label.ndim > 1 or not len(label):
        return []
    return [math.floor(label.min()), math.ceil(label.max())]


def _rows(batch: pa.RecordBatch, intake: Intake, objective: Objective, network: BaseNetwork) -> Rows:
    """Prepared rows (see `row_bytes.py`) as they are trained on."""
    features = {name: _features(batch, name, part) for name, part in intake.features.items()}
    labels = {name: _labels(batch, name, part) for name, part in intake.labels.items()}
    return Rows(features, objective.encode(labels, network.output_shapes), batch.column("weight").to_numpy())


def _features(batch: pa.RecordBatch, name: str, part: FeaturesPart) -> Any:
    column = batch.column(f"features/{name}")
    if part.files:
        return ImageFiles(column.cast(pa.binary()), part.layout)
    if part.layout.ragged:
        return RaggedRows.from_column(column, part.dtype, part.layout.of_step.shape)
    return contiguous(column).view(part.dtype).reshape(len(column), *part.layout.shape)


def _labels(batch: pa.RecordBatch, name: str, part: LabelPart) -> Any:
    column, shape = batch.column(f"labels/{name}"), [part.outputs] if part.is_list else []
    if part.follows:
        return RaggedRows.from_column(column, np.float64, shape)
    return contiguous(column).view(np.float64).reshape(len(column), *shape)
