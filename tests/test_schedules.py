"""Schedules against their formulas, step by step, as a training step would call them."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, pi

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparkdl import schedules
from sparkdl.schedules import (
    ConstantSchedule,
    CosineDecay,
    CosineRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    OneCycle,
    PiecewiseConstant,
    PolynomialDecay,
    Schedule,
    SigmoidDecay,
    StepDecay,
    Warmup,
    WarmupCosine,
)

TOTAL, EPOCH = 200, 49  # 1 / 49 is rounded down in float32: 49 * (1 / 49) has floor 0


def one_cycle(step: int) -> float:
    if step < 60:
        return 0.04 + 0.96 * (1 - cos(pi * step / 60)) / 2
    return 4e-6 + (1 - 4e-6) * (1 + cos(pi * min(step - 60, 140) / 140)) / 2


def restarts(length: int, multiplier: float = 1, decay: float = 1, end: float = 0) -> Callable[[int], float]:
    """Cycle after cycle, from the whole step at which each begins."""

    def factor(step: int) -> float:
        cycle, start, after = 0, 0, length
        while step >= after:
            cycle += 1
            start, after = after, round(length * sum(multiplier**i for i in range(cycle + 1)))
        return end + (1 - end) * decay**cycle * (1 + cos(pi * (step - start) / (after - start))) / 2

    return factor


TABLE: list[tuple[Schedule, Callable[[int], float]]] = [
    (ConstantSchedule(), lambda step: 1),
    (StepDecay(1), lambda step: 0.1 ** (step // 49)),
    (StepDecay(2, factor=0.5), lambda step: 0.5 ** (step // 98)),
    (StepDecay(7, 0.5, unit="step"), lambda step: 0.5 ** (step // 7)),
    (ExponentialDecay(7, 0.9), lambda step: 0.9 ** (step / 7)),
    (ExponentialDecay(1, 0.9, staircase=True, unit="epoch"), lambda step: 0.9 ** (step // 49)),
    (ExponentialDecay(0.5, 0.9, unit="epoch"), lambda step: 0.9 ** (step / 24)),
    (InverseTimeDecay(10, 0.5), lambda step: 1 / (1 + 0.5 * step / 10)),
    (InverseTimeDecay(1, 2.0, staircase=True, unit="epoch"), lambda step: 1 / (1 + 2 * (step // 49))),
    (InverseTimeDecay(1, 0.1, power=0.75), lambda step: (1 + 0.1 * step) ** -0.75),
    (InverseTimeDecay(10, 0.5, True, 2.0), lambda step: (1 + 0.5 * (step // 10)) ** -2),
    (SigmoidDecay(100, 0.2), lambda step: 1 / (1 + exp(0.2 * (step - 100)))),
    (SigmoidDecay(2.5, 8.0, unit="epoch"), lambda step: 1 / (1 + exp(8 * (step / 49 - 2.5)))),
    (PiecewiseConstant([7, 60], [1, 0.5, 0]), lambda step: 1 if step < 7 else 0.5 if step < 60 else 0),
    (
        PiecewiseConstant([0.5, 2], (0.2, 1, 0.1), unit="epoch"),
        lambda step: 0.2 if step < 24 else 1 if step < 98 else 0.1,
    ),
    (CosineRestarts(7), restarts(7, 2)),
    (CosineRestarts(3, 1, 0.9, 0.1), restarts(3, 1, 0.9, 0.1)),
    (CosineRestarts(1, 1.4, 0.5, unit="epoch"), restarts(49, 1.4, 0.5)),
    (CosineRestarts(7, 1.3, end=0.25), restarts(7, 1.3, end=0.25)),
    (CosineRestarts(1, 3), restarts(1, 3)),
    (PolynomialDecay(), lambda step: max(0, 1 - step / 200)),
    (PolynomialDecay(0.1, 2.0, 2, unit="epoch"), lambda step: 0.1 + 0.9 * max(0, 1 - step / 98) ** 2),
    (CosineDecay(), lambda step: (1 + cos(pi * min(step / 200, 1))) / 2),
    (CosineDecay(0.2, length=100), lambda step: 0.2 + 0.8 * (1 + cos(pi * min(step / 100, 1))) / 2),
    (
        WarmupCosine(1, unit="epoch"),
        lambda step: step / 49 if step < 49 else (1 + cos(pi * min((step - 49) / 151, 1))) / 2,
    ),
    (
        WarmupCosine(10, end=0.1, start=0.5),
        lambda step: 0.5 + 0.05 * step if step < 10 else 0.1 + 0.9 * (1 + cos(pi * min((step - 10) / 190, 1))) / 2,
    ),
    (Warmup(20), lambda step: min(step / 20, 1)),
    (Warmup(30, PolynomialDecay()), lambda step: step / 30 if step < 30 else max(0, (200 - step) / 170)),
    (Warmup(10, ExponentialDecay(7, 0.9), 0.5), optax.warmup_exponential_decay_schedule(0.5, 1.0, 10, 7, 0.9)),
    (
        Warmup(0.5, StepDecay(1), 0.2, unit="epoch"),
        lambda step: 0.2 + 0.8 * step / 24 if step < 24 else 0.1 ** ((step - 24) // 49),
    ),
    (OneCycle(), one_cycle),
]
EVERY_SCHEDULE = pytest.mark.parametrize(("schedule", "formula"), TABLE, ids=[repr(case[0]) for case in TABLE])


def test_every_schedule_is_in_the_table() -> None:
    public = {found for found in vars(schedules).values() if isinstance(found, type) and issubclass(found, Schedule)}
    assert {type(schedule) for schedule, _ in TABLE} == {found for found in public if not found.__subclasses__()}


@EVERY_SCHEDULE
def test_factors_follow_the_formula_and_peak_at_one(schedule: Schedule, formula: Callable[[int], float]) -> None:
    steps = jnp.arange(TOTAL + 50)  # a run may be resumed past its planned end
    factors = jax.jit(jax.vmap(schedule.factors(TOTAL, EPOCH)))(steps)
    np.testing.assert_allclose(factors, [formula(int(step)) for step in steps], rtol=1e-5, atol=1e-6)
    assert factors.max() == pytest.approx(1, abs=1e-6)


@EVERY_SCHEDULE
def test_a_traced_step_gives_a_scalar(schedule: Schedule, formula: Callable[[int], float]) -> None:
    factor = jax.eval_shape(schedule.factors(TOTAL, EPOCH), jax.ShapeDtypeStruct((), "int32"))
    assert (factor.shape, factor.dtype) == ((), jnp.float32)


@EVERY_SCHEDULE
@pytest.mark.usefixtures("float64")
def test_factors_are_float64_where_that_is_the_default(schedule: Schedule, formula: Callable[[int], float]) -> None:
    factor = schedule.factors(TOTAL, EPOCH)(jnp.int32(99))
    assert factor.dtype == jnp.float64
    np.testing.assert_allclose(factor, formula(99), rtol=1e-6)


@EVERY_SCHEDULE
def test_a_run_of_one_step_or_none_has_a_factor(schedule: Schedule, formula: Callable[[int], float]) -> None:
    for total in (0, 1):
        assert 0 <= schedule.factors(total, total)(0) <= 1


@EVERY_SCHEDULE
def test_json_round_trip(schedule: Schedule, formula: Callable[[int], float]) -> None:
    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepDecay(0), r"every of StepDecay must be a number in \(0, inf\), received 0"),
        (lambda: ExponentialDecay(5, -0.1), "factor of ExponentialDecay"),
        (lambda: InverseTimeDecay(float("nan"), 0.1), "every of InverseTimeDecay .* received nan"),
        (lambda: StepDecay(1, unit="epochs"), 'unit of StepDecay must be "step" or "epoch", received \'epochs\''),
        (lambda: InverseTimeDecay(1, 0.1, power=0), "power of InverseTimeDecay"),
        (lambda: SigmoidDecay(10, -0.1), "rate of SigmoidDecay"),
        (lambda: PiecewiseConstant([3, 2], [1, 1, 1]), r"boundaries of PiecewiseConstant .* received \(3, 2\)"),
        (lambda: PiecewiseConstant([0], [1, 1]), "boundaries of PiecewiseConstant must be positive"),
        (lambda: PiecewiseConstant(3, [1, 1]), "boundaries of PiecewiseConstant .* received 3"),
        (lambda: PiecewiseConstant([3], [1]), r"values of PiecewiseConstant must be 2 numbers .* received \(1,\)"),
        (lambda: PiecewiseConstant([3], [1, -1]), "values of PiecewiseConstant"),
        (lambda: CosineRestarts(0), "length of CosineRestarts"),
        (lambda: CosineRestarts(1, 0.5), r"multiplier of CosineRestarts must be a number in \[1, inf\)"),
        (lambda: CosineRestarts(1, decay=2), "decay of CosineRestarts"),
        (lambda: CosineRestarts(1, end=2), "end of CosineRestarts"),
        (lambda: PolynomialDecay(length=0), "length of PolynomialDecay"),
        (lambda: PolynomialDecay(power=0), "power of PolynomialDecay"),
        (lambda: CosineDecay(end=-1), "end of CosineDecay"),
        (lambda: WarmupCosine(-1), "warmup of WarmupCosine"),
        (lambda: Warmup(0), "length of Warmup"),
        (lambda: Warmup(1, start=2), "start of Warmup"),
        (lambda: Warmup(1, "steep"), "Schedule is expected, received 'steep'"),
        (lambda: OneCycle(1.0), r"warmup_fraction of OneCycle must be a number in \(0, 1\), received 1.0"),
        (lambda: OneCycle(start=2.0), "start of OneCycle"),
    ],
)
def test_fields_are_checked(make: Callable[[], Schedule], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("after, looks", [(CosineDecay(), True), (CosineDecay(length=9), False), ("one_cycle", True)])
def test_a_warm_up_looks_ahead_where_what_follows_does(after: Schedule | str, looks: bool) -> None:
    assert Warmup(3, after).looks_ahead() is looks


@pytest.mark.parametrize(
    "schedule",
    [PiecewiseConstant([3], [1, 0.1]), CosineRestarts(3), SigmoidDecay(9, 1), InverseTimeDecay(2, 1, power=2)],
    ids=repr,
)
def test_what_knows_no_end_gives_the_same_factors_whatever_the_length(schedule: Schedule) -> None:
    assert not schedule.looks_ahead()
    short, long = (jax.vmap(schedule.factors(total, EPOCH))(jnp.arange(50)) for total in (1, 10**6))
    np.testing.assert_array_equal(short, long)


def test_an_inverse_decay_saved_without_a_power_has_that_of_one() -> None:
    saved = {"type": "InverseTimeDecay", "every": 10, "factor": 0.5}
    assert Schedule.from_json(saved) == InverseTimeDecay(10, 0.5, power=1)


def test_restarts_stand_at_their_steps_in_long_runs() -> None:
    """In float32: a peak at the first step of each cycle, and the end near the last of the one before."""
    factor = CosineRestarts(1000).factors(1, 1)
    for begin in (1000 * (2**cycle - 1) for cycle in range(1, 9)):
        np.testing.assert_allclose([factor(begin), factor(begin - 1)], [1, 0], atol=1e-5)
