"""Dropout and its kin: how much they drop, what they keep, and that inference is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network, training
from sparkdl.layers import Dense, Embedding, GaussianSample, Layer, Ragged, Relu
from sparkdl.layers.base import Context
from sparkdl.layers.dropout import (
    AlphaDropout,
    DropConnect,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout,
    StochasticDepth,
    WeightNoise,
)


def context(seed: int, batch: int) -> Context:
    return Context(jax.random.key(seed), jnp.ones(batch))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_rate_is_the_share_dropped_and_the_expectation_is_kept(rate: float) -> None:
    n = 40_000
    y, _ = Dropout(rate).train_forward({}, jnp.ones((4, n // 4)), context(0, 4))
    deviation = np.sqrt(rate * (1 - rate) / n)  # of the share, binomial
    assert abs(np.mean(np.asarray(y) == 0) - rate) <= 5 * deviation
    assert abs(np.mean(np.asarray(y)) - 1) <= 5 * deviation / (1 - rate) + 1e-6
    np.testing.assert_allclose(np.unique(y)[-1], 1 / (1 - rate), rtol=1e-6)


def test_delta_passes_where_forward_passed() -> None:
    layer, x = Dropout(0.25), jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 7)) + 10, jnp.float32)
    y, kept = layer.train_forward({}, x, context(1, 3))
    dx, gradient = layer.train_backward({}, x, y, 2 * jnp.ones_like(y), kept, context(1, 3), wants_delta=True)
    np.testing.assert_allclose(np.asarray(dx), 2 * np.asarray(y) / np.asarray(x), rtol=1e-6)
    assert gradient == {} and 0 < np.count_nonzero(y) < y.size


def test_same_key_same_mask_and_rows_differ() -> None:
    layer, x = Dropout(0.5), jnp.ones((2, 64))
    first, again, other = (np.asarray(layer.train_forward({}, x, context(seed, 2))[0]) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() and (first[0] != first[1]).any()


@pytest.mark.parametrize("kind", [SpatialDropout, StochasticDepth])
def test_what_is_dropped_of_rows_of_any_length_is_so_at_all_steps_whatever_the_padding(kind: Any) -> None:
    network = Network([kind(0.5)], input_shape=(None, 64))
    assert network.output_shape() == (None, 64)
    lengths = jnp.array([3, 0, 2], "int32")
    short, long = (Ragged(jnp.ones((3, steps, 64)), lengths) for steps in (3, 9))
    y, kept = network.train_forward({}, short, context(1, 3))
    again, _ = network.train_forward({}, long, context(1, 3))
    assert isinstance(y, Ragged) and y.lengths is lengths
    np.testing.assert_array_equal(y.values, np.asarray(again.values)[:, :3])
    found = np.asarray(y.values)
    assert set(np.unique(found)) == {0, 2} and (found == found[:, :1]).all()
    whole = (found == found[:, :, :1]).all()
    assert whole == (kind is StochasticDepth)
    dy = jnp.full((3, 3, 64), 3.0)
    np.testing.assert_array_equal(network.train_delta({}, short, y, dy, kept, context(1, 3)), 3 * found)


KINDS = [Dropout, SpatialDropout, StochasticDepth, AlphaDropout, GaussianDropout, GaussianNoise]


@pytest.mark.parametrize("kind", KINDS)
def test_inference_is_the_identity(kind: Any) -> None:
    x = jnp.asarray([[1.0, -2.0, 0.0]])
    np.testing.assert_array_equal(kind(0.9).forward({}, x), x)


def test_whole_channels_or_rows_are_dropped() -> None:
    y = np.asarray(SpatialDropout(0.5).train_forward({}, jnp.ones((40, 3, 2, 50)), context(0, 40))[0])
    assert (y == y[:, :1, :1]).all() and 0.4 < (y[:, 0, 0] == 0).mean() < 0.6
    y = np.asarray(StochasticDepth(0.25).train_forward({}, jnp.ones((2000, 3, 2)), context(0, 2000))[0])
    assert (y == y[:, :1, :1]).all() and 0.2 < (y[:, 0, 0] == 0).mean() < 0.3
    assert y.max() == pytest.approx(4 / 3)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_alpha_dropout_keeps_mean_and_variance(rate: float) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 50_000)), "float32")
    y = np.asarray(AlphaDropout(rate).train_forward({}, x, context(0, 4))[0])
    assert abs(y.mean()) < 0.02 and y.var() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(("layer", "deviation"), [(GaussianDropout(0.2), 0.5), (GaussianNoise(0.3), 0.3)])
def test_noise_deviates_as_it_says(layer: Layer, deviation: float) -> None:
    y = np.asarray(layer.train_forward({}, jnp.ones((4, 50_000)), context(0, 4))[0])
    assert y.mean() == pytest.approx(1, abs=0.01) and y.std() == pytest.approx(deviation, rel=0.02)


def test_samples_have_the_means_and_deviations_that_they_are_told() -> None:
    """Of every row and number other ones; and of a deviation that is next to none the mean."""
    means, raw = np.array([1.0, -2, 0]), np.array([2.0, -1, -50])
    variances = (np.logaddexp(0, raw) + 1e-3) ** 2
    x = np.tile(np.concatenate([means, raw]), (100_000, 1)).astype("float32")
    y, _ = GaussianSample().train_forward({}, jnp.asarray(x), context(0, 4))
    np.testing.assert_allclose(np.mean(y, axis=0), means, atol=0.03)
    np.testing.assert_allclose(np.cov(y, rowvar=False), np.diag(variances), atol=0.04)


def test_weights_are_dropped_alike_on_the_way_there_and_back() -> None:
    layer, x = DropConnect(Dense(30), 0.25), jnp.asarray(np.random.default_rng(0).normal(size=(200, 40)), "float32")
    weights = {"layer": {"kernel": jnp.ones((40, 30)), "bias": jnp.ones(30)}}
    y, kept = layer.train_forward(weights, x, context(2, 200))
    seen = np.linalg.lstsq(np.asarray(x), np.asarray(y) - 1, rcond=None)[0]  # the kernel that it used
    dropped = np.abs(seen) < 0.1
    assert 0.2 < dropped.mean() < 0.3
    np.testing.assert_allclose(seen[~dropped], 4 / 3, atol=1e-3)
    _, gradient = layer.train_backward(weights, x, y, jnp.ones_like(y), kept, context(2, 200), False)
    np.testing.assert_array_equal(np.asarray(gradient["layer"]["kernel"]) == 0, dropped)
    np.testing.assert_allclose(gradient["layer"]["bias"], 200)


@pytest.mark.parametrize("additive", [True, False])
def test_weights_have_noise_in_training_alone_the_same_there_and_back(additive: bool, float64: None) -> None:
    random = np.random.default_rng(0)
    layer, x, dy = WeightNoise(Dense(30), 0.2, additive), random.normal(size=(200, 40)), random.normal(size=(200, 30))
    weights = {"layer": {"kernel": jnp.full((40, 30), 3.0), "bias": jnp.ones(30)}}
    np.testing.assert_allclose(layer.forward(weights, jnp.asarray(x)), x.sum(axis=1, keepdims=True) * 3 + 1 + 0 * dy)
    y, kept = layer.train_forward(weights, jnp.asarray(x), context(2, 200))
    used = np.linalg.lstsq(x, np.asarray(y) - 1, rcond=None)[0]  # the kernel that it used
    noise = used - 3 if additive else used / 3 - 1
    assert abs(noise.mean()) < 5 * 0.2 / np.sqrt(noise.size) and noise.std() == pytest.approx(0.2, rel=0.1)
    dx, gradient = layer.train_backward(weights, jnp.asarray(x), y, jnp.asarray(dy), kept, context(2, 200), True)
    np.testing.assert_allclose(dx, dy @ used.T, rtol=1e-9, atol=1e-9)
    expected = x.T @ dy * (1 if additive else 1 + noise)
    np.testing.assert_allclose(gradient["layer"]["kernel"], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gradient["layer"]["bias"], dy.sum(axis=0))


@pytest.mark.parametrize(
    "layer", [DropConnect(Embedding(6, 3), 0.5), WeightNoise(Embedding(6, 3), 0.5, additive=False)], ids=str
)
def test_the_gradient_of_a_disturbed_table_is_one_in_its_shape(layer: Any) -> None:
    """As it is in a step that would have the rows of a table apart."""
    x, weights, dy = jnp.array([[4, 1, 4]]), {"layer": {"table": jnp.ones((6, 3))}}, jnp.ones((1, 3, 3))
    whole = context(1, 1)
    y, kept = layer.train_forward(weights, x, whole)
    used = np.ones((6, 3))
    used[4], used[1] = np.asarray(y)[0, 0], np.asarray(y)[0, 1]  # of ones, so that these are their slopes
    _, gradient = layer.train_backward(weights, x, y, dy, kept, replace(whole, apart=True), False)
    expected = used * np.array([0, 1, 0, 0, 2, 0])[:, None]
    np.testing.assert_allclose(gradient["layer"]["table"], expected, rtol=1e-6)


@pytest.mark.parametrize("disturbed", [DropConnect(Dense(16), 0.1), WeightNoise(Dense(16), 0.1)], ids=str)
def test_a_network_with_disturbed_weights_trains(disturbed: Layer) -> None:
    x = np.random.default_rng(0).normal(size=(200, 5)).astype("float32")
    network = Network([disturbed, Relu(), Dense(1)], input_shape=(5,))
    given: dict[str, Any] = {"loss": "squared_error", "optimizer": "adam", "step_size": 0.01, "epochs": 20}
    result = training.fit(network, (x, x.sum(axis=1)), batch_size=20, **given)
    assert result.history[-1].loss < 0.2 * result.history[0].loss


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_outside_0_to_1_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match=f"rate of Dropout, the probability of dropping .* received {rate}"):
        Dropout(rate)


def test_weight_noise_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"stddev of WeightNoise must be a number in \[0, inf\), received -1"):
        WeightNoise(Dense(2), -1)
    with pytest.raises(ValueError, match="layer of WeightNoise must be a Layer, received 'dense'; write Dense"):
        WeightNoise("dense", 0.1)  # type: ignore[arg-type]
