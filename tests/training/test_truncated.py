"""Truncated back-propagation through time: segments with carried state, an update each, on any number of workers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network, training
from sparkdl.layers import (
    Bidirectional,
    Dense,
    Gru,
    LastStep,
    LearnedPositions,
    Lstm,
    MultiHeadAttention,
    Ragged,
    SinusoidalPositions,
)
from sparkdl.optimizers import SGD, Adam
from sparkdl.schedules import CosineDecay
from sparkdl.training import Training
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(11)
LENGTHS = [9, 3, 0, 7, 4, 1]
X = [RANDOM.normal(size=(length, 2)) for length in LENGTHS]
CLASSES = [RANDOM.integers(0, 3, length).astype(float) for length in LENGTHS]
CLASSES[0][1] = np.nan
WEIGHTS = np.array([1.0, 2, 1, 0.5, 1, 3])
NETWORK = Network([Lstm(4), Gru(3), Dense(3)], (None, 2))
NUMBERED = Network([SinusoidalPositions(), LearnedPositions(9), Gru(3), Dense(3)], (None, 2))
SAME: dict[str, Any] = {"loss": "softmax_cross_entropy", "batch_size": 6, "dtype": "float64", "seed": 4}
DATA = X, CLASSES, WEIGHTS


def assert_equal(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for (name, ours), (_, theirs) in zip(named_arrays(found), named_arrays(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)


def by_hand(network: Network, forward: int, backward: int, step_size: float) -> tuple[Any, float]:
    """One epoch of one batch: updates by jax.grad, through states that are constants every `backward` steps."""
    with jax.enable_x64(True):
        weights = jax.tree.map(jnp.asarray, training.fit(network, DATA, epochs=0, **SAME).weights)
        padded = np.zeros((len(X), 12, 2)), np.full((len(X), 12), np.nan)
        for row, (x, labels) in enumerate(zip(X, CLASSES, strict=True)):
            padded[0][row, : len(x)], padded[1][row, : len(x)] = x, labels
        states = network.first_state(len(X), dtype="float64")
        losses = total = 0.0

        @jax.jit
        def mean_loss(weights: Any, states: Any, first: Any) -> Any:
            summed, weight = 0.0, 0.0
            for start in range(0, forward, backward):
                at = first + start
                x = jax.lax.dynamic_slice_in_dim(padded[0], at, backward, 1)
                labels = jax.lax.dynamic_slice_in_dim(padded[1], at, backward, 1)
                lengths = jnp.clip(jnp.array(LENGTHS, "int32") - at, 0, backward)
                states = jax.tree.map(jax.lax.stop_gradient, states)
                y, states = network.forward_from(weights, states, Ragged(x, lengths))
                known = ~jnp.isnan(labels)
                classes = jnp.where(known, labels, 0).astype("int32")
                own = -jnp.take_along_axis(jax.nn.log_softmax(y.values), classes[..., None], 2)[..., 0]
                each = jnp.where(known, jnp.asarray(WEIGHTS)[:, None], 0.0)
                summed, weight = summed + (each * own).sum(), weight + each.sum()
            return summed / weight, (states, summed, weight)

        for first in range(0, max(LENGTHS), forward):
            gradient, (states, summed, weight) = jax.grad(mean_loss, has_aux=True)(weights, states, jnp.int32(first))
            weights = jax.tree.map(lambda w, g: w - step_size * g, weights, gradient)
            losses, total = losses + float(summed), total + float(weight)
        return weights, losses / total


@pytest.mark.parametrize(
    "network, forward, backward", [(NETWORK, 4, 2), (NETWORK, 3, 3), (NUMBERED, 4, 2)], ids=["4, 2", "3, 3", "numbered"]
)
def test_every_segment_takes_an_update_from_the_state_before_it(network: Network, forward: int, backward: int) -> None:
    expected, loss = by_hand(network, forward, backward, 0.2)
    found = training.fit(network, DATA, truncated=(forward, backward), epochs=1, step_size=0.2, optimizer=SGD(), **SAME)
    assert_equal(found.weights, expected)
    assert found.history[0].loss == pytest.approx(loss, rel=1e-12)


def test_a_segment_as_long_as_the_rows_is_no_truncation() -> None:
    given = dict(SAME, optimizer="adam", step_size=0.05, epochs=2)
    assert_equal(
        training.fit(NETWORK, DATA, truncated=16, **given).weights, training.fit(NETWORK, DATA, **given).weights
    )


def test_workers_together_compute_what_one_does() -> None:
    """Rows of very different lengths on each, so that one worker's have ended long before another's."""
    given = dict(SAME, truncated=2, optimizer=Adam(schedule=CosineDecay()), step_size=0.05, epochs=2)
    alone, three = training.fit(NETWORK, DATA, **given), training.fit(NETWORK, DATA, devices=3, **given)
    assert_equal(three.weights, alone.weights)
    assert three.history[-1].loss == pytest.approx(alone.history[-1].loss, rel=1e-12)


def test_what_lies_further_back_than_a_segment_is_remembered() -> None:
    """The class of every step is that of the row's first, which only the carried state tells in later segments."""
    first = RANDOM.integers(0, 2, 64)
    x = [np.stack([np.eye(2)[kind] if at == 0 else np.zeros(2) for at in range(12)]) for kind in first]
    labels = [np.full(12, float(kind)) for kind in first]
    result = training.fit(
        Network([Lstm(8), Dense(2)], (None, 2)),
        (x, labels),
        truncated=4,
        loss="softmax_cross_entropy",
        optimizer="adam",
        step_size=0.02,
        epochs=15,
        batch_size=16,
    )
    assert result.history[-1].metric == 1


@pytest.mark.parametrize(
    "layers, truncated, message",
    [
        ([Lstm(3), Dense(2)], 0, "truncated must be a positive integer"),
        ([Lstm(3), Dense(2)], (4, 3), "truncated must be a positive integer"),
        ([Lstm(3), LastStep(), Dense(2)], 4, "a network that ends in a prediction for each step"),
        ([Bidirectional(Lstm(3)), Dense(2)], 4, "truncated: Layer 0 .* cannot go from one segment"),
        (
            [MultiHeadAttention(2, causal=True), Dense(2)],
            4,
            r"truncated: Layer 0 \(MultiHeadAttention\): .* If it is a fit that is to be truncated, leave that out",
        ),
    ],
    ids=["none", "no divisor", "one a row", "bidirectional", "attention"],
)
def test_what_cannot_be_truncated(layers: Any, truncated: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(Network(layers, (None, 2)), truncated=truncated)


def test_it_survives_json() -> None:
    plan = Training(NETWORK, truncated=(8, 4))
    assert Training.from_json(plan.to_json()) == plan and plan.segments == (8, 4)
    assert Training(NETWORK, truncated=8).segments == (8, 8)


def test_statistics_have_the_phases_of_every_segment() -> None:
    result = training.fit(NETWORK, DATA, epochs=1, devices=2, statistics=True, truncated=(4, 4), **SAME)
    parts = [event for event in result.events if event["phase"] in ("step", "exchange") and event["step"] == 0]
    assert [part["phase"] for part in parts] == ["step", "exchange"] * 3 + ["step"]  # the longest row has 9 steps
    ends = [part["start"] + part["seconds"] for part in parts]
    np.testing.assert_allclose([part["start"] for part in parts[1:]], ends[:-1], rtol=0, atol=1e-5)
