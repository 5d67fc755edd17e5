"""Layers of categories, against NumPy in float64: values, gradients, what is outside the table, hashes, buckets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, models, training
from sparkdl.layers import (
    Bucketize,
    Concatenate,
    Conv,
    CrossCategories,
    Dense,
    Embedding,
    EmbeddingBag,
    Flatten,
    HashedEmbedding,
    LastStep,
    Layer,
    Lstm,
    OneHot,
    Parallel,
    Vocabulary,
)
from sparkdl.layers.base import Context
from sparkdl.strings import Hashing, Strings

RANDOM = np.random.default_rng(3)
IDS = np.array([[0, 4], [2, 2], [4, 0], [1, 2]], np.int32)
WIDE = Graph(
    inputs={"city": (), "age": ()},
    nodes={
        "place": (Embedding(7, 3), "city"),
        "again": (OneHot(5), "city"),
        "decade": (Network([Bucketize([20, 30, 40]), Embedding(4, 2)]), "age"),
        "both": (Concatenate(), "place", "again", "decade"),
        "kind": (Dense(2), "both"),
    },
    outputs="kind",
)


def test_an_embedding_gives_rows_of_its_table_and_adds_up_their_gradients(float64: None) -> None:
    layer, table, dy = Embedding(5, 3), RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(4, 2, 3))
    weights = {"table": jnp.asarray(table)}
    y = layer.forward(weights, jnp.asarray(IDS))
    np.testing.assert_array_equal(y, table[IDS])
    assert layer.output_shape((2,)) == (2, 3)
    expected = np.zeros_like(table)
    np.add.at(expected, IDS, dy)
    np.testing.assert_allclose(layer.gradient(weights, jnp.asarray(IDS), y, jnp.asarray(dy))["table"], expected, 1e-14)


@pytest.mark.parametrize("layer", [Embedding(5, 3, unknown=True), OneHot(5, unknown=True)])
def test_unknown_categories_share_the_last_row(layer: Layer) -> None:
    weights = layer.init(jax.random.key(0), ())
    table = np.asarray(weights["table"]) if weights else np.eye(6)
    found = layer.forward(weights, jnp.array([0, 4, 5, 6, -1, -(2**31), 2**31 - 1]))
    np.testing.assert_array_equal(found, table[[0, 4, 5, 5, 5, 5, 5]])
    assert layer.integer_limit is None


def test_no_number_of_a_row_is_rounded_on_its_way_out() -> None:
    table = np.array([[np.inf, -np.inf, 2e-38], [1 + 2**-23, -3e38, 0.1]], "float32")
    found = Embedding(2, 3).forward({"table": jnp.asarray(table)}, jnp.array([[1, 0], [0, 0]]))
    np.testing.assert_array_equal(found, table[[[1, 0], [0, 0]]])


def test_without_a_row_for_them_unknown_categories_are_never_taken_for_others() -> None:
    weights = Embedding(5, 3).init(jax.random.key(0), ())
    found = np.asarray(Embedding(5, 3).forward(weights, jnp.array([-1, 5, 4])))
    assert np.isnan(found[:2]).all() and np.isfinite(found[2]).all()
    gradient = Embedding(5, 3).gradient(weights, jnp.array([-1, 5]), jnp.asarray(found[:2]), jnp.ones((2, 3)))
    assert not np.asarray(gradient["table"]).any()
    assert not np.asarray(OneHot(5).forward({}, jnp.array([-1, 5]))).any()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kind", [Embedding, EmbeddingBag])
def test_categories_are_read_as_unknown_ones_at_a_rate_in_training_alone(
    kind: type[Embedding], apart: bool, float64: None
) -> None:
    layer = kind(5, 3, unknown=True, unknown_rate=0.25)
    ids, table = RANDOM.integers(0, 5, (4000, 2)), RANDOM.normal(size=(6, 3))
    weights, context = {"table": jnp.asarray(table)}, Context(jax.random.key(1), jnp.ones(4000), apart=apart)
    y, kept = layer.train_forward(weights, jnp.asarray(ids), context)
    read = np.asarray(kept)
    assert set(np.unique(read[read != ids])) == {5}
    assert abs((read == 5).mean() - 0.25) < 0.02
    is_bag = kind is EmbeddingBag
    np.testing.assert_allclose(y, table[read].mean(axis=1) if is_bag else table[read], 1e-14)

    dy = RANDOM.normal(size=y.shape)
    gradient = layer.train_gradient(weights, jnp.asarray(ids), y, jnp.asarray(dy), kept, context)["table"]
    expected = np.zeros_like(table)
    np.add.at(expected, read, dy[:, None] / 2 if is_bag else dy)
    np.testing.assert_allclose(gradient.product() if apart else gradient, expected, 1e-12)

    other, _ = layer.train_forward(weights, jnp.asarray(ids), replace(context, key=jax.random.key(2)))
    assert not np.array_equal(other, y)
    known = table[ids].mean(axis=1) if is_bag else table[ids]
    np.testing.assert_allclose(layer.forward(weights, jnp.asarray(ids)), known, 1e-14)


def test_the_vector_of_unknown_categories_is_learned_of_known_ones() -> None:
    ids = RANDOM.integers(0, 4, (64, 3)).astype("int32")
    for rate, learns in ((0.0, False), (0.3, True)):
        network = Network([Embedding(4, 2, unknown=True, unknown_rate=rate), Flatten(), Dense(2)], input_shape=(3,))
        start = network.init(0)
        result = training.fit(network, (ids, ids[:, 0] % 2), initial=start, step_size=0.1, epochs=2)
        moved = result.weights["embedding_0"]["table"][4] != np.asarray(start["embedding_0"]["table"])[4]
        assert moved.all() == moved.any() == learns


@pytest.mark.parametrize(
    "layers",
    [
        [OneHot(5), Conv(3, 3, padding="same"), LastStep()],
        [Network([OneHot(5, unknown=True)]), Lstm(4), LastStep()],
        [Parallel([OneHot(5), Embedding(5, 2)]), Lstm(4), LastStep()],
    ],
)
def test_a_layer_without_weights_gives_what_the_layers_after_it_compute_in(layers: list[Layer]) -> None:
    network = Network([*layers, Dense(2)], input_shape=(4,) if isinstance(layers[1], Conv) else (None,))
    weights = jax.tree.map(lambda array: array.astype(jnp.bfloat16), network.init(0))
    ids = jnp.array([[1, 2, 3, 0], [4, 4, 0, 1]])
    found = network.forward(weights, ids)
    assert found.dtype == jnp.bfloat16
    exact = network.forward(jax.tree.map(lambda array: array.astype(jnp.float32), weights), ids)
    np.testing.assert_allclose(found.astype(jnp.float32), exact, rtol=0.05, atol=0.05)


def test_a_character_model_is_trained_by_segments_in_bfloat16() -> None:
    text = [RANDOM.integers(0, 5, 9), RANDOM.integers(0, 5, 6)]
    network = models.char_rnn(5, units=(4,))
    fitted = training.fit(network, (text, text), truncated=2, dtype="bfloat16", epochs=1)
    assert np.isfinite(fitted.history[0].loss)
    assert len(network.generate(fitted.weights, [1], 3)) == 3


def murmur(number: int) -> int:
    """The finalizer of MurmurHash3 of 32 bits, in Python's integers."""
    number &= 0xFFFFFFFF
    number = (number ^ number >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    number = (number ^ number >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16


def test_hashed_categories_have_the_row_of_their_hash() -> None:
    layer, ids = HashedEmbedding(11, 2), [0, 1, -1, 2**31 - 1, -(2**31), 123_456_789]
    weights = layer.init(jax.random.key(0), ())
    expected = np.asarray(weights["table"])[[murmur(number) % 11 for number in ids]]
    np.testing.assert_array_equal(layer.forward(weights, jnp.array(ids, "int32")), expected)


def test_buckets_are_numpys() -> None:
    x = np.array([[-1e30, 0.0, 0.5], [1.0, 2.5, 1e30]], "float32")
    found = Bucketize([0, 1, 2.5]).forward({}, jnp.asarray(x))
    np.testing.assert_array_equal(found, np.digitize(x, [0, 1, 2.5]))
    assert found.dtype == "int32"


def test_a_graph_knows_which_inputs_are_categories_and_how_many() -> None:
    assert WIDE.integers == {"city"}
    assert WIDE.limits == {"city": 5}  # the least of its readers'
    assert WIDE.tables == {"city": "again"}
    inner = Network([Network([Embedding(9, 2)], name="body"), Dense(1)], input_shape=())
    assert inner.tables == {"features": "body/embedding_0"}
    table = Embedding(5, 2)
    twins = Graph({"a": (), "b": ()}, {"x": (table, "a"), "y": (table, "b"), "z": (Concatenate(), "x", "y")}, "z")
    assert twins.tables == {"a": "x", "b": "y"}
    assert Network([Embedding(9, 2), Dense(1)], input_shape=()).limits == {"features": 9}
    assert Network([HashedEmbedding(9, 2), Dense(1)], input_shape=()).limits == {}


WORDS = Vocabulary(["a", "b"])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (HashedEmbedding(9, 2), HashedEmbedding(4, 1), Hashing()),
        (HashedEmbedding(9, 2, split="word"), HashedEmbedding(4, 1, split="word"), Hashing(split="word")),
        (HashedEmbedding(9, 2, split="word"), HashedEmbedding(4, 1), None),
        (Embedding(2, 3, vocabulary=WORDS), OneHot(2, vocabulary=["a", "b"]), WORDS),
        (Embedding(2, 3, vocabulary=WORDS), HashedEmbedding(9, 2), WORDS),
        (Embedding(2, 3, vocabulary=WORDS), HashedEmbedding(9, 2, split="word"), None),
        (Embedding(2, 3, vocabulary=WORDS), OneHot(2, vocabulary=["b", "a"]), None),
        (Embedding(2, 3, vocabulary=WORDS), OneHot(2), None),
        (Embedding(2, 3), OneHot(2), None),
    ],
)
def test_layers_that_read_one_input_agree_on_strings_or_take_none(
    one: Any, other: Any, expected: Strings | None
) -> None:
    nodes = {"a": (one, "text"), "b": (other, "text"), "y": (Concatenate(), "a", "b")}
    assert Graph({"text": ()}, nodes, "y").strings == ({} if expected is None else {"text": expected})


def test_a_cross_takes_the_numbers_of_a_vocabulary() -> None:
    nodes = {
        "a": (OneHot(2, vocabulary=WORDS), "one"),
        "cross": (CrossCategories(), "one", "two"),
        "b": (HashedEmbedding(9, 2), "cross"),
        "y": (Concatenate(), "a", "b"),
    }
    assert Graph({"one": (), "two": ()}, nodes, "y").strings == {"one": WORDS, "two": Hashing()}


def test_a_long_vocabulary_is_printed_in_short_and_kept_whole() -> None:
    words = Vocabulary([f"w{at}" for at in range(5000)], split="word")
    assert repr(words) == "Vocabulary(['w0', 'w1', 'w2', 'w3', ... 5,000 in all], split='word')"
    network = Network([Embedding(5000, 2, vocabulary=words, unknown=True)], input_shape=(None,))
    assert Network.from_json(network.to_json()) == network and len(network.summary()) < 1000
    assert network.strings == {"features": words}


def test_the_entries_of_a_vocabulary_may_be_an_array() -> None:
    words = np.unique(["b", "a", "b"])
    assert Vocabulary(words) == Embedding(2, 3, vocabulary=words).vocabulary == WORDS  # type: ignore[arg-type]


def test_a_graph_of_categories_has_the_derivatives_of_the_whole(float64: None) -> None:
    weights = jax.tree.map(lambda array: jnp.asarray(array, "float64"), WIDE.init(0))
    x = jnp.array([0, 3, 3, 4]), jnp.array([10.0, 20.0, 35.0, 90.0])
    dy = jnp.asarray(RANDOM.normal(size=(4, 2)))
    y, derivative = jax.vjp(lambda weights: WIDE.forward(weights, x), weights)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-14),
        WIDE.gradient(weights, x, y, dy),  # type: ignore[arg-type]
        derivative(dy)[0],
    )


def test_it_is_trained_on_numbers_that_the_table_has_and_on_no_others() -> None:
    city = RANDOM.integers(0, 5, 400).astype("int32")
    labels = np.isin(city, [1, 4]).astype("float32")
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.05, "epochs": 20, "batch_size": 50}
    data = {"city": city, "age": RANDOM.uniform(10, 80, 400).astype("float32")}
    result = training.fit(WIDE, (data, labels), **given)
    assert result.history[-1].metric == 1
    data["city"] = np.where(np.arange(400) == 7, 6, city).astype("int32")
    with pytest.raises(ValueError, match="'city' must hold categories from 0 to 4, .* 'again', received 6; .*unknown="):
        training.fit(WIDE, (data, labels), **given)


def test_numbers_of_64_bits_choose_rows_where_layers_compute_in_64_too() -> None:
    city, network = RANDOM.integers(0, 5, 60), Network([Embedding(5, 3), Dense(2)], input_shape=())
    assert city.dtype == "int64"
    given: dict[str, Any] = {"dtype": "float64", "step_size": 0.1, "epochs": 2}
    wide, narrow = (training.fit(network, (each, city % 2), **given) for each in (city, city.astype("int32")))
    jax.tree.map(np.testing.assert_array_equal, wide.weights, narrow.weights)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Embedding(0, 3), "rows of Embedding must be a positive integer, received 0"),
        (lambda: Embedding(3, 2.0), "size of Embedding must be a positive integer, received 2.0"),  # type: ignore[arg-type]
        (lambda: OneHot(True), "rows of OneHot must be a positive integer, received True"),
        (lambda: HashedEmbedding(3, 2, unknown=True), "unknown of HashedEmbedding must be False"),
        (lambda: HashedEmbedding(3, 2, vocabulary=["a", "b", "c"]), "vocabulary of HashedEmbedding must be None"),
        (lambda: Embedding(3, 2, unknown_rate=0.1), "unknown_rate of Embedding must be 0 .*; set unknown=True"),
        (lambda: HashedEmbedding(3, 2, unknown_rate=0.1), "unknown_rate of HashedEmbedding must be 0 .*; leave it out"),
        (lambda: Embedding(3, 2, unknown=True, unknown_rate=1.0), "unknown_rate of Embedding must be a number in"),
        (
            lambda: HashedEmbedding(3, 2, split="line"),
            "split of HashedEmbedding must be 'word', 'character' or None, rec",
        ),
        (
            lambda: Embedding(3, 2, vocabulary=["a"]),
            "rows of Embedding must be 1, as many as its vocabulary has entries",
        ),
        (
            lambda: Embedding(2, 2, vocabulary=["a", "a"]),
            "entries of Vocabulary must be strings that differ, received 'a'",
        ),
        (lambda: Vocabulary(["a", 3]), "entries of Vocabulary must be strings that differ, received 3, a int"),  # type: ignore[list-item]
        (lambda: Vocabulary("abc"), "entries of Vocabulary must be a list of strings, received 'abc'"),
        (lambda: Vocabulary([]), "entries of Vocabulary must be a list of strings"),
        (
            lambda: Vocabulary(["a"], split="letter"),
            "split of Vocabulary must be 'word', 'character' or None, received",
        ),
        (lambda: Bucketize([1, 1]), "boundaries of Bucketize must be ascending finite numbers"),
        (lambda: Bucketize([]), "boundaries of Bucketize must be ascending finite numbers"),
        (
            lambda: Network([Dense(3), Embedding(3, 2)], input_shape=(2,)),
            "reads integers, which only a",
        ),
    ],
)
def test_what_fits_nothing_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "layer",
    [
        Embedding(5, 3, unknown=True, unknown_rate=0.1, l2=0.1),
        Embedding(2, 3, vocabulary=Vocabulary(["a", "b"], split="character")),
        OneHot(2, vocabulary=("no", "yes")),
        HashedEmbedding(5, 3),
        HashedEmbedding(5, 3, split="word"),
        OneHot(4),
        Bucketize([0.5, 1]),
    ],
)
def test_json_holds_it(layer: Layer) -> None:
    assert Layer.from_json(layer.to_json()) == layer
