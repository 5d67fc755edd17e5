"""Rules that divide a gradient by what its squares have come to.

`g` is the gradient after clipping, `v` a running average of g * g.
"""

from __future__ import annotations

from dataclasses import dataclass

import optax

from sparkdl.optimizers.optimizer import Optimizer
from sparkdl.specs import check_range


@dataclass(frozen=True)
class AdaGrad(Optimizer):
    """g / sqrt(initial_accumulator + sum of all g * g + epsilon) (Duchi et al. 2011)."""

    by_element = True
    rests = True

    epsilon: float = 1e-10
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "epsilon")
        check_range(self, "[0, inf)", "initial_accumulator")

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_rss(self.initial_accumulator, self.epsilon)


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """u = momentum * u + g / (sqrt(v) + epsilon), where v decays by `decay` (Tieleman & Hinton 2012)."""

    by_element = True

    decay: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "decay", "momentum")
        check_range(self, "(0, inf)", "epsilon")

    def rule(self) -> optax.GradientTransformation:
        scaled = optax.scale_by_rms(self.decay, self.epsilon, eps_in_sqrt=False)
        return optax.chain(scaled, optax.trace(self.momentum)) if self.momentum else scaled


@dataclass(frozen=True)
class AdaDelta(Optimizer):
    """u = g * sqrt(d + epsilon) / sqrt(v + epsilon), d the running average of u * u (Zeiler 2012).

    The paper's step size is 1; averages decay by `rho`.
    """

    by_element = True

    rho: float = 0.9
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "rho")
        check_range(self, "(0, inf)", "epsilon")

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_adadelta(self.rho, self.epsilon)
