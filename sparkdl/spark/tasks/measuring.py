"""What tasks do to evaluate a model: score their rows and add up measures. Loaded without the stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import LABEL, Array
from sparkdl.decoding.columns import decode_features, decode_labels, decode_weights
from sparkdl.decoding.layout import VALID, check_rows
from sparkdl.evaluation import (
    Accumulator,
    ClassificationMeasures,
    EvaluationOptions,
    MultilabelMeasures,
    RegressionMeasures,
)
from sparkdl.evaluation.base import require_finite
from sparkdl.losses import Loss
from sparkdl.network import BaseNetwork
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.forward import Scoring, in_batches, loaded
from sparkdl.spark.tasks.heads import probabilities, raw_scores
from sparkdl.spark.tasks.inference import PART_BYTES
from sparkdl.spark.tasks.row_bytes import REMEDY, feature_columns

PART_SCHEMA = "state binary, failure string"
KINDS = {"classes": "exclusive classes", "labels": "several labels a row", "numbers": "numbers"}


@dataclass(frozen=True)
class EvaluationPlan:
    """What a task needs to evaluate rows; plain values and functions of modules.

    Attributes
    ----------
    kind : str
        What is predicted: "classes", "labels" (any number of them a row) or "numbers".
    scoring : Scoring
    weights : callable
        Gives the weights' bytes.
    decide : callable
        Classes (n,) of (outputs, predictions).
    options : dict
        Of the accumulator.
    weight : str
        The user's name of the column of row weights, for messages; "" without one.
    """

    kind: str
    scoring: Scoring
    weights: Callable[[], bytes]
    decide: Callable[[Array, Array], Array]
    options: EvaluationOptions
    weight: str


def measures_of(plan: EvaluationPlan, network: BaseNetwork, loss: Loss) -> Any:
    """An accumulator without any rows; ValueError for options out of range."""
    outputs = network.output_shape()[0]
    if plan.kind == "numbers":
        return RegressionMeasures(outputs)
    probabilistic = loss.gives_probabilities
    if plan.kind == "labels":
        return MultilabelMeasures(outputs, probabilistic=probabilistic, **plan.options)  # type: ignore[misc]
    return ClassificationMeasures(max(2, outputs), probabilistic=probabilistic, **plan.options)


def sum_up(batches: Iterator[pa.RecordBatch], plan: EvaluationPlan) -> Iterator[pa.RecordBatch]:
    """The sums over a task's rows as one row; what is wrong with them as a sentence, lest Spark try again."""
    try:
        measures = measures_of(plan, *plan.scoring.specs())
        for batch in batches:
            size = max(1, PART_BYTES // plan.scoring.row_bytes)
            for first in range(0, len(batch), size):
                _add(measures, batch.slice(first, size), plan)
    except ValueError as error:
        for _ in batches:  # Spark keeps a Python worker, and what it has loaded, only if it has read all of its input
            pass
        yield _part(None, str(error))
    else:
        yield _part(measures.to_bytes(), None)
    spare_modules()


def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of several tasks as one."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return
    try:
        measures = merged(rows)
    except ValueError as error:
        yield _part(None, str(error))
    else:
        yield _part(measures.to_bytes(), None)


def merged(rows: list[dict[str, Any]]) -> Accumulator:
    """The sums of several tasks as one; ValueError for the first of their failures."""
    failures = sorted(row["failure"] for row in rows if row["failure"])
    if failures:
        raise ValueError(failures[0])
    return reduce(lambda one, other: one.merge(other), (Accumulator.from_bytes(row["state"]) for row in rows))


def _part(state: bytes | None, failure: str | None) -> pa.RecordBatch:
    arrays = [pa.array([state], pa.binary()), pa.array([failure], pa.string())]
    return pa.RecordBatch.from_arrays(arrays, ["state", "failure"])


def _add(measures: Any, batch: pa.RecordBatch, plan: EvaluationPlan) -> None:
    scoring = plan.scoring
    network, loss = scoring.specs()
    held: dict[str, pa.Array] = {}  # by the user's names
    features = {}
    for name, layout in scoring.layouts.items():
        columns = feature_columns(batch, name, layout)
        held |= zip(layout.names, columns, strict=True)
        features[name] = decode_features(columns, layout)
    held[scoring.label] = batch.column(f"labels/{LABEL}")
    label = decode_labels(held[scoring.label], scoring.label, math.prod(network.output_shape()))
    decoded = [*features.values(), label]
    if plan.weight:
        held[plan.weight] = batch.column("weight")
        decoded.append(decode_weights(held[plan.weight], plan.weight))
    good = check_rows(decoded, held, REMEDY if scoring.strict else None) == VALID
    if not good.any():
        return
    weights = decoded[-1].values[good] if plan.weight else None
    labels = loss.encode(label.values[good], network.output_shape())
    if weights is not None:  # a row of weight 0 is as if it were not there, whatever its outputs would be
        good[good], labels, weights = weights > 0, labels[weights > 0], weights[weights > 0]
        if not len(weights):
            return
    rows = {name: part.values if good.all() else part.values[good] for name, part in features.items()}
    forward = loaded(scoring, plan.weights)
    with jax.enable_x64(scoring.dtype == "float64"):
        batches = in_batches(rows, {LABEL: labels}, forward)
        parts = [(each.outputs, each.predictions, each.losses) for each in batches]
    outputs, predictions, losses = (np.concatenate(part) for part in zip(*parts, strict=True))
    require_finite(outputs)
    if plan.kind == "numbers":
        measures.add(predictions, labels, weights, losses=losses)
    elif plan.kind == "labels":
        measures.add(predictions if measures.probabilistic else outputs, _presence(labels), weights, losses=losses)
    else:
        scores = (probabilities if measures.probabilistic else raw_scores)(outputs, predictions)
        chosen = plan.decide(outputs, predictions)
        measures.add(scores, _class_of(labels), weights, predicted=chosen, losses=losses)


def _presence(labels: Array) -> Array:
    """Labels as bool; those of margins may be written -1 and 1."""
    wrong = labels[~np.isin(labels, (-1, 0, 1))]
    if len(wrong):
        raise ValueError(f"Labels must be 0 or 1 to be evaluated, received {wrong[0]:g}; round them.")
    return labels > 0


def _class_of(labels: Array) -> Array:
    """Classes (n,) of classes, of one label a row, or of one-hot rows."""
    if labels.ndim == 1:
        return labels
    presence = _presence(labels)
    if labels.shape[1] == 1:
        return presence[:, 0].astype(np.int64)
    wrong = labels[presence.sum(axis=1) != 1]
    if len(wrong):
        raise ValueError(
            f"Labels must have one 1 a row, since {KINDS['classes']} are evaluated, received {wrong[0].tolist()}; "
            "use sigmoid_cross_entropy for several labels a row."
        )
    return presence.argmax(axis=1)
