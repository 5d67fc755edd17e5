"""Scores rows: the columns of features go in, what the model was asked for comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array, kept_dtype
from sparkdl.decoding.arrow_types import is_binary, is_image
from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.labels import decode_labels
from sparkdl.decoding.layout import VALID, check_rows
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.scoring.forward import Forward, Scores, Scoring, in_batches, joined
from sparkdl.scoring.heads import Function, Heads

Batch = tuple[pa.Array, ...]  # the columns of some rows

PART_BYTES = 64 << 20  # of the features of rows whose results are given at a time
DECODED_BYTES = 4 << 20  # of numbers that are decoded at a time, as they fit a cache; bytes are read where they are
REMEDY = "mend or drop such rows, or set handleInvalid to skip or keep"


class Scored(NamedTuple):
    """What is made of n rows.

    Attributes
    ----------
    columns : dict of pa.Array
        By the name of each: those of the heads, then of activations, then of losses.
    bad : array (n,)
        Of bool: rows that cannot be used, of which the columns hold what would be made of zeros.
    """

    columns: dict[str, pa.Array]
    bad: Array


def scored(
    batch: Batch, forward: Forward, scoring: Scoring, specs: tuple[BaseNetwork, Objective], heads: Heads
) -> Iterator[Scored]:
    """What is made of the rows, a part of them at a time, lest it be many times as large as what is given.

    Parameters
    ----------
    batch : tuple of pa.Array
        The columns of the features, those of one part after those of another, and with losses those of the labels.
    forward : Forward
        Of `scoring`.
    scoring : Scoring
    specs : (BaseNetwork, Objective)
        Those of `scoring`.
    heads : dict of Head
        By name of the column.

    Raises
    ------
    ValueError
        A row cannot be used and `scoring` is strict, or a column is of a type that holds no features.
    """
    rows = forward.rows if scoring.activations else PART_BYTES // scoring.row_bytes
    for part in cut(batch, scoring.batch * max(1, rows // scoring.batch)):
        yield _scored(part, forward, scoring, specs, heads)


def cut(batch: Batch, size: int) -> Iterator[Batch]:
    """The rows in parts of so many; of none, one part."""
    for first in range(0, max(len(batch[0]), 1), size):
        yield tuple(column.slice(first, size) for column in batch)


def _scored(
    batch: Batch, forward: Forward, scoring: Scoring, specs: tuple[BaseNetwork, Objective], heads: Heads
) -> Scored:
    size = forward.rows * max(1, DECODED_BYTES // (scoring.row_bytes * forward.rows))
    if any(is_binary(column.type) or is_image(column.type) for column in batch[: len(scoring.columns)]):
        size = len(batch[0])
    marks, found = zip(*(_scores(part, forward, scoring, specs) for part in cut(batch, size)), strict=True)
    bad, parts = np.concatenate(marks), [each for part in found for each in part]
    dtype = kept_dtype(scoring.dtype)
    scores = joined(parts) if parts else _no_scores(scoring, specs[0].output_names)
    columns: dict[str, pa.Array] = {}
    for name, head in heads.items():
        made = _by_row(head.function, scores.outputs[head.output], scores.predictions[head.output])
        columns[name] = _column(made, dtype if head.is_list else None)
    for path, name in scoring.activations.items():
        columns[name] = _column(scores.activations[path], dtype)
    for output, name in scoring.loss_columns.items():
        losses = _mean_of_steps(scores.losses[output])
        some_lack_it = (output and specs[1].several) or output in scoring.by_step
        columns[name] = pa.array(losses.astype(np.float64), from_pandas=some_lack_it)  # NaN is null there
    return Scored(columns, bad)


def _no_scores(scoring: Scoring, outputs: Sequence[str]) -> Scores:
    """Those of no rows."""
    none = np.zeros((0, 1), kept_dtype(scoring.dtype))
    steps = RaggedRows(none, np.zeros(0, np.int64))
    made = {name: steps if name in scoring.by_step else none for name in (*outputs, *scoring.activations)}
    return Scores(made, made, dict.fromkeys(scoring.loss_columns, none[:, 0]), made)


def _by_row(function: Function, outputs: Any, predictions: Any) -> Any:
    """What a head makes of rows, or of each of their steps."""
    if not isinstance(outputs, RaggedRows):
        return function(outputs, predictions)
    return RaggedRows(function(outputs.values, predictions.values), outputs.lengths)


def _column(values: Any, list_of: str | None) -> pa.Array:
    """A column of doubles (n,), or of lists (n, k) of that dtype; of RaggedRows one of lists with one for each step."""
    if isinstance(values, RaggedRows):
        return _lists(np.append(0, np.cumsum(values.lengths)), _column(values.values, list_of))
    if not list_of:
        return pa.array(values.astype(np.float64))
    flat = pa.array(values.astype(list_of, copy=False).reshape(-1))
    return _lists(np.arange(0, values.size + 1, max(values.shape[1], 1))[: len(values) + 1], flat)


def _lists(offsets: Array, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values)


def _mean_of_steps(losses: Any) -> Array:
    """(n,) of the losses of rows; of those of steps the mean over the steps of each row that have one, else NaN."""
    if not isinstance(losses, RaggedRows):
        return losses
    row_of, known = np.repeat(np.arange(len(losses)), losses.lengths), ~np.isnan(losses.values)
    sums = np.bincount(row_of[known], losses.values[known], len(losses))
    count = np.bincount(row_of[known], minlength=len(losses))
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


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
    network, objective = specs
    wanted = objective.label_parts(scoring.labels, network, scoring.layouts) if scoring.loss_column else {}
    truth = {name: decode_labels(next(columns), part, decoded) for name, part in wanted.items()}
    held = dict(zip((*scoring.columns, *scoring.labels.values()), batch, strict=False))
    parts, labels = [*decoded.values(), *truth.values()], None
    bad = check_rows(parts, held, REMEDY if scoring.strict else None) != VALID
    if truth:
        known = {name: _without(part.values, bad) for name, part in truth.items()}
        labels = objective.encode(known, network.output_shapes, optional=True)
    with jax.enable_x64(scoring.dtype == "float64"):
        return bad, list(in_batches(features, labels, forward))


def _without(labels: Any, bad: Array) -> Any:
    """The labels, with NaN for rows that cannot be used, as a loss need not take what stands there."""
    if isinstance(labels, RaggedRows):
        values = _without(labels.values, np.repeat(bad, labels.lengths))
        return RaggedRows(values, labels.lengths, labels.steps)
    return np.where(bad.reshape(-1, *[1] * (labels.ndim - 1)), np.nan, labels) if bad.any() else labels
