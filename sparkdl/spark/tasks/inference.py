"""What a task does to score rows: the columns of features go in, what the model was asked for comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array, kept_dtype
from sparkdl.decoding.arrow_types import is_binary, is_image
from sparkdl.decoding.columns import decode_features, decode_labels
from sparkdl.decoding.layout import VALID, check_rows
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.forward import Forward, Scores, Scoring, in_batches, loaded
from sparkdl.spark.tasks.heads import Heads

Batch = tuple[pa.Array, ...]  # the columns of some rows

PART_BYTES = 64 << 20  # of the features of rows whose results are given at a time
DECODED_BYTES = 4 << 20  # of numbers that are decoded at a time, as they fit a cache; bytes are read where they are
REMEDY = "mend or drop such rows, or set handleInvalid to skip or keep"


def results(
    batches: Iterator[Batch], scoring: Scoring, weights: Callable[[], bytes], heads: Heads
) -> Iterator[pa.Array]:
    """What `scored` puts into its column, a part of a batch at a time."""
    forward, specs = loaded(scoring, weights), scoring.specs()
    for batch in batches:
        for part in _bounded(batch, forward, scoring):
            yield _result(part, forward, scoring, specs, heads)
    spare_modules()


def _bounded(batch: Batch, forward: Forward, scoring: Scoring) -> Iterator[Batch]:
    """Spark's batch in parts, lest the results, or the activations, be many times as large as what is sent."""
    rows = forward.rows if scoring.activations else PART_BYTES // scoring.row_bytes
    return _cut(batch, scoring.batch * max(1, rows // scoring.batch))


def _cut(batch: Batch, size: int) -> Iterator[Batch]:
    for first in range(0, max(len(batch[0]), 1), size):
        yield tuple(column.slice(first, size) for column in batch)


def _result(
    batch: Batch, forward: Forward, scoring: Scoring, specs: tuple[BaseNetwork, Objective], heads: Heads
) -> pa.Array:
    size = forward.rows * max(1, DECODED_BYTES // (scoring.row_bytes * forward.rows))
    if any(is_binary(column.type) or is_image(column.type) for column in batch[: len(scoring.columns)]):
        size = len(batch[0])
    marks, found = zip(*(_scores(part, forward, scoring, specs) for part in _cut(batch, size)), strict=True)
    bad, parts = np.concatenate(marks), [each for part in found for each in part]
    dtype = kept_dtype(scoring.dtype)
    if parts:
        scores = jax.tree.map(lambda *part: np.concatenate(part).astype(dtype, copy=False), *parts)
    else:
        none = np.zeros((0, 1), dtype)
        outputs = dict.fromkeys(specs[0].output_names, none)
        losses = dict.fromkeys(scoring.loss_columns, none[:, 0])
        scores = Scores(outputs, outputs, losses, dict.fromkeys(scoring.activations, none))
    columns = {
        name: head.function(scores.outputs[head.output], scores.predictions[head.output])
        for name, head in heads.items()
    }
    columns |= {scoring.activations[path]: values for path, values in scores.activations.items()}
    columns |= {column: scores.losses[name] for name, column in scoring.loss_columns.items()}
    missing = {column for name, column in scoring.loss_columns.items() if name and specs[1].several}
    lists = {name for name, head in heads.items() if head.is_list} | set(scoring.activations.values())
    fields = []
    for name, values in columns.items():
        if name in lists:
            flat = pa.array(values.astype(dtype).reshape(-1))
            offsets = np.arange(0, values.size + 1, max(values.shape[1], 1), dtype=np.int32)[: len(values) + 1]
            fields.append(pa.ListArray.from_arrays(pa.array(offsets), flat))
        else:
            fields.append(pa.array(values.astype(np.float64), from_pandas=name in missing))  # NaN is null there
    struct = pa.StructArray.from_arrays(fields, list(columns), mask=pa.array(bad) if bad.any() else None)
    return struct if len(fields) > 1 else struct.flatten()[0]


def _scores(
    batch: Batch, forward: Forward, scoring: Scoring, specs: tuple[BaseNetwork, Objective]
) -> tuple[Array, list[Scores]]:
    """Which rows are bad, and the scores of all, those being scored as zeros."""
    columns = iter(batch)
    decoded = {
        name: decode_features(list(islice(columns, len(layout.names))), layout)
        for name, layout in scoring.layouts.items()
    }
    features = {name: part.values for name, part in decoded.items()}
    parts, labels = list(decoded.values()), None
    if scoring.loss_column:
        network, objective = specs
        shapes, several = network.output_shapes, objective.several
        truth = {
            name: decode_labels(
                next(columns), column, objective.losses[name].labels_a_row(shapes[name]), optional=several
            )
            for name, column in scoring.labels.items()
        }
        parts += truth.values()
        labels = objective.encode({name: part.values for name, part in truth.items()}, shapes)
    held = dict(zip((*scoring.columns, *scoring.labels.values()), batch, strict=False))
    bad = check_rows(parts, held, REMEDY if scoring.strict else None) != VALID
    with jax.enable_x64(scoring.dtype == "float64"):
        return bad, list(in_batches(features, labels, forward))
