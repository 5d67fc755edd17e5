"""DeepClassifier and its model: classes with raw scores, probabilities and thresholds, as Spark's own classifiers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from pyspark.ml.classification import ProbabilisticClassificationModel, ProbabilisticClassifier
from pyspark.ml.linalg import Vector
from pyspark.sql import DataFrame

from sparkdl.arrays import Array
from sparkdl.layers.base import Weights
from sparkdl.layers.ragged import step_shape
from sparkdl.losses import Loss
from sparkdl.scoring.heads import Head, Heads, classes, probabilities, raw_scores
from sparkdl.spark.estimator import DeepEstimator, DeepModel, only_loss
from sparkdl.spark.params.params import DeepArguments
from sparkdl.spark.summary import TrainingSummary
from sparkdl.training.options import Training


class ClassifierArguments(DeepArguments, total=False):
    """Keyword arguments of DeepClassifier: its Params by name."""

    rawPredictionCol: str
    probabilityCol: str
    thresholds: list[float]


class DeepClassificationModel(ProbabilisticClassificationModel, DeepModel):
    """A trained classifier as a Transformer.

    `transform` adds `rawPredictionCol` (Vector of the network's outputs), `probabilityCol` (Vector; left out for losses
    that give none, such as hinge) and `predictionCol` (double, the class). An output column named "" is left out.
    A network with one output is binary: its raw prediction is (-output, output). The raw prediction of two outputs is
    shifted to add up to 0, which changes no probability.
    """

    @property
    def numClasses(self) -> int:
        """Number of classes."""
        return max(2, step_shape(self.getNetwork().output_shape())[0])

    def predictRaw(self, value: Vector) -> Any:
        """The raw scores for one row of features; runs a Spark job."""
        return self._one(value, "rawPredictionCol")

    def predictProbability(self, value: Vector) -> Any:
        """The probabilities for one row of features; runs a Spark job."""
        return self._one(value, "probabilityCol")

    def _heads(self) -> Heads:
        self.getLoss()  # must be set, as classes are told by it
        ((output, loss),) = self._objective().losses.items()
        thresholds = tuple(self.getThresholds()) if self.isSet(self.thresholds) else None
        if thresholds is not None:
            _check_thresholds(thresholds, self.numClasses, loss)
        heads: Heads = {self.getRawPredictionCol(): Head(raw_scores, output, True)}
        if loss.gives_probabilities:
            heads[self.getProbabilityCol()] = Head(probabilities, output, True)
        return heads | {self.getPredictionCol(): Head(partial(classes, thresholds=thresholds), output)}

    def _decide(self) -> Callable[[Array, Array], Array]:
        return self._heads()[self.getPredictionCol()].function  # which heeds thresholds


class DeepClassifier(ProbabilisticClassifier, DeepEstimator):
    """Trains a neural network to tell classes apart; see `DeepEstimator` for the Params it shares.

    Parameters
    ----------
    network : Network
        Ending in one raw score a class, or in a single one for two classes with loss="sigmoid_cross_entropy".
    loss : Loss or str, default "softmax_cross_entropy"
        One that takes classes: softmax_cross_entropy, sigmoid_cross_entropy, hinge, squared_hinge.
    labelCol : str
        Classes 0, 1, ..., as of StringIndexer; of any numeric type.
    rawPredictionCol, probabilityCol : str
        Output columns, Vectors.
    thresholds : list of float, optional
        One a class: the class with the largest probability / threshold is predicted.

    Examples
    --------
    >>> from sparkdl import DeepClassifier, Network
    >>> from sparkdl.layers import Dense, Relu
    >>> rows = spark.createDataFrame([([0.0, 1.0], 0), ([1.0, 0.0], 1)] * 30, ["features", "label"])
    >>> network = Network([Dense(8), Relu(), Dense(2)], input_shape=(2,))
    >>> model = DeepClassifier(network=network, optimizer="adam", stepSize=0.05, batchSize=20).fit(rows)
    >>> [row.prediction for row in model.transform(rows).limit(2).collect()]
    [0.0, 1.0]
    """

    def __init__(self, **params: Unpack[ClassifierArguments]) -> None:
        super().__init__()
        self._setDefault(loss="softmax_cross_entropy")
        self.setParams(**params)

    def _new_model(self, weights: Weights, summary: TrainingSummary) -> DeepModel:
        return DeepClassificationModel(weights, summary)

    def _check(self, dataset: DataFrame, plan: Training) -> None:
        loss, outputs = only_loss(self, plan), step_shape(plan.network.output_shape())[0]
        if not loss.takes_classes:
            raise ValueError(
                f"loss of DeepClassifier must take classes, {type(loss).__name__} does not; "
                "use softmax_cross_entropy, or a DeepRegressor or DeepEstimator with this loss."
            )
        known = _classes_in_metadata(dataset, self.getLabelCol()) if self.getLabelCol() in dataset.columns else 0
        if known > max(2, outputs):
            raise ValueError(
                f"labelCol {self.getLabelCol()!r} has {known} classes but the network ends in {outputs} outputs; "
                f"end it in Dense({known})."
            )
        if self.isSet(self.thresholds):
            _check_thresholds(tuple(self.getThresholds()), max(2, outputs), loss)

    def _classes(self, plan: Training) -> tuple[int, int] | None:
        least, most = only_loss(self, plan).label_range
        return (int(max(least, -1)), int(min(most, 1))) if step_shape(plan.network.output_shape())[0] == 1 else None


def _classes_in_metadata(dataset: DataFrame, column: str) -> int:
    """How many classes a column's ML attributes name, 0 if they do not say."""
    attributes = dataset.schema[column].metadata.get("ml_attr", {})
    return len(attributes.get("vals", [])) or int(attributes.get("num_vals", 0))


def _check_thresholds(thresholds: tuple[float, ...], count: int, loss: Loss) -> None:
    if not loss.gives_probabilities:
        raise ValueError(f"thresholds need probabilities, which {type(loss).__name__} does not give; leave them unset.")
    if len(thresholds) != count:
        raise ValueError(f"thresholds must hold one number a class, {count} of them, received {len(thresholds)}.")
    if min(thresholds) < 0 or sum(threshold == 0 for threshold in thresholds) > 1:
        raise ValueError(f"thresholds must be at least 0 with at most one 0 among them, received {list(thresholds)}.")
