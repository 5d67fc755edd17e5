"""How the step size changes during training, as a factor, so that tuning the step size works with every schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import optax
from jax import Array

from sparkdl.specs import Spec, check_range, is_number


@dataclass(frozen=True)
class Schedule(Spec):
    """A factor on the step size, 1 where the schedule is at its peak.

    Subclasses write `curve`.
    """

    def factors(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        """The factor at each step.

        Parameters
        ----------
        total_steps, steps_per_epoch : int
            Steps of the whole run and of one pass over the data.

        Returns
        -------
        Callable
            From a step count, 0 for the first step, to a scalar of JAX's default float type; it may be traced.
        """
        curve = self.curve(max(1, total_steps), max(1, steps_per_epoch))
        return lambda step: jnp.asarray(curve(jnp.asarray(step, float)), float)

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        """The factor as a function of the step count, given as a float; both totals are at least 1."""
        raise NotImplementedError(f"{type(self).__name__} has no curve.")

    def looks_ahead(self) -> bool:
        """Whether a step's factor may depend on the length of the run, as for all we know that of a user's own does."""
        return True


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """The same step size throughout."""

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        return optax.constant_schedule(1.0)

    def looks_ahead(self) -> bool:
        return not self.is_packaged()


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Half a cosine up from `start` to 1 and half a cosine down to `end` over the run (Smith & Topin 2018).

    Parameters
    ----------
    warmup_fraction : float, default 0.3
        Share of the run, in (0, 1), that goes up.
    start, end : float, default 1 / 25 and 4e-6
        Factor of the first step, and that which a step after the last would have.
    """

    warmup_fraction: float = 0.3
    start: float = 1 / 25
    end: float = 4e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, 1)", "warmup_fraction")
        check_range(self, "[0, 1]", "start", "end")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        peak = max(1, round(self.warmup_fraction * total_steps))
        rise = optax.cosine_decay_schedule(1.0, peak, self.start)
        fall = optax.cosine_decay_schedule(1.0, max(1, total_steps - peak), self.end)
        return optax.join_schedules([lambda step: rise(peak - step), fall], [peak])


@dataclass(frozen=True)
class TimedSchedule(Schedule):
    """Base of the schedules that are told a length.

    Parameters
    ----------
    unit : "step" or "epoch"
        What lengths count; by default steps. Fractions of an epoch are rounded to whole steps.
    """

    unit: str = field(default="step", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in ("step", "epoch"):
            raise ValueError(f'unit of {type(self).__name__} must be "step" or "epoch", received {self.unit!r}.')

    def steps(self, length: float | None, total_steps: int, steps_per_epoch: int) -> int:
        """`length` in steps, at least 1; the whole run for None."""
        if length is None:
            return total_steps
        return max(1, round(length * (steps_per_epoch if self.unit == "epoch" else 1)))


@dataclass(frozen=True)
class EndlessSchedule(TimedSchedule):
    """Base of the schedules that know no end, whatever the length of the run."""

    def looks_ahead(self) -> bool:
        return not self.is_packaged()


@dataclass(frozen=True)
class PeriodicDecay(EndlessSchedule):
    """Base of the schedules that decay at a constant pace, without end.

    Parameters
    ----------
    every : float
        Length after which the factor has decayed once.
    factor : float
        How much it decays.
    staircase : bool, default False
        Decay at the end of each period instead of continuously.
    """

    every: float
    factor: float
    staircase: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "every", "factor")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        period = self.steps(self.every, total_steps, steps_per_epoch)
        smooth = self.decay(period)
        # The floor of a compiled quotient can be one too low: XLA may multiply by the reciprocal.
        return (lambda step: smooth(step - step % period)) if self.staircase else smooth

    def decay(self, period: int) -> optax.Schedule:
        """The continuous decay."""
        raise NotImplementedError(f"{type(self).__name__} has no decay.")


@dataclass(frozen=True)
class ExponentialDecay(PeriodicDecay):
    """factor ** (step / every)."""

    def decay(self, period: int) -> optax.Schedule:
        return optax.exponential_decay(1.0, period, self.factor)


@dataclass(frozen=True)
class InverseTimeDecay(PeriodicDecay):
    """1 / (1 + factor * step / every) ** power.

    Parameters
    ----------
    every, factor, staircase
        As of `PeriodicDecay`.
    power : float, default 1
        Exponent.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "power")

    def decay(self, period: int) -> optax.Schedule:
        return lambda step: 1.0 / (1.0 + self.factor * step / period) ** self.power


@dataclass(frozen=True)
class SigmoidDecay(EndlessSchedule):
    """1 / (1 + exp(rate * (time - center))), the time counted in `unit`.

    It is 1 long before `center`, 1 / 2 there, and goes to 0.

    Parameters
    ----------
    center : float
        Length after which the factor is 1 / 2; nothing is rounded.
    rate : float
        How steeply it falls, per step or epoch.
    """

    center: float
    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "center", "rate")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        unit = steps_per_epoch if self.unit == "epoch" else 1
        return lambda step: jax.nn.sigmoid(self.rate * (self.center - step / unit))


@dataclass(frozen=True)
class StepDecay(EndlessSchedule):
    """factor ** floor(step / every).

    Parameters
    ----------
    every : float
        Length between two drops, in epochs unless `unit` says otherwise.
    factor : float, default 0.1
        How much the step size drops.
    """

    every: float
    factor: float = 0.1
    unit: str = field(default="epoch", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "every", "factor")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        decay = ExponentialDecay(self.every, self.factor, staircase=True, unit=self.unit)
        return decay.curve(total_steps, steps_per_epoch)


@dataclass(frozen=True)
class PiecewiseConstant(EndlessSchedule):
    """The first of `values`, and from each boundary on the next one.

    Parameters
    ----------
    boundaries : sequence of float
        Lengths after which the factor changes, in ascending order.
    values : sequence of float
        Factors, one more than there are boundaries.
    """

    boundaries: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        starts, values = self.boundaries, self.values
        lengths = isinstance(starts, tuple) and all(is_number(start) and start > 0 for start in starts)
        if not lengths or list(starts) != sorted(set(starts)):
            raise ValueError(
                f"boundaries of PiecewiseConstant must be positive numbers in ascending order, received {starts!r}."
            )
        if not isinstance(values, tuple) or len(values) != len(starts) + 1 or not all(is_number(v, 0) for v in values):
            raise ValueError(
                f"values of PiecewiseConstant must be {len(starts) + 1} numbers of at least 0, one more than its "
                f"boundaries, received {values!r}."
            )

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        starts = [self.steps(start, total_steps, steps_per_epoch) for start in self.boundaries]
        return optax.join_schedules([optax.constant_schedule(value) for value in self.values], starts)


@dataclass(frozen=True)
class PolynomialDecay(TimedSchedule):
    """end + (1 - end) * (1 - step / length) ** power, then `end`.

    Parameters
    ----------
    end : float, default 0
        Last factor.
    power : float, default 1
        Exponent; 1 decays in a straight line.
    length : float, optional
        By default the whole run.
    """

    end: float = 0.0
    power: float = 1.0
    length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "end")
        check_range(self, "(0, inf)", "power", "length")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        length = self.steps(self.length, total_steps, steps_per_epoch)
        return optax.polynomial_schedule(1.0, self.end, self.power, length)

    def looks_ahead(self) -> bool:
        return self.length is None or not self.is_packaged()


@dataclass(frozen=True)
class CosineDecay(TimedSchedule):
    """Half a cosine from 1 to `end` in `length`, then `end` (Loshchilov & Hutter 2017, without restarts).

    Parameters
    ----------
    end : float, default 0
        Last factor.
    length : float, optional
        By default the whole run.
    """

    end: float = 0.0
    length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "end")
        check_range(self, "(0, inf)", "length")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        return optax.cosine_decay_schedule(1.0, self.steps(self.length, total_steps, steps_per_epoch), self.end)

    def looks_ahead(self) -> bool:
        return self.length is None or not self.is_packaged()


@dataclass(frozen=True)
class CosineRestarts(EndlessSchedule):
    """Half cosines from a peak to `end`, one after another (Loshchilov & Hutter 2017).

    Cycle i = 0, 1, ... takes length * multiplier ** i, begins at a whole step, and falls from
    end + (1 - end) * decay ** i.

    Parameters
    ----------
    length : float
        Of the first cycle.
    multiplier : float, default 2
        How many times as long as the one before it a cycle is, at least 1.
    decay : float, default 1
        How many times as high above `end`, at most 1.
    end : float, default 0
        What each cycle falls to.
    """

    length: float
    multiplier: float = 2.0
    decay: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "length")
        check_range(self, "[1, inf)", "multiplier")
        check_range(self, "(0, 1]", "decay")
        check_range(self, "[0, 1]", "end")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        length = self.steps(self.length, total_steps, steps_per_epoch)
        growth = math.log(self.multiplier)

        def start(cycle: Array) -> Array:
            if not growth:
                return length * cycle
            return jnp.round(length * jnp.expm1(growth * cycle) / (self.multiplier - 1))

        def factor(step: Array) -> Array:
            grown = jnp.log1p((self.multiplier - 1) * step / length) / growth if growth else step / length
            near = jnp.floor(grown)  # which may be one off, as whole numbers are not computed exactly
            cycle = jnp.where(step < start(near), near - 1, jnp.where(step < start(near + 1), near, near + 1))
            share = (step - start(cycle)) / (start(cycle + 1) - start(cycle))
            return self.end + (1 - self.end) * self.decay**cycle * (1 + jnp.cos(jnp.pi * share)) / 2

        return factor


@dataclass(frozen=True)
class WarmupCosine(TimedSchedule):
    """A straight line from `start` to 1 in `warmup`, then half a cosine to `end` over the rest of the run.

    Parameters
    ----------
    warmup : float
        Length of the rise.
    end : float, default 0
        Last factor.
    start : float, default 0
        First factor; with 0 the first step changes nothing.
    """

    warmup: float
    end: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "warmup")
        check_range(self, "[0, 1]", "start", "end")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        warmup = self.steps(self.warmup, total_steps, steps_per_epoch)
        last = max(total_steps, warmup + 1)
        return optax.warmup_cosine_decay_schedule(self.start, 1.0, warmup, last, self.end)


@dataclass(frozen=True)
class Warmup(TimedSchedule):
    """A straight line from `start` to 1 in `length`, then any schedule over the rest of the run.

    Parameters
    ----------
    length : float
        Of the rise.
    schedule : Schedule or str, default ConstantSchedule()
        What follows, as of a run that begins where the rise ends: `Warmup(500, PolynomialDecay())` is the linear one
        with which transformers are tuned.
    start : float, default 0
        First factor; with 0 the first step changes nothing.
    """

    length: float
    schedule: Schedule | str = ConstantSchedule()
    start: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schedule", Schedule.of(self.schedule))
        check_range(self, "(0, inf)", "length")
        check_range(self, "[0, 1]", "start")

    def curve(self, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
        length = self.steps(self.length, total_steps, steps_per_epoch)
        rise = optax.linear_schedule(self.start, 1.0, length)
        after = Schedule.of(self.schedule).curve(max(1, total_steps - length), steps_per_epoch)
        return optax.join_schedules([rise, after], [length])

    def looks_ahead(self) -> bool:
        return Schedule.of(self.schedule).looks_ahead() or not self.is_packaged()
