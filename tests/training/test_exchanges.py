"""What every exchange must come to, and what each of them is: simulated in NumPy on a linear network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import row_cases
from row_cases import Shares, chosen, rows_of

from sparkdl import Network, training
from sparkdl.layers import BatchNorm, Dense
from sparkdl.optimizers import SGD, Momentum, Optimizer
from sparkdl.schedules import ExponentialDecay
from sparkdl.training import (
    AllReduce,
    Checkpoints,
    EarlyStopping,
    Exchange,
    ParameterAveraging,
    ShardedAllReduce,
    ThresholdSharing,
    Training,
)
from sparkdl.training.checkpoints.checkpoints import decode
from sparkdl.training.data.batches import Rows, Steps
from sparkdl.training.exchanges.exchange import first_state
from sparkdl.training.exchanges.threshold import FixedThreshold
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

Array = np.ndarray[Any, Any]

RANDOM = np.random.default_rng(29)
ROWS = rows_of(RANDOM.normal(size=(24, 4)), RANDOM.integers(0, 3, 24).astype("int32"), RANDOM.uniform(0.5, 2, 24))
NETWORK = Network([Dense(3, kernel_initializer="zeros", name="only")], input_shape=(4,))
SHARES = [(24,), (12, 12), (15, 0, 9)]
STEP_SIZE = 0.3

EXCHANGES = [
    AllReduce(),
    AllReduce("bfloat16"),
    ParameterAveraging(1),
    ParameterAveraging(3),
    ParameterAveraging(3, average_optimizer_state=False),
    ThresholdSharing(FixedThreshold(0.05)),
    ShardedAllReduce(),
]
each_exchange = pytest.mark.parametrize("exchange", EXCHANGES, ids=repr)


def plan(exchange: Exchange, optimizer: Optimizer = SGD(), **options: Any) -> Training:  # noqa: B008
    settings = {"epochs": 2, "batch_size": 6, "shuffle": False, "dtype": "float64", "step_size": STEP_SIZE}
    return Training(NETWORK, exchange=exchange, optimizer=optimizer, **settings | options)


def trained(training: Training, shares: Shares, rows: Rows = ROWS) -> Any:
    return row_cases.trained(training, rows, shares)


def kernel(result: Any) -> Array:
    return result.weights["only"]["kernel"]


@dataclass
class Worker:
    """A worker of the simulation: softmax regression, its momentum, and the weight of its rows since the last mean."""

    rows: Rows
    kernel: Array = field(default_factory=lambda: np.zeros((4, 3)))
    bias: Array = field(default_factory=lambda: np.zeros(3))
    momentum: list[Array] = field(default_factory=lambda: [np.zeros((4, 3)), np.zeros(3)])
    seen: float = 0.0

    def gradient(self, taken: slice) -> tuple[list[Array], float]:
        """Sum over these rows of weight times derivative; the sum of their weights."""
        x, labels, weights = (part[taken] for part in self.rows.each().values())
        scores = x @ self.kernel + self.bias
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        slopes = (powers / powers.sum(axis=1, keepdims=True) - np.eye(3)[labels]) * weights[:, None]
        return [x.T @ slopes, slopes.sum(axis=0)], float(weights.sum())

    def step(self, mean: list[Array], rate: float, decay: float) -> None:
        self.momentum = [decay * old + new for old, new in zip(self.momentum, mean, strict=True)]
        self.kernel = self.kernel - rate * self.momentum[0]
        self.bias = self.bias - rate * self.momentum[1]


def averaged(shares: Shares, frequency: int, states: bool, decay: float, rates: list[float]) -> list[Worker]:
    """Two epochs of local steps with weighted means every `frequency` steps and at an epoch's end."""
    starts, division = [0, *accumulate(shares[:-1])], Steps(shares, 6)
    workers = [Worker(chosen(ROWS, slice(start, start + share))) for start, share in zip(starts, shares, strict=True)]
    for number in range(2 * division.count):
        step = number % division.count
        for rank, worker in enumerate(workers):
            total, weight = worker.gradient(slice(*division.bounds(rank, step)))
            worker.step([part / weight if weight else part for part in total], rates[number], decay)
            worker.seen += weight
        if (step + 1) % frequency == 0 or step + 1 == division.count:
            parts = np.array([worker.seen for worker in workers]) / sum(worker.seen for worker in workers)
            means = {
                name: sum(part * getattr(worker, name) for part, worker in zip(parts, workers, strict=True))
                for name in ("kernel", "bias")
            }
            momenta = [
                sum(part * worker.momentum[i] for part, worker in zip(parts, workers, strict=True)) for i in (0, 1)
            ]
            for worker in workers:
                worker.kernel, worker.bias, worker.seen = means["kernel"], means["bias"], 0.0
                worker.momentum = momenta if states else worker.momentum
    return workers


# What holds for all


@dataclass(frozen=True)
class Counting(AllReduce):
    """Counts its steps in a state that knows no totals, as exchanges for 0.1 do."""

    def init(self, learned: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, learned), jnp.int32(0)

    def apply(self, sums: Any, params: Any, state: Any, update: Any, moment: Any) -> Any:
        agreed = super().apply(sums, params, state, update, moment)
        return agreed._replace(state=(state[0], state[1] + 1))


def test_an_exchange_need_not_ask_how_many_totals_there_are(tmp_path: Path) -> None:
    own = plan(Counting(), checkpoints=Checkpoints(str(tmp_path)))
    assert np.array_equal(kernel(trained(own, (12, 12))), kernel(trained(plan(AllReduce()), (12, 12))))
    learned = {"only": {"kernel": jnp.ones((4, 3))}}
    zeros, steps = first_state(Counting(), learned, 11)
    assert not zeros["only"]["kernel"].any() and steps == 0
    assert first_state(AllReduce(), learned, 11) == ()
    assert first_state(ParameterAveraging(), learned, 11).shape == (11,)


@each_exchange
def test_it_learns_counts_every_row_and_repeats_itself_bit_for_bit(exchange: Exchange) -> None:
    results = [trained(plan(exchange, epochs=8, shuffle=True, dtype="float32"), (15, 0, 9)) for _ in range(2)]
    assert np.array_equal(*map(kernel, results))
    history = results[0].history
    assert history[-1].loss < 0.9 * history[0].loss
    assert [epoch.rows for epoch in history] == [24] * 8
    assert history[0].bytes > 0


@each_exchange
def test_it_comes_back_from_json_and_by_its_name(exchange: Exchange) -> None:
    assert Exchange.from_json(exchange.to_json()) == exchange
    name = type(exchange).__name__
    assert isinstance(Exchange.of(name), type(exchange))
    assert Training.from_json(plan(exchange).to_json()).exchange == exchange


@each_exchange
def test_a_network_of_which_nothing_is_learned_trains(exchange: Exchange) -> None:
    frozen = plan(exchange, dtype="float32")
    result = trained(replace(frozen, network=frozen.network.frozen("only")), (15, 0, 9))
    assert not kernel(result).any()
    assert [epoch.rows for epoch in result.history] == [24, 24]


@each_exchange
def test_one_worker_alone_sends_nothing(exchange: Exchange) -> None:
    result = trained(plan(exchange), (24,))
    assert [epoch.bytes for epoch in result.history] == [0.0, 0.0]
    if not isinstance(exchange, ThresholdSharing):
        np.testing.assert_allclose(kernel(result), kernel(trained(plan(AllReduce()), (24,))), rtol=1e-12)


@pytest.mark.parametrize(
    "exchange, unit, every", [*((exchange, "step", 3) for exchange in EXCHANGES), (EXCHANGES[3], "epoch", 1)], ids=str
)
def test_a_run_that_was_interrupted_ends_with_the_weights_of_one_that_was_not(
    exchange: Exchange, unit: str, every: int, tmp_path: Path
) -> None:
    options = {"exchange": exchange, "optimizer": "adam", "batch_size": 5, "devices": 3, "epochs": 3}
    rows, seen = (ROWS.features["features"].astype("float32"), ROWS.labels["label"]), 0

    def interrupt(message: dict[str, Any]) -> None:
        nonlocal seen
        seen += "history" in message
        if seen == 2:
            raise KeyboardInterrupt

    checkpoints = Checkpoints(str(tmp_path), every=every, unit=unit, keep=9)
    with pytest.raises(KeyboardInterrupt):
        training.fit(NETWORK, rows, checkpoints=checkpoints, report=interrupt, **options)
    whole = training.fit(NETWORK, rows, **options)
    resumed = training.fit(NETWORK, rows, checkpoints=checkpoints, **options)
    assert resumed.resumed == ([1, 0] if unit == "epoch" else [1, 4])
    assert [epoch[:5] for epoch in resumed.history] == [epoch[:5] for epoch in whole.history]
    for (name, array), (_, expected) in zip(named_arrays(resumed.weights), named_arrays(whole.weights), strict=True):
        assert np.array_equal(array, expected), name


# AllReduce


@pytest.mark.parametrize("shares, sent", [((12, 12), 2 * 1), ((15, 0, 9), 3 * 4 / 3)], ids=str)
def test_all_reduce_sends_what_a_ring_does(shares: Shares, sent: float) -> None:
    numbers = 4 * 3 + 3 + 3  # weights, and loss, metric, weight
    history = trained(plan(AllReduce(), dtype="float32"), shares).history
    assert history[0].bytes == pytest.approx(history[0].steps * sent * numbers * 4)


@pytest.mark.parametrize("shares", SHARES[1:], ids=str)
def test_bfloat16_sends_half_the_bytes_and_errs_in_the_ninth_bit(shares: Shares) -> None:
    wide = Network([Dense(30, kernel_initializer="zeros", name="only"), Dense(3)], input_shape=(4,))
    narrow, exact = (
        trained(replace(plan(AllReduce(dtype), epochs=1, batch_size=24), network=wide), shares)
        for dtype in ("bfloat16", "float32")
    )
    weights = sum(array.size for _, array in named_arrays(exact.weights))
    assert narrow.history[0].bytes < 0.3 * exact.history[0].bytes * (weights + 3) / weights  # of float64's
    for (name, array), (_, expected) in zip(named_arrays(narrow.weights), named_arrays(exact.weights), strict=True):
        np.testing.assert_allclose(
            array, expected, rtol=0, atol=2**-7 * max(np.abs(expected).max(), 1e-9), err_msg=name
        )
    assert not np.array_equal(narrow.weights["only"]["bias"], exact.weights["only"]["bias"])


# ParameterAveraging


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("frequency, states", [(1, True), (3, True), (3, False), (100, True)])
def test_parameter_averaging_is_the_weighted_mean_of_local_runs(shares: Shares, frequency: int, states: bool) -> None:
    exchange = ParameterAveraging(frequency, average_optimizer_state=states)
    optimizer = Momentum(0.8, schedule=ExponentialDecay(every=1, unit="step", factor=0.9))
    steps = 2 * Steps(shares, 6).count
    rates = [STEP_SIZE * 0.9**number for number in range(steps)]  # of true steps
    workers = averaged(shares, frequency, states, 0.8, rates)
    result = trained(plan(exchange, optimizer), shares)
    np.testing.assert_allclose(kernel(result), workers[0].kernel, rtol=1e-10)
    np.testing.assert_allclose(result.weights["only"]["bias"], workers[0].bias, rtol=1e-10)


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_averaging_every_step_is_all_reduce(shares: Shares) -> None:
    one, other = (trained(plan(exchange), shares) for exchange in (ParameterAveraging(1), AllReduce()))
    np.testing.assert_allclose(kernel(one), kernel(other), rtol=1e-6)
    assert [epoch.loss for epoch in one.history] == pytest.approx([epoch.loss for epoch in other.history])


def test_it_talks_once_in_so_many_steps_and_at_the_end_of_an_epoch() -> None:
    often, seldom = (trained(plan(ParameterAveraging(k), dtype="float32"), (12, 12)).history[0] for k in (1, 3))
    assert often.steps == 4
    assert seldom.bytes == pytest.approx(often.bytes * 2 / 4)  # after 3 of 4 steps, and after the last


def test_all_workers_end_an_epoch_with_the_same_weights_and_statistics(tmp_path: Path) -> None:
    network = Network([Dense(5), BatchNorm(), Dense(3)], input_shape=(4,))
    options = replace(plan(ParameterAveraging(3)), network=network, checkpoints=Checkpoints(str(tmp_path)))
    result = trained(options, (15, 0, 9))
    _, arrays = decode(sorted(tmp_path.glob("*/*.ckpt"))[-1].read_bytes())
    state = [array for name, array in arrays.items() if name.startswith("state/")]
    assert all(np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in state)
    moved = dict(named_arrays(result.weights))["batch_norm_1/mean"]
    assert np.isfinite(moved).all() and (moved != 0).any()


def test_rows_that_weigh_nothing_move_nothing() -> None:
    rows = ROWS._replace(weights=np.where(np.arange(24) < 12, ROWS.weights, 0))  # all of the second worker's
    exchange = ParameterAveraging(2)
    both = trained(plan(exchange), (12, 12), rows)
    alone = trained(plan(exchange, batch_size=3), (12,), chosen(rows, slice(12)))
    np.testing.assert_allclose(kernel(both), kernel(alone), rtol=1e-12)


@pytest.mark.parametrize("frequency", [0, -1, 1.5, True])
def test_a_frequency_is_a_number_of_steps(frequency: Any) -> None:
    with pytest.raises(ValueError, match="frequency of ParameterAveraging must be a number of steps of at least 1"):
        ParameterAveraging(frequency)


def test_weights_are_checked_only_when_they_are_averaged() -> None:
    with pytest.raises(ValueError, match="checks when workers hold different weights .*; choose a multiple"):
        plan(ParameterAveraging(3), early_stopping=EarlyStopping("loss", every=4, unit="step"))
    plan(ParameterAveraging(3), early_stopping=EarlyStopping("loss", every=6, unit="step"))
