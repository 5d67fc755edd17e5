"""Distributed evaluation: tasks score their rows and add up measures, and only sums travel to the driver."""

from __future__ import annotations

import math
from functools import partial

from pyspark.sql import DataFrame

from sparkdl.arrays import LABEL
from sparkdl.evaluation import Evaluation, EvaluationOptions
from sparkdl.losses import Loss, SoftmaxLoss
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.interpreter import complaint_in
from sparkdl.spark.driver.old_spark import to_arrow
from sparkdl.spark.driver.remote import parallelism
from sparkdl.spark.driver.shipping import packed_classes
from sparkdl.spark.scoring import RowScoring
from sparkdl.spark.tasks.forward import Scoring
from sparkdl.spark.tasks.measuring import KINDS, PART_SCHEMA, EvaluationPlan, measures_of, merge, merged, sum_up

MERGED_BY_DRIVER = 16  # parts; more are first merged by tasks, so that the driver's memory does not grow with them
OPTIONS = {"classes": ["top_k", "bins", "exact_rows"], "labels": ["bins", "exact_rows"], "numbers": []}


def evaluate(model: RowScoring, dataset: DataFrame, options: EvaluationOptions) -> Evaluation:
    """The measures of a model on the rows of a DataFrame; see `DeepModel.evaluate`."""
    columns.check_rows(dataset, "evaluate")
    loss, network = model.getLoss(), model.getNetwork()
    loss.check(network.output_shape())
    if model.getHandleInvalid() == "keep":
        raise ValueError("handleInvalid must be error or skip in evaluate, received 'keep'; set it on the model.")
    inputs = columns.features(dataset, model)
    label, label_list = columns.labels(dataset, model.getLabelCol())
    chosen = inputs.columns | {f"labels/{LABEL}": label}
    weight = model.getWeightCol() if model.isDefined(model.weightCol) else ""
    if weight:
        chosen["weight"] = columns.numbers(dataset, weight, "weightCol")
    rows = dataset.select(*(column.alias(name) for name, column in chosen.items()))
    kind = _kind(loss, network.output_shape()[0], label_list)
    strange = [name for name in options if name not in OPTIONS[kind]]
    if strange:
        taken = f"the options are {', '.join(OPTIONS[kind])}" if OPTIONS[kind] else "there are no options"
        raise ValueError(f"{strange[0]} is no option of the evaluation of {KINDS[kind]}, where {taken}; leave it out.")
    plan = EvaluationPlan(
        kind=kind,
        scoring=Scoring(
            key=model._shipped.key,
            network=network.to_json(),
            loss=loss.to_json(),
            batch=model.getBatchSize(),
            layouts=inputs.layouts,
            dtype=model.getComputeDtype(),
            device=model.getDeviceType(),
            label=model.getLabelCol(),
            strict=model.getHandleInvalid() == "error",
            classes=packed_classes(network, loss),
        ),
        weights=model._sent(dataset.sparkSession),
        decide=model._decide(),
        options=options,
        weight=weight,
    )
    measures = measures_of(plan, network, loss)  # refuses options out of range before any job
    try:
        parts = to_arrow(_parts(rows, plan)).to_pylist()
    except Exception as error:
        if message := complaint_in(str(error)):
            raise RuntimeError(message) from None
        raise
    return (merged(parts) if parts else measures).result()


def _parts(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """One row of sums for each task of the last stage."""
    # Twice the slots, so that no slot is left idle for long, however many partitions there are.
    most = max(MERGED_BY_DRIVER, 2 * parallelism(rows.sparkSession))
    parts = rows.coalesce(most).mapInArrow(partial(sum_up, plan=plan), PART_SCHEMA)
    if most > MERGED_BY_DRIVER:
        parts = parts.repartition(math.isqrt(most)).mapInArrow(merge, PART_SCHEMA)
    return parts


def _kind(loss: Loss, outputs: int, label_list: bool) -> str:
    if not loss.takes_classes:
        return "numbers"
    return "labels" if label_list and outputs > 1 and not isinstance(loss, SoftmaxLoss) else "classes"
