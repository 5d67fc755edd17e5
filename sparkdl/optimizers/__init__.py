"""How gradients become steps: specs over optax, which does the arithmetic."""

from sparkdl.optimizers.adam import LAMB as LAMB
from sparkdl.optimizers.adam import AdaBelief as AdaBelief
from sparkdl.optimizers.adam import Adam as Adam
from sparkdl.optimizers.adam import AdaMax as AdaMax
from sparkdl.optimizers.adam import AdamW as AdamW
from sparkdl.optimizers.adam import AdaptiveMoments as AdaptiveMoments
from sparkdl.optimizers.adam import AMSGrad as AMSGrad
from sparkdl.optimizers.adam import NAdam as NAdam
from sparkdl.optimizers.adam import RAdam as RAdam
from sparkdl.optimizers.by_squares import AdaDelta as AdaDelta
from sparkdl.optimizers.by_squares import AdaGrad as AdaGrad
from sparkdl.optimizers.by_squares import RMSProp as RMSProp
from sparkdl.optimizers.lbfgs import LBFGS as LBFGS
from sparkdl.optimizers.momentum import SGD as SGD
from sparkdl.optimizers.momentum import HeavyBall as HeavyBall
from sparkdl.optimizers.momentum import Lion as Lion
from sparkdl.optimizers.momentum import Momentum as Momentum
from sparkdl.optimizers.momentum import Nesterov as Nesterov
from sparkdl.optimizers.optimizer import Optimizer as Optimizer
