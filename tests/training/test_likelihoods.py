"""Networks trained by a likelihood, or by the distance of distributions, against what their rows were drawn from."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, wasserstein_distance

from sparkdl import Graph, Network, training
from sparkdl.constraints import MaxNorm
from sparkdl.layers import Concatenate, Dense, GaussianSample, Tanh
from sparkdl.losses import EvidenceLowerBound, GaussianLikelihood, Loss, MixtureDensity, MultiLabel, Wasserstein
from sparkdl.optimizers import Adam
from sparkdl.schedules import CosineDecay

RANDOM = np.random.default_rng(4)
ROWS = 600
SIDE = np.arange(ROWS) % 2  # which of two kinds a row is of
GIVEN: dict[str, Any] = {"optimizer": "adam", "step_size": 0.05, "epochs": 150, "batch_size": 100, "devices": 2}


def predictions(network: Network, loss: Loss, labels: np.ndarray) -> tuple[np.ndarray, training.Result]:
    """Of a row of each kind, and the fit."""
    x = SIDE[:, None].astype("float32")
    result = training.fit(network, (x, labels), loss=loss, **GIVEN)
    return np.asarray(loss.predict(network.forward(result.weights, jnp.array([[0.0], [1.0]])))), result


def test_means_and_standard_deviations_of_each_kind_are_found() -> None:
    labels = np.stack([RANDOM.normal(1 - SIDE, 0.5 + SIDE), RANDOM.normal(SIDE * 2, 1)], axis=1)
    loss, network = GaussianLikelihood(), Network([Dense(4)], input_shape=(1,))
    found, result = predictions(network, loss, labels)
    kinds = [labels[side == SIDE] for side in (0, 1)]
    np.testing.assert_allclose(found[:, :2], [kind.mean(axis=0) for kind in kinds], atol=0.1)
    np.testing.assert_allclose(found[:, 2:], [kind.std(axis=0) for kind in kinds], rtol=0.1)
    expected = np.mean([kind.var(axis=0).sum() for kind in kinds])
    assert result.history[-1].metric == pytest.approx(expected, rel=0.1)


def test_two_places_of_a_label_are_told_apart() -> None:
    """Labels lie at -2 and 2, of which a quarter at 2 for one kind and half for the other; a mean is neither."""
    upper = np.where(SIDE, 0.5, 0.25)
    labels = np.where(RANDOM.random(ROWS) < upper, 2, -2) + RANDOM.normal(scale=0.3, size=ROWS)
    loss, network = MixtureDensity(4), Network([Dense(8), Tanh(), Dense(12)], input_shape=(1,))
    found, result = predictions(network, loss, labels)
    shares, means, scales = np.split(found, 3, axis=1)
    kinds = [labels[side == SIDE] for side in (0, 1)]
    np.testing.assert_allclose((shares * (means > 0)).sum(axis=1), [np.mean(kind > 0) for kind in kinds], atol=0.05)
    np.testing.assert_allclose((shares * np.abs(means)).sum(axis=1), 2, atol=0.15)
    np.testing.assert_allclose((shares * scales).sum(axis=1), 0.3, atol=0.1)
    np.testing.assert_allclose(loss.mean(found)[:, 0], [kind.mean() for kind in kinds], atol=0.15)
    densities = upper * norm.pdf(labels, 2, 0.3) + (1 - upper) * norm.pdf(labels, -2, 0.3)
    assert result.history[-1].loss == pytest.approx(-np.log(densities).mean(), abs=0.05)


def test_labels_that_a_row_has_come_before_others() -> None:
    labels = np.where(SIDE[:, None], [1, 0, 1], [0, 1, 0])
    network = Network([Dense(3), Tanh()], input_shape=(1,))
    found, result = predictions(network, MultiLabel(), labels)
    assert result.history[-1].metric == 1
    np.testing.assert_array_equal(found > 0, [[False, True, False], [True, False, True]])


def test_a_linear_autoencoder_comes_to_the_likelihood_of_principal_components() -> None:
    """Of which it is the probabilistic form, and its bound is tight (Lucas et al. 2019), here of a variance of 1/2."""
    features, latent, variance = 5, 2, 0.5
    x = RANDOM.normal(size=(2000, latent)) @ RANDOM.normal(size=(latent, features))
    x += RANDOM.normal(scale=0.7, size=x.shape) + 1
    own = np.linalg.eigvalsh(np.cov(x, rowvar=False, bias=True))
    modelled = np.where(np.arange(features) < features - latent, variance, own)  # own ones rise
    expected = (np.log(modelled / variance) + own / modelled).sum() / 2
    nodes: Any = {
        "encoder": (Dense(2 * latent), "features"),
        "code": (GaussianSample(), "encoder"),
        "decoder": (Dense(features), "code"),
        "both": (Concatenate(), "decoder", "encoder"),
    }
    network = Graph({"features": (features,)}, nodes, "both")
    given = GIVEN | {"optimizer": Adam(schedule=CosineDecay()), "batch_size": 200, "epochs": 120}
    result = training.fit(network, (x, x), loss=EvidenceLowerBound(latent), **given)
    assert np.mean([epoch.loss for epoch in result.history[-10:]]) == pytest.approx(expected, rel=0.01)
    codes = np.asarray(network.forward(result.weights, x.astype("float32")))[:, features : features + latent]
    coordinates = (x - x.mean(axis=0)) @ np.linalg.eigh(np.cov(x, rowvar=False))[1][:, -latent:]
    left = coordinates - codes @ np.linalg.lstsq(codes, coordinates, rcond=None)[0]
    assert left.var() < 0.01 * coordinates.var()


def test_a_distribution_of_ones_own_is_trained() -> None:
    class Exponential(GaussianLikelihood):
        """log(m) + t / m, of labels above 0; the second output is not looked at."""

        def predict(self, outputs: Any) -> Any:
            return jnp.exp(outputs)

        def losses(self, outputs: Any, targets: Any) -> Any:
            return (outputs[:, :1] + targets * jnp.exp(-outputs[:, :1])).sum(axis=1)

        slopes = Loss.slopes

    labels = RANDOM.exponential(1 + SIDE)
    found, _ = predictions(Network([Dense(2)], input_shape=(1,)), Exponential(), labels)
    np.testing.assert_allclose(found[:, 0], [labels[side == SIDE].mean() for side in (0, 1)], rtol=0.1)


def test_a_critic_of_bounded_slope_comes_near_the_distance_of_two_sets_of_rows() -> None:
    """Of one number, one is further right for every row, so that the best critic of slope 1 is a straight line."""
    rows = RANDOM.normal(size=ROWS) + np.where(SIDE, 2.5, 0)
    network = Network([Dense(1, constraint=MaxNorm(1))], input_shape=(1,))
    given = GIVEN | {"epochs": 40, "batch_size": ROWS}
    result = training.fit(network, (rows[:, None], 1.0 - 2 * SIDE), loss=Wasserstein(), **given)
    distance = wasserstein_distance(rows[SIDE == 0], rows[SIDE == 1])
    assert -2 * result.history[-1].loss == pytest.approx(distance, rel=1e-3)
