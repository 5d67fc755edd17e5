"""Featurizer: Vectors of images, texts or numbers by a network that has learned already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

from sparkdl.network import BaseNetwork
from sparkdl.scoring.weight_rows import read_only
from sparkdl.spark.estimator import DeepModel
from sparkdl.spark.params.warm_start import weights_of


class FeaturizerArguments(TypedDict, total=False):
    """Keyword arguments of `Featurizer`."""

    network: BaseNetwork | str
    weights: Any
    outputLayer: str
    outputCol: str
    featuresCol: str
    featuresCols: Sequence[str] | Mapping[str, str | Sequence[str]]
    binaryFormat: str
    imageResize: str
    maxLength: int | Mapping[str, int]
    truncationSide: str
    handleInvalid: str
    batchSize: int
    computeDtype: str
    deviceType: str
    activationCols: Mapping[str, str]


class Featurizer(DeepModel):
    """Makes a Vector of every row by a network with weights that are there: a Transformer, with nothing to fit.

    Parameters
    ----------
    network : Network or Graph
    weights : str, dict or DeepModel
        Where its weights come from: a safetensors file, by our names or by others' (see
        `sparkdl.interchange.load_weights`); the path of a saved model of sparkdl; nested weights; or a model.
    outputLayer : str, optional
        The layer whose output is wanted, by its name or, of a Graph, that of its node: "avgpool" of ResNets. The
        network, which is given with it, ends there, and what only later layers need is left away. By default it is
        whole.
    outputCol : str, default "vector"
        The new column, a Vector of the layer's numbers. It is kept as predictionCol, the Param that all models have.
    featuresCol, featuresCols, binaryFormat, imageResize, maxLength, truncationSide, handleInvalid
        What is read, and how, as of `DeepEstimator`; handleInvalid="keep" gives null for a row that cannot be used.
    batchSize, computeDtype, deviceType, activationCols
        As of `DeepEstimator`.

    Raises
    ------
    TypeError
        There is no such Param, or its value is of another kind than it takes.
    ValueError
        There is no such layer, or the weights are not the network's.
    OSError
        The file is not there or cannot be read.

    Examples
    --------
    >>> from sparkdl import Featurizer, Network
    >>> from sparkdl.layers import Dense, Relu
    >>> network = Network([Dense(8), Relu(name="hidden"), Dense(2)], input_shape=(2,))
    >>> rows = spark.createDataFrame([([0.0, 1.0],), ([1.0, 0.0],)], ["features"])
    >>> featurizer = Featurizer(network=network, weights=network.init(0), outputLayer="hidden")
    >>> featurizer.transform(rows).first().vector.size
    8
    """

    _kind = "Featurizer"

    def __init__(self, **params: Unpack[FeaturizerArguments]) -> None:
        super().__init__()
        self._setDefault(predictionCol="vector")
        given: dict[str, Any] = dict(params)
        if others := given.keys() - FeaturizerArguments.__annotations__.keys():
            raise TypeError(
                f"Featurizer has no argument {min(others)!r}; those there are: "
                f"{', '.join(FeaturizerArguments.__annotations__)}."
            )
        weights, layer, column = (given.pop(name, None) for name in ("weights", "outputLayer", "outputCol"))
        self.setParams(**given, predictionCol=column)
        if "network" in given or weights is not None or layer is not None:
            self._take(weights, layer)

    def getOutputCol(self) -> str:
        """The column that `transform` adds."""
        return self.getPredictionCol()

    def setOutputCol(self, value: str) -> Self:
        """Set the column that `transform` adds."""
        return self.setParams(predictionCol=value)

    def _take(self, weights: Any, layer: str | None) -> None:
        """End the network at the layer, and keep what it needs of the weights."""
        network: Any = self.getNetwork()
        if weights is None:
            raise ValueError("weights of Featurizer are not given; name a safetensors file, a saved model, or a dict.")
        found = weights_of(weights, "weights", lambda: network)
        part = network if layer is None else network.up_to(layer)
        missing = part.abstract_weights().keys() - found.keys()
        if missing:
            raise ValueError(
                f"weights of Featurizer lack {', '.join(sorted(missing))}, which {layer or 'the network'} needs; take "
                "weights that have these layers, or an outputLayer before them."
            )
        kept = {name: found[name] for name in part.abstract_weights()}
        part.check_weights(kept)
        self.setParams(network=part)
        self._weights = read_only(kept)
