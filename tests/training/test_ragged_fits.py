"""Rows of any length in training: whoever holds them, however far they are padded, they come to the same weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from row_cases import rows_of

from sparkdl import Graph, Network, training
from sparkdl.decoding.ragged_rows import RaggedRows, common_steps, rounded_steps
from sparkdl.layers import (
    Concatenate,
    Dense,
    Embedding,
    EmbeddingBag,
    HashedEmbeddingBag,
    Layer,
    LearnedPositions,
    Ragged,
    Tanh,
    TimeMax,
)
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD, AdaGrad, Optimizer
from sparkdl.training import Checkpoints, Training
from sparkdl.training.data.batches import Rows, Shard, Steps
from sparkdl.training.data.buckets import rows_of_steps
from sparkdl.training.data.shard_file import ShardWriter, open_shard
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.records.probe import make_probe
from sparkdl.training.step import step as step_module
from sparkdl.training.together import train_all

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(21)
ROWS, TABLE = 24, 30
# The longest, and an empty one, fall to the first worker.
LENGTHS = np.array([9, 0, 2, 1, 3, 0, 5, 1, 2, 2, 4, 1, 0, 3, 2, 6, 1, 2, 0, 1, 3, 2, 4, 1])
IDS = RANDOM.integers(0, TABLE, LENGTHS.sum()).astype("int32")
HISTORY = RaggedRows(IDS, LENGTHS)
LISTS = [row.tolist() for row in np.split(IDS, np.cumsum(LENGTHS)[:-1])]
LABELS = RANDOM.normal(size=ROWS)
WEIGHTS = np.tile([0.5, 2, 0.25, 0, 3, 1, 1.75, 0.5], 3)
NETWORK = Network([EmbeddingBag(TABLE, 3), Dense(1)], input_shape=(None,))
TOWERS = Graph(
    inputs={"history": (None,), "words": (None,), "age": ()},
    nodes={
        "seen": (Network([EmbeddingBag(TABLE, 3), Dense(2), Tanh()]), "history"),
        "said": (HashedEmbeddingBag(400, 2, mode="sum"), "words"),
        "all": (Concatenate(), "seen", "said", "age"),
        "y": (Dense(1), "all"),
    },
    outputs="y",
)
WORDS = [[int(word) for word in RANDOM.integers(-(10**9), 10**9, count)] for count in LENGTHS[::-1]]
DATA = {"history": LISTS, "words": WORDS, "age": RANDOM.normal(size=ROWS)}


def plan(**options: Any) -> Training:
    given = {"loss": "squared_error", "optimizer": SGD(), "step_size": 0.1, "epochs": 2, "batch_size": 8, "seed": 3}
    return Training(NETWORK, dtype="float64", **given | options)


def trained(plan: Training, shares: tuple[int, ...], steps: int = 16) -> Any:
    """The weights after training with one worker for each share."""
    chosen = [slice(*bounds) for bounds in pairwise([0, *accumulate(shares)])]
    shards = [Shard.from_arrays({"features": HISTORY[at]}, LABELS[at][:, None], WEIGHTS[at]) for at in chosen]
    shards = [shard.padded_to({"features": steps}) for shard in shards]
    mesh = Mesh(np.array(jax.local_devices()[: len(shares)]), (WORKERS,))
    with jax.enable_x64(True):
        return train(plan, Share(shards, shares, 0), Share([], (), 0), mesh).weights


def by_hand(plan: Training, shares: tuple[int, ...]) -> Any:
    """The same in NumPy: counts of a row's categories times the table, and the chain rule written out."""
    start = trained(replace(plan, epochs=0), (ROWS,))
    table, kernel, bias = (np.array(start[a][b]) for a, b in [("embedding_bag_0", "table"), *DENSE])
    counts = np.zeros((ROWS, TABLE))
    np.add.at(counts, (np.repeat(np.arange(ROWS), LENGTHS), IDS), 1)
    counts /= np.maximum(LENGTHS, 1)[:, None]
    division, starts = Steps(shares, plan.batch_size), [0, *accumulate(shares[:-1])]
    for epoch in range(plan.epochs):
        taken = [
            [
                first + rows
                for rows in rows_of_steps(LENGTHS[None, first : first + share], division, at, plan.seed, epoch)
            ]
            for at, (first, share) in enumerate(zip(starts, shares, strict=True))
        ]
        for step in range(division.count):
            rows = np.concatenate([own[step] for own in taken])
            bags = counts[rows] @ table
            slopes = 2 * (bags @ kernel + bias - LABELS[rows, None]) * WEIGHTS[rows, None] / WEIGHTS[rows].sum()
            of_table, of_kernel = counts[rows].T @ (slopes @ kernel.T), bags.T @ slopes
            table, kernel, bias = (
                array - plan.step_size * slope
                for array, slope in ((table, of_table), (kernel, of_kernel), (bias, slopes.sum(axis=0)))
            )
    return {"embedding_bag_0": {"table": table}, "dense_1": {"kernel": kernel, "bias": bias}}


DENSE = [("dense_1", "kernel"), ("dense_1", "bias")]


def assert_close(one: Any, other: Any, tolerance: float = 1e-12) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max()), one, dict(other)
    )


def are_identical(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


@pytest.mark.parametrize("shares", [(24,), (21, 0, 3), (9, 9, 6), (3, 21)], ids=str)
def test_workers_take_the_steps_of_one_process(shares: tuple[int, ...]) -> None:
    assert_close(trained(plan(), shares), by_hand(plan(), shares))


@pytest.mark.parametrize("steps", [9, 40])
def test_how_far_rows_are_padded_changes_nothing(steps: int) -> None:
    assert_close(trained(plan(), (21, 3), steps), trained(plan(), (21, 3)), 1e-14)


def test_the_same_fit_comes_to_the_same_bits() -> None:
    assert are_identical(trained(plan(), (9, 9, 6)), trained(plan(), (9, 9, 6)))


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_step_of_the_rows_that_bags_name_is_the_step_of_the_whole_table(
    devices: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "number_of_parts", lambda *_: parts)
    given: dict[str, Any] = {"loss": "squared_error", "optimizer": AdaGrad(), "step_size": 0.1, "epochs": 2}
    given |= {"batch_size": 12, "devices": devices, "dtype": "float64"}
    few = training.fit(TOWERS, (DATA, LABELS), **given)
    monkeypatch.setattr(Optimizer, "moves_named_rows", False)
    whole = training.fit(TOWERS, (DATA, LABELS), **given)
    assert_close(few.weights, whole.weights)
    if devices > 1:
        assert few.history[0].bytes < whole.history[0].bytes


def test_lists_arrays_and_padded_rows_are_the_same_rows() -> None:
    given: dict[str, Any] = {"loss": "squared_error", "epochs": 1, "batch_size": 8}
    values = np.full((ROWS, 12), 99, "int64")
    for at, row in enumerate(LISTS):
        values[at, : len(row)] = row
    forms = [LISTS, [np.array(row, "int32") for row in LISTS], Ragged(values, LENGTHS)]
    one, *others = (training.fit(NETWORK, (form, LABELS), **given).weights for form in forms)
    assert all(are_identical(one, other) for other in others)


def test_rows_that_are_longer_in_validation_than_in_training_are_scored() -> None:
    longer = [list(range(TABLE)) * 2, [], [4]]
    result = training.fit(NETWORK, (LISTS, LABELS), validation=(longer, np.zeros(3)), loss="squared_error", epochs=1)
    table, kernel, bias = (result.weights[a][b] for a, b in [("embedding_bag_0", "table"), *DENSE])
    bags = np.array([table.mean(axis=0), 0 * table[0], table[4]])
    assert result.history[-1].validation_loss == pytest.approx(float(((bags @ kernel + bias) ** 2).mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2], [3, TABLE]], f"'features' must hold categories from 0 to 29, .* received {TABLE}; .*unknown=True"),
        ([[1, 2], [-1]], "'features' must hold categories from 0 to 29, .* received -1"),
        ([[1.0], [2.0]], "takes 'features' as integers, received float64; cast it to int32"),
        ([[[1, 2]], [[3, 4]]], r"with steps of shape \(\), received steps of shape \(2,\) in row 0"),
        ([[1], None], r"'features' must be a list of lists or arrays, one a row, .*received None in row 1; give \[\]"),
        (
            Ragged(np.array([[1, 2], [3, 4]], "int32"), np.array([2, 3])),
            "lengths of 'features' must be from 0",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.fit(NETWORK, (rows, np.zeros(2)), loss="squared_error")


def test_rows_of_more_steps_than_positions_tell_apart_are_refused() -> None:
    network = Network([Embedding(9, 2), LearnedPositions(4), TimeMax(), Dense(1)], input_shape=(None,))
    given: dict[str, Any] = {"loss": "squared_error", "epochs": 1, "batch_size": 2}
    training.fit(network, ([[1, 2, 3, 4], []], [[0.0], [1.0]]), **given)
    with pytest.raises(ValueError, match="'features' must hold at most 4 steps a row, .* received 5; cut rows before"):
        training.fit(network, ([[1, 2, 3, 4, 5], []], [[0.0], [1.0]]), **given)


def test_it_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    given: dict[str, Any] = {"loss": "squared_error", "batch_size": 8, "devices": 2}
    kept = {"checkpoints": Checkpoints(str(tmp_path))}
    training.fit(NETWORK, (LISTS, LABELS), epochs=1, **given, **kept)
    resumed = training.fit(NETWORK, (LISTS, LABELS), epochs=3, **given, **kept)
    assert resumed.resumed == [1, 0]
    assert are_identical(resumed.weights, training.fit(NETWORK, (LISTS, LABELS), epochs=3, **given).weights)
    others = [*LISTS[:-1], [*LISTS[-1], 0]]
    assert not training.fit(NETWORK, (others, LABELS), epochs=3, **given, **kept).resumed


def test_runs_with_orders_of_their_own_come_to_what_each_comes_to_alone() -> None:
    shard = Shard.from_arrays({"features": HISTORY}, LABELS[:, None], WEIGHTS).padded_to({"features": 16})
    plans = [plan(), plan(seed=8)]
    mesh = Mesh(np.array(jax.local_devices()[:1]), (WORKERS,))
    with jax.enable_x64(True):
        given = Share([shard], (ROWS,), 0), Share([], (0,), 0), mesh
        together = train_all(plans, *given)
        assert all(are_identical(a.weights, train(b, *given).weights) for a, b in zip(together, plans, strict=True))


def test_a_probe_sees_them() -> None:
    weights = NETWORK.init(0)
    rows = Rows({"features": Ragged(*HISTORY.padded())}, {"label": LABELS[:, None].astype("float32")}, np.ones(ROWS))
    rows = jax.tree.map(lambda part: part.astype("float32") if part.dtype == float else part, rows)
    probe = make_probe(NETWORK, Objective.of("squared_error", None, NETWORK.output_names))
    found = probe(weights, weights, rows, np.uint32(0), np.int32(0))
    bags = np.array(
        [np.asarray(weights["embedding_bag_0"]["table"])[row].sum(axis=0) / max(1, len(row)) for row in LISTS]
    )
    assert float(found.activations["embedding_bag_0/mean"]) == pytest.approx(float(bags.mean()), rel=1e-4)


# A layer of one's own


@dataclass(frozen=True)
class TimeMean(Layer):
    """The mean of a row's numbers, 0 of none: x Ragged (batch, steps), y (batch, 1)."""

    @property
    def takes_ragged(self) -> bool:
        return True

    def forward(self, weights: Any, x: Any) -> Any:
        total = jnp.where(x.valid, x.values, 0).sum(axis=1, keepdims=True)
        return total / jnp.maximum(x.lengths, 1).astype(total.dtype)[:, None]


def test_a_layer_of_ones_own_reads_numbers_of_any_length() -> None:
    rows = [RANDOM.normal(size=count) for count in LENGTHS]
    means = np.array([row.sum() / max(1, len(row)) for row in rows])[:, None]
    start = {"dense_1": {"kernel": np.array([[0.5]]), "bias": np.array([-0.25])}}
    given: dict[str, Any] = {
        "loss": "squared_error",
        "dtype": "float64",
        "epochs": 3,
        "batch_size": 8,
        "devices": 2,
        "shuffle": False,
    }
    given |= {"initial": start}
    ragged = training.fit(Network([TimeMean(), Dense(1)], input_shape=(None,)), (rows, LABELS), **given)
    fixed = training.fit(Network([Dense(1, name="dense_1")], input_shape=(1,)), (means, LABELS), **given)
    assert_close(ragged.weights, fixed.weights)
    assert ragged.history[-1].loss < ragged.history[0].loss


# On the host


def test_rows_are_chosen_and_padded_as_lists_are() -> None:
    rows = RaggedRows(np.arange(12).reshape(6, 2), np.array([2, 0, 3, 1]))
    lists = [[[0, 1], [2, 3]], [], [[4, 5], [6, 7], [8, 9]], [[10, 11]]]
    for which in ([2, 0, 0, 1], slice(1, None, 2), np.array([True, False, False, True]), [], slice(0)):
        found = rows[which]
        expected = [lists[at] for at in np.arange(4)[which]]
        values, lengths = found.padded_to(5).padded()
        assert values.shape == (len(expected), 5, 2) and lengths.dtype == "int32"
        assert [row[:length].tolist() for row, length in zip(values, lengths, strict=True)] == expected
        assert all(not row[length:].any() for row, length in zip(values, lengths, strict=True))
        assert found.shape == (len(expected), 3, 2)  # which all of one part are padded to


def test_a_file_holds_them_without_padding_and_in_the_order_of_their_keys(tmp_path: Path) -> None:
    keys = RANDOM.permutation(ROWS)
    writer = ShardWriter(tmp_path / "shard", rows_of(HISTORY[:0], LABELS[:0], WEIGHTS[:0]))
    for at in (slice(0, 10), slice(10, 11), slice(11, None)):
        writer.append(rows_of(HISTORY[at], LABELS[at], WEIGHTS[at]), keys[at])
    writer.close()
    assert writer.longest == {"features": 9}
    assert writer.bytes <= IDS.nbytes + 4 * (ROWS + 3) + 3 * 8 * ROWS  # with bounds, labels, weights and keys
    shard = open_shard([tmp_path / "shard"])
    assert shard.longest == {"features": 9}
    taken = shard.padded_to({"features": 12}).take(np.arange(ROWS), ROWS + 1).features["features"]
    assert taken.values.shape == (ROWS + 1, 12) and taken.values.dtype == "int32"
    found = [row[:length].tolist() for row, length in zip(taken.values, taken.lengths, strict=True)]
    assert found == [*(LISTS[at] for at in np.argsort(keys)), []]


def test_few_lengths_are_padded_to() -> None:
    found = [rounded_steps(longest) for longest in range(1025)]
    assert found[0] == 8 and all(steps >= longest for longest, steps in enumerate(found))
    assert all(steps <= 1.25 * longest for longest, steps in enumerate(found) if longest > 32)
    assert sorted(set(found)) == [8, 16, 24, 32, 40, 48, 56, 64, *range(80, 129, 16), *range(160, 257, 32),
                                  *range(320, 513, 64), *range(640, 1025, 128)]  # fmt: skip
    assert common_steps([{"a": 3, "b": 0}, {"a": 20, "b": 0}]) == {"a": 24, "b": 8}
    assert common_steps([{}, {}]) == {}
