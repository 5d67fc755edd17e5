"""The Param that asks for what layers put out, for features that other stages learn from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from pyspark.ml.param import Param, Params


def columns_text(value: Any) -> str:
    """A type converter: a dict of column names by layer, or its JSON, becomes JSON text."""
    try:
        columns = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        columns = None
    strings = isinstance(columns, Mapping) and all(isinstance(text, str) for item in columns.items() for text in item)
    if not strings:
        raise TypeError(f"activationCols must be a dict from layer to column names, received {value!r}.")
    return json.dumps(dict(columns))


class HasActivationCols(Params):
    """Which layers' activations a model's `transform` puts out."""

    activationCols: Param[str] = Param(
        Params._dummy(),
        "activationCols",
        "output columns for activations, flattened to Vectors, by name of the layer: {'relu_1': 'features'}; "
        "'outer/inner' for a layer of a network within the network.",
        columns_text,  # type: ignore[arg-type]
    )

    def getActivationCols(self) -> dict[str, str]:
        """Output columns of activations by name of the layer."""
        return json.loads(self.getOrDefault(self.activationCols)) if self.isDefined(self.activationCols) else {}

    def setActivationCols(self, value: Mapping[str, str]) -> Self:
        """Set the output columns of activations by name of the layer; {} asks for none."""
        return self._set(activationCols=value)
