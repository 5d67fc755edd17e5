"""Runs that train together come to what each comes to alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from row_cases import chosen, rows_of

from sparkdl import Network
from sparkdl.initializers import GlorotUniform
from sparkdl.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Rescale, Tanh
from sparkdl.optimizers import SGD, AdamW
from sparkdl.training import Training, together
from sparkdl.training.data.batches import Shard
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.results import Result
from sparkdl.training.step import programs
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized", "as_for_users")

RANDOM = np.random.default_rng(4)
ROWS = rows_of(RANDOM.normal(size=(23, 4)).astype("float32"), RANDOM.integers(0, 3, 23).astype("int32"), np.ones(23))
# A bias before a batch normalization has gradient 0, of whose rounding AdamW would make a step.
NETWORK = Network([Dense(5, bias=False), BatchNorm(), Tanh(), Dropout(0.3), Dense(3, l2=0.01)], input_shape=(4,))
PLAN = Training(NETWORK, optimizer=AdamW(weight_decay=0.1), step_size=0.05, epochs=2, batch_size=6, seed=3)


def share(sizes: tuple[int, ...]) -> Share:
    """The rows dealt out to workers of one process."""
    bounds = np.cumsum([0, *sizes])
    parts = [chosen(ROWS, slice(first, last)) for first, last in zip(bounds, bounds[1:], strict=False)]
    return Share([Shard([part]) for part in parts], sizes, 0)


def mesh(sizes: tuple[int, ...]) -> Mesh:
    return Mesh(np.array(jax.devices()[: len(sizes)]), (WORKERS,))


def assert_alike(results: list[Result], expected: list[Result]) -> None:
    """Bit for bit."""
    for result, alone in zip(results, expected, strict=True):
        arrays, others = dict(named_arrays(result.weights)), dict(named_arrays(alone.weights))
        assert arrays.keys() == others.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, others[name])
        np.testing.assert_array_equal([e.loss for e in result.history], [e.loss for e in alone.history])
        assert [e.metric for e in result.history] == [e.metric for e in alone.history]
        held_out, expected_scores = (
            [np.float64(e.validation_loss or 0) for e in each.history] for each in (result, alone)
        )
        np.testing.assert_array_equal(held_out, expected_scores)
        assert (result.stop_reason, result.notes) == (alone.stop_reason, alone.notes)


@pytest.mark.parametrize("sizes", [(23,), (12, 11)])
def test_runs_together_come_to_what_each_comes_to_alone(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    other_start = replace(
        NETWORK, layers=(Dense(5, bias=False, kernel_initializer=GlorotUniform()), *NETWORK.layers[1:])
    )
    plans = [
        PLAN,
        replace(PLAN, step_size=0.2),
        replace(PLAN, optimizer=AdamW(weight_decay=0.5)),
        replace(PLAN, seed=8),
        replace(PLAN, network=other_start),
    ]
    held_out = share((23,) + (0,) * (len(sizes) - 1))
    expected = [train(plan, share(sizes), held_out, mesh(sizes)) for plan in plans]
    monkeypatch.setattr(together, "train", None)  # nobody is trained alone
    results = together.train_all(plans, share(sizes), held_out, mesh(sizes))
    assert_alike(results, expected)


def test_runs_of_another_shape_optimizer_or_length_train_too() -> None:
    plans: list[Any] = [
        PLAN,
        replace(PLAN, step_size=0.1),
        replace(PLAN, network=Network([Dense(3)], input_shape=(4,))),
        replace(PLAN, optimizer="adam"),
        replace(PLAN, epochs=1),
        replace(PLAN, epochs=0),
        replace(PLAN, tol=0.5),
        replace(PLAN, step_factors={"dense_0": 0.5}),
        replace(PLAN, unfreeze_after={"dense_0": 1}),
    ]
    alone = [train(plan, share((23,)), share((0,)), mesh((23,))) for plan in plans]
    assert_alike(together.train_all(plans, share((23,)), share((0,)), mesh((23,))), alone)


def test_one_that_diverges_leaves_the_others_alone() -> None:
    plans = [replace(PLAN, optimizer=SGD(), step_size=size, epochs=3) for size in (0.1, 1e30, 0.2)]
    results = together.train_all(plans, share((23,)), share((0,)), mesh((23,)))
    alone = [train(plan, share((23,)), share((0,)), mesh((23,))) for plan in plans]
    assert "the loss was" in results[1].stop_reason and results[1].stop_reason == alone[1].stop_reason
    assert_alike([results[0], results[2]], [alone[0], alone[2]])
    assert [result.failure is None for result in results] == [True, False, True]


def test_one_whose_last_step_diverges_leaves_them_alone_too() -> None:
    network = Network([Rescale(1000.0), Dense(3)], input_shape=(4,))
    plan = Training(network, optimizer=SGD(), epochs=1, batch_size=23)
    plans = [replace(plan, step_size=size) for size in (1e-3, 3e38)]
    results = together.train_all(plans, share((23,)), share((0,)), mesh((23,)))
    assert "not finite after epoch 1" in results[1].stop_reason
    assert_alike(results, [train(plan, share((23,)), share((0,)), mesh((23,))) for plan in plans])


def test_runs_that_differ_in_settings_share_their_programs() -> None:
    programs._compiled.cache_clear()
    for plan in (PLAN, replace(PLAN, step_size=0.3, seed=12), replace(PLAN, optimizer=AdamW(weight_decay=0.7))):
        train(plan, share((23,)), share((23,)), mesh((23,)))
    assert programs._compiled.cache_info().currsize == 2  # a step and a score


def test_only_small_dense_networks_are_joined_and_only_on_a_cpu() -> None:
    """On accelerators a step of N networks would take N times the memory, whatever N a grid has."""
    conv = Network([Conv(2, (3, 3)), Flatten(), Dense(2)], input_shape=(6, 6, 1))
    assert together.is_faster_together(NETWORK, "cpu")
    assert not together.is_faster_together(conv, "cpu")
    assert not together.is_faster_together(Network([Dense(1000)], input_shape=(784,)), "cpu")
    assert not together.is_faster_together(NETWORK, "cuda")
