"""What is done to the rows of a fit before its shuffle: they are checked, and brought to the form of `row_bytes.py`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame

from sparkdl.spark.driver import columns
from sparkdl.spark.tasks.row_bytes import FeaturesPart, Intake, prepared
from sparkdl.training.options import Training

if TYPE_CHECKING:
    from sparkdl.spark.params.params import DeepParams


class Prepared(NamedTuple):
    """Rows in the form of `intake.schema`, not computed yet, and what they are."""

    rows: DataFrame
    intake: Intake


def prepare(dataset: DataFrame, stage: DeepParams, plan: Training, classes: tuple[int, int] | None = None) -> Prepared:
    """Check the columns that a fit reads, and arrange for their rows to be decoded; no Spark job runs.

    `classes` are the label's (see `LabelPart`).

    Raises
    ------
    ValueError
        A column is missing or of another type, handleInvalid is keep, or imageStorage is files without any.
    ImportError
        Pillow is needed and missing.
    """
    if stage.getHandleInvalid() == "keep":
        raise ValueError(
            "handleInvalid must be error or skip in fit, received 'keep', which gives null predictions in transform; "
            "set it on the model."
        )
    inputs = columns.features(dataset, stage)
    files = stage.getImageStorage() == "files"
    if files:
        for layout in inputs.layouts.values():
            columns.check_files(dataset, layout)
    chosen, param = dict(inputs.columns), "labelCols" if plan.objective.several else "labelCol"
    labels = plan.objective.label_parts(stage._label_columns(), plan.network, inputs.layouts)
    for name, part in labels.items():
        chosen[f"labels/{name}"], is_list = columns.labels(dataset, part, param)
        labels[name] = replace(part, is_list=is_list, classes=classes)
    weight, validation = (
        stage.getOrDefault(name) if stage.isDefined(name) else "" for name in ("weightCol", "validationIndicatorCol")
    )
    if weight:
        chosen["weight"] = columns.numbers(dataset, weight, "weightCol")
    if validation:
        chosen["validation"] = columns.numbers(dataset, validation, "validationIndicatorCol")
    intake = Intake(
        features={name: FeaturesPart(layout, inputs.dtypes[name], files) for name, layout in inputs.layouts.items()},
        labels=labels,
        weight=weight or "",
        validation=validation or "",
        skip=stage.getHandleInvalid() == "skip",
    )
    read = dataset.select(*(column.alias(name) for name, column in chosen.items()))
    return Prepared(read.mapInArrow(partial(prepared, intake=intake), intake.schema), intake)
