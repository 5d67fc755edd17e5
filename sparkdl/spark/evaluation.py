"""Distributed evaluation: tasks score their rows and add up measures, and only sums travel to the driver."""

from __future__ import annotations

import math
from functools import partial

from pyspark.sql import DataFrame

from sparkdl.evaluation import Evaluation, EvaluationOptions
from sparkdl.layers.ragged import step_shape
from sparkdl.losses import DistributionLoss, Loss, Quantile, SoftmaxLoss, Yolo
from sparkdl.losses.positions import of_one_position
from sparkdl.scoring.forward import Scoring
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.interpreter import complaint_in
from sparkdl.spark.driver.old_spark import to_arrow
from sparkdl.spark.driver.remote import parallelism
from sparkdl.spark.driver.shipping import packed_classes
from sparkdl.spark.scoring import RowScoring
from sparkdl.spark.tasks.measuring import KINDS, PART_SCHEMA, EvaluationPlan, measures_of, merge, merged, sum_up

MERGED_BY_DRIVER = 16  # parts; more are first merged by tasks, so that the driver's memory does not grow with them
OPTIONS = {"classes": ["top_k", "bins", "exact_rows"], "labels": ["bins", "exact_rows"]}
OPTIONS |= {"numbers": [], "quantiles": [], "boxes": []}


def evaluate(model: RowScoring, dataset: DataFrame, options: EvaluationOptions) -> Evaluation | dict[str, Evaluation]:
    """The measures of a model on the rows of a DataFrame; see `DeepModel.evaluate`."""
    columns.check_rows(dataset, "evaluate")
    model._require_loss("evaluate")
    objective, network = model._objective(), model.getNetwork()
    objective.check(network)
    objective.check_rows_alone("evaluate")
    if model.getHandleInvalid() == "keep":
        raise ValueError("handleInvalid must be error or skip in evaluate, received 'keep'; set it on the model.")
    inputs = columns.features(dataset, model)
    labels, shapes = model._label_columns(), network.output_shapes
    chosen, kinds = dict(inputs.columns), {}
    for name, part in objective.label_parts(labels, network, inputs.layouts).items():
        chosen[f"labels/{name}"], is_list = columns.labels(dataset, part)
        kinds[name] = _kind(objective.losses[name], step_shape(shapes[name]), is_list)
    weight = model.getWeightCol() if model.isDefined(model.weightCol) else ""
    if weight:
        chosen["weight"] = columns.numbers(dataset, weight, "weightCol")
    rows = dataset.select(*(column.alias(name) for name, column in chosen.items()))
    known = {name for kind in kinds.values() for name in OPTIONS[kind]}
    strange = [name for name in options if name not in known]
    if strange:
        taken = f"the options are {', '.join(sorted(known))}" if known else "there are no options"
        what = " and of ".join(dict.fromkeys(KINDS[kind] for kind in kinds.values()))
        raise ValueError(f"{strange[0]} is no option of the evaluation of {what}, where {taken}; leave it out.")
    plan = EvaluationPlan(
        kinds=kinds,
        scoring=Scoring(
            key=model._shipped.key,
            network=network.to_json(),
            objective=objective.to_json(),
            batch=model.getBatchSize(),
            layouts=inputs.layouts,
            dtype=model.getComputeDtype(),
            device=model.getDeviceType(),
            by_step=tuple(network.step_outputs),
            labels=labels,
            strict=model.getHandleInvalid() == "error",
            classes=packed_classes(network, *objective.losses.values()),
        ),
        weights=model._sent(dataset.sparkSession),
        decide=model._decide(),
        options={
            name: {option: value for option, value in options.items() if option in OPTIONS[kind]}  # type: ignore[misc]
            for name, kind in kinds.items()
        },
        weight=weight,
    )
    measures = measures_of(plan, network, objective)  # refuses options out of range before any job
    try:
        parts = to_arrow(_parts(rows, plan)).to_pylist()
    except Exception as error:
        if message := complaint_in(str(error)):
            raise RuntimeError(message) from None
        raise
    results = {}
    for name, own in (merged(parts) if parts else measures).items():
        try:
            results[name] = own.result()
        except ValueError as error:
            raise ValueError(f"Output {name!r}: {error}" if objective.several else str(error)) from None
    return results if objective.several else next(iter(results.values()))


def _parts(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """One row of sums for each task of the last stage."""
    # Twice the slots, so that no slot is left idle for long, however many partitions there are.
    most = max(MERGED_BY_DRIVER, 2 * parallelism(rows.sparkSession))
    parts = rows.coalesce(most).mapInArrow(partial(sum_up, plan=plan), PART_SCHEMA)
    if most > MERGED_BY_DRIVER:
        parts = parts.repartition(math.isqrt(most)).mapInArrow(merge, PART_SCHEMA)
    return parts


def _kind(loss: Loss, shape: tuple[int, ...], label_list: bool) -> str:
    """Of rows, or steps, of that shape; see `EvaluationPlan`.

    Raises
    ------
    ValueError
        The labels are neither classes nor a number for each output, as where a loss compares two outputs.
    """
    of_one, outputs = of_one_position(loss), shape[-1]
    if isinstance(of_one, Quantile):
        return "quantiles"
    if isinstance(loss, Yolo):
        return "boxes"
    if of_one.takes_classes:
        independent = outputs > 1 and not isinstance(loss, SoftmaxLoss)
        return "labels" if label_list and independent and loss is of_one else "classes"
    labels = loss.labels_a_row(shape)
    if labels != math.prod(shape) and not isinstance(of_one, DistributionLoss):
        raise ValueError(
            f"evaluate has no measures of {type(of_one).__name__}, whose rows have {math.prod(shape)} outputs and "
            f"{labels} labels; score_rows gives the loss of rows, and summary.history the metric of the fit."
        )
    return "numbers"
