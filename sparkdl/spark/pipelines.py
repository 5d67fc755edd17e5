"""Finds the model of a fitted pipeline that a function of columns can stand for, or the stage that is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.ml import PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import CrossValidatorModel, TrainValidationSplitModel

from sparkdl.spark.scoring import RowScoring, output_columns

TUNED = CrossValidatorModel, TrainValidationSplitModel
# Params that name what a stage adds; of one with none of these nobody knows what it does.
ADDED = ("outputCol", "outputCols", "predictionCol", "rawPredictionCol", "probabilityCol", "leafCol", "varianceCol")


def scoring_stage(model: Any) -> RowScoring:
    """The model itself or, of a pipeline, its last stage, made to read what a VectorAssembler before it reads.

    Of a tuned model the best counts. Stages that make columns it does not read, such as the StringIndexer of labels,
    are passed over.

    Raises
    ------
    ValueError
        It is no model of sparkdl's, or a stage makes what it reads; the message names the stage.
    """
    stages = list(_flat(model))
    if not stages or not isinstance(stages[-1], RowScoring):
        received = type(model).__name__
        if not stages or stages[-1] is not model:
            received += f" that ends in {type(stages[-1]).__name__}" if stages else " without stages"
        raise ValueError(
            "model must be one of sparkdl's, such as a DeepClassificationModel, a PipelineModel that ends in one, or a "
            "CrossValidatorModel or TrainValidationSplitModel whose best model is such, "
            f"received {received}; pass the stage."
        )
    last = stages.pop()
    chosen = last.getFeaturesCols() or [last.getFeaturesCol()]
    read = [name for names in chosen.values() for name in names] if isinstance(chosen, dict) else chosen
    for stage in reversed(stages):
        added = _added(stage)
        if added and not added & set(read):
            continue
        if not isinstance(stage, VectorAssembler) or stage.getHandleInvalid() == "skip":
            what = f"makes {', '.join(sorted(added & set(read)))}" if added else "may change any column"
            raise ValueError(
                f"A function reads columns as they are, but before the {type(last).__name__} of this pipeline comes a "
                f"{type(stage).__name__}, which {what}; use the pipeline's transform, or register the last stage and "
                "give it what that stage makes."
            )

        def spread(names: list[str], added: set[str] = added, stage: VectorAssembler = stage) -> list[str]:
            return [name for column in names for name in (stage.getInputCols() if column in added else [column])]

        chosen = {part: spread(names) for part, names in chosen.items()} if isinstance(chosen, dict) else spread(chosen)
        read = spread(read)
        last = last.copy({last.featuresCol: None, last.featuresCols: chosen})
    return last


def _flat(model: Any) -> Iterator[Any]:
    if isinstance(model, PipelineModel):
        for stage in model.stages:
            yield from _flat(stage)
    elif isinstance(model, TUNED):
        yield from _flat(model.bestModel)
    else:
        yield model


def _added(stage: Any) -> set[str]:
    if isinstance(stage, RowScoring):
        return set(output_columns(stage))
    named = [stage.getOrDefault(name) for name in ADDED if stage.hasParam(name) and stage.isDefined(name)]
    return {name for value in named for name in ([value] if isinstance(value, str) else value)}
