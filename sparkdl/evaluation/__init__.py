"""Measures of how well predictions meet labels: sums that partitions make and merge, and what comes of them."""

from sparkdl.evaluation.base import Accumulator as Accumulator
from sparkdl.evaluation.base import Evaluation as Evaluation
from sparkdl.evaluation.base import EvaluationOptions as EvaluationOptions
from sparkdl.evaluation.calibration import Calibration as Calibration
from sparkdl.evaluation.classification import ClassificationEvaluation as ClassificationEvaluation
from sparkdl.evaluation.classification import ClassificationMeasures as ClassificationMeasures
from sparkdl.evaluation.curves import Curve as Curve
from sparkdl.evaluation.detection import DetectionEvaluation as DetectionEvaluation
from sparkdl.evaluation.detection import DetectionMeasures as DetectionMeasures
from sparkdl.evaluation.detection import DetectionScores as DetectionScores
from sparkdl.evaluation.multilabel import LabelScores as LabelScores
from sparkdl.evaluation.multilabel import MultilabelEvaluation as MultilabelEvaluation
from sparkdl.evaluation.multilabel import MultilabelMeasures as MultilabelMeasures
from sparkdl.evaluation.quantiles import QuantileErrors as QuantileErrors
from sparkdl.evaluation.quantiles import QuantileEvaluation as QuantileEvaluation
from sparkdl.evaluation.quantiles import QuantileMeasures as QuantileMeasures
from sparkdl.evaluation.regression import OutputErrors as OutputErrors
from sparkdl.evaluation.regression import RegressionEvaluation as RegressionEvaluation
from sparkdl.evaluation.regression import RegressionMeasures as RegressionMeasures
from sparkdl.evaluation.scores import ClassScores as ClassScores
