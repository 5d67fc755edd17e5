"""Training that starts from weights there are already, of a model or of anybody's making."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from pyspark.ml import PredictionModel
from pyspark.sql import SparkSession

from sparkdl.layers.base import Weights
from sparkdl.network import BaseNetwork
from sparkdl.scoring.weight_rows import read_only
from sparkdl.spark.params.params import DeepParams
from sparkdl.spark.saving.persistence import Saved, read_weights
from sparkdl.transfer import shared_layers
from sparkdl.weights import named_arrays, nested_weights


class WarmStart(DeepParams, Saved):
    """Gives an estimator `initialModel`; no Param, as weights are not JSON, but copied and saved with the estimator."""

    def setParams(self, **values: Any) -> Self:
        """Set Params by name, and `initialModel`; None leaves what there is.

        Raises
        ------
        TypeError
            There is no such Param, or its value is of another kind than it takes.
        """
        initial = values.pop("initialModel", None)
        super().setParams(**values)
        return self if initial is None else self.setInitialModel(initial)

    def setInitialModel(self, value: PredictionModel[Any] | Mapping[str, Any] | str | os.PathLike[str] | None) -> Self:
        """Set what training starts from: layers of these names take the weights, all others start afresh.

        Parameters
        ----------
        value : DeepModel, dict, str or None
            A model; nested weights, {layer name: {weight name: array}}; the path or URI of a saved model of sparkdl, or
            the path of a safetensors file with weights of the network, which is set before (see
            `sparkdl.interchange.load_weights`), either of which is read at once; or None, to start afresh.

        Raises
        ------
        ValueError
            There are no weights in it, or they are no finite numbers, or not those of the network.
        """
        self._weights = None if value is None else weights_of(value, "initialModel", self.getNetwork)
        return self

    def getInitialWeights(self) -> Weights | None:
        """The weights that training starts from, by layer and name; None without `initialModel`."""
        return self._weights

    def _initial(self, network: BaseNetwork) -> Weights | None:
        """The weights that the network takes; ValueError if it cannot take them."""
        if self._weights is None:
            return None
        return {name: self._weights[name] for name in shared_layers(network.abstract_weights(), self._weights)}

    def _most_bytes(self) -> float:
        return math.inf  # they may be of another network

    def _restore(self, weights: Weights) -> None:
        self._weights = read_only(weights)


def weights_of(value: Any, name: str, network: Callable[[], BaseNetwork]) -> Weights:
    """The weights that a model, a path or a dict stands for (see `WarmStart.setInitialModel`), read-only.

    Parameters
    ----------
    value : DeepModel, dict, str or path
    name : str
        What the user calls it.
    network : callable
        Gives the network, of which a file of others' names is asked for its layers.
    """
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if path.endswith((".safetensors", ".safetensors.index.json")):
            from sparkdl.interchange.weight_files import file_weights  # not above: few fits start from a file

            value = file_weights(path, network())
        else:
            value = read_weights(path, SparkSession.active())
    elif isinstance(value, PredictionModel) and isinstance(value, Saved):
        value = getattr(value, "weights", None) or {}
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            f"{name} must be a model of sparkdl with weights, the path of one or of a safetensors file, or nested "
            f"weights, received {value!r}; a pipeline's model is among its stages."
        )
    return _arrays(value, name)


def _arrays(weights: Mapping[str, Any], subject: str) -> Weights:
    arrays = {path: np.array(value) for path, value in named_arrays(weights)}
    for path, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{subject} must hold arrays of numbers, received {array.dtype} as {path!r}.")
        strange = array[~np.isfinite(array)]
        if len(strange):
            raise ValueError(
                f"{subject} must hold finite numbers, received {strange[0]} in {path!r}; take weights of a fit that "
                "did not diverge."
            )
    return read_only(nested_weights(arrays))
