"""Spark ML stages: the only part of sparkdl that needs pyspark; it never starts a JAX backend on the driver."""

from typing import TYPE_CHECKING

from sparkdl.lazy import exports

if TYPE_CHECKING:
    from sparkdl.spark.box_selector import BoxSelector as BoxSelector
    from sparkdl.spark.classification import DeepClassificationModel as DeepClassificationModel
    from sparkdl.spark.classification import DeepClassifier as DeepClassifier
    from sparkdl.spark.estimator import DeepEstimator as DeepEstimator
    from sparkdl.spark.estimator import DeepModel as DeepModel
    from sparkdl.spark.featurizer import Featurizer as Featurizer
    from sparkdl.spark.functions import register_function as register_function
    from sparkdl.spark.regression import DeepRegressionModel as DeepRegressionModel
    from sparkdl.spark.regression import DeepRegressor as DeepRegressor
    from sparkdl.spark.series_windows import SeriesWindows as SeriesWindows
    from sparkdl.spark.session import local_session as local_session

# On a worker a task's module is all that is needed, not the stages, nor pyspark.ml.
__getattr__, __dir__ = exports(
    __name__,
    {
        "box_selector": ("BoxSelector",),
        "classification": ("DeepClassificationModel", "DeepClassifier"),
        "estimator": ("DeepEstimator", "DeepModel"),
        "featurizer": ("Featurizer",),
        "functions": ("register_function",),
        "regression": ("DeepRegressionModel", "DeepRegressor"),
        "series_windows": ("SeriesWindows",),
        "session": ("local_session",),
    },
)
