"""RecurrentAttention against plain loops in float64 and by hand, its slopes against JAX's, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_slopes import slopes_by_row

from sparkdl import Network, training
from sparkdl.layers import Context, Dense, LastStep, Layer, Ragged, RecurrentAttention
from sparkdl.layers.attention import dot_product
from sparkdl.training import Training

RANDOM = np.random.default_rng(5)
LENGTHS, STEPS, INPUTS = (4, 0, 2, 1), 5, 3
X = RANDOM.normal(size=(len(LENGTHS), STEPS, INPUTS))
KINDS = [
    RecurrentAttention(4, 2),
    RecurrentAttention(4, 3, 2, bias=False),
    RecurrentAttention(2, activation="relu"),
    RecurrentAttention(3, project=False),
]
each_kind = pytest.mark.parametrize("layer", KINDS, ids=repr)


def drawn(layer: RecurrentAttention) -> dict[str, Any]:
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), (STEPS, INPUTS)))
    random = np.random.default_rng(1)
    return {name: random.normal(size=array.shape) for name, array in sorted(shapes.items())}


def ragged(fill: float = 0.0, steps: int = STEPS) -> Ragged:
    values = np.full((len(LENGTHS), steps, INPUTS), fill)
    for row, length in enumerate(LENGTHS):
        values[row, :length] = X[row, :length]
    return Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))


def loop(layer: RecurrentAttention, weights: dict[str, Any], x: Any, np: Any = np) -> Any:
    """One row, (steps, inputs), as Deeplearning4j's layer goes over it; by NumPy or by JAX, of which `np` is which."""
    puts_out: list[Any] = []
    for step in x:
        z = step @ weights["kernel"] + (weights["bias"] if layer.bias else 0)
        if puts_out:
            z = z + taken(layer, weights, puts_out[-1], x, np) @ weights["recurrent"]
        puts_out.append(np.tanh(z) if layer.activation == "tanh" else np.maximum(z, 0))
    return np.stack(puts_out) if puts_out else np.zeros((0, layer.units))


def taken(layer: RecurrentAttention, weights: dict[str, Any], y: Any, x: Any, np: Any) -> Any:
    if not layer.project:
        powers = np.exp(x @ y / np.sqrt(float(layer.units)))
        return (powers / powers.sum()) @ x
    total = np.zeros(layer.units)
    for head in range(layer.heads):
        query, keys, values = (of @ weights[name][:, head] for name, of in (("query", y), ("key", x), ("value", x)))
        powers = np.exp(keys @ query / np.sqrt(float(len(query))))
        total = total + (powers / powers.sum()) @ values @ weights["output"][head]
    return total


@each_kind
def test_it_is_what_a_plain_loop_gives_of_each_row_alone(layer: RecurrentAttention, float64: None) -> None:
    weights = drawn(layer)
    y = layer.forward(jax.tree.map(jnp.asarray, weights), ragged(np.nan))
    np.testing.assert_array_equal(y.lengths, LENGTHS)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(y.values[row, :length], loop(layer, weights, X[row, :length]), atol=1e-12)
        np.testing.assert_array_equal(y.values[row, length:], 0)
    whole = layer.forward(jax.tree.map(jnp.asarray, weights), jnp.asarray(X))
    np.testing.assert_allclose(whole, [loop(layer, weights, row) for row in X], atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "scores"), [(KINDS[1], dot_product.SCORES), (KINDS[3], dot_product.SCORES), (KINDS[0], 7)], ids=repr
)
def test_its_slopes_are_those_of_the_loop(
    layer: RecurrentAttention, scores: int, float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By JAX, row by row; also where so few scores are held at once that the way back makes them anew in blocks."""
    monkeypatch.setattr(dot_product, "SCORES", scores)
    weights = jax.tree.map(jnp.asarray, drawn(layer))
    dy = jnp.asarray(np.random.default_rng(2).normal(size=(len(LENGTHS), STEPS, layer.units)))
    context = Context(jax.random.key(0), jnp.ones(len(LENGTHS)))

    @jax.jit
    def found(weights: Any, x: Any) -> Any:
        y, kept = layer.train_forward(weights, x, context)
        return layer.train_backward(weights, x, y, dy, kept, context, True)

    rows = [X[row, :length] for row, length in enumerate(LENGTHS)]
    of_rows = [own[:length] for own, length in zip(dy, LENGTHS, strict=True)]
    expected = slopes_by_row(lambda *at: loop(layer, *at, jnp), weights, rows, of_rows, STEPS)
    slopes = found(weights, ragged(np.nan)), expected
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-11), *slopes)


def test_every_step_but_the_first_sees_the_whole_row(float64: None) -> None:
    layer, x = RecurrentAttention(2), jnp.asarray(X)
    weights = jax.tree.map(jnp.asarray, drawn(layer))
    y = layer.forward(weights, x)
    seen = [layer.delta(weights, x, y, jnp.zeros_like(y).at[:, step].set(1)).any(axis=(0, 2)) for step in range(2)]
    np.testing.assert_array_equal(seen, [[True] + [False] * (STEPS - 1), [True] * STEPS])


def test_two_steps_by_hand(float64: None) -> None:
    """Of one number: the first step is 2 x; the second reads the mean of both steps, as the query is 0."""
    layer = RecurrentAttention(1, activation="relu")
    one = jnp.ones((1, 1, 1))
    weights = {"kernel": jnp.array([[2.0]]), "recurrent": jnp.array([[10.0]]), "bias": jnp.zeros(1)}
    heads = {"query": 0 * one, "key": one, "value": 3 * one, "output": one}
    y = layer.forward(weights | heads, jnp.array([[[1.0], [5.0]]]))
    np.testing.assert_allclose(y, [[[2.0], [2 * 5 + 10 * 3 * (1 + 5) / 2]]])
    # With a query of 1, the shares of 1 and 5 are those of exp(2 * 1) and exp(2 * 5).
    share = 1 / (1 + np.exp(2.0 * (1 - 5)))
    y = layer.forward(weights | heads | {"query": one}, jnp.array([[[1.0], [5.0]]]))
    np.testing.assert_allclose(y[0, 1, 0], 2 * 5 + 10 * 3 * ((1 - share) * 1 + share * 5))


def test_it_learns_to_find_a_step_of_rows_of_any_length() -> None:
    """The class is the first number of the one step whose second number is 1."""
    random, x, labels = np.random.default_rng(3), [], [0.0, 1.0] * 96
    for label in labels:
        row = np.zeros((random.integers(3, 8), 2), "float32")
        row[:, 0] = random.choice([-1, 1], len(row))
        row[random.integers(len(row))] = 2 * label - 1, 1
        x.append(row)
    network = Network([RecurrentAttention(8, 2), LastStep(), Dense(2)], (None, 2))
    given: Any = {"optimizer": "adam", "step_size": 0.03, "epochs": 8, "batch_size": 32, "length_buckets": 1}
    result = training.fit(network, (x, np.array(labels)), loss="softmax_cross_entropy", **given)
    assert result.history[-1].metric == 1


def test_kernels_have_their_shapes_penalties_and_constraints() -> None:
    layer = RecurrentAttention(6, 2, l1=0.5, l2=3.0, constraint="unit_norm")
    weights = layer.init(jax.random.key(0), (7, 5))
    assert {name: array.shape for name, array in weights.items()} == {
        "kernel": (5, 6), "recurrent": (6, 6), "bias": (6,), "query": (6, 2, 3), "key": (5, 2, 3), "value": (5, 2, 3),
        "output": (2, 3, 6),
    }  # fmt: skip
    np.testing.assert_allclose(weights["recurrent"].T @ weights["recurrent"], np.eye(6), atol=1e-5)
    kernels = [np.asarray(array) for name, array in weights.items() if name != "bias"]
    penalty = sum(0.5 * np.abs(kernel).sum() + 1.5 * (kernel**2).sum() for kernel in kernels)
    np.testing.assert_allclose(layer.penalty(weights), penalty, rtol=1e-5)
    held = layer.constrained(weights)
    for name, axes in {"kernel": 0, "recurrent": 0, "query": 0, "key": 0, "value": 0, "output": (0, 1)}.items():
        np.testing.assert_allclose((np.asarray(held[name]) ** 2).sum(axes), 1, rtol=1e-4)
    assert held["bias"] is weights["bias"]


def test_it_says_what_it_costs() -> None:
    """Products of each step, and those of its query with every key and of its shares with every value."""
    steps, inputs, units, heads, size = 7, 5, 6, 2, 4
    each = inputs * units + 2 * inputs * heads * size + units * heads * size + heads * size * units
    assert RecurrentAttention(6, 2, 4).multiply_adds((7, 5)) == steps * each + 2 * steps * steps * heads * size
    assert RecurrentAttention(6, project=False).multiply_adds((7, 6)) == 7 * 2 * 36 + 2 * 49 * 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecurrentAttention(0), "units of RecurrentAttention must be a positive integer, received 0"),
        (lambda: RecurrentAttention(5, 2), "must be a multiple of heads=2, received 5; set head_size"),
        (lambda: RecurrentAttention(4, 2, 0), "head_size of RecurrentAttention must be a positive integer or None"),
        (lambda: RecurrentAttention(4, activation="gelu"), "must be one of elu, .* received 'gelu'"),
        (lambda: RecurrentAttention(4, 2, project=False), "expects neither heads nor head_size, .* received heads=2"),
        (lambda: RecurrentAttention(4, head_size=4, project=False), "received heads=1, head_size=4; leave them out"),
        (
            lambda: RecurrentAttention(4, project=False).output_shape((None, 3)),
            r"as many numbers as units=4, received 3; leave project out, or put EachStep\(Dense\(4\)\) before it",
        ),
    ],
)
def test_what_it_is_not(make: Callable[[], Layer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_it_takes_whole_rows_alone() -> None:
    network, sentence = Network([RecurrentAttention(3), Dense(2)], (None, 2)), "RecurrentAttention needs the whole of"
    with pytest.raises(ValueError, match=sentence):
        Training(network, truncated=4)
    with pytest.raises(ValueError, match=sentence):
        network.first_state(2)
