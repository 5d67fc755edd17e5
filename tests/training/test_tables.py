"""Tables of which a step touches only what its batch names, and whether that comes to what the whole would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparkdl import Graph, Network, Same, training
from sparkdl.layers import Concatenate, Dense, Embedding, Flatten, Lstm, Tanh, TimeMean
from sparkdl.layers.factored import TableRows, added
from sparkdl.optimizers import (
    LAMB,
    SGD,
    AdaBelief,
    AdaGrad,
    Adam,
    AdaMax,
    AMSGrad,
    Momentum,
    NAdam,
    Nesterov,
    Optimizer,
    RAdam,
)
from sparkdl.training import ParameterAveraging, ShardedAllReduce, ThresholdSharing, Training
from sparkdl.training.exchanges.all_reduce import AllReduce
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.step import step as step_module

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(6)
ROWS, TABLE = 90, 400
DATA = {
    "who": RANDOM.integers(0, TABLE, (ROWS, 2)).astype("int32"),
    "what": RANDOM.integers(0, 40, ROWS).astype("int32"),
    "other": RANDOM.integers(0, 40, ROWS).astype("int32"),
}
LABELS = RANDOM.normal(size=ROWS)


def towers() -> Graph:
    """Two nodes that share one table, beside another one that two ids of a row name."""
    return Graph(
        inputs={"who": (2,), "what": (), "other": ()},
        nodes={
            "people": (Network([Embedding(TABLE, 3), Tanh()]), "who"),
            "one": (Embedding(TABLE, 4), "what"),
            "two": (Same("one"), "other"),
            "person": (Network([Dense(2)]), "one"),
            "both": (Concatenate(), "one", "two", "person"),
            "y": (Dense(1), "both"),
            "left": (Flatten(), "people"),
            "all": (Concatenate(), "y", "left"),
            "z": (Dense(1), "all"),
        },
        outputs="z",
    )


def fit(optimizer: Optimizer, **given: Any) -> Any:
    options: dict[str, Any] = {
        "loss": "squared_error",
        "step_size": 0.1,
        "epochs": 2,
        "batch_size": 30,
        "dtype": "float64",
    }
    return training.fit(towers(), (DATA, LABELS), optimizer=optimizer, **options | given)


@pytest.fixture
def densely(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that fits with whole gradients of tables."""

    def fit_whole(*arguments: Any, **given: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Optimizer, "moves_named_rows", False)
            return fit(*arguments, **given)

    return fit_whole


def test_rows_with_the_same_number_are_merged(float64: None) -> None:
    ids, slopes = np.array([4, 0, 7, 4, 2, 0, 9, -1]), RANDOM.normal(size=(8, 3))
    rows = TableRows(jnp.asarray(ids), jnp.asarray(slopes), 7)
    expected = np.zeros((7, 3))
    inside = (ids >= 0) & (ids < 7)
    np.add.at(expected, ids[inside], slopes[inside])
    merged = rows.merged()
    assert merged.ids.tolist() == [0, 2, 4, 7, 7, 7, 7, 7]
    np.testing.assert_allclose(merged.product(), expected, atol=1e-15)
    np.testing.assert_allclose(merged.slopes[:3], expected[[0, 2, 4]], atol=1e-15)
    twice = added(rows, rows)
    np.testing.assert_allclose(twice.scaled(jnp.float64(0.5)).merged().product(), expected, atol=1e-14)
    table = RANDOM.normal(size=(7, 3))
    np.testing.assert_array_equal(merged.taken(jnp.asarray(table)), np.append(table, [[np.nan] * 3], 0)[merged.ids])
    put = np.asarray(merged.put(jnp.asarray(table), jnp.ones((8, 3))))
    np.testing.assert_array_equal(put[[0, 2, 4]], 1)
    np.testing.assert_array_equal(put[[1, 3, 5, 6]], table[[1, 3, 5, 6]])


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(),
        AdaGrad(),
        AdaGrad(1e-3, 0.5, clip_norm=0.3),
        SGD(clip_value=0.01, schedule="cosine_decay"),
        SGD(normalize="layer", clip_array_norm=0.3),
    ],
    ids=repr,
)
def test_a_step_of_few_rows_is_the_step_of_the_whole(optimizer: Optimizer, devices: int, densely: Any) -> None:
    few, whole = fit(optimizer, devices=devices), densely(optimizer, devices=devices)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, 1e-12, 1e-14), few.weights, whole.weights)
    assert [epoch.loss for epoch in few.history] == pytest.approx([epoch.loss for epoch in whole.history], rel=1e-12)
    if devices > 1:
        assert few.history[0].bytes < 0.5 * whole.history[0].bytes


def test_in_parts_of_a_batch_too(densely: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "number_of_parts", lambda *_: 4)
    few, whole = fit(AdaGrad(), devices=2), densely(AdaGrad(), devices=2)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, 1e-12, 1e-14), few.weights, whole.weights)


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(lazy=True),
        AdaMax(lazy=True),
        NAdam(lazy=True),
        AMSGrad(lazy=True),
        RAdam(lazy=True),
        AdaBelief(lazy=True),
        Momentum(lazy=True),
        Momentum(lazy=True, momentum_schedule="one_cycle"),
        Nesterov(lazy=True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lazily_a_row_rests_until_it_is_named(optimizer: Optimizer, decay: float) -> None:
    """The first step is that of the formula for what it names; all else is bit for bit what it was."""
    lazy = replace(optimizer, weight_decay=decay)
    formula = replace(lazy, lazy=False)  # type: ignore[call-arg]
    given: dict[str, Any] = {"epochs": 1, "batch_size": ROWS}
    before = jax.tree.map(np.asarray, fit(SGD(), **given | {"step_size": 1e-30}).weights)
    one, other = fit(lazy, **given).weights, fit(formula, **given).weights
    named = np.unique(np.append(DATA["what"], DATA["other"]))
    rest = np.setdiff1d(np.arange(TABLE), named)
    np.testing.assert_allclose(one["one"]["table"][named], other["one"]["table"][named], rtol=1e-12)
    np.testing.assert_allclose(one["one"]["table"][rest], before["one"]["table"][rest], rtol=1e-15)
    np.testing.assert_allclose(one["z"]["kernel"], other["z"]["kernel"], rtol=1e-12)
    if decay:
        assert not np.allclose(other["one"]["table"][rest], before["one"]["table"][rest], rtol=1e-6)


def test_several_workers_are_lazy_alike() -> None:
    alone, together = (fit(Adam(lazy=True), devices=devices, epochs=4, batch_size=ROWS) for devices in (1, 3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-12), alone.weights, together.weights)


@pytest.mark.parametrize("exchange", [AllReduce(), AllReduce("bfloat16")], ids=repr)
@pytest.mark.parametrize("batch", [4, 23])
def test_rows_of_a_table_that_is_smaller_than_a_batch_rest_too(batch: int, exchange: AllReduce) -> None:
    """Nor does a row learn of rows that fill up a batch, or steps of one, which have its number, 0."""
    lengths = RANDOM.integers(1, 4, 23)
    network = Network([Embedding(10, 4), TimeMean(), Dense(1)], input_shape=(None,))
    data = [RANDOM.integers(1, 4, length).astype("int32") for length in lengths], LABELS[:23]
    options: dict[str, Any] = {"loss": "squared_error", "batch_size": batch, "dtype": "float64", "exchange": exchange}
    before = training.fit(network, data, epochs=0, **options).weights

    def table(devices: int) -> Any:
        lazy = Adam(lazy=True, weight_decay=0.1)
        weights = training.fit(network, data, optimizer=lazy, epochs=3, devices=devices, **options).weights
        return weights["embedding_0"]["table"]

    moved = table(1) != before["embedding_0"]["table"]
    assert moved[1:4].all() and not moved[0].any() and not moved[4:].any()
    rest = table(3) == before["embedding_0"]["table"]
    assert rest[0].all() and rest[4:].all()


def test_lazily_the_number_of_workers_does_not_matter() -> None:
    """Where a sum of whole tables takes fewer bytes than rows of all workers, and where it does not."""
    for batch in (8, 12, 23):
        given: dict[str, Any] = {
            "loss": "squared_error", "optimizer": Adam(lazy=True, weight_decay=0.1), "batch_size": batch, "epochs": 3,
            "dtype": "float64", "shuffle": False, "step_size": 0.1,
        }  # fmt: skip
        network = Network([Embedding(10, 4), Dense(1)], input_shape=())
        data = DATA["what"][:23] % 5 + 3, LABELS[:23]
        alone, together = (training.fit(network, data, devices=devices, **given).weights for devices in (1, 2))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-12), alone, together)


@pytest.mark.parametrize(
    ("optimizer", "few"),
    [
        (SGD(), True),
        (AdaGrad(), True),
        (SGD(weight_decay=0.1), False),
        (Adam(), False),
        (Adam(lazy=True, weight_decay=0.1), True),
        (Momentum(), False),
    ],
    ids=repr,
)
def test_what_moves_every_row_is_given_every_row(optimizer: Optimizer, few: bool) -> None:
    assert optimizer.moves_named_rows == few


def test_a_rule_of_ones_own_says_by_itself_what_it_does() -> None:
    class Shrinking(SGD):
        def rule(self) -> Any:
            return optax.chain(optax.identity(), optax.add_decayed_weights(0.1))

    assert SGD().moves_named_rows and SGD().adds_up
    assert not Shrinking().moves_named_rows and not Shrinking().adds_up
    for scaled in (SGD(clip_norm=1.0), SGD(clip_array_norm=1.0), SGD(normalize="array")):
        assert not scaled.adds_up and scaled.moves_named_rows


def test_a_table_that_is_pulled_at_is_moved_as_a_whole() -> None:
    """By its l2; and one that has fewer rows than the batch names."""
    network = Graph({"who": ()}, {"table": (Embedding(TABLE, 4, l2=0.5), "who"), "small": (Dense(1), "table")}, "small")
    given: dict[str, Any] = {"loss": "squared_error", "epochs": 1, "batch_size": ROWS, "step_size": 0.1}
    data = {"who": DATA["what"]}, LABELS
    one = training.fit(network, data, optimizer=SGD(), **given).weights
    start = network.init(0)
    rest = np.setdiff1d(np.arange(TABLE), DATA["what"])
    shrunk = np.asarray(start["table"]["table"])[rest] * (1 - 0.1 * 0.5)
    np.testing.assert_allclose(np.asarray(one["table"]["table"])[rest], shrunk, rtol=1e-5)


def test_the_norm_of_every_array_takes_every_row() -> None:
    with pytest.raises(ValueError, match="lazy of LAMB must be False"):
        LAMB(lazy=True)


@pytest.mark.parametrize("exchange", [ShardedAllReduce(), ParameterAveraging(), ThresholdSharing()], ids=repr)
def test_what_would_let_no_row_rest_is_refused(exchange: Exchange) -> None:
    sentence = f"lazy=True of Adam lets rows .* with the exchange AllReduce alone, received {type(exchange).__name__};"
    with pytest.raises(ValueError, match=sentence):
        Training(Network([Embedding(5, 2)], ()), loss="squared_error", optimizer=Adam(lazy=True), exchange=exchange)
    steps = Network([Embedding(5, 2), Lstm(3), Dense(1)], input_shape=(None,))
    with pytest.raises(ValueError, match="lazy=True of Adam lets no row rest where training is truncated"):
        Training(steps, loss="squared_error", optimizer=Adam(lazy=True), truncated=4)


def test_bfloat16_sends_whole_tables_and_trains() -> None:
    result = fit(SGD(), devices=2, exchange=AllReduce("bfloat16"), dtype="float32")
    assert np.isfinite(result.history[-1].loss)
