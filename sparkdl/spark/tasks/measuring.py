"""What tasks do to evaluate a model: score their rows and add up measures. Loaded without the stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.columns import decode_features, decode_weights
from sparkdl.decoding.labels import decode_labels
from sparkdl.decoding.layout import VALID, check_rows
from sparkdl.decoding.ragged_rows import RaggedRows, numbers_of
from sparkdl.evaluation import (
    Accumulator,
    ClassificationMeasures,
    DetectionMeasures,
    EvaluationOptions,
    MultilabelMeasures,
    QuantileMeasures,
    RegressionMeasures,
)
from sparkdl.evaluation.base import require_finite
from sparkdl.layers.ragged import step_shape
from sparkdl.losses import DistributionLoss, Loss, Quantile, Yolo
from sparkdl.losses.positions import of_one_position
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective, without_label
from sparkdl.scoring.forward import Scoring, in_batches, joined, loaded
from sparkdl.scoring.heads import probabilities, raw_scores
from sparkdl.scoring.inference import PART_BYTES
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.device import prepare_device
from sparkdl.spark.tasks.row_bytes import REMEDY, feature_columns

PART_SCHEMA = "output string, state binary, failure string"
KINDS = {
    "classes": "exclusive classes",
    "labels": "several labels a row",
    "numbers": "numbers",
    "quantiles": "quantiles",
    "boxes": "boxes",
}
POSITIONS = 1 << 20  # numbers of positions that are measured at a time


@dataclass(frozen=True)
class EvaluationPlan:
    """What a task needs to evaluate rows; plain values and functions of modules.

    Attributes
    ----------
    kinds : dict of str
        By output, what is predicted: "classes", "labels" (any number of them a row), "numbers", "quantiles" of
        numbers, or "boxes".
    scoring : Scoring
    weights : callable
        Gives the weights' bytes.
    decide : callable
        Classes (n,) of (outputs, predictions).
    options : dict of dict
        By output, of the accumulator.
    weight : str
        The user's name of the column of row weights, for messages; "" without one.
    """

    kinds: dict[str, str]
    scoring: Scoring
    weights: Callable[[], bytes]
    decide: Callable[[Array, Array], Array]
    options: dict[str, EvaluationOptions]
    weight: str


def measures_of(plan: EvaluationPlan, network: BaseNetwork, objective: Objective) -> dict[str, Any]:
    """By output an accumulator without any rows; ValueError for options out of range."""
    shapes = network.output_shapes
    return {
        name: _measures(kind, step_shape(shapes[name]), of_one_position(objective.losses[name]), plan.options[name])
        for name, kind in plan.kinds.items()
    }


def _measures(kind: str, shape: tuple[int, ...], loss: Loss, options: EvaluationOptions) -> Any:
    """Of rows, or steps, of that shape, whose last axis has the outputs; the loss is that of a position."""
    if isinstance(loss, Quantile):
        return QuantileMeasures(loss.quantiles, math.prod(shape[:-1]))
    if isinstance(loss, Yolo):
        return DetectionMeasures(loss.classes(shape))
    if kind == "numbers":
        return RegressionMeasures(math.prod(shape[:-1]) * loss.labels_a_row(shape[-1:]))
    outputs, probabilistic = shape[-1], loss.gives_probabilities
    if kind == "labels":
        return MultilabelMeasures(outputs, probabilistic=probabilistic, **options)  # type: ignore[misc]
    return ClassificationMeasures(max(2, outputs), probabilistic=probabilistic, **options)


def sum_up(batches: Iterator[pa.RecordBatch], plan: EvaluationPlan) -> Iterator[pa.RecordBatch]:
    """The sums over a task's rows as one row; what is wrong with them as a sentence, lest Spark try again."""
    prepare_device(plan.scoring.device)
    try:
        measures = measures_of(plan, *plan.scoring.specs())
        for batch in batches:
            size = max(1, PART_BYTES // plan.scoring.row_bytes)
            for first in range(0, len(batch), size):
                _add(measures, batch.slice(first, size), plan)
    except ValueError as error:
        for _ in batches:  # Spark keeps a Python worker, and what it has loaded, only if it has read all of its input
            pass
        yield _part({}, str(error))
    else:
        yield _part(measures, None)
    spare_modules()


def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of several tasks as one."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return
    try:
        measures = merged(rows)
    except ValueError as error:
        yield _part({}, str(error))
    else:
        yield _part(measures, None)


def merged(rows: list[dict[str, Any]]) -> dict[str, Accumulator]:
    """By output the sums of several tasks as one; ValueError for the first of their failures."""
    failures = sorted(row["failure"] for row in rows if row["failure"])
    if failures:
        raise ValueError(failures[0])
    found: dict[str, Accumulator] = {}
    for row in rows:
        own, name = Accumulator.from_bytes(row["state"]), row["output"]
        found[name] = found[name].merge(own) if name in found else own
    return found


def _part(measures: dict[str, Any], failure: str | None) -> pa.RecordBatch:
    """A row for every output, or one that says what failed."""
    rows = [{"output": name, "state": own.to_bytes(), "failure": None} for name, own in measures.items()]
    schema = pa.schema([("output", pa.string()), ("state", pa.binary()), ("failure", pa.string())])
    return pa.RecordBatch.from_pylist(rows or [{"output": None, "state": None, "failure": failure}], schema)


def _add(measures: dict[str, Any], batch: pa.RecordBatch, plan: EvaluationPlan) -> None:
    scoring = plan.scoring
    network, objective = scoring.specs()
    held: dict[str, pa.Array] = {}  # by the user's names
    features = {}
    for name, layout in scoring.layouts.items():
        columns = feature_columns(batch, name, layout)
        held |= zip(layout.names, columns, strict=True)
        features[name] = decode_features(columns, layout)
    truth = {}
    for name, part in objective.label_parts(scoring.labels, network, scoring.layouts).items():
        held[part.column] = batch.column(f"labels/{name}")
        truth[name] = decode_labels(held[part.column], part, features)
    decoded = [*features.values(), *truth.values()]
    if plan.weight:
        held[plan.weight] = batch.column("weight")
        decoded.append(decode_weights(held[plan.weight], plan.weight))
    good = check_rows(decoded, held, REMEDY if scoring.strict else None) == VALID
    if not good.any():
        return
    weights = decoded[-1].values[good] if plan.weight else None
    if weights is not None:  # a row of weight 0 is as if it were not there, whatever its outputs would be
        good[good], weights = weights > 0, weights[weights > 0]
        if not len(weights):
            return
    known_labels = {name: part.values[good] for name, part in truth.items()}
    labels = objective.encode(known_labels, network.output_shapes)
    rows = {name: part.values if good.all() else part.values[good] for name, part in features.items()}
    forward = loaded(scoring, plan.weights)
    with jax.enable_x64(scoring.dtype == "float64"):
        found = joined(list(in_batches(rows, labels, forward)))
    for name, own in measures.items():
        values, own_weights = numbers_of(known_labels[name]), weights
        if weights is not None and isinstance(known_labels[name], RaggedRows):  # a step weighs what its row does
            own_weights = np.repeat(weights, known_labels[name].lengths)
        known = ~np.isnan(values).any(axis=tuple(range(1, values.ndim)))
        if known.any():
            parts = {
                kind: numbers_of(getattr(found, kind)[name])[known] for kind in ("outputs", "predictions", "losses")
            }
            chosen = None if own_weights is None else own_weights[known]
            each = numbers_of(labels[name])[known]
            shape, kind = step_shape(network.output_shapes[name]), plan.kinds[name]
            if isinstance(loss := of_one_position(objective.losses[name]), DistributionLoss):
                parts["predictions"] = loss.mean(parts["predictions"].reshape(-1, shape[-1])).reshape(len(each), -1)
            if kind == "classes" and len(shape) > 1:
                _add_positions(own, plan.decide, parts, each, chosen, shape)
            else:
                _add_output(own, kind, plan.decide, parts, each, chosen)


def _add_positions(
    measures: Any,
    decide: Callable[[Array, Array], Array],
    found: dict[str, Array],
    labels: Array,
    weights: Array | None,
    shape: tuple[int, ...],
) -> None:
    """Add every position of the rows as a row that weighs what its row does; some rows at a time, as they are many."""
    positions, size = math.prod(shape[:-1]), max(1, POSITIONS // math.prod(shape))
    for first in range(0, len(labels), size):
        rows = slice(first, first + size)
        parts: dict[str, Array] = {"losses": np.repeat(found["losses"][rows], positions)}
        parts |= {kind: found[kind][rows].reshape(-1, shape[-1]) for kind in ("outputs", "predictions")}
        each = labels[rows].reshape(-1, *labels.shape[2:])
        own = None if weights is None else np.repeat(weights[rows], positions)
        if not (known := ~without_label(each)).all():
            parts, each = {kind: values[known] for kind, values in parts.items()}, each[known]
            own = None if own is None else own[known]
        if len(each):
            _add_output(measures, "classes", decide, parts, each, own)


def _add_output(
    measures: Any,
    kind: str,
    decide: Callable[[Array, Array], Array],
    found: dict[str, Array],
    labels: Array,
    weights: Array | None,
) -> None:
    """Add the rows that have an output's label; `found` are its outputs, predictions and losses."""
    outputs, predictions, losses = found["outputs"], found["predictions"], found["losses"]
    require_finite(outputs)
    if kind in ("numbers", "quantiles", "boxes"):
        measures.add(predictions, labels.reshape(len(labels), -1), weights, losses=losses)
    elif kind == "labels":
        measures.add(predictions if measures.probabilistic else outputs, _presence(labels), weights, losses=losses)
    else:
        scores = (probabilities if measures.probabilistic else raw_scores)(outputs, predictions)
        chosen = decide(outputs, predictions)
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
