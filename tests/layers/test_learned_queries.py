"""LearnedSelfAttention against plain loops in float64 and by hand, its slopes against JAX's, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_slopes import slopes_by_row

from sparkdl import Network, training
from sparkdl.layers import (
    Context,
    Dense,
    Flatten,
    Layer,
    LearnedSelfAttention,
    MultiHeadAttention,
    Ragged,
    TransformerEncoder,
)
from sparkdl.layers.attention import dot_product

RANDOM = np.random.default_rng(5)
LENGTHS, STEPS, INPUTS = (4, 0, 2, 1), 5, 4
X = RANDOM.normal(size=(len(LENGTHS), STEPS, INPUTS))
KINDS = [
    LearnedSelfAttention(3, heads=2),
    LearnedSelfAttention(1, 3, 2, 5, bias=False),
    LearnedSelfAttention(2, project=False),
]
each_kind = pytest.mark.parametrize("layer", KINDS, ids=repr)


def drawn(layer: LearnedSelfAttention) -> Any:
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), (STEPS, INPUTS)))
    random = np.random.default_rng(1)
    return jax.tree.map(lambda array: random.normal(size=array.shape), shapes)


def ragged(fill: float = 0.0) -> Ragged:
    values = np.full(X.shape, fill)
    for row, length in enumerate(LENGTHS):
        values[row, :length] = X[row, :length]
    return Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))


def loop(layer: LearnedSelfAttention, weights: Any, x: Any, np: Any = np) -> Any:
    """One row, (steps, inputs), query by query and head by head; by NumPy or by JAX, of which `np` is which."""
    units = weights["queries"].shape[1]
    if not len(x):
        return np.zeros((layer.queries, units))
    return np.stack([answer(layer, weights, query, x, np) for query in weights["queries"]])


def answer(layer: LearnedSelfAttention, weights: Any, asks: Any, x: Any, np: Any) -> Any:
    if not layer.project:
        powers = np.exp(x @ asks / np.sqrt(float(len(asks))))
        return (powers / powers.sum()) @ x
    total = weights["output"]["bias"] if layer.bias else np.zeros(len(asks))
    for head in range(layer.heads):

        def made(name: str, of: Any, head: int = head) -> Any:
            made = of @ weights[name]["kernel"][:, head]
            return made + np.broadcast_to(weights[name]["bias"][head], made.shape) if layer.bias else made

        query, keys, values = made("query", asks), made("key", x), made("value", x)
        powers = np.exp(keys @ query / np.sqrt(float(len(query))))
        total = total + (powers / powers.sum()) @ values @ weights["output"]["kernel"][head]
    return total


@each_kind
def test_it_is_what_a_plain_loop_gives_of_each_row_alone(layer: LearnedSelfAttention, float64: None) -> None:
    weights = drawn(layer)
    y = layer.forward(jax.tree.map(jnp.asarray, weights), ragged(np.nan))
    expected = [loop(layer, weights, row[:length]) for row, length in zip(X, LENGTHS, strict=True)]
    np.testing.assert_allclose(y, expected, atol=1e-12)
    assert not y[LENGTHS.index(0)].any()
    whole = layer.forward(jax.tree.map(jnp.asarray, weights), jnp.asarray(X))
    np.testing.assert_allclose(whole, [loop(layer, weights, row) for row in X], atol=1e-12)


@pytest.mark.parametrize("scores", [dot_product.SCORES, 7])
@each_kind
def test_its_slopes_are_those_of_the_loop(
    layer: LearnedSelfAttention, scores: int, float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By JAX, row by row; also where so few scores are held at once that the way back makes them anew in blocks."""
    monkeypatch.setattr(dot_product, "SCORES", scores)
    weights = jax.tree.map(jnp.asarray, drawn(layer))
    dy = jnp.asarray(np.random.default_rng(2).normal(size=(len(LENGTHS), *weights["queries"].shape)))
    context = Context(jax.random.key(0), jnp.ones(len(LENGTHS)))

    @jax.jit
    def found(weights: Any, x: Any) -> Any:
        y, kept = layer.train_forward(weights, x, context)
        return layer.train_backward(weights, x, y, dy, kept, context, True)

    rows = [X[row, :length] for row, length in enumerate(LENGTHS)]
    of_rows = list(dy)
    expected = slopes_by_row(lambda *at: loop(layer, *at, jnp), weights, rows, of_rows, STEPS)
    slopes = found(weights, ragged(np.nan)), expected
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-11), *slopes)


def test_two_steps_by_hand(float64: None) -> None:
    """Of one number: a query of 0 takes the mean of both steps, one of 2 the shares of exp(2 * 1) and exp(2 * 5)."""
    share = 1 / (1 + np.exp(2.0 * (1 - 5)))
    x, expected = jnp.array([[[1.0], [5.0]]]), np.array([3.0, (1 - share) * 1 + share * 5])
    alone = LearnedSelfAttention(2, project=False)
    y = alone.forward({"queries": jnp.array([[0.0], [2.0]])}, x)
    np.testing.assert_allclose(y, expected[None, :, None])
    layer, one = LearnedSelfAttention(2), jnp.ones((1, 1, 1))
    bias = {"query": 1.0, "key": 0.0, "value": 0.5}
    heads = {name: {"kernel": one, "bias": jnp.full((1, 1), number)} for name, number in bias.items()}
    weights = heads | {"output": {"kernel": 3 * one, "bias": jnp.array([7.0])}, "queries": jnp.array([[-1.0], [1.0]])}
    np.testing.assert_allclose(layer.forward(weights, x), (3 * (expected + 0.5) + 7)[None, :, None])


def test_what_is_dropped_is_drawn_for_each_row_and_query(float64: None) -> None:
    """With queries of 0, steps of 1 count as 1 / 8, or 2 / 8 where half of them is dropped."""
    layer, rows, steps = LearnedSelfAttention(3, project=False, dropout=0.5), 400, 8
    weights, x = {"queries": jnp.zeros((3, 1))}, jnp.ones((rows, steps, 1))
    y, _ = layer.train_forward(weights, x, Context(jax.random.key(0), jnp.ones(rows)))
    counts = np.asarray(y)[..., 0] * steps / 2
    np.testing.assert_array_equal(counts, counts.round())
    # Binomial of 8 draws of 1/2: mean 4, variance 2; rows and queries are independent of one another.
    np.testing.assert_allclose(counts.mean(axis=0), 4, atol=4 * np.sqrt(2 / rows))
    np.testing.assert_allclose(np.cov(counts.T), 2 * np.eye(3), atol=0.7)
    np.testing.assert_array_equal(layer.forward(weights, x), 1)


def test_what_is_frozen_hands_slopes_down_and_has_none_of_its_own() -> None:
    layer = LearnedSelfAttention(2, trainable=False)
    weights, x = layer.init(jax.random.key(0), (STEPS, INPUTS)), jnp.asarray(X, "float32")
    context = Context(jax.random.key(0), jnp.ones(len(X)))
    y, kept = layer.train_forward(weights, x, context)
    dx, own = layer.train_backward(weights, x, y, jnp.ones_like(y), kept, context, True)
    np.testing.assert_allclose(dx, layer.delta(weights, x, y, jnp.ones_like(y)), rtol=1e-5, atol=1e-6)
    assert own == {}
    assert layer.train_backward(weights, x, y, jnp.ones_like(y), kept, context, False) == (None, {})


def test_it_learns_what_two_steps_of_rows_of_any_length_say() -> None:
    """One step has a sign beside its first mark, and another one beside its second; the class is both signs."""
    random, x, labels = np.random.default_rng(3), [], np.arange(192) % 4
    for label in labels:
        row = np.zeros((random.integers(3, 8), 3), "float32")
        row[:, 0] = random.choice([-1, 1], len(row))
        first, second = random.choice(len(row), 2, replace=False)
        row[first] = 2 * (label % 2) - 1, 1, 0
        row[second] = 2 * (label // 2) - 1, 0, 1
        x.append(row)
    network = Network([LearnedSelfAttention(2, 8), Flatten(), Dense(4)], (None, 3))
    given: Any = {"optimizer": "adam", "step_size": 0.03, "epochs": 12, "batch_size": 32, "length_buckets": 1}
    result = training.fit(network, (x, labels.astype(float)), loss="softmax_cross_entropy", **given)
    assert result.history[-1].metric == 1


def test_what_it_puts_out_are_rows_of_one_length() -> None:
    layers: list[Layer] = [LearnedSelfAttention(3, 4), TransformerEncoder(2, 5), Flatten(), Dense(2)]
    network = Network(layers, (None, INPUTS))
    assert network.forward(network.init(0), ragged().astype("float32")).shape == (len(LENGTHS), 2)
    assert network.up_to("transformer_encoder_1").output_shape() == (3, 4)


def test_weights_begin_and_are_held_as_those_of_attention_to_other_rows() -> None:
    layer = LearnedSelfAttention(7, 6, 2, 5, l1=0.5, l2=3.0, constraint="unit_norm")
    weights = layer.init(jax.random.key(0), (9, 4))
    shapes = jax.tree.map(np.shape, MultiHeadAttention(2, 5).init(jax.random.key(0), ((7, 6), (9, 4))))
    assert jax.tree.map(np.shape, weights) == shapes | {"queries": (7, 6)}
    kernels = {name: own if name == "queries" else own["kernel"] for name, own in weights.items()}
    inputs = {"queries": (6, 7), "query": (6, 10), "key": (4, 10), "value": (4, 10), "output": (10, 6)}
    for name, kernel in kernels.items():
        limit = np.sqrt(6 / sum(inputs[name]))  # Glorot and Bengio 2010
        assert 0.8 * limit < np.abs(kernel).max() <= limit
    penalty = sum(0.5 * np.abs(kernel).sum() + 1.5 * (np.asarray(kernel) ** 2).sum() for kernel in kernels.values())
    np.testing.assert_allclose(layer.penalty(weights), penalty, rtol=1e-5)
    held = layer.constrained(weights)
    np.testing.assert_allclose((held["queries"] ** 2).sum(axis=1), 1, rtol=1e-4)
    for name, axes in {"query": 0, "key": 0, "value": 0, "output": (0, 1)}.items():
        np.testing.assert_allclose((held[name]["kernel"] ** 2).sum(axis=axes), 1, rtol=1e-4)
    alone = LearnedSelfAttention(7, project=False, l2=3.0, constraint="unit_norm")
    own = alone.init(jax.random.key(0), (9, 4))
    assert jax.tree.map(np.shape, own) == {"queries": (7, 4)}
    np.testing.assert_allclose(alone.penalty(own), 1.5 * (own["queries"] ** 2).sum(), rtol=1e-5)
    np.testing.assert_allclose((alone.constrained(own)["queries"] ** 2).sum(axis=1), 1, rtol=1e-4)


def test_it_says_what_it_costs() -> None:
    """Keys and values of each step, products of each query with them, and the output; queries are made once a batch."""
    steps, inputs, queries, units, width = 7, 5, 3, 6, 2 * 4
    each = 2 * steps * inputs * width + 2 * queries * steps * width + queries * width * units
    assert LearnedSelfAttention(3, 6, 2, 4).multiply_adds((7, 5)) == each
    assert LearnedSelfAttention(3, project=False).multiply_adds((7, 6)) == 2 * 3 * 7 * 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LearnedSelfAttention(0), "queries of LearnedSelfAttention must be a positive integer, received 0"),
        (lambda: LearnedSelfAttention(2, 0), "units of LearnedSelfAttention must be a positive integer or None"),
        (lambda: LearnedSelfAttention(2, dropout=1.0), r"dropout of LearnedSelfAttention must be .*\[0, 1\)"),
        (lambda: LearnedSelfAttention(2, heads=2, project=False), "neither heads nor head_size, .* received heads=2"),
        (lambda: LearnedSelfAttention(2, head_size=4, project=False), "received heads=1, head_size=4; leave them out"),
        (
            lambda: LearnedSelfAttention(2, 5, 2).output_shape((None, 3)),
            "units of LearnedSelfAttention must be a multiple of heads=2, received 5; set head_size",
        ),
        (
            lambda: LearnedSelfAttention(2, 4, project=False).output_shape((None, 3)),
            "as many numbers as units=4, received 3; leave units or project out",
        ),
    ],
)
def test_what_it_is_not(make: Callable[[], Layer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_it_takes_whole_rows_alone() -> None:
    network = Network([LearnedSelfAttention(3), Flatten(), Dense(2)], (None, 2))
    with pytest.raises(ValueError, match="LearnedSelfAttention needs the whole of every row"):
        network.first_state(2)
