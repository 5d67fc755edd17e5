"""Steps that are left out: rows with padding anywhere give what the same rows give without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.layers import (
    Add,
    Bidirectional,
    Concatenate,
    Dense,
    EachStep,
    Embedding,
    LastStep,
    Layer,
    Lstm,
    MaskedEmbedding,
    Masking,
    MultiHeadAttention,
    Ragged,
    TimeMean,
)
from sparkdl.layers.base import Context
from sparkdl.layers.factored import TableRows

KEPT = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)


def with_padding(shape: tuple[int, ...], value: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """(5, 4, *shape) with `value` at the steps that KEPT leaves out, and once within a step that it keeps."""
    x = np.random.default_rng(seed).standard_normal((*KEPT.shape, *shape))
    x.reshape(5, 4, -1)[0, 0, 0] = value
    x[~KEPT] = value
    return x


def alone(x: np.ndarray[Any, Any], kept: np.ndarray[Any, Any] = KEPT) -> Ragged:
    """The kept steps of every row from its start on, one loop after the other."""
    values, lengths = np.zeros_like(x), kept.sum(axis=1)
    for row, steps in enumerate(kept):
        values[row, : lengths[row]] = x[row, steps]
    return Ragged(jnp.asarray(values), jnp.asarray(lengths, "int32"))


@pytest.mark.parametrize("value", [0.0, -999.0])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_steps_of_that_value_are_left_out(float64: None, shape: tuple[int, ...], value: float) -> None:
    x, dy = with_padding(shape, value), np.random.default_rng(1).standard_normal((5, 4, *shape))
    layer, expected = Masking(value), alone(x)
    y = layer.forward({}, jnp.asarray(x))
    np.testing.assert_array_equal(y.values, expected.values)
    np.testing.assert_array_equal(y.lengths, expected.lengths)
    dx, found = np.zeros_like(x), layer.delta({}, jnp.asarray(x), y, jnp.asarray(dy))
    for row, steps in enumerate(KEPT):
        dx[row, steps] = dy[row, : steps.sum()]
    np.testing.assert_array_equal(found, dx)


def test_of_rows_of_any_length_padding_stays_out(float64: None) -> None:
    x, lengths = with_padding((3,), 0.0), jnp.array([4, 3, 3, 2, 1], "int32")
    kept = KEPT & (np.arange(4) < np.asarray(lengths)[:, None])
    spoilt = np.where((np.arange(4) < np.asarray(lengths)[:, None])[..., None], x, np.nan)
    y = Masking().forward({}, Ragged(jnp.asarray(spoilt), lengths))
    np.testing.assert_array_equal(y.values, alone(x, kept).values)
    np.testing.assert_array_equal(y.lengths, kept.sum(axis=1))


LAYERS: dict[str, Callable[[], Sequence[Layer]]] = {
    "lstm": lambda: [Lstm(4), LastStep()],
    "both ways": lambda: [Bidirectional(Lstm(3)), LastStep()],
    "attention": lambda: [MultiHeadAttention(2, 2), TimeMean()],
}


@pytest.mark.parametrize("behind", LAYERS)
def test_layers_behind_it_read_each_row_as_if_it_had_no_padding(float64: None, behind: str) -> None:
    x = with_padding((3,), 0.0)
    masked, plain = (
        Network([*first, *LAYERS[behind](), Dense(2)], input_shape=shape)
        for first, shape in (([Masking()], (4, 3)), ([], (None, 3)))
    )
    own, names = plain.init(0), dict(zip(plain.names, masked.names[1:], strict=True))
    weights = {names[name]: arrays for name, arrays in own.items()}
    y, expected = masked.forward(weights, jnp.asarray(x)), plain.forward(own, alone(x))
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    found, slopes = masked.gradient(weights, jnp.asarray(x), y, y), plain.gradient(own, alone(x), expected, expected)
    for name in own:
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-14), found[names[name]], slopes[name])


@pytest.fixture
def ids() -> np.ndarray[Any, Any]:
    return np.where(KEPT, np.random.default_rng(2).integers(1, 6, KEPT.shape), 0).astype("int32")


def test_category_0_is_padding(float64: None, ids: np.ndarray[Any, Any]) -> None:
    layer, plain = MaskedEmbedding(6, 3), Embedding(6, 3)
    weights = jax.tree.map(lambda array: array.astype("float64"), layer.init(jax.random.key(0), (4,)))
    y, expected = layer.forward(weights, jnp.asarray(ids)), alone(np.asarray(plain.forward(weights, ids)))
    valid = np.asarray(y.valid)
    np.testing.assert_array_equal(y.lengths, expected.lengths)
    np.testing.assert_array_equal(np.asarray(y.values)[valid], np.asarray(expected.values)[valid])
    dy, table = np.random.default_rng(3).standard_normal((5, 4, 3)), np.zeros((6, 3))
    for row, steps in enumerate(KEPT):
        np.add.at(table, ids[row, steps], dy[row, : steps.sum()])
    found = layer.gradient(weights, jnp.asarray(ids), y, jnp.asarray(dy))["table"]
    np.testing.assert_allclose(found, table, rtol=1e-12)
    assert not np.asarray(found[0]).any()


def test_a_word_that_is_hidden_in_training_is_none_that_is_left_out(ids: np.ndarray[Any, Any]) -> None:
    layer = MaskedEmbedding(6, 3, unknown=True, unknown_rate=0.5)
    weights, x = layer.init(jax.random.key(0), (4,)), jnp.asarray(ids)
    context = Context(jax.random.key(1), jnp.ones(5), apart=True)
    y, kept = layer.train_forward(weights, x, context)
    np.testing.assert_array_equal(y.lengths, KEPT.sum(axis=1))
    hidden = np.isclose(np.asarray(y.values)[np.asarray(y.valid)], weights["table"][6]).all(axis=1)
    assert 0 < hidden.sum() < KEPT.sum()
    rows = layer.train_gradient(weights, x, y, jnp.ones_like(y.values), kept, context)["table"]
    assert isinstance(rows, TableRows)
    table = np.asarray(rows.product())
    np.testing.assert_array_equal(table[6], hidden.sum())
    assert not table[0].any() and table.sum() == 3 * KEPT.sum()


def test_its_categories_are_checked_as_those_of_every_table() -> None:
    network = Network([MaskedEmbedding(6, 3), LastStep()], input_shape=(4,))
    assert network.integers == {"features"} and network.limits == {"features": 6}
    with pytest.raises(ValueError, match="categories from 0 to 5, the rows of the network.s table .masked_embedding_0"):
        training.fit(network, (np.full((4, 4), 6), np.zeros((4, 3))), loss="squared_error", epochs=1)


def test_a_network_learns_of_padded_rows(ids: np.ndarray[Any, Any]) -> None:
    rows = np.tile(ids[:3], (40, 1))
    labels = np.tile([0, 1, 1], 40)  # the first rows keep their first two steps, the others no such two
    network = Network([MaskedEmbedding(6, 8), Lstm(8), LastStep(), Dense(2)], input_shape=(4,))
    plan: Any = {"loss": "softmax_cross_entropy", "optimizer": "adam", "step_size": 0.05, "batch_size": 24}
    result = training.fit(network, (rows, labels), epochs=8, **plan)
    assert result.history[-1].loss < 0.1 * result.history[0].loss


def test_steps_may_be_rows_with_padding_themselves(float64: None) -> None:
    x = with_padding((3,), 0.0)
    within = Network([EachStep([Masking(), Lstm(4, name="lstm"), LastStep()], name="each")], input_shape=(None, 4, 3))
    own = Network([Lstm(4, name="lstm"), LastStep()], input_shape=(None, 3))
    weights = own.init(0)
    y = within.forward({"each": weights}, Ragged(jnp.asarray(x[None]), jnp.array([5], "int32")))
    np.testing.assert_allclose(y.values[0], own.forward(weights, alone(x)), rtol=1e-12)
    assert within.step_outputs == {"label": "features"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Masking(float("nan")), "value of Masking must be a finite number, received nan"),
        (lambda: Masking("0"), "value of Masking must be a finite number, received '0'"),
        (lambda: Network([Masking()], input_shape=()), r"Masking expects rows of shape \(steps, ...\), or"),
        (lambda: Network([MaskedEmbedding(6, 3)], input_shape=(4, 2)), "expects rows of one category a step"),
        (lambda: Network([Masking(), EachStep(Masking())], input_shape=(4, 2, 2)), "EachStep expects layers that"),
        (
            lambda: Graph(
                {"a": (4, 3)}, {"m": (Masking(), "a"), "n": (Masking(1.0), "a"), "y": (Add(), "m", "n")}, "y"
            ),
            "Add expects rows of the same lengths, received those of several inputs or maskings",
        ),
        (
            lambda: Graph({"a": (None, 3)}, {"m": (Masking(), "a"), "y": (Concatenate(), "m", "a")}, "y"),
            "Concatenate expects rows of the same lengths, received those of several inputs or maskings",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_labels_for_each_step_are_refused_before_training() -> None:
    network = Network([Masking(), Dense(2)], input_shape=(4, 3))
    assert network.step_outputs == {"label": ""}
    with pytest.raises(ValueError, match="the network leaves steps out; end it in one vector of a row, by LastStep"):
        training.fit(network, (np.ones((2, 4, 3)), np.zeros((2, 4))), loss="softmax_cross_entropy")
