"""The networks that Spark MLlib trained."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from sparkdl.interchange.imported import Imported
from sparkdl.layers import Dense, Layer, Sigmoid
from sparkdl.network import Network


def from_mllib(model: Any) -> Imported:
    """The network and the weights of MLlib's multilayer perceptron, as a pyspark object.

    Its hidden layers are followed by a `Sigmoid`; the softmax above the last belongs to the loss, so that the network's
    outputs are what MLlib calls `rawPrediction`.

    Parameters
    ----------
    model : pyspark.ml.classification.MultilayerPerceptronClassificationModel

    Returns
    -------
    Imported
        `network` and `weights` (float64, as MLlib has them), which are what `initialModel` of the estimators and
        `initial` of `training.fit` start from, and what `save_onnx` and `save_weights` write.

    Raises
    ------
    ValueError
        It is another object, as the stage around it or the estimator.

    Examples
    --------
    >>> from sparkdl.interchange import from_mllib, save_onnx
    >>> network, weights = from_mllib(perceptron)  # doctest: +SKIP
    >>> save_onnx("perceptron.onnx", network, weights)  # doctest: +SKIP
    """
    if not (hasattr(model, "getLayers") and hasattr(model, "weights")):
        raise ValueError(
            "from_mllib expects a MultilayerPerceptronClassificationModel, such as fit gives, received "
            f"{type(model).__name__}; of a PipelineModel take that one of its stages."
        )
    sizes = [int(size) for size in model.getLayers()]
    numbers = np.asarray(model.weights.toArray(), np.float64)
    layers: list[Layer] = []
    weights: dict[str, Any] = {}
    for inputs, outputs in pairwise(sizes):
        kernel, bias, numbers = np.split(numbers, [inputs * outputs, (inputs + 1) * outputs])
        # MLlib's matrix is (outputs, inputs), one column after the other.
        weights[f"dense_{len(layers)}"] = {"kernel": kernel.reshape(inputs, outputs), "bias": bias}
        layers += [Dense(outputs), Sigmoid()]
    return Imported(Network(layers[:-1], input_shape=(sizes[0],)), weights)
