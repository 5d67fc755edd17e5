"""Spark ML stages: the only part of sparkdl that needs pyspark; it never starts a JAX backend on the driver."""

from sparkdl.spark.classification import DeepClassificationModel as DeepClassificationModel
from sparkdl.spark.classification import DeepClassifier as DeepClassifier
from sparkdl.spark.estimator import DeepEstimator as DeepEstimator
from sparkdl.spark.estimator import DeepModel as DeepModel
from sparkdl.spark.functions import register_function as register_function
from sparkdl.spark.regression import DeepRegressionModel as DeepRegressionModel
from sparkdl.spark.regression import DeepRegressor as DeepRegressor
from sparkdl.spark.session import local_session as local_session
