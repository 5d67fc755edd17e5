"""Rules that follow the gradient, or its running average.

`g` is the gradient after clipping, `m` a running average of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from sparkdl.optimizers.optimizer import Optimizer
from sparkdl.schedules import Schedule
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
    momentum_schedule : Schedule or str, optional
        Factor on the momentum, beside `schedule`, that on the step size: Warmup(500, start=0.5) begins at half of it.
        Its steps are those since a layer began to learn; momentum times factor is to stay below 1.
    lazy : bool, default False
        Whether rows of an Embedding that have no gradient in a step, as those that its batch does not name, rest, and
        their u with them. That is another rule: by the formula they move on.
    """

    by_element = True

    momentum: float = 0.9
    momentum_schedule: Schedule | str | None = field(default=None, kw_only=True)
    lazy: bool = field(default=False, kw_only=True)
    nesterov: ClassVar[bool]

    @property
    def is_lazy(self) -> bool:
        return self.lazy

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "momentum")
        if self.momentum_schedule is not None:
            object.__setattr__(self, "momentum_schedule", Schedule.of(self.momentum_schedule))

    def looks_ahead(self) -> bool:
        scheduled = self.momentum_schedule
        return super().looks_ahead() or (scheduled is not None and Schedule.of(scheduled).looks_ahead())

    def rule(self) -> optax.GradientTransformation:
        if self.momentum_schedule is None:
            return optax.trace(self.momentum, self.nesterov)
        return _scheduled_trace(self.momentum, Schedule.of(self.momentum_schedule), self.nesterov)


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


def _scheduled_trace(momentum: float, schedule: Schedule, nesterov: bool) -> optax.GradientTransformation:
    """optax.trace with a decay of momentum times the schedule's factor of each step, which its state counts."""

    def init(weights: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros([], jnp.int32)), optax.trace(momentum).init(weights)

    def update(
        gradients: Any, state: Any, weights: Any = None, *, total_steps: int, steps_per_epoch: int, **others: Any
    ) -> Any:
        (count,), (trace,) = state
        decay = momentum * schedule.factors(total_steps, steps_per_epoch)(count)

        def followed(gradients: Any, trace: Any) -> Any:
            return jax.tree.map(lambda g, u: g + decay.astype(g.dtype) * u, gradients, trace)

        trace = followed(gradients, trace)
        moved = followed(gradients, trace) if nesterov else trace
        return moved, (optax.ScaleByScheduleState(optax.safe_increment(count)), optax.TraceState(trace))

    return optax.GradientTransformationExtraArgs(init, update)
