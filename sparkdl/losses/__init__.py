"""Losses: what training minimises, as sums over rows of weight times loss."""

from sparkdl.losses.classes import ClassLoss as ClassLoss
from sparkdl.losses.classes import Hinge as Hinge
from sparkdl.losses.classes import HingeLoss as HingeLoss
from sparkdl.losses.classes import KLDivergence as KLDivergence
from sparkdl.losses.classes import SigmoidCrossEntropy as SigmoidCrossEntropy
from sparkdl.losses.classes import SigmoidFocal as SigmoidFocal
from sparkdl.losses.classes import SigmoidLoss as SigmoidLoss
from sparkdl.losses.classes import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from sparkdl.losses.classes import SoftmaxFocal as SoftmaxFocal
from sparkdl.losses.classes import SoftmaxLoss as SoftmaxLoss
from sparkdl.losses.classes import SquaredHinge as SquaredHinge
from sparkdl.losses.loss import Loss as Loss
from sparkdl.losses.pairs import Comparison as Comparison
from sparkdl.losses.pairs import Contrastive as Contrastive
from sparkdl.losses.pairs import PairwiseLogistic as PairwiseLogistic
from sparkdl.losses.pairs import Triplet as Triplet
from sparkdl.losses.positions import EachPosition as EachPosition
from sparkdl.losses.regression import AbsoluteError as AbsoluteError
from sparkdl.losses.regression import CosineSimilarity as CosineSimilarity
from sparkdl.losses.regression import Huber as Huber
from sparkdl.losses.regression import Poisson as Poisson
from sparkdl.losses.regression import Quantile as Quantile
from sparkdl.losses.regression import SquaredError as SquaredError
