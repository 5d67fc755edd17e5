"""Params of the stage that selects boxes: how sure a detector must be of one, and how far two may overlap."""

from __future__ import annotations

from typing import Any, Self, TypedDict

from pyspark.ml.param import Param, Params, TypeConverters

from sparkdl.spark.params.column_params import HasColumns


class BoxArguments(TypedDict, total=False):
    """Keyword arguments of BoxSelector: its Params by name."""

    classes: int
    inputCol: str
    outputCol: str
    scoreThreshold: float
    overlapThreshold: float
    maxBoxes: int


def _count(name: str, doc: str) -> Param[int]:
    return Param(Params._dummy(), name, doc, TypeConverters.toInt)


def _fraction(name: str, doc: str) -> Param[float]:
    return Param(Params._dummy(), name, doc, TypeConverters.toFloat)


class BoxParams(HasColumns):
    """What a detector predicts, and which of it is kept."""

    classes = _count("classes", "how many classes the detector tells apart (> 0).")
    scoreThreshold = _fraction("scoreThreshold", "boxes of a lower score are left out (0 to 1).")
    overlapThreshold = _fraction(
        "overlapThreshold",
        "boxes that overlap with a better one of their class by more, in intersection over union, are left out (0 to "
        "1).",
    )
    maxBoxes = _count("maxBoxes", "the best so many boxes of a row are kept (> 0).")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            inputCol="prediction", outputCol="boxes", scoreThreshold=0.5, overlapThreshold=0.45, maxBoxes=100
        )

    def getClasses(self) -> int:
        """How many classes the detector tells apart."""
        if not self.isDefined(self.classes):
            raise ValueError(f"classes of {type(self).__name__} is not set; pass classes=20 or another.")
        return self.getOrDefault(self.classes)

    def getScoreThreshold(self) -> float:
        """The least score of boxes that are kept."""
        return self.getOrDefault(self.scoreThreshold)

    def getOverlapThreshold(self) -> float:
        """How far a box that is kept may overlap with a better one of its class."""
        return self.getOrDefault(self.overlapThreshold)

    def getMaxBoxes(self) -> int:
        """The most boxes that a row has."""
        return self.getOrDefault(self.maxBoxes)

    def setClasses(self, value: int) -> Self:
        """Set how many classes the detector tells apart."""
        return self._set(classes=value)

    def setScoreThreshold(self, value: float) -> Self:
        """Set the least score of boxes that are kept."""
        return self._set(scoreThreshold=value)

    def setOverlapThreshold(self, value: float) -> Self:
        """Set how far a box that is kept may overlap with a better one of its class."""
        return self._set(overlapThreshold=value)

    def setMaxBoxes(self, value: int) -> Self:
        """Set the most boxes that a row has."""
        return self._set(maxBoxes=value)
