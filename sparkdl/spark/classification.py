"""DeepClassifier and its model: classes with raw scores, probabilities and thresholds, as Spark's own classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from pyspark.ml.classification import ProbabilisticClassificationModel, ProbabilisticClassifier
from pyspark.ml.linalg import Vector
from pyspark.sql import DataFrame

from sparkdl.arrays import Array
from sparkdl.layers.base import Weights
from sparkdl.layers.ragged import step_shape
from sparkdl.scoring.heads import Heads
from sparkdl.scoring.outputs import check_thresholds, count_classes
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

    _kind = "DeepClassificationModel"

    @property
    def numClasses(self) -> int:
        """Number of classes."""
        return count_classes(self.getNetwork())

    def predictRaw(self, value: Vector) -> Any:
        """The raw scores for one row of features; runs a Spark job."""
        return self._one(value, "rawPredictionCol")

    def predictProbability(self, value: Vector) -> Any:
        """The probabilities for one row of features; runs a Spark job."""
        return self._one(value, "probabilityCol")

    def _heads(self) -> Heads:
        self.getLoss()  # must be set, as classes are told by it
        return super()._heads()

    def _decide(self) -> Callable[[Array, Array], Array]:
        return self._heads()[self.getPredictionCol()].function  # which heeds thresholds


class DeepClassifier(ProbabilisticClassifier, DeepEstimator):
    """Trains a neural network to tell classes apart; see `DeepEstimator` for the Params it shares.

    Parameters
    ----------
    network : Network
        Ending in one raw score a class, or in a single one for two classes with loss="sigmoid_cross_entropy".
    loss : Loss or str, default "softmax_cross_entropy"
        One that takes classes: softmax_cross_entropy, sigmoid_cross_entropy, softmax_focal, sigmoid_focal, hinge,
        squared_hinge, multi_label, margin_loss, f_measure, labelled_output,
        one_class_hinge.
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
            check_thresholds(tuple(self.getThresholds()), count_classes(plan.network), loss)

    def _classes(self, plan: Training) -> tuple[int, int] | None:
        least, most = only_loss(self, plan).label_range
        return (int(max(least, -1)), int(min(most, 1))) if step_shape(plan.network.output_shape())[0] == 1 else None


def _classes_in_metadata(dataset: DataFrame, column: str) -> int:
    """How many classes a column's ML attributes name, 0 if they do not say."""
    attributes = dataset.schema[column].metadata.get("ml_attr", {})
    return len(attributes.get("vals", [])) or int(attributes.get("num_vals", 0))
