"""Losses: what training minimises, as sums over rows of weight times loss."""

from sparkdl.losses.categorical import ClassLoss as ClassLoss
from sparkdl.losses.categorical import Hinge as Hinge
from sparkdl.losses.categorical import HingeLoss as HingeLoss
from sparkdl.losses.categorical import KLDivergence as KLDivergence
from sparkdl.losses.categorical import SigmoidCrossEntropy as SigmoidCrossEntropy
from sparkdl.losses.categorical import SigmoidFocal as SigmoidFocal
from sparkdl.losses.categorical import SigmoidLoss as SigmoidLoss
from sparkdl.losses.categorical import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from sparkdl.losses.categorical import SoftmaxFocal as SoftmaxFocal
from sparkdl.losses.categorical import SoftmaxLoss as SoftmaxLoss
from sparkdl.losses.categorical import SquaredHinge as SquaredHinge
from sparkdl.losses.loss import Loss as Loss
from sparkdl.losses.numeric import AbsoluteError as AbsoluteError
from sparkdl.losses.numeric import CosineSimilarity as CosineSimilarity
from sparkdl.losses.numeric import Huber as Huber
from sparkdl.losses.numeric import Poisson as Poisson
from sparkdl.losses.numeric import Quantile as Quantile
from sparkdl.losses.numeric import SquaredError as SquaredError
from sparkdl.losses.pairs import Comparison as Comparison
from sparkdl.losses.pairs import Contrastive as Contrastive
from sparkdl.losses.pairs import PairwiseLogistic as PairwiseLogistic
from sparkdl.losses.pairs import Triplet as Triplet
from sparkdl.losses.positions import EachPosition as EachPosition
from sparkdl.losses.retrieval import InBatchSoftmax as InBatchSoftmax
