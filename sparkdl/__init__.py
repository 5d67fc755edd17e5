"""Deep learning as Spark ML stages: networks trained by synchronous SGD across Spark's workers, on JAX."""

from typing import TYPE_CHECKING

from sparkdl.lazy import exports

if TYPE_CHECKING:
    from sparkdl.graph import Graph as Graph
    from sparkdl.graph import Same as Same
    from sparkdl.network import Network as Network
    from sparkdl.scoring.predictor import Predictor as Predictor
    from sparkdl.scoring.predictor import load as load
    from sparkdl.spark import DeepClassificationModel as DeepClassificationModel
    from sparkdl.spark import DeepClassifier as DeepClassifier
    from sparkdl.spark import DeepEstimator as DeepEstimator
    from sparkdl.spark import DeepModel as DeepModel
    from sparkdl.spark import DeepRegressionModel as DeepRegressionModel
    from sparkdl.spark import DeepRegressor as DeepRegressor
    from sparkdl.spark import Featurizer as Featurizer
    from sparkdl.spark import register_function as register_function

__all__ = [  # without the rooms, as sparkdl.spark, which would take the name of a shell's session
    "DeepClassificationModel",
    "DeepClassifier",
    "DeepEstimator",
    "DeepModel",
    "DeepRegressionModel",
    "DeepRegressor",
    "Featurizer",
    "Graph",
    "Network",
    "Predictor",
    "Same",
    "load",
    "register_function",
]
__version__ = "0.1.0"

# sparkdl.layers and sparkdl.training need no pyspark.
SPARKLESS = {"graph": ("Graph", "Same"), "network": ("Network",), "scoring.predictor": ("Predictor", "load")}
__getattr__, __dir__ = exports(
    __name__,
    SPARKLESS | {"spark": tuple(name for name in __all__ if not any(name in own for own in SPARKLESS.values()))},
)
