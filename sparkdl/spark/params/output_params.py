"""Params of a network with several outputs: by output its label, what its loss counts, and the columns it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pyspark.ml.param import Param, Params

from sparkdl.spark.params.converters import by_name


def _param(name: str, doc: str, *kinds: type) -> Param[dict[str, Any]]:
    of = f"{'numbers' if float in kinds else 'column names'} by output"
    return Param(Params._dummy(), name, doc, by_name(name, of, *kinds))  # type: ignore[arg-type]


class HasOutputs(Params):
    """Columns and loss weights by output."""

    labelCols: Param[dict[str, str]] = _param(
        "labelCols",
        "the label column of every output of a network with several: {'kind': 'species', 'price': 'price'}; a row "
        "whose label is null counts nothing for that output.",
        str,
    )
    lossWeights: Param[dict[str, float]] = _param(
        "lossWeights",
        "by output what its mean loss counts in the sum that is minimized (>= 0); 1 by default.",
        int,
        float,
    )
    predictionCols: Param[dict[str, str]] = _param(
        "predictionCols",
        "by output, of several, the column of its prediction: a class or a number; by default prediction_OUTPUT; '' "
        "for none.",
        str,
    )
    probabilityCols: Param[dict[str, str]] = _param(
        "probabilityCols",
        "by output, of several and with a loss that has them, the column of its classes' probabilities; by default "
        "probability_OUTPUT; '' for none.",
        str,
    )

    def getLabelCols(self) -> dict[str, str]:
        """Label column by output; {} where labelCol is read."""
        return self._of_outputs("labelCols")

    def getLossWeights(self) -> dict[str, float]:
        """What each output's mean loss counts, where it is not 1."""
        return self._of_outputs("lossWeights")

    def getPredictionCols(self) -> dict[str, str]:
        """Prediction column by output, where it has not its default."""
        return self._of_outputs("predictionCols")

    def getProbabilityCols(self) -> dict[str, str]:
        """Probability column by output, where it has not its default."""
        return self._of_outputs("probabilityCols")

    def setLabelCols(self, value: Mapping[str, str]) -> Self:
        """Set the label column of every output."""
        return self._set(labelCols=value)

    def setLossWeights(self, value: Mapping[str, float]) -> Self:
        """Set what each output's mean loss counts."""
        return self._set(lossWeights=value)

    def setPredictionCols(self, value: Mapping[str, str]) -> Self:
        """Set the prediction column of outputs."""
        return self._set(predictionCols=value)

    def setProbabilityCols(self, value: Mapping[str, str]) -> Self:
        """Set the probability column of outputs."""
        return self._set(probabilityCols=value)

    def _of_outputs(self, name: str) -> dict[str, Any]:
        return self.getOrDefault(name) if self.isDefined(name) else {}
