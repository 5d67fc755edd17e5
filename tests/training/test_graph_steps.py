"""A graph of every kind of shape is trained by any number of workers as by one process, and to the bit each time.

The reference is a plain loop: autodiff of the weighted mean loss of the whole graph, written here with jnp.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from row_cases import Shares, chosen, trained

from sparkdl import Graph, Same
from sparkdl.layers import Add, BatchNorm, Concatenate, Dense, Embedding, Multiply, Tanh
from sparkdl.optimizers import AdaGrad, Momentum, Optimizer
from sparkdl.training import (
    AllReduce,
    Checkpoints,
    Exchange,
    ParameterAveraging,
    ShardedAllReduce,
    ThresholdSharing,
    Training,
)
from sparkdl.training.data.batches import Rows, Steps
from sparkdl.training.exchanges.threshold import FixedThreshold
from sparkdl.weights import named_arrays, updated

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(31)
COUNT, STEP_SIZE = 24, 0.05
GRAPH = Graph(
    inputs={"facts": (4,), "who": (), "whom": ()},
    nodes={
        "first": (Dense(3, bias=False, l2=0.1), "facts"),  # which three read
        "norm": (BatchNorm(), "first"),
        "bent": (Tanh(), "first"),
        "diamond": (Add(), "norm", "bent", "first"),
        "square": (Multiply(), "diamond", "diamond"),  # one source twice
        "left": (Embedding(200, 3), "who"),
        "right": (Same("left"), "whom"),  # weights of its own it has none
        "inner": (
            Graph(
                {"a": (3,), "b": (3,)},
                {"hidden": (Dense(3), "a"), "sum": (Add(), "hidden", "b"), "bent": (Tanh(), "sum")},
                "bent",
            ),
            "left",
            "square",
        ),
        "size": (Dense(1), "inner"),  # an output that is used inside
        "both": (Concatenate(), "inner", "right", "size"),
        "kind": (Dense(3), "both"),
    },
    outputs=("kind", "size"),
)
ROWS = Rows(
    {
        "facts": RANDOM.normal(size=(COUNT, 4)),
        "who": RANDOM.integers(0, 200, COUNT).astype("int32"),
        "whom": RANDOM.integers(0, 200, COUNT).astype("int32"),
    },
    {"kind": RANDOM.integers(0, 3, COUNT).astype("int32"), "size": RANDOM.normal(size=(COUNT, 1))},
    np.tile([0.5, 2, 0.25, 0, 3, 1, 1.75, 0.5], 3),
)
SHARES = [(24,), (21, 3), (21, 0, 3), (9, 9, 6)]
EXCHANGES = [
    AllReduce(),
    AllReduce("bfloat16"),
    ShardedAllReduce(),
    ParameterAveraging(2),
    ThresholdSharing(FixedThreshold(0.05)),
]


def plan(**options: Any) -> Training:
    given = {
        "loss": {"kind": "softmax_cross_entropy", "size": "squared_error"},
        "loss_weights": {"size": 0.3},
        "step_size": STEP_SIZE,
        "epochs": 2,
        "batch_size": 8,
        "seed": 3,
        "shuffle": False,
        "dtype": "float64",
    }
    return Training(**{"network": GRAPH, **given, **options})


@partial(jax.jit, static_argnums=0)
def derivative(frozen: bool, learned: Any, weights: Any, rows: Rows) -> tuple[Any, Any]:
    """Derivative of the objective by the learned weights, and the statistics after the step."""

    def objective(learned: Any) -> tuple[jax.Array, Any]:
        w = updated(weights, learned)
        first = rows.features["facts"] @ w["first"]["kernel"]
        mean = (rows.weights[:, None] * first).sum(0) / rows.weights.sum()
        variance = (rows.weights[:, None] * (first - mean[None]) ** 2).sum(0) / rows.weights.sum()
        if frozen:
            standard = (first - w["norm"]["mean"][None]) / jnp.sqrt(w["norm"]["variance"] + 1e-5)[None]
        else:
            standard = (first - mean[None]) / jnp.sqrt(variance + 1e-5)[None]
        norm = standard * w["norm"]["scale"][None] + w["norm"]["bias"][None]
        square = (norm + jnp.tanh(first) + first) ** 2
        left, right = (w["left"]["table"][rows.features[name]] for name in ("who", "whom"))
        hidden = w["inner"]["hidden"]
        inner = jnp.tanh(left @ hidden["kernel"] + hidden["bias"][None] + square)
        size = inner @ w["size"]["kernel"] + w["size"]["bias"][None]
        both = jnp.concatenate([inner, right, size], axis=1)
        kind = both @ w["kind"]["kernel"] + w["kind"]["bias"][None]
        losses = jax.nn.logsumexp(kind, axis=1)
        losses -= jnp.take_along_axis(kind, rows.labels["kind"][:, None], axis=1)[:, 0]
        losses += 0.3 * ((size - rows.labels["size"]) ** 2)[:, 0]
        penalty = 0.0 if frozen else 0.05 * (w["first"]["kernel"] ** 2).sum()
        averages = {name: 0.9 * w["norm"][name] + 0.1 * new for name, new in (("mean", mean), ("variance", variance))}
        return (rows.weights * losses).sum() / rows.weights.sum() + penalty, {} if frozen else {"norm": averages}

    return jax.grad(objective, has_aux=True)(learned)


def trained_by_one_process(given: Training, shares: Shares, frozen: bool = False) -> Any:
    """The weights after a loop over the rows that workers with these shares together take in every step."""
    weights = trained(replace(given, epochs=0), ROWS, (COUNT,)).weights
    division, starts = Steps(shares, given.batch_size), [0, *accumulate(shares[:-1])]
    with jax.enable_x64(True):
        optimizer = Optimizer.of(given.optimizer).transformation(STEP_SIZE, 100, 100)
        learned = given.network.learned(weights)
        state = optimizer.init(learned)
        for step in [*range(division.count)] * given.epochs:
            taken = [start + np.arange(*division.bounds(at, step)) for at, start in enumerate(starts)]
            slopes, averages = derivative(frozen, learned, weights, chosen(ROWS, np.concatenate(taken)))
            changes, state = optimizer.update(slopes, state, learned)
            learned = optax.apply_updates(learned, changes)
            weights = updated(updated(weights, learned), averages)
        return jax.tree.map(np.asarray, weights)


def assert_close(actual: Any, expected: Any) -> None:
    actual, expected = dict(named_arrays(actual)), dict(named_arrays(expected))
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=1e-12 * np.abs(array).max(), err_msg=name)


@pytest.mark.parametrize(
    ("shares", "exchange", "optimizer"),
    [
        *((shares, AllReduce(), Momentum()) for shares in SHARES),
        *((shares, AllReduce(), AdaGrad(1e-3, 0.5)) for shares in SHARES[1:3]),
        ((21, 0, 3), ShardedAllReduce(), Momentum()),
    ],
    ids=str,
)
def test_workers_of_uneven_shares_take_the_steps_of_one_process(
    shares: Shares, exchange: Exchange, optimizer: Optimizer
) -> None:
    """AdaGrad moves only the rows of the table that a batch names, Momentum all of them."""
    given = plan(exchange=exchange, optimizer=optimizer)
    assert_close(trained(given, ROWS, shares).weights, trained_by_one_process(given, shares))


def test_a_frozen_branch_is_left_as_it_was_and_all_else_learns_as_it_would() -> None:
    given = plan(network=GRAPH.frozen("first", "norm"), optimizer=Momentum())
    before, after = (trained(replace(given, epochs=epochs), ROWS, (21, 0, 3)).weights for epochs in (0, 2))
    assert_close(after, trained_by_one_process(given, (21, 0, 3), frozen=True))
    for name in ("first", "norm"):
        jax.tree.map(np.testing.assert_array_equal, before[name], after[name])
    assert not np.array_equal(before["left"]["table"], after["left"]["table"])


@pytest.mark.parametrize("exchange", EXCHANGES, ids=repr)
def test_every_exchange_repeats_itself_and_goes_on_from_a_checkpoint_to_the_bit(
    exchange: Exchange, tmp_path: Path
) -> None:
    given = plan(exchange=exchange, optimizer=Momentum(), dtype="float32", shuffle=True, epochs=4)
    whole = trained(given, ROWS, (21, 0, 3))
    assert whole.history[-1].loss < whole.history[0].loss
    kept = replace(given, checkpoints=Checkpoints(str(tmp_path), every=1, unit="epoch"))
    trained(replace(kept, epochs=2), ROWS, (21, 0, 3))
    resumed = trained(kept, ROWS, (21, 0, 3))
    assert resumed.resumed
    for other in (trained(given, ROWS, (21, 0, 3)), resumed):
        for (name, array), (_, expected) in zip(named_arrays(other.weights), named_arrays(whole.weights), strict=True):
            np.testing.assert_array_equal(array, expected, err_msg=name)
