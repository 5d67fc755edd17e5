"""A column of what a model's network goes on with from rows of integers, as `DeepModel.generate` adds it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType

from sparkdl.generation import Drawing
from sparkdl.scoring.inference import Batch
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.scoring import RowScoring
from sparkdl.spark.tasks.continuation import continuations


def continued(model: RowScoring, dataset: DataFrame, name: str, drawing: Drawing) -> DataFrame:
    """The DataFrame with a column of what is drawn for each row; for errors see `DeepModel.generate`."""
    columns.check_frame(dataset, "generate")
    columns.check_outputs(dataset, [name])
    try:
        drawing.check(model.getNetwork().choices()[0])
        model.getNetwork().room(drawing.steps)
    except ValueError as error:
        raise ValueError(str(error).replace("top_k", "topK", 1).replace("top_p", "topP", 1)) from None
    inputs = columns.features(dataset, model)
    scoring = model._scoring(inputs.layouts, {})
    weights = model._sent(dataset.sparkSession, dataset.isStreaming)

    def draw(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        return continuations(batches, scoring, weights, drawing)

    # Spark takes it for random, lest a filter on its results run it twice: to filter, and to show.
    column = arrow_udf(draw, ArrayType(IntegerType(), False)).asNondeterministic()(*inputs.columns.values())
    result = columns.in_rows(dataset).withColumn(name, column)
    return result.where(F.col(name).isNotNull()) if model.getHandleInvalid() == "skip" else result
