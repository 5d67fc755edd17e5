"""Deep learning as Spark ML stages: networks trained by synchronous SGD across Spark's workers, on JAX."""

from typing import TYPE_CHECKING, Any

from sparkdl.network import Network as Network

if TYPE_CHECKING:
    from sparkdl.spark import DeepClassificationModel as DeepClassificationModel
    from sparkdl.spark import DeepClassifier as DeepClassifier
    from sparkdl.spark import DeepEstimator as DeepEstimator
    from sparkdl.spark import DeepModel as DeepModel
    from sparkdl.spark import DeepRegressionModel as DeepRegressionModel
    from sparkdl.spark import DeepRegressor as DeepRegressor
    from sparkdl.spark import register_function as register_function

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The Spark part is imported on first use, so that sparkdl.layers and sparkdl.training need no pyspark.
    if name.startswith("Deep") or name == "register_function":
        from sparkdl import spark

        return getattr(spark, name)
    raise AttributeError(f"module 'sparkdl' has no attribute {name!r}")
