"""Params of single layers in training: how long their steps are, and for how many epochs they rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pyspark.ml.param import Param, Params

from sparkdl.spark.params.converters import by_name


class HasLayerSteps(Params):
    """What some layers do otherwise than the others, by their names."""

    stepSizeFactors: Param[dict[str, float]] = Param(
        Params._dummy(),
        "stepSizeFactors",
        "by name of layers what multiplies their steps (>= 0): {'layer1': 0.1, 'fc': 2}; 1 by default.",
        by_name("stepSizeFactors", "numbers by layer", int, float),  # type: ignore[arg-type]
    )
    unfreezeAfter: Param[dict[str, int]] = Param(
        Params._dummy(),
        "unfreezeAfter",
        "by name of layers for how many epochs they are frozen (>= 0): {'layer1': 4, 'layer4': 2}; 0 by default.",
        by_name("unfreezeAfter", "numbers of epochs by layer", int),  # type: ignore[arg-type]
    )

    def getStepSizeFactors(self) -> dict[str, float]:
        """What multiplies the steps of layers, where it is not 1."""
        return self._of_layers("stepSizeFactors")

    def getUnfreezeAfter(self) -> dict[str, int]:
        """For how many epochs layers are frozen, where they are."""
        return self._of_layers("unfreezeAfter")

    def setStepSizeFactors(self, value: Mapping[str, float]) -> Self:
        """Set what multiplies the steps of layers."""
        return self._set(stepSizeFactors=value)

    def setUnfreezeAfter(self, value: Mapping[str, int]) -> Self:
        """Set for how many epochs layers are frozen."""
        return self._set(unfreezeAfter=value)

    def _of_layers(self, name: str) -> dict[str, Any]:
        return self.getOrDefault(name) if self.isDefined(name) else {}
