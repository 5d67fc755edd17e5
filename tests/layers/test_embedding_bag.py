"""Bags of categories, against NumPy in float64 and PyTorch; and what becomes of rows of any length in a network."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network
from sparkdl.layers import (
    Add,
    Concatenate,
    Context,
    Conv,
    Dense,
    EmbeddingBag,
    Flatten,
    HashedEmbedding,
    HashedEmbeddingBag,
    Layer,
    Parallel,
    Ragged,
    Residual,
)
from sparkdl.layers.factored import TableRows
from sparkdl.strings import Hashing

RANDOM = np.random.default_rng(5)
ROWS = [[4, 0, 4], [], [2], [1, 2, 3, 4, 0]]
TABLE, DY = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(4, 3))
GRAPH = Graph(
    inputs={"history": (None,), "facts": (2,)},
    nodes={
        "seen": (EmbeddingBag(9, 4), "history"),
        "all": (Concatenate(), "seen", "facts"),
        "y": (Dense(1), "all"),
    },
    outputs="y",
)


def ragged(rows: list[list[int]], steps: int, padding: int = 0) -> Ragged:
    values = np.full((len(rows), steps), padding, "int32")
    for at, row in enumerate(rows):
        values[at, : len(row)] = row
    return Ragged(jnp.asarray(values), jnp.array([len(row) for row in rows], "int32"))


def expected(rows: list[list[int]], mode: str, table: Any = TABLE) -> Any:
    vectors = [table[row].sum(axis=0) for row in rows]
    return np.array([v / max(1, len(row)) if mode == "mean" else v for v, row in zip(vectors, rows, strict=True)])


def expected_gradient(rows: list[list[int]], mode: str) -> Any:
    found = np.zeros_like(TABLE)
    for row, dy in zip(rows, DY, strict=True):
        for category in row:
            found[category] += dy / len(row) if mode == "mean" else dy
    return found


@pytest.mark.parametrize("mode", ["mean", "sum"])
@pytest.mark.parametrize("padding", [0, 4, -1, 99])
def test_a_bag_is_the_mean_or_sum_of_its_vectors_and_shares_out_their_slopes(
    mode: str, padding: int, float64: None
) -> None:
    layer, weights = EmbeddingBag(5, 3, mode=mode), {"table": jnp.asarray(TABLE)}
    x, dy = ragged(ROWS, 6, padding), jnp.asarray(DY)
    y = layer.forward(weights, x)
    np.testing.assert_allclose(y, expected(ROWS, mode), rtol=1e-14, atol=1e-15)
    assert not np.asarray(y[1]).any()  # of no categories
    np.testing.assert_allclose(layer.gradient(weights, x, y, dy)["table"], expected_gradient(ROWS, mode), atol=1e-14)


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_rows_that_it_names_are_left_apart_and_padding_names_none(mode: str, float64: None) -> None:
    layer, weights = EmbeddingBag(5, 3, mode=mode), {"table": jnp.asarray(TABLE)}
    x, dy = ragged(ROWS, 6), jnp.asarray(DY)
    context = Context(jax.random.key(0), jnp.ones(4), apart=True)
    found = layer.train_gradient(weights, x, layer.forward(weights, x), dy, None, context)["table"]
    assert isinstance(found, TableRows) and found.shape == (5, 3)
    ids = np.asarray(found.ids)
    assert sorted(ids[ids < 5].tolist()) == sorted(sum(ROWS, [])) and (ids >= 5).sum() == 24 - len(sum(ROWS, []))
    np.testing.assert_allclose(found.product(), expected_gradient(ROWS, mode), atol=1e-14)
    np.testing.assert_allclose(found.merged().product(), expected_gradient(ROWS, mode), atol=1e-14)


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_rows_of_one_length_are_bags_too(mode: str, float64: None) -> None:
    layer, weights = EmbeddingBag(5, 3, mode=mode), {"table": jnp.asarray(TABLE)}
    ids = RANDOM.integers(0, 5, (4, 2)).astype("int32")
    y, dy = layer.forward(weights, jnp.asarray(ids)), jnp.asarray(DY)
    np.testing.assert_allclose(y, expected(ids.tolist(), mode), rtol=1e-14, atol=1e-15)
    found = layer.gradient(weights, jnp.asarray(ids), y, dy)["table"]
    np.testing.assert_allclose(found, expected_gradient(ids.tolist(), mode), atol=1e-14)


def test_categories_beyond_the_table_have_the_last_row_or_are_seen(float64: None) -> None:
    x = ragged([[7, -1, 0], [4]], 4, padding=99)
    weights = {"table": jnp.asarray(RANDOM.normal(size=(6, 3)))}
    found = EmbeddingBag(5, 3, unknown=True).forward(weights, x)
    table = np.asarray(weights["table"])
    np.testing.assert_allclose(found, expected([[5, 5, 0], [4]], "mean", table), atol=1e-15)
    found = np.asarray(EmbeddingBag(5, 3).forward({"table": jnp.asarray(TABLE)}, x))
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()
    assert EmbeddingBag(5, 3).integer_limit == 5 and EmbeddingBag(5, 3, unknown=True).integer_limit is None


def test_hashed_bags_have_the_rows_of_hashed_categories(float64: None) -> None:
    bag, one = HashedEmbeddingBag(11, 3, mode="sum"), HashedEmbedding(11, 3)
    weights = {"table": jnp.asarray(RANDOM.normal(size=(11, 3)))}
    rows = [[10**9, -5], [], [7, 7, 7]]
    each = [np.asarray(one.forward(weights, jnp.array(row, "int32"))).reshape(-1, 3).sum(axis=0) for row in rows]
    np.testing.assert_allclose(bag.forward(weights, ragged(rows, 4)), np.array(each), atol=1e-14)
    assert bag.takes_hashes and bag.integer_limit is None and not EmbeddingBag(11, 3).takes_hashes


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_pytorch_has_the_same_bags(mode: str, float64: None) -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(TABLE, requires_grad=True)
    offsets = np.cumsum([0, *map(len, ROWS)])[:-1]
    y = torch.nn.functional.embedding_bag(torch.tensor(sum(ROWS, [])), table, torch.tensor(offsets), mode=mode)
    y.backward(torch.tensor(DY))
    layer, weights, x = EmbeddingBag(5, 3, mode=mode), {"table": jnp.asarray(TABLE)}, ragged(ROWS, 5)
    own = layer.forward(weights, x)
    np.testing.assert_allclose(own, y.detach().numpy(), atol=1e-15)
    np.testing.assert_allclose(
        layer.gradient(weights, x, own, jnp.asarray(DY))["table"], table.grad.numpy(), atol=1e-14
    )


# In a network


def test_a_graph_shows_which_inputs_are_of_any_length() -> None:
    assert GRAPH.input_shapes == {"history": (None,), "facts": (2,)}
    assert GRAPH.integers == {"history"} and GRAPH.limits == {"history": 9}
    assert GRAPH.output_shape() == (1,) and GRAPH.multiply_adds() == 6
    assert "history" in (text := GRAPH.summary()) and "(None,)" in text
    assert "(None,)" in GRAPH.to_mermaid()
    assert Network([HashedEmbeddingBag(9, 4)], input_shape=(None,)).strings == {"features": Hashing()}


@pytest.mark.parametrize("network", [GRAPH, Network([EmbeddingBag(9, 4, mode="sum"), Dense(1)], input_shape=(None,))])
def test_json_holds_any_length(network: Any) -> None:
    assert Layer.from_json(json.loads(json.dumps(network.to_json()))) == network


@pytest.mark.parametrize(
    "layer",
    [
        Flatten(),
        Residual([Flatten()]),
        Network([Flatten()]),
        Parallel([Flatten(), Conv(3, 3)]),
    ],
    ids=repr,
)
def test_a_layer_that_reads_rows_of_one_length_is_refused_others_when_the_network_is_built(layer: Layer) -> None:
    with pytest.raises(ValueError, match=r"received rows of any, \(None,.*put .*, or EmbeddingBag where"):
        Network([layer], input_shape=(None,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmbeddingBag(5, 3, mode="max"), "mode of EmbeddingBag must be 'mean' or 'sum', received 'max'"),
        (lambda: HashedEmbeddingBag(5, 3, unknown=True), "unknown of HashedEmbeddingBag must be False"),
        (
            lambda: Graph({"h": (None,), "x": (2,)}, {"y": (Add(), "h", "x")}, "y"),
            r"Node 'y' \(Add\): Add expects rows of any length from all that it reads or from none, received",
        ),
        (lambda: Network([EmbeddingBag(5, 3)], input_shape=(2, None)), r"received \(2, None\); only the first may be"),
        (
            lambda: Graph({"h": (3, None)}, {"y": (EmbeddingBag(5, 3), "h")}, "y"),
            r"received \(3, None\); only the first",
        ),
        (
            lambda: Network([EmbeddingBag(5, 3)], input_shape=(None, 2)),
            r"of shape \(None,\) or \(n,\), received \(None, 2",
        ),
        (lambda: Network([EmbeddingBag(5, 3)], input_shape=()), r"of shape \(None,\) or \(n,\), received \(\)"),
    ],
)
def test_what_fits_nothing_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
