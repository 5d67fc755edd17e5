"""A table that is read by number on the way in and multiplied with on the way out: one array, both slopes summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, Same, training
from sparkdl.layers import Add, Context, Dense, Embedding, Parallel, Ragged, Tanh, TiedDense
from sparkdl.layers.ragged import values_of
from sparkdl.weights import count_weights

WORDS, SIZE = 7, 3
CHAIN = Network([Embedding(WORDS, SIZE, name="words"), Tanh(), TiedDense(WORDS, "words")], input_shape=(None,))
GRAPH = Graph(
    {"a": (), "b": ()},
    {
        "words": (Embedding(WORDS, SIZE), "a"),
        "others": (Same("words"), "b"),
        "both": (Add(), "words", "others"),
        "bent": (Network([Dense(SIZE), Tanh()]), "both"),
        "scores": (TiedDense(WORDS, to="words"), "bent"),
        "again": (Same("scores"), "others"),
    },
    ("scores", "again"),
)
CATEGORIES = np.random.default_rng(3).integers(0, WORDS, (2, 4)).astype("int32")


def drawn(network: Network | Graph) -> Any:
    shapes = network.abstract_weights()
    random = np.random.default_rng(4)
    return jax.tree.map(lambda array: jnp.asarray(random.normal(size=array.shape)), shapes)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("network", "x"),
    [(CHAIN, Ragged(CATEGORIES, np.array([4, 3], "int32"))), (GRAPH, (CATEGORIES[0], CATEGORIES[1]))],
    ids=["chain", "graph"],
)
def test_both_uses_are_in_the_gradient(network: Network | Graph, x: Any, apart: bool, float64: None) -> None:
    """Even where an Embedding hands over the rows that a batch names instead of a whole table."""
    weights, random = drawn(network), np.random.default_rng(5)
    rows = len(values_of(x)[0]) if isinstance(x, tuple) else len(x.values)

    @jax.jit
    def found(weights: Any) -> Any:
        context = Context(jax.random.key(0), jnp.ones(rows), apart=apart)
        y, kept = network.train_forward(weights, x, context)
        dy = jax.tree.map(lambda part: jnp.asarray(random.normal(size=part.shape)), values_of(y))
        _, derivatives = jax.vjp(lambda weights: values_of(network.forward(weights, x)), weights)
        return network.train_backward(weights, x, y, dy, kept, context, False)[1], derivatives(dy)[0]

    gradient, expected = found(weights)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=1e-12), gradient, expected)
    assert np.abs(gradient["words"]["table"]).min() > 0


def test_it_has_no_weights_of_its_own(float64: None) -> None:
    weights = drawn(CHAIN)
    assert weights.keys() == {"words"} and count_weights(weights) == WORDS * SIZE
    table = np.asarray(weights["words"]["table"])
    y = CHAIN.forward(weights, jnp.asarray(CATEGORIES))
    np.testing.assert_allclose(y, np.tanh(table[CATEGORIES]) @ table.T, atol=1e-12)
    assert CHAIN.multiply_adds() == WORDS * SIZE
    assert GRAPH.abstract_weights().keys() == {"words", "bent"}
    assert Network.from_json(CHAIN.to_json()) == CHAIN and Graph.from_json(GRAPH.to_json()) == GRAPH
    assert jax.eval_shape(lambda: CHAIN.learned(CHAIN.frozen("words").init(0))).keys() == {"words"}
    assert CHAIN.frozen("words").learned(weights) == {}


def test_a_part_of_a_graph_has_the_table() -> None:
    assert GRAPH.up_to("scores").abstract_weights().keys() == {"words", "bent"}
    late = Graph(
        {"a": (), "b": (SIZE,)},
        {"words": (Embedding(WORDS, SIZE), "a"), "scores": (TiedDense(WORDS, "words"), "b")},
        ("words", "scores"),
    )
    assert late.up_to("scores").abstract_weights().keys() == {"words"}


def test_a_frozen_use_leaves_the_table_to_the_other(float64: None) -> None:
    frozen = replace(CHAIN, layers=[*CHAIN.layers[:2], replace(CHAIN.layers[2], trainable=False)])
    weights, x = drawn(CHAIN), jnp.asarray(CATEGORIES)
    context = Context(jax.random.key(0), jnp.ones(2))

    @jax.jit
    def found(weights: Any) -> Any:
        y, kept = frozen.train_forward(weights, x, context)
        return frozen.train_backward(weights, x, y, jnp.ones(y.shape), kept, context, False)[1]

    def total(table: Any) -> Any:
        return (jnp.tanh(table[x]) @ weights["words"]["table"].T).sum()

    expected = jax.jit(jax.grad(total))(weights["words"]["table"])
    np.testing.assert_allclose(found(weights)["words"]["table"], expected, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_it_learns_to_tell_the_next_category(optimizer: str) -> None:
    """SGD moves an Embedding's rows alone, where nothing but an Embedding uses its table."""
    network = Network([Embedding(WORDS, 8, name="words"), Dense(8), TiedDense(WORDS, "words")], input_shape=())
    x = np.random.default_rng(8).integers(0, WORDS, 210).astype("int32")
    given: dict[str, Any] = {"optimizer": optimizer, "step_size": 0.5 if optimizer == "sgd" else 0.02}
    result = training.fit(network, (x, (x + 1) % WORDS), epochs=60, batch_size=30, **given)
    assert (result.history[-1].metric or 0) > 0.95
    assert result.weights.keys() == {"words", "dense_1"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TiedDense(0, "words"), "units of TiedDense must be a positive integer, received 0"),
        (lambda: TiedDense(4, ""), "to of TiedDense must be the name of an Embedding, received ''"),
        (
            lambda: Network([Embedding(4, 2), TiedDense(4, "words")], ()),
            "'tied_dense_1' is to share the weights of 'words', which is no layer before it; those are embedding_0",
        ),
        (
            lambda: Network([Embedding(4, 2), TiedDense(5, "embedding_0")], ()),
            r"TiedDense is to share 'embedding_0', and expects .*\(5, 2\).* received .*\(4, 2\)",
        ),
        (
            lambda: Network([Dense(4, name="dense"), TiedDense(4, "dense")], (2,)),
            "TiedDense is to share 'dense', and expects .*'table'.* received .*'kernel'",
        ),
        (
            lambda: Graph({"a": ()}, {"b": (TiedDense(5, "c"), "a"), "c": (Embedding(5, 2), "a")}, ("b", "c")),
            "Layer 'b' is to share the weights of 'c', which is no layer before it",
        ),
        (
            lambda: Parallel([TiedDense(4, "words"), Dense(4)]),
            "'tied_dense_0' is to share the weights of 'words', which a Parallel does not have beside it",
        ),
    ],
)
def test_what_fits_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
