"""Rows of any length: step by step through layers that know nothing of them, and over time; padding is never seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network
from sparkdl.layers import (
    Add,
    BatchNorm,
    Concatenate,
    Context,
    Conv,
    Dense,
    EachStep,
    Embedding,
    Flatten,
    GlobalAvgPool,
    LastStep,
    LayerNorm,
    Ragged,
    Relu,
    RepeatStep,
    Residual,
    ReverseSteps,
    Subset,
    Tanh,
    TimeMax,
    TimeMean,
    TimeSum,
)
from sparkdl.weights import updated

LENGTHS = (4, 0, 2)
BY_STEP = [Dense(5), LayerNorm(), Subset(1, 5), Tanh(), Residual([Dense(4), Relu()])]
FILM = Network([EachStep([Conv(2, (2, 2)), GlobalAvgPool()]), TimeMax()], input_shape=(None, 3, 3, 1))
POOLS = [LastStep(), TimeMean(), TimeSum(), TimeMax()]


def weights_of(network: Network, random: np.random.Generator) -> Any:
    return jax.tree.map(lambda w: jnp.asarray(random.uniform(0.2, 1, w.shape)), network.abstract_weights())


def rows_of(shape: tuple[int, ...], random: np.random.Generator) -> Ragged:
    """Rows of `LENGTHS` steps, with other numbers in the padding."""
    values = random.standard_normal((len(LENGTHS), 5, *shape))
    return Ragged(jnp.asarray(values), jnp.asarray(LENGTHS, "int32"))


def context(weights: tuple[float, ...] = (1.0, 0.5, 2.0)) -> Context:
    return Context(jax.random.key(1), jnp.asarray(weights))


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_a_padded_row_gives_what_it_gives_alone(pool: Any, float64: None) -> None:
    random = np.random.default_rng(0)
    network = Network([EachStep([Conv(4, 2), Flatten()]), *BY_STEP, pool], input_shape=(None, 4, 2))
    weights, x = weights_of(network, random), rows_of((4, 2), random)
    y = network.forward(weights, x)
    for row, length in enumerate(LENGTHS):
        if length:
            alone = network.forward(weights, Ragged(x.values[row : row + 1, :length], x.lengths[row : row + 1]))
            np.testing.assert_allclose(y[row], alone[0], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(y)[1], 0)


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_backward_is_the_derivative_of_the_whole(pool: Any, float64: None) -> None:
    random = np.random.default_rng(1)
    layers = [Dense(4), BatchNorm(), Tanh(), Residual([Dense(4)], [Dense(4)]), EachStep([Dense(6), Relu()]), pool]
    network = Network([*layers, Dense(2)], input_shape=(None, 3))
    weights, x, dy = weights_of(network, random), rows_of((3,), random), jnp.asarray(random.standard_normal((3, 2)))

    def forward(learned: Any, values: Any) -> Any:
        rows = Ragged(values, x.lengths)
        return network.train_forward(updated(weights, learned), rows, context())[0]

    @jax.jit
    def by_kernels(weights: Any, x: Any, dy: Any) -> tuple[Any, Any]:
        y, kept = network.train_forward(weights, x, context())
        return network.train_backward(weights, x, y, dy, kept, context(), True)

    dx, gradient = by_kernels(weights, x, dy)
    expected = jax.jit(lambda *at: jax.vjp(forward, *at)[1](dy))(network.learned(weights), x.values)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), (gradient, dx), expected)
    padding = ~np.asarray(x.valid)
    np.testing.assert_array_equal(np.asarray(dx)[padding], 0)


def test_a_step_counts_in_batch_statistics_as_its_row_weighs_and_padding_nothing(float64: None) -> None:
    random = np.random.default_rng(2)
    network = Network([BatchNorm(), TimeMean()], input_shape=(None, 3))
    weights, x = network.init(0), rows_of((3,), random)
    _, kept = network.train_forward(weights, x, context())
    steps = np.concatenate([np.asarray(x.values)[0, :4], np.asarray(x.values)[2, :2]])
    shares = np.array([1, 1, 1, 1, 2, 2]) / 8
    mean = shares @ steps
    found = network.new_statistics(weights, kept)["batch_norm_0"]
    np.testing.assert_allclose(found["mean"], 0.1 * mean, rtol=1e-12)
    np.testing.assert_allclose(found["variance"], 0.9 + 0.1 * (shares @ (steps - mean) ** 2), rtol=1e-12)


def test_pools_are_those_of_numpy(float64: None) -> None:
    x = rows_of((2, 3), np.random.default_rng(3))
    rows = [np.asarray(x.values)[row, :length] for row, length in enumerate(LENGTHS)]
    for pool, of_numpy in (
        (LastStep(), lambda row: row[-1]),
        (TimeMean(), lambda row: row.mean(axis=0)),
        (TimeSum(), lambda row: row.sum(axis=0)),
        (TimeMax(), lambda row: row.max(axis=0)),
    ):
        expected = [of_numpy(row) if len(row) else np.zeros((2, 3)) for row in rows]
        np.testing.assert_allclose(pool.forward({}, x), expected, rtol=1e-12)


def test_padding_that_is_no_number_reaches_nothing() -> None:
    x = rows_of((2,), np.random.default_rng(4))
    spoilt = Ragged(jnp.where(x.valid[..., None], x.values, jnp.nan), x.lengths)
    for pool in POOLS:
        y = pool.forward({}, spoilt)
        np.testing.assert_array_equal(y, pool.forward({}, x))
        np.testing.assert_array_equal(pool.delta({}, spoilt, y, y), pool.delta({}, x, y, y))


def test_steps_are_turned_round_by_the_length_of_each_row(float64: None) -> None:
    random = np.random.default_rng(6)
    x, dy = rows_of((2, 3), random), random.standard_normal((3, 5, 2, 3))
    spoilt = Ragged(jnp.where(jnp.expand_dims(x.valid, (2, 3)), x.values, jnp.nan), x.lengths)
    y = ReverseSteps().forward({}, spoilt)
    dx = ReverseSteps().delta({}, spoilt, y, jnp.asarray(dy))
    expected, slopes = np.zeros_like(dy), np.zeros_like(dy)
    for row, length in enumerate(LENGTHS):
        expected[row, :length] = np.asarray(x.values)[row, :length][::-1]
        slopes[row, :length] = dy[row, :length][::-1]
    np.testing.assert_array_equal(y.values, expected)
    np.testing.assert_array_equal(dx, slopes)
    np.testing.assert_array_equal(y.lengths, LENGTHS)
    whole = ReverseSteps().forward({}, x.values)
    np.testing.assert_array_equal(whole, np.asarray(x.values)[:, ::-1])


def test_activations_of_steps_are_rows_of_any_length() -> None:
    x = Ragged(jnp.ones((2, 4, 3, 3, 1)), jnp.array([4, 1], "int32"))
    weights = FILM.init(0)
    _, found = FILM.activations(weights, x, ["each_step_0", "each_step_0/conv_0"])
    assert found["each_step_0"].values.shape == (2, 4, 2)
    assert found["each_step_0/conv_0"].values.shape == (2, 4, 2, 2, 2)
    np.testing.assert_array_equal(found["each_step_0"].lengths, x.lengths)


def test_categories_of_any_number_become_a_vector_each() -> None:
    network = Network([Embedding(9, 4), LayerNorm(), TimeMean()], input_shape=(None,))
    assert network.integers == {"features"} and network.shapes((None,))[1:] == [(None, 4), (None, 4), (4,)]
    frozen = network.frozen("embedding_0")
    assert frozen.learned(frozen.init(0)).keys() == {"layer_norm_1"}


def test_a_graph_reads_sequences_beside_other_inputs(float64: None) -> None:
    graph = Graph(
        {"clicks": (None,), "facts": (2,)},
        {
            "each": (Embedding(5, 3), "clicks"),
            "bent": (Network([Dense(3), Tanh()]), "each"),
            "both": (Concatenate(), "each", "bent"),
            "past": (TimeMean(), "both"),
            "all": (Concatenate(), "past", "facts"),
            "y": (Dense(1), "all"),
        },
        "y",
    )
    weights = graph.init(0)
    clicks = Ragged(jnp.array([[1, 4, 2], [3, 0, 0]], "int32"), jnp.array([3, 1], "int32"))
    facts = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    y = graph.forward(weights, (clicks, facts))
    table, dense = np.asarray(weights["each"]["table"]), weights["bent"]["dense_0"]
    for row, ids in enumerate([[1, 4, 2], [3]]):
        each = table[ids]
        both = np.concatenate([each, np.tanh(each @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]))], axis=1)
        whole = np.concatenate([both.mean(axis=0), np.asarray(facts[row])])
        np.testing.assert_allclose(y[row], whole @ np.asarray(weights["y"]["kernel"]) + weights["y"]["bias"], rtol=1e-6)


PLANS = Graph(
    {"past": (None, 3), "plan": (None, 2)},
    {
        "code": (Network([Dense(4), TimeMean()]), "past"),
        "known": (RepeatStep(), "code", "plan"),
        "both": (Concatenate(), "known", "plan"),
        "y": (Network([Dense(2), TimeMax()]), "both"),
    },
    "y",
)


def test_a_row_of_one_sequence_stands_at_every_step_of_another(float64: None) -> None:
    random = np.random.default_rng(5)
    weights = jax.tree.map(lambda w: jnp.asarray(random.uniform(0.2, 1, w.shape)), PLANS.abstract_weights())
    past, plan = random.standard_normal((2, 5, 3)), random.standard_normal((2, 4, 2))
    lengths = [(5, 2), (3, 4)]
    x = tuple(
        Ragged(jnp.asarray(values), jnp.array(own, "int32"))
        for values, own in zip((past, plan), zip(*lengths, strict=True), strict=True)
    )
    y = PLANS.forward(weights, x)
    first, last = (jax.tree.map(np.asarray, weights[name]["dense_0"]) for name in ("code", "y"))
    for row, (of_past, of_plan) in enumerate(lengths):
        code = (past[row, :of_past] @ first["kernel"] + first["bias"]).mean(axis=0)
        both = np.concatenate([np.tile(code, (of_plan, 1)), plan[row, :of_plan]], axis=1)
        np.testing.assert_allclose(y[row], (both @ last["kernel"] + last["bias"]).max(axis=0), rtol=1e-12)

    @jax.jit
    def slopes(weights: Any, x: Any) -> tuple[Any, Any]:
        y, kept = PLANS.train_forward(weights, x, context((1.0, 1.0)))
        whole = jax.grad(lambda own: PLANS.forward(own, x).sum())(weights)
        return PLANS.train_backward(weights, x, y, jnp.ones_like(y), kept, context((1.0, 1.0)), False)[1], whole

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), *slopes(weights, x))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Network([Conv(2, 3)], input_shape=(None, 3)), "Conv expects rows of one length.*put LastStep"),
        (lambda: Network([Flatten()], input_shape=(None, 3)), "Flatten expects rows of one length"),
        (lambda: Network([GlobalAvgPool()], input_shape=(None, 3)), "GlobalAvgPool expects rows of one length"),
        (lambda: Network([Conv(2, (3, 3))], input_shape=(None, 3, 2)), "Conv expects rows of one length.*EachStep"),
        (lambda: Network([TimeMean()], input_shape=(None,)), r"TimeMean expects rows of shape \(steps, ...\)"),
        (lambda: Network([EachStep(Dense(2))], input_shape=(3,)), r"Dense expects rows of shape \(inputs,\), received"),
        (
            lambda: Graph({"a": (None, 3), "b": (None, 3)}, {"y": (Add(), "a", "b")}, "y"),
            "Add expects rows of the same lengths, received those of several inputs",
        ),
        (
            lambda: Graph({"a": (None, 3), "b": (3,)}, {"y": (Add(), "a", "b")}, "y"),
            "Add expects rows of any length from all that it reads or from none",
        ),
        (
            lambda: Graph({"a": (None, 3), "b": (3,)}, {"r": (RepeatStep(), "b", "a"), "y": (Add(), "r", "b")}, "y"),
            "Add expects rows of any length from all that it reads or from none",
        ),
        (
            lambda: Graph(
                {"a": (None, 3), "b": (None, 3)},
                {"v": (TimeMean(), "a"), "r": (RepeatStep(), "v", "b"), "y": (Add(), "r", "a")},
                "y",
            ),
            "Add expects rows of the same lengths, received those of several inputs",
        ),
        (
            lambda: Graph({"a": (None, 3)}, {"b": (Dense(2), "a"), "y": (RepeatStep(), "a", "b")}, "y"),
            r"RepeatStep expects a row of one length to repeat, received rows of any, \(None, 3\); put LastStep",
        ),
        (lambda: EachStep([]), "layers of EachStep must hold at least one layer"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_built(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.compile(sentence)):
        make()
