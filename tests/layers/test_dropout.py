"""Dropout: how much it drops, what it keeps, and that inference is left alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.base import Context
from sparkdl.layers.dropout import Dropout


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


def test_inference_is_the_identity() -> None:
    x = jnp.asarray([[1.0, -2.0, 0.0]])
    np.testing.assert_array_equal(Dropout(0.9).forward({}, x), x)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_outside_0_to_1_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match=f"rate of Dropout, the probability of dropping .* received {rate}"):
        Dropout(rate)
