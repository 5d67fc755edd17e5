"""BoxSelector: which of a detector's predictions count, as a Spark ML Transformer."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from pyspark.ml import Transformer
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, StructField, StructType

from sparkdl.boxes import KEPT, check_selection
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.driver.interpreter import check_interpreter
from sparkdl.spark.params.box_params import BoxArguments, BoxParams
from sparkdl.spark.saving.persistence import Saved
from sparkdl.spark.tasks.box_selection import selected

BOXES = ArrayType(
    StructType(
        [
            StructField(name, IntegerType() if KEPT[name].kind == "i" else DoubleType(), False)
            for name in KEPT.names or ()
        ]
    ),
    False,
)


class BoxSelector(Transformer, BoxParams, Saved):
    """Makes of a detector's predictions the boxes that it is sure of, without those that lie on a better one.

    `transform` adds `outputCol`, array<struct<class int, score, left, top, right, bottom double>>, the best box first:
    null for null. Corners are fractions of the image's width and height. A box's class is the likeliest, and its score
    the confidence that there is an object times that class's probability; of boxes of one class that overlap, the one
    of the largest score stays. `sparkdl.boxes.select_boxes` does the same without Spark.

    Parameters
    ----------
    classes : int
        How many the detector tells apart.
    inputCol : str, default "prediction"
        What a model of the loss `Yolo` predicts, arrays of numbers or Vectors.
    outputCol : str, default "boxes"
    scoreThreshold : float, default 0.5
        Boxes of a lower score are left out.
    overlapThreshold : float, default 0.45
        Boxes that overlap with a better one of their class by more, in intersection over union, are left out.
    maxBoxes : int, default 100
        The best so many of a row are kept.

    Raises
    ------
    ValueError
        In `transform`: a Param is not set or out of range, or a column is missing or of another type. In the Spark job:
        a row is not of boxes of 5 + classes numbers.

    Examples
    --------
    >>> from sparkdl.spark import BoxSelector
    >>> twice = [0.1, 0.1, 0.5, 0.5, 0.9, 0.2, 0.8] + [0.1, 0.1, 0.5, 0.6, 0.7, 0.1, 0.9]
    >>> rows = spark.createDataFrame([(twice,)], "prediction array<double>")
    >>> [row] = BoxSelector(classes=2).transform(rows).collect()
    >>> for box in row.boxes:
    ...     print(box["class"], round(box.score, 2), box.right)
    1 0.72 0.5
    """

    def __init__(self, **params: Unpack[BoxArguments]) -> None:
        super().__init__()
        self.setParams(**params)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        columns.check_frame(dataset, "transform")
        classes, name = self.getClasses(), self.getInputCol()
        options = {
            "score_threshold": self.getScoreThreshold(),
            "overlap_threshold": self.getOverlapThreshold(),
            "max_boxes": self.getMaxBoxes(),
        }
        check_selection(classes, **options)  # type: ignore[arg-type]
        predictions = columns.predictions(dataset, name, "inputCol")
        columns.check_outputs(dataset, [self.getOutputCol()])
        check_interpreter(dataset.sparkSession)
        call = partial(selected, column=name, classes=classes, options=options)
        boxes = arrow_udf(call, BOXES).asNondeterministic()(predictions)
        return columns.in_rows(dataset).withColumn(self.getOutputCol(), boxes)
