"""The F-measure as a loss of a whole batch: against NumPy and scikit-learn, and alike on any number of workers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn import metrics

from sparkdl import Network, training
from sparkdl.layers import Dense
from sparkdl.losses import FMeasure

RANDOM = np.random.default_rng(12)
OUTPUTS = RANDOM.normal(scale=2, size=(6, 1))
LABELS = np.array([1.0, 0, 1, 1, 0, 0])
WEIGHTS = np.array([1.0, 2, 0.5, 0, 3, 1])


def expected(outputs: np.ndarray, labels: np.ndarray, weights: np.ndarray, beta: float) -> float:
    """1 - F of precision and recall, times the sum of weights."""
    there = special.expit(outputs[:, 0])
    hits = weights @ (labels * there)
    precision, recall = hits / (weights @ there), hits / (weights @ labels)
    return float(weights.sum() * (1 - (1 + beta**2) * precision * recall / (beta**2 * precision + recall)))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_it_is_the_f_measure_of_counts_of_probabilities(beta: float, float64: None) -> None:
    loss, given = FMeasure(beta), (jnp.asarray(OUTPUTS), jnp.asarray(LABELS), jnp.asarray(WEIGHTS))
    np.testing.assert_allclose(loss.value(*given), expected(OUTPUTS, LABELS, WEIGHTS, beta), rtol=1e-12)
    alike = loss.losses(jnp.asarray(OUTPUTS), jnp.asarray(LABELS)[:, None])
    np.testing.assert_allclose(alike, np.full(6, expected(OUTPUTS, LABELS, np.ones(6), beta) / 6), rtol=1e-12)
    delta = np.asarray(loss.delta(*given))
    np.testing.assert_allclose(delta, jax.grad(lambda rows: loss.value(rows, *given[1:]))(given[0]), rtol=1e-10)
    for row in (0, 1, 4):
        step = 1e-6 * np.eye(6)[:, [row]]
        above, below = (expected(OUTPUTS + by, LABELS, WEIGHTS, beta) for by in (step, -step))
        assert delta[row, 0] == pytest.approx((above - below) / 2e-6, rel=1e-6)
    wild = jnp.asarray(np.where(WEIGHTS[:, None] > 0, OUTPUTS, np.inf)), jnp.where(given[2] > 0, given[1], jnp.nan)
    np.testing.assert_allclose(loss.value(*wild, given[2]), loss.value(*given), rtol=1e-12)
    np.testing.assert_allclose(loss.delta(*wild, given[2]), delta, rtol=1e-12)
    assert delta[3, 0] == 0


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_of_outputs_that_are_sure_it_is_that_of_their_decisions(beta: float) -> None:
    found = metrics.fbeta_score(LABELS, OUTPUTS[:, 0] > 0, beta=beta, sample_weight=WEIGHTS)
    value = FMeasure(beta).value(jnp.asarray(1e3 * OUTPUTS), jnp.asarray(LABELS), jnp.asarray(WEIGHTS))
    np.testing.assert_allclose(value / WEIGHTS.sum(), 1 - found, rtol=1e-5)


@pytest.mark.parametrize("weights", [np.zeros(6), np.array([0.0, 1, 0, 0, 1, 2])], ids=["no rows", "no positives"])
def test_where_there_is_nothing_to_find_nothing_is_learned(weights: np.ndarray) -> None:
    given = jnp.asarray(OUTPUTS), jnp.asarray(LABELS), jnp.asarray(weights)
    assert FMeasure().value(*given) == weights.sum()
    assert not np.asarray(FMeasure().delta(*given)).any()
    assert {kernel(*given).dtype for kernel in (FMeasure().value, FMeasure().delta)} == {jnp.dtype("float32")}


def data(rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """One in twelve is positive, and they overlap with the others."""
    labels = (np.arange(rows) % 12 == 0).astype(float)
    return RANDOM.normal(size=(rows, 2)) + 1.2 * labels[:, None], labels


def test_the_counts_are_those_of_all_workers() -> None:
    rows = data(120)
    network = Network([Dense(1)], input_shape=(2,))
    given: dict[str, Any] = {"loss": FMeasure(), "optimizer": "sgd", "step_size": 0.5, "dtype": "float64"}
    alone, *others = (
        training.fit(network, rows, epochs=4, batch_size=120, devices=devices, **given) for devices in (1, 2, 3)
    )
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-10, 1e-12), alone.weights, other.weights)
        assert [epoch.loss for epoch in other.history] == pytest.approx(
            [epoch.loss for epoch in alone.history], rel=1e-12
        )


def test_rare_rows_are_found_that_a_likelihood_leaves() -> None:
    features, labels = rows = data()
    network = Network([Dense(1)], input_shape=(2,))
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.05, "epochs": 60, "batch_size": 200, "devices": 2}

    def f_measure(loss: Any) -> float:
        weights = training.fit(network, rows, loss=loss, **given).weights
        outputs = network.forward(weights, jnp.asarray(features, "float32"))
        return float(metrics.f1_score(labels, np.asarray(outputs)[:, 0] > 0))

    assert f_measure(FMeasure()) > f_measure("sigmoid_cross_entropy") + 0.1


def test_what_it_cannot_measure_is_refused() -> None:
    with pytest.raises(ValueError, match=r"FMeasure needs a network ending in rows of shape \(1,\), this one ends in"):
        FMeasure().check((2,))
    with pytest.raises(ValueError, match=r"beta of FMeasure must be a number in \(0, inf\), received 0"):
        FMeasure(0)
    with pytest.raises(ValueError, match="Labels of FMeasure must be between 0 and 1, received -1"):
        FMeasure().encode(np.array([-1.0, 1.0]), (1,))
