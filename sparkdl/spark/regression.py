"""DeepRegressor and its model: one number or several for a row."""

from __future__ import annotations

from typing import Unpack

from pyspark.ml.regression import RegressionModel, Regressor
from pyspark.sql import DataFrame

from sparkdl.layers.base import Weights
from sparkdl.spark.estimator import DeepEstimator, DeepModel, only_loss
from sparkdl.spark.params.params import DeepArguments
from sparkdl.spark.summary import TrainingSummary
from sparkdl.training.options import Training


class DeepRegressionModel(RegressionModel, DeepModel):
    """A trained regressor as a Transformer.

    `transform` adds `predictionCol`: a double if the network has one output, a Vector if it has several; for a loss on
    another scale than the label's (Poisson's log rates), on the label's.
    """

    _kind = "DeepRegressionModel"


class DeepRegressor(Regressor, DeepEstimator):
    """Trains a neural network to predict numbers; see `DeepEstimator` for the Params it shares.

    Parameters
    ----------
    network : Network
        Ending in one output a label.
    loss : Loss or str, default "squared_error"
        Such as squared_error, absolute_error, huber, poisson. Of one that takes fewer labels than there are outputs,
        as Quantile or GaussianLikelihood, the prediction is a Vector.
    labelCol : str
        Numeric; array<numeric> or Vector for several outputs.

    Examples
    --------
    >>> from sparkdl import DeepRegressor, Network
    >>> from sparkdl.layers import Dense
    >>> rows = spark.createDataFrame([([0.0], [1.0, 0.0]), ([1.0], [3.0, 2.0])] * 30, ["features", "label"])
    >>> regressor = DeepRegressor(
    ...     network=Network([Dense(2)], input_shape=(1,)), batchSize=20, stepSize=0.2, maxIter=60
    ... )
    >>> model = regressor.fit(rows)
    >>> [round(float(value), 2) + 0.0 for value in model.transform(rows.limit(1)).first().prediction]
    [1.0, 0.0]
    """

    def __init__(self, **params: Unpack[DeepArguments]) -> None:
        super().__init__()
        self._setDefault(loss="squared_error")
        self.setParams(**params)

    def _new_model(self, weights: Weights, summary: TrainingSummary) -> DeepModel:
        return DeepRegressionModel(weights, summary)

    def _check(self, dataset: DataFrame, plan: Training) -> None:
        loss = only_loss(self, plan)
        if loss.takes_classes:
            raise ValueError(
                f"loss of DeepRegressor must take numbers, {type(loss).__name__} takes classes; "
                "use squared_error, or a DeepClassifier."
            )
