"""Adam and its family: running averages of gradients and of their squares.

`g` is the gradient after clipping, `m` and `v` are running averages of g and g * g, and hats mark their bias
correction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import optax

from sparkdl import norms
from sparkdl.optimizers.optimizer import Optimizer
from sparkdl.specs import check_range


@dataclass(frozen=True)
class AdaptiveMoments(Optimizer):
    """Base of Adam's family: m decays by `beta1`, v by `beta2`, and `epsilon` keeps the quotient finite.

    Parameters
    ----------
    beta1, beta2 : float
    epsilon : float
    lazy : bool, default False
        Whether rows of an Embedding that have no gradient in a step, as those that its batch does not name, rest:
        neither they, nor their m and v, nor their weights by decay. That is another rule, as PyTorch's SparseAdam is:
        by the formula they move on.
    """

    by_element = True

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    lazy: bool = field(default=False, kw_only=True)

    @property
    def is_lazy(self) -> bool:
        return self.lazy

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "beta1", "beta2")
        check_range(self, "(0, inf)", "epsilon")

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class Adam(AdaptiveMoments):
    """m_hat / (sqrt(v_hat) + epsilon) (Kingma & Ba 2015, algorithm 1)."""


@dataclass(frozen=True)
class AdamW(AdaptiveMoments):
    """Adam with decoupled weight decay, 0.01 by default (Loshchilov & Hutter 2019, algorithm 2)."""

    weight_decay: float = field(default=0.01, kw_only=True)


@dataclass(frozen=True)
class AdaMax(AdaptiveMoments):
    """m_hat / u, where u = max(beta2 * u, |g| + epsilon) (Kingma & Ba 2015, algorithm 2)."""

    by_element = True

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_adamax(self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class NAdam(AdaptiveMoments):
    """Adam with Nesterov's momentum and a constant beta1 (Dozat 2016).

    The numerator is beta1 * m / (1 - beta1 ** (t + 1)) + (1 - beta1) * g / (1 - beta1 ** t) at step t = 1, 2, ...
    """

    by_element = True

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon, nesterov=True)


@dataclass(frozen=True)
class AMSGrad(AdaptiveMoments):
    """m_hat / (sqrt(largest v_hat so far) + epsilon) (Reddi et al. 2018, with Adam's bias correction)."""

    by_element = True

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_amsgrad(self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class RAdam(AdaptiveMoments):
    """r * m_hat / (sqrt(v_hat) + epsilon), and m_hat while rho < 5 (Liu et al. 2020, algorithm 2).

    At step t = 1, 2, ... rho = R - 2 * t * beta2 ** t / (1 - beta2 ** t), where R = 2 / (1 - beta2) - 1, and
    r = sqrt((rho - 4) * (rho - 2) * R / ((R - 4) * (R - 2) * rho)). The threshold of 5, where the paper has 4, is its
    authors' program's and PyTorch's.
    """

    by_element = True

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_radam(self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class AdaBelief(AdaptiveMoments):
    """m_hat / (sqrt(s_hat) + epsilon), where s = beta2 * s + (1 - beta2) * (g - m) ** 2 + epsilon (Zhuang et al. 2020).

    The step is large where gradients are what their average lets expect. `epsilon`, 1e-16 as in the authors' program,
    is added in both places, as in algorithm 2.
    """

    by_element = True

    epsilon: float = 1e-16

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_belief(self.beta1, self.beta2, self.epsilon, self.epsilon)


@dataclass(frozen=True)
class LAMB(AdaptiveMoments):
    """Adam and the weight decay, each array's step scaled to the norm of its weights (You et al. 2020, algorithm 2)."""

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lazy:
            raise ValueError("lazy of LAMB must be False, since it needs the norm of every array; use Adam.")

    def _scaling(self, axis: str | None) -> list[optax.GradientTransformation]:
        return [norms.scale_by_trust_ratio(axis)]
