"""Rows of any length in steps: every row once, equal shapes for all workers, little padding, few programs."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from sparkdl import Network, training
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.layers import BatchNorm, Dense, Ragged, Tanh, TimeMean
from sparkdl.training import Training
from sparkdl.training.data.batches import Shard, Steps
from sparkdl.training.data.buckets import Buckets, rows_of_steps
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import train
from sparkdl.training.resumption import Share
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
LENGTHS = RANDOM.integers(0, 40, 90)
SERIES = [RANDOM.standard_normal((length, 2)) for length in LENGTHS]
LABELS = np.array([float(row.sum() > 0) for row in SERIES])
NETWORK = Network([Dense(3), BatchNorm(), Tanh(), TimeMean(), Dense(2)], input_shape=(None, 2))
SHARES = [(90,), (45, 45), (70, 0, 20)]


def share_of(shares: tuple[int, ...]) -> Share:
    bounds = list(pairwise([0, *accumulate(shares)]))
    rows, whole = RaggedRows.of(SERIES, (2,)), int(LENGTHS.max())
    shards = [Shard.from_arrays(rows[low:high].padded_to(whole), LABELS[low:high]) for low, high in bounds]
    return Share(shards, shares, 0)


def mesh_of(workers: int) -> Mesh:
    return Mesh(np.array(jax.local_devices()[:workers]), (WORKERS,))


def weights_of(shares: tuple[int, ...], **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"epochs": 2, "batch_size": 20, "step_size": 0.2, "seed": 4, "dtype": "float64"}
    with jax.enable_x64(True):
        plan = Training(NETWORK, **given | options)
        result = train(plan, share_of(shares), Share([], (), 0), mesh_of(len(shares)))
    return dict(named_arrays(result.weights))


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("most", [1, 3, 20])
def test_every_row_comes_once_in_arrays_long_enough_for_all_workers(shares: tuple[int, ...], most: int) -> None:
    share, steps, mesh = share_of(shares), Steps(shares, 20), mesh_of(len(shares))
    buckets = Buckets.of(share, steps, mesh, 7, 0, most)
    assert 1 <= len(buckets.levels) <= most
    ends = [level["features"] for level in buckets.levels]
    assert ends == sorted(set(ends)) and LENGTHS.max() <= ends[-1] <= 1.15 * LENGTHS.max()
    for epoch in (0, 1):
        found = buckets.arrange(share, steps, mesh, 7, epoch)
        starts = [0, *accumulate(shares[:-1])]
        valid = padded = 0
        for step, level in enumerate(found.levels):
            rows = np.concatenate([first + own[step] for first, own in zip(starts, found.rows, strict=True)])
            assert LENGTHS[rows].max(initial=0) <= ends[level]
            assert level == 0 or LENGTHS[rows].max(initial=0) > ends[level - 1]
            valid, padded = valid + LENGTHS[rows].sum(), padded + len(rows) * ends[level]
        assert found.fill == pytest.approx(valid / padded)
        for own, count in zip(found.rows, shares, strict=True):
            np.testing.assert_array_equal(np.sort(np.concatenate(own)), np.arange(count))


def test_steps_hold_rows_of_like_lengths_in_an_order_of_seed_and_epoch_alone() -> None:
    share, steps, mesh = share_of((45, 45)), Steps((45, 45), 10), mesh_of(2)
    buckets = Buckets.of(share, steps, mesh, 7, 0, 6)
    assert buckets.arrange(share, steps, mesh, 7, 0).fill > 0.75 > 1.5 * LENGTHS.mean() / LENGTHS.max()
    orders = [
        np.concatenate(rows_of_steps(LENGTHS[None, :45], steps, 0, seed, epoch))
        for seed, epoch in ((7, 0), (7, 1), (8, 0), (7, 0))
    ]
    assert all(not np.array_equal(one, other) for one, other in pairwise(orders))
    np.testing.assert_array_equal(orders[0], orders[3])
    in_order = buckets.arrange(share, steps, mesh, 7, None)
    np.testing.assert_array_equal(np.concatenate(in_order.rows[0]), np.arange(45))


@pytest.mark.parametrize("shares", SHARES[1:], ids=str)
def test_buckets_change_nothing_of_what_workers_come_to(shares: tuple[int, ...]) -> None:
    """The same steps, padded to the longest row or to less; and of a whole batch, which has the same rows for all."""
    buckets, longest = weights_of(shares), weights_of(shares, length_buckets=1)
    whole, alone = (weights_of(each, batch_size=90) for each in (shares, (90,)))
    for one, other in ((buckets, longest), (whole, alone)):
        for name, array in one.items():
            np.testing.assert_allclose(array, other[name], rtol=0, atol=1e-12 * max(1, abs(array).max()), err_msg=name)
    again = weights_of(shares)
    assert all(np.array_equal(array, again[name]) for name, array in buckets.items())


def test_the_result_tells_how_full_batches_were_and_how_many_programs_there_are() -> None:
    data = SERIES, LABELS
    few = training.fit(NETWORK, data, batch_size=10, epochs=2, length_buckets=3)
    one = training.fit(NETWORK, data, batch_size=10, epochs=2, length_buckets=1)
    assert few.programs == 3 and one.programs == 1
    assert few.fill is not None and one.fill is not None and few.fill > one.fill + 0.2
    fixed = training.fit(Network([Dense(2)], input_shape=(2,)), (np.ones((4, 2)), np.zeros(4)), epochs=1)
    assert fixed.programs == 1 and fixed.fill is None


def test_settings_tried_together_come_to_what_they_come_to_alone() -> None:
    from sparkdl.training.together import train_all

    plans = [
        Training(NETWORK, epochs=1, batch_size=20, step_size=size, seed=seed) for size in (0.1, 0.2) for seed in (1, 2)
    ]
    nobody = Share([], (), 0)
    found = train_all(plans, share_of((45, 45)), nobody, mesh_of(2))
    for plan, result in zip(plans, found, strict=True):
        alone = train(plan, share_of((45, 45)), nobody, mesh_of(2))
        for name, array in named_arrays(result.weights):
            np.testing.assert_allclose(array, dict(named_arrays(alone.weights))[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 65, 1.5, True])
def test_a_number_of_buckets_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="length_buckets must be"):
        Training(NETWORK, length_buckets=count)


def test_a_row_of_arrays_may_be_given_as_ragged_too() -> None:
    values = np.zeros((90, int(LENGTHS.max()), 2))
    for row, steps in enumerate(SERIES):
        values[row, : len(steps)] = steps
    options: dict[str, Any] = {"batch_size": 20, "epochs": 1, "seed": 2}
    lists = training.fit(NETWORK, (SERIES, LABELS), **options)
    ragged = training.fit(NETWORK, (Ragged(values, LENGTHS.astype("int32")), LABELS), **options)
    for (name, one), (_, other) in zip(named_arrays(lists.weights), named_arrays(ragged.weights), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
