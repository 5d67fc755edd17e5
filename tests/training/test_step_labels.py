"""A label for each step of rows of any length: a labelled step counts as a row, whoever holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.layers import Dense, LastStep, Lstm, Ragged, Tanh
from sparkdl.training import Training

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
LENGTHS = [7, 0, 2, 1, 4, 3, 5, 1, 2, 6, 3, 1]
X = [RANDOM.normal(size=(length, 2)) for length in LENGTHS]
CLASSES = [RANDOM.integers(0, 3, length).astype(float) for length in LENGTHS]
CLASSES[0][2:5] = np.nan  # steps without a label
CLASSES[7][0] = np.nan
NUMBERS = [RANDOM.normal(size=(length, 2)) for length in LENGTHS]
WEIGHTS = np.array([0.5, 2, 1, 3, 0, 1, 1.5, 1, 2, 0.25, 1, 1])
DENSE = [Dense(4), Tanh(), Dense(3)]
SAME: dict[str, Any] = {"optimizer": "sgd", "step_size": 0.3, "dtype": "float64", "seed": 2, "shuffle": False}


def flat(rows: list[Any]) -> Any:
    return np.concatenate(rows)


def weights_equal(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for name, layer in expected.items():
        for key, array in layer.items():
            np.testing.assert_allclose(found[name][key], array, rtol=tolerance, atol=tolerance)


def test_a_labelled_step_counts_as_a_row() -> None:
    """Layers that take each step by itself train as on the steps as rows, each with the weight of its row."""
    ours = training.fit(
        Network(DENSE, (None, 2)), (X, CLASSES, WEIGHTS), loss="softmax_cross_entropy", batch_size=12, epochs=3, **SAME
    )
    known, weights = ~np.isnan(flat(CLASSES)), np.repeat(WEIGHTS, LENGTHS)
    steps = flat(X)[known], flat(CLASSES)[known], weights[known]
    rows = training.fit(
        Network(DENSE, (2,)), steps, loss="softmax_cross_entropy", batch_size=len(steps[1]), epochs=3, **SAME
    )
    weights_equal(ours.weights, rows.weights)
    for own, expected in zip(ours.history, rows.history, strict=True):
        assert (own.loss, own.metric) == pytest.approx((expected.loss, expected.metric), rel=1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_rows_of_which_no_step_has_a_label_are_refused(which: int) -> None:
    """Neither those to train on nor those to validate on; a row of weight 0 does not count, whatever its labels."""
    unlabelled = [np.full(len(labels), np.nan) for labels in CLASSES]
    unlabelled[4], weights = CLASSES[4], WEIGHTS * (np.arange(len(WEIGHTS)) != 4)
    parts = [(X, CLASSES, WEIGHTS), (X, CLASSES, WEIGHTS)]
    parts[which] = (X, unlabelled, weights)
    with pytest.raises(ValueError, match="All (validation )?rows weigh 0 or have no label; give at least one row"):
        training.fit(Network(DENSE, (None, 2)), parts[0], validation=parts[1], epochs=1)


@pytest.mark.parametrize(
    "loss, labels, outputs",
    [("softmax_cross_entropy", CLASSES, 3), ("squared_error", NUMBERS, 2)],
    ids=["classes", "numbers"],
)
@pytest.mark.parametrize("devices", [3])
def test_workers_together_compute_what_one_does(loss: str, labels: Any, outputs: int, devices: int) -> None:
    """Uneven shares and buckets of lengths; the mean is that over the labelled steps of all workers."""
    network = Network([Lstm(3), Dense(outputs)], (None, 2))
    given = dict(SAME, loss=loss, epochs=2, batch_size=12, length_buckets=2)  # all rows a step, whoever has them
    alone = training.fit(network, (X, labels, WEIGHTS), validation=(X[3:], labels[3:]), **given)
    together = training.fit(network, (X, labels, WEIGHTS), validation=(X[3:], labels[3:]), devices=devices, **given)
    weights_equal(together.weights, alone.weights)
    for own, expected in zip(together.history, alone.history, strict=True):
        for name in ("loss", "metric", "validation_loss", "validation_metric"):
            assert getattr(own, name) == pytest.approx(getattr(expected, name), rel=1e-12)


def test_padding_changes_nothing() -> None:
    """Neither what padding holds nor how much of it there is, of features and of labels."""
    network = Network([Lstm(3), Dense(3)], (None, 2))
    padded = np.full((len(X), 11, 2), 1e6), np.full((len(X), 11), 2.0)
    for row, (x, labels) in enumerate(zip(X, CLASSES, strict=True)):
        padded[0][row, : len(x)], padded[1][row, : len(x)] = x, labels
    given = dict(SAME, loss="softmax_cross_entropy", epochs=2, batch_size=5)
    ragged = tuple(Ragged(values, np.array(LENGTHS)) for values in padded)
    weights_equal(
        training.fit(network, ragged, **given).weights, training.fit(network, (X, CLASSES), **given).weights, 0
    )


def test_one_output_a_row_and_one_a_step() -> None:
    """Each output's mean is over its own labels: of rows the one, of steps the other."""
    graph = Graph(
        inputs={"series": (None, 2)},
        nodes={
            "seen": (Lstm(3), "series"),
            "each": (Dense(3), "seen"),
            "last": (LastStep(), "seen"),
            "whole": (Dense(1), "last"),
        },
        outputs=("each", "whole"),
    )
    whole = RANDOM.normal(size=len(X))
    whole[4] = np.nan
    data = {"series": X}, {"each": CLASSES, "whole": whole}, WEIGHTS
    loss = {"each": "softmax_cross_entropy", "whole": "squared_error"}
    given = dict(SAME, loss=loss, loss_weights={"whole": 0.5}, epochs=2, batch_size=12)
    alone, three = training.fit(graph, data, **given), training.fit(graph, data, devices=3, **given)
    weights_equal(three.weights, alone.weights)
    only = training.fit(
        graph.up_to("each"),
        ({"series": X}, CLASSES, WEIGHTS),
        initial=alone.weights,
        **dict(given, loss="softmax_cross_entropy", loss_weights=None, epochs=1, step_size=1e-300),
    )
    after = training.fit(graph, data, initial=alone.weights, **dict(given, epochs=1, step_size=1e-300))
    assert after.history[0].outputs["each"]["loss"] == pytest.approx(only.history[0].loss, rel=1e-12)


def test_an_lstm_learns_to_tell_what_it_saw_a_step_before() -> None:
    lengths = RANDOM.integers(3, 12, 200)
    x = [np.eye(3)[RANDOM.integers(0, 3, length)] for length in lengths]
    labels = [np.append(np.nan, row.argmax(axis=1)[:-1]) for row in x]
    result = training.fit(
        Network([Lstm(16), Dense(3)], (None, 3)),
        (x, labels),
        loss="softmax_cross_entropy",
        optimizer="adam",
        step_size=0.03,
        epochs=12,
        batch_size=32,
    )
    assert result.history[-1].metric > 0.98


@pytest.mark.parametrize(
    "labels, message",
    [
        (
            [row[:-1] if len(row) == 7 else row for row in CLASSES],
            "labels 'label' must hold one label for each step .* received 6 for 7 steps",
        ),
        ([row + 5 for row in CLASSES], "Labels must be whole numbers from 0 to 2"),
        (NUMBERS, "takes 3 labels a row"),
        (np.zeros(len(X)), "labels 'label' must be a list of lists or arrays"),
    ],
    ids=["fewer", "no classes", "too wide", "one a row"],
)
def test_labels_that_do_not_fit(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.fit(Network([Dense(3)], (None, 2)), (X, labels), loss="softmax_cross_entropy")


def test_a_loss_that_compares_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="InBatchSoftmax compares the rows of a batch"):
        Training(Network([Dense(4)], (None, 2)), loss="in_batch_softmax")
