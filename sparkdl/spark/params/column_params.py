"""Params of stages that make a column of another: which is read and which is made."""

from __future__ import annotations

from typing import Self

from pyspark.ml.param.shared import HasInputCol, HasOutputCol

from sparkdl.spark.params.named_params import NamedParams


class HasColumns(NamedParams, HasInputCol, HasOutputCol):
    """The column that is read and the one that is made."""

    def getInputCol(self) -> str:
        """The column that is read."""
        if not self.isDefined(self.inputCol):
            raise ValueError(f"inputCol of {type(self).__name__} is not set; pass inputCol='text' or another.")
        return self.getOrDefault(self.inputCol)

    def getOutputCol(self) -> str:
        """The column that is made."""
        return self.getOrDefault(self.outputCol)

    def setInputCol(self, value: str) -> Self:
        """Set the column that is read."""
        return self._set(inputCol=value)

    def setOutputCol(self, value: str) -> Self:
        """Set the column that is made."""
        return self._set(outputCol=value)
