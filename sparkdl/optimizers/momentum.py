"""Rules that follow the gradient, or its running average.

`g` is the gradient after clipping, `m` a running average of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import optax

from sparkdl.optimizers.optimizer import Optimizer
from sparkdl.specs import check_range


@dataclass(frozen=True)
class SGD(Optimizer):
    """g: stochastic gradient descent."""

    by_element = True
    rests = True
    is_linear = True

    def rule(self) -> optax.GradientTransformation:
        return optax.identity()


@dataclass(frozen=True)
class HeavyBall(Optimizer):
    """Base of the two rules with momentum: u = momentum * u + g.

    Parameters
    ----------
    momentum : float, default 0.9
    lazy : bool, default False
        Whether rows of an Embedding that have no gradient in a step, as those that its batch does not name, rest, and
        their u with them. That is another rule: by the formula they move on.
    """

    by_element = True

    momentum: float = 0.9
    lazy: bool = field(default=False, kw_only=True)
    nesterov: ClassVar[bool]

    @property
    def is_lazy(self) -> bool:
        return self.lazy

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "momentum")

    def rule(self) -> optax.GradientTransformation:
        return optax.trace(self.momentum, self.nesterov)


@dataclass(frozen=True)
class Momentum(HeavyBall):
    """u, where u = momentum * u + g (Polyak 1964)."""

    nesterov = False


@dataclass(frozen=True)
class Nesterov(HeavyBall):
    """g + momentum * u, where u = momentum * u + g (Sutskever et al. 2013)."""

    nesterov = True


@dataclass(frozen=True)
class Lion(Optimizer):
    """sign(beta1 * m + (1 - beta1) * g), then m = beta2 * m + (1 - beta2) * g (Chen et al. 2023, algorithm 2)."""

    by_element = True

    beta1: float = 0.9
    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "beta1", "beta2")

    def rule(self) -> optax.GradientTransformation:
        return optax.scale_by_lion(self.beta1, self.beta2)
