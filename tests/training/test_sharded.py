"""Workers that divide the update come to what those come to that repeat it, and hold 1 / N of the optimizer's state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from row_cases import chosen, rows_of

from sparkdl import Network
from sparkdl.layers import Dense
from sparkdl.optimizers import (
    LAMB,
    AdaBelief,
    AdaGrad,
    Adam,
    AdamW,
    AdaptiveMoments,
    Lion,
    Momentum,
    Nesterov,
    Optimizer,
    RMSProp,
)
from sparkdl.training import AllReduce, Exchange, ShardedAllReduce, Training, together
from sparkdl.training.data.batches import Shard
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.results import Result
from sparkdl.training.step.state import State, initial_state
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized", "as_for_users")

RANDOM = np.random.default_rng(5)
ROWS = rows_of(
    RANDOM.normal(size=(24, 4)).astype("float32"), RANDOM.integers(0, 3, 24).astype("int32"), RANDOM.uniform(0, 2, 24)
)
SIZES = 20, 5, 15, 3  # of the arrays, which two workers or three can rarely divide without a remainder
NETWORK = Network([Dense(5), Dense(3, l2=0.1)], input_shape=(4,))
PLAN = Training(NETWORK, exchange=ShardedAllReduce(), step_size=0.05, epochs=2, batch_size=8, seed=3)


def share(shares: tuple[int, ...]) -> tuple[Share, Share, Mesh]:
    """The rows dealt out, no held out ones, and the workers."""
    parts = pairwise([0, *accumulate(shares)])
    shards = [Shard.from_arrays(*chosen(ROWS, slice(first, last))) for first, last in parts]
    return Share(shards, shares, 0), Share([], (), 0), Mesh(np.array(jax.local_devices()[: len(shares)]), (WORKERS,))


def trained(plan: Training, shares: tuple[int, ...], exchange: Exchange | None = None) -> Result:
    return train(replace(plan, exchange=exchange or plan.exchange), *share(shares))


def assert_equal(one: Result, other: Result) -> None:
    """Bit for bit."""
    for (name, array), (_, expected) in zip(named_arrays(one.weights), named_arrays(other.weights), strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=name)
    assert [epoch[:5] for epoch in one.history] == [epoch[:5] for epoch in other.history]


@pytest.mark.parametrize(
    "optimizer",
    [Momentum(), Nesterov(momentum_schedule="cosine_decay"), AdaGrad(), RMSProp(momentum=0.9), Lion()],
    ids=lambda rule: type(rule).__name__,
)
def test_two_workers_come_to_the_bits_of_all_reduce(optimizer: Optimizer) -> None:
    """Where the compiler leaves the arithmetic as it is written; else it rounds once what it fuses otherwise."""
    plan = replace(PLAN, optimizer=replace(optimizer, weight_decay=0.1, clip_value=0.05))
    assert_equal(*(trained(plan, (15, 9), exchange) for exchange in (ShardedAllReduce(), AllReduce())))


@pytest.mark.parametrize(
    ("optimizer", "shares"),
    [
        (Adam(), (15, 9)),
        (Adam(), (15, 0, 9)),
        (LAMB(weight_decay=0.1, clip_layer_norm=0.1), (24, 0)),
        (Momentum(normalize="layer", clip_array_norm=0.3), (15, 9)),
        (AdaBelief(normalize="array"), (15, 0, 9)),
    ],
    ids=str,
)
def test_what_is_fused_otherwise_norms_and_more_workers_differ_by_rounding_only(
    optimizer: Optimizer, shares: tuple[int, ...]
) -> None:
    plan = replace(PLAN, optimizer=optimizer)
    parted, whole = (trained(plan, shares, exchange) for exchange in (ShardedAllReduce(), AllReduce()))
    for (name, array), (_, expected) in zip(named_arrays(parted.weights), named_arrays(whole.weights), strict=True):
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=name)


def test_runs_of_a_grid_come_to_what_each_comes_to_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [
        replace(PLAN, optimizer=AdamW(weight_decay=decay), step_size=size) for decay, size in ((0.1, 0.05), (0.5, 0.2))
    ]
    alone = [trained(plan, (15, 9)) for plan in plans]
    monkeypatch.setattr(together, "train", None)  # nobody is trained alone
    for result, expected in zip(together.train_all(plans, *share((15, 9))), alone, strict=True):
        assert_equal(result, expected)


@pytest.mark.parametrize("workers", [2, 3])
def test_each_worker_holds_its_part_of_the_optimizers_state(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[State] = []
    monkeypatch.setattr("sparkdl.training.watch.Watch.see_weights", lambda watch, state: held.append(state))
    trained(replace(PLAN, optimizer=Adam(), epochs=1), (24,) + (0,) * (workers - 1))
    numbers = [leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(held[0].optimizer)]
    part = sum(-(-size // workers) for size in SIZES)
    assert sum(numbers) == 2 * part + 2  # both moments, and the counts of rule and schedule
    whole = initial_state(NETWORK, NETWORK.init(0), Adam(), AllReduce(), workers)
    assert sum(leaf.size for leaf in jax.tree.leaves(whole.optimizer)) == 2 * sum(SIZES) + 2


@pytest.mark.parametrize("workers", [2, 3])
def test_it_sends_what_a_ring_does_and_the_padding(workers: int) -> None:
    epoch = trained(PLAN, (12, 12, 0)[:workers]).history[0]
    part = sum(-(-size // workers) for size in SIZES)
    each = (workers - 1) * (2 * part + 3) * 4  # gradients and weights, and with the former loss, metric and weight
    assert epoch.bytes == epoch.steps * workers * each


@dataclass(frozen=True)
class Normalized(AdaptiveMoments):
    """One whose rule sees whole arrays, of a class that does not."""

    def rule(self) -> optax.GradientTransformation:
        return optax.chain(optax.normalize_by_update_norm(), super().rule())


@dataclass(frozen=True)
class Doubled(AdaptiveMoments):
    """One that promises to move every element by itself."""

    by_element = True

    def rule(self) -> optax.GradientTransformation:
        return optax.chain(optax.scale(2.0), super().rule())


def test_optimizers_that_do_not_promise_to_move_every_element_by_itself_are_refused() -> None:
    message = "takes an optimizer whose class says by_element = True, received Normalized; say so .* or use AllReduce"
    with pytest.raises(ValueError, match=message):
        replace(PLAN, optimizer=Normalized())
    replace(PLAN, optimizer=Normalized(), exchange=AllReduce())
    replace(PLAN, optimizer=Doubled())
