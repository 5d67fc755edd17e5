"""A loss that compares the rows of a batch: against NumPy in float64, and alike on any number of workers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from sparkdl import models, training
from sparkdl.losses import InBatchSoftmax

RANDOM = np.random.default_rng(7)
PAIRS = RANDOM.normal(size=(6, 2, 4))
ITEMS = np.array([3.0, 1, 3, 2, 5, 1])
WEIGHTS = np.array([1.0, 2, 0.5, 0, 3, 1])
OFTEN = np.array([40.0, 2, 40, 7, 1, 2])
USERS, FILMS, ROWS = 30, 24, 240


def expected(
    pairs: np.ndarray, items: np.ndarray, weights: np.ndarray, temperature: float, often: np.ndarray | None
) -> np.ndarray:
    """The loss of each row, one query after the other."""
    losses = np.zeros(len(pairs))
    for row, (query, _) in enumerate(pairs):
        others = [other for other in range(len(pairs)) if other != row and weights[other] > 0]
        if often is None:
            others = [other for other in others if items[other] != items[row]]
        frequency = np.ones(len(pairs)) if often is None else often
        scores = [query @ pairs[other, 1] / temperature - np.log(frequency[other]) for other in (row, *others)]
        losses[row] = special.logsumexp(scores) - scores[0]
    return losses


@pytest.mark.parametrize("often", [None, OFTEN], ids=["plain", "corrected"])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_a_query_is_to_choose_its_item_among_those_of_the_batch(
    temperature: float, often: np.ndarray | None, float64: None
) -> None:
    loss = InBatchSoftmax(temperature, corrected=often is not None)
    labels = ITEMS if often is None else np.stack([ITEMS, often], axis=1)
    given = jnp.asarray(PAIRS), jnp.asarray(labels), jnp.asarray(WEIGHTS)
    rows = expected(PAIRS, ITEMS, WEIGHTS, temperature, often)
    np.testing.assert_allclose(loss.value(*given), WEIGHTS @ rows, rtol=1e-12)
    delta = np.asarray(loss.delta(*given))
    direction, step = RANDOM.normal(size=PAIRS.shape), 1e-6
    direction[3] = 0
    above, below = (
        WEIGHTS @ expected(PAIRS + by * direction, ITEMS, WEIGHTS, temperature, often) for by in (step, -step)
    )
    assert (delta * direction).sum() == pytest.approx((above - below) / 2 / step, rel=1e-6)
    assert not delta[3].any()
    wild = jnp.asarray(np.where(WEIGHTS[:, None, None] > 0, PAIRS, 1e200))
    np.testing.assert_allclose(loss.value(wild, *given[1:]), WEIGHTS @ rows, rtol=1e-12)
    np.testing.assert_allclose(loss.delta(wild, *given[1:]), delta, rtol=1e-12)
    if often is not None:
        nothing = jnp.asarray(np.where(WEIGHTS[:, None] > 0, labels, 0))  # as padding rows have it
        np.testing.assert_allclose(loss.delta(given[0], nothing, given[2]), delta, rtol=1e-12)
        many = jnp.asarray(labels * [1, 1000])
        np.testing.assert_allclose(loss.value(given[0], many, given[2]), WEIGHTS @ rows, rtol=1e-12)


def towers() -> Any:
    return models.two_tower({"user": USERS}, {"film": FILMS}, size=6, units=(8,), pairs=True)


def data() -> Any:
    users = RANDOM.integers(0, USERS, ROWS)
    films = (users * 3 + RANDOM.integers(0, 3, ROWS)) % FILMS
    return {"user": users.astype("int32"), "film": films.astype("int32")}, films.astype("float64")


def test_the_batch_is_that_of_all_workers() -> None:
    rows = data()
    given: dict[str, Any] = {"loss": InBatchSoftmax(0.5), "optimizer": "sgd", "step_size": 0.5, "dtype": "float64"}
    alone, *others = (
        training.fit(towers(), rows, epochs=3, batch_size=ROWS, devices=devices, **given) for devices in (1, 2, 3)
    )
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-10, 1e-12), alone.weights, other.weights)
        assert [epoch.loss for epoch in other.history] == pytest.approx(
            [epoch.loss for epoch in alone.history], rel=1e-12
        )


def test_towers_learn_which_items_go_with_a_query() -> None:
    rows = data()
    given: dict[str, Any] = {"loss": InBatchSoftmax(0.1), "optimizer": "adam", "step_size": 0.02, "epochs": 40}
    result = training.fit(towers(), rows, validation=data(), batch_size=60, devices=2, **given)
    assert (result.history[-1].metric or 0) > 3 * (result.history[0].metric or 0)
    assert result.history[-1].validation_loss is not None
    query, item = (towers().up_to(name) for name in ("query", "item"))
    users = query.forward(result.weights, jnp.arange(USERS))
    films = item.forward(result.weights, jnp.arange(FILMS))
    nearest = np.argsort(-np.asarray(users @ films.T), axis=1)[:, :3]
    wanted = (np.arange(USERS)[:, None] * 3 + np.arange(3)) % FILMS
    found = np.mean([len(set(near) & set(want)) / 3 for near, want in zip(nearest, wanted, strict=True)])
    assert found > 0.8


def test_corrected_scores_are_log_probabilities_of_what_a_query_chooses() -> None:
    """Everyone chooses film j with the same probability, which only its frequency tells."""
    chances = np.array([8.0, 4, 2, 1, 1]) / 16
    films = RANDOM.choice(5, 4_000, p=chances)
    labels = np.stack([films, np.bincount(films)[films]], axis=1).astype("float64")
    features = {"user": RANDOM.integers(0, 3, 4_000).astype("int32"), "film": films.astype("int32")}
    network = models.two_tower({"user": 3}, {"film": 5}, size=4, units=(), normalize=False, pairs=True)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.02, "epochs": 12, "batch_size": 500}
    result = training.fit(network, (features, labels), loss=InBatchSoftmax(corrected=True), **given)
    query, item = (network.up_to(name) for name in ("query", "item"))
    scores = query.forward(result.weights, jnp.arange(3)) @ item.forward(result.weights, jnp.arange(5)).T
    found = special.softmax(np.asarray(scores), axis=1)
    np.testing.assert_allclose(found, np.tile(np.bincount(films) / 4_000, (3, 1)), atol=0.05)


def test_what_does_not_end_in_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"InBatchSoftmax needs a network ending in rows of shape \(2, size\)"):
        InBatchSoftmax().check((6,))
    with pytest.raises(ValueError, match="temperature of InBatchSoftmax"):
        InBatchSoftmax(0)
    with pytest.raises(ValueError, match="takes 2 labels a row, the item and how often it occurs, received 1"):
        InBatchSoftmax(corrected=True).encode(ITEMS, (2, 4))
    with pytest.raises(ValueError, match="must be above 0, received 0; count the item's rows"):
        InBatchSoftmax(corrected=True).encode(np.stack([ITEMS, WEIGHTS], axis=1), (2, 4))
