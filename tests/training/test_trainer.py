"""`training.fit` learns, tells what it did and refuses what does not fit; nothing needs Spark or wakes JAX early."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.layers import (
    BatchNorm,
    Concatenate,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    HashedEmbedding,
    Layer,
    Parallel,
    Rescale,
    Tanh,
)
from sparkdl.training import EarlyStopping, Result, Training
from sparkdl.training.records import meter
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(23)
X, LABELS, WEIGHTS = RANDOM.normal(size=(50, 2)), RANDOM.integers(0, 3, 50), RANDOM.uniform(0, 2, 50)
NETWORK = Network([Dense(4, l2=0.3), Tanh(), Dense(3, l1=0.2)], input_shape=(2,))
LINEAR = Network([Dense(3)], input_shape=(2,))


def assert_same_weights(one: Result, other: Result, tolerance: float = 0.0) -> None:
    for (name, array), (_, expected) in zip(named_arrays(one.weights), named_arrays(other.weights), strict=True):
        np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance, err_msg=name)


@dataclass(frozen=True)
class Lookup(Layer):
    """A row of a table for each integer: x (batch, values) of int32, y (batch, values * width)."""

    width: int = 3
    size: int = 400

    takes_integers = True  # type: ignore[assignment]

    def init(self, key: Any, input_shape: tuple[int, ...]) -> Any:
        return {"table": jax.random.normal(key, (self.size, self.width))}

    def forward(self, weights: Any, x: Any) -> Any:
        return weights["table"][x].reshape(len(x), -1)


# What it learns


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_integers_stay_integers_whatever_layers_compute_in(dtype: str) -> None:
    """300 and 301, which bfloat16 rounds to one number, have rows of their own, and only rows that occur move."""
    numbers = np.array([[300], [301], [7]] * 8)
    network = Network([Lookup(), Dense(3)], input_shape=(1,))
    options = {"optimizer": "sgd", "step_size": 1.0, "epochs": 40, "batch_size": 24, "dtype": dtype}
    result = training.fit(network, (numbers, np.tile([0, 1, 2], 8)), **options)
    assert result.history[-1].metric == 1
    start = Training(network).network.init(0)["lookup_0"]["table"]
    moved = np.flatnonzero((result.weights["lookup_0"]["table"] != np.asarray(start)).any(axis=1))
    assert moved.tolist() == [7, 300, 301]


def test_a_table_trains_as_a_dense_layer_does_on_one_hot_rows() -> None:
    numbers, labels = RANDOM.integers(0, 6, 40), RANDOM.integers(0, 2, 40)
    looked, dense = (
        Network([first, Dense(2)], input_shape=shape)
        for first, shape in ((Lookup(4, 6), (1,)), (Dense(4, bias=False), (6,)))
    )
    table = {"table": RANDOM.normal(size=(6, 4))}, {"kernel": RANDOM.normal(size=(6, 4))}
    table[1]["kernel"] = table[0]["table"]
    head = {"kernel": RANDOM.normal(size=(4, 2)), "bias": np.zeros(2)}
    options = {"optimizer": "sgd", "step_size": 0.3, "epochs": 5, "batch_size": 16, "dtype": "float64"}
    one = training.fit(looked, (numbers[:, None], labels), initial={"lookup_0": table[0], "dense_1": head}, **options)
    rows = np.eye(6)[numbers]
    other = training.fit(dense, (rows, labels), initial={"dense_0": table[1], "dense_1": head}, **options)
    np.testing.assert_allclose(one.weights["lookup_0"]["table"], other.weights["dense_0"]["kernel"], atol=1e-12)
    assert abs(one.weights["lookup_0"]["table"] - table[0]["table"]).max() > 0.01


def test_what_reads_integers_is_refused_other_numbers_and_other_places() -> None:
    with pytest.raises(ValueError, match="takes 'features' as integers, received float64; cast it to int32"):
        training.fit(Network([Lookup(), Dense(3)], input_shape=(2,)), (X, LABELS))
    with pytest.raises(ValueError, match="Layer 'lookup_1' reads integers, which only a network's input holds"):
        Network([Dense(2), Lookup()], input_shape=(2,))
    with pytest.raises(ValueError, match="Layer 'lookup_0' reads integers"):
        Parallel([Lookup(), Dense(2)])


def test_integers_that_int32_does_not_hold_are_refused_and_not_wrapped() -> None:
    """2 ** 32 + 3 would have the row of 3."""
    for layer in (Embedding(5, 2, unknown=True), HashedEmbedding(5, 2)):
        network = Network([layer, Dense(3)], input_shape=())
        for numbers in (np.array([0, 2**32 + 3]), np.array([-(2**31) - 1, 2]), np.array([1, 2**63], "uint64")):
            with pytest.raises(ValueError, match=r"'features' must hold integers that int32 holds, received -?\d{10}"):
                training.fit(network, (numbers, [0, 1]))
        held = np.array([-(2**31), 2**31 - 1])
        assert training.fit(network, (held, [0, 1]), epochs=1).history


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X.astype(object), LABELS), "'features' must hold numbers, received object"),
        ((X.astype(str), LABELS), "'features' must hold numbers, received <U32"),
        ((X + 1j, LABELS), "'features' must hold numbers, received complex128"),
        ((X, [None] * len(X)), "labels 'label' must hold numbers, received object"),
        ((X, ["cat"] * len(X)), "labels 'label' must hold numbers, received <U3; number the classes from 0"),
    ],
)
def test_what_are_no_numbers_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.fit(LINEAR, data)


def test_features_and_labels_may_come_by_name() -> None:
    plain, named = (
        training.fit(LINEAR, rows, epochs=2)
        for rows in ((X, LABELS, WEIGHTS), ({"features": X}, {"label": LABELS}, WEIGHTS))
    )
    assert_same_weights(plain, named)
    with pytest.raises(ValueError, match="features must have the names 'features', received 'x'; name what the netw"):
        training.fit(LINEAR, ({"x": X}, LABELS))
    with pytest.raises(ValueError, match="labels must have the names 'label', received none"):
        training.fit(LINEAR, (X, {}))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_network_of_two_inputs_trains_as_one_of_both_in_one(devices: int) -> None:
    """Parts keep dtypes of their own: one is of pixels."""
    left, right = X.astype("float32"), RANDOM.integers(0, 256, (50, 1)).astype("uint8")
    layers = [Dense(4), Tanh(), Dense(3)]
    graph = Graph(
        {"left": (2,), "right": (1,)}, {"both": (Concatenate(), "left", "right"), "y": (Network(layers), "both")}, "y"
    )
    data = ({"left": left, "right": right}, LABELS, WEIGHTS), (np.concatenate([left, right], axis=1), LABELS, WEIGHTS)
    options = {"epochs": 3, "batch_size": 8, "devices": devices}
    chain = Network(layers, input_shape=(3,))
    start = chain.init(0)
    one = training.fit(graph, data[0], validation=data[0], initial={"y": start}, **options)
    other = training.fit(chain, data[1], validation=data[1], initial=start, **options)
    one = replace(one, weights=one.weights["y"])
    assert_same_weights(one, other)
    assert [epoch[:4] for epoch in one.history] == [epoch[:4] for epoch in other.history]


def test_a_disk_is_told_from_the_ring_around_it() -> None:
    """No linear score is right on more than about two thirds of these points."""
    points = RANDOM.uniform(-1, 1, size=(600, 2)).astype("float32")
    inside = (points**2).sum(axis=1) < 2 / np.pi
    network = Network([Dense(16), Tanh(), Dense(2)], input_shape=(2,))
    options = {"optimizer": "adam", "step_size": 0.03, "batch_size": 32, "epochs": 30}
    result = training.fit(network, (points[:400], inside[:400]), validation=(points[400:], inside[400:]), **options)
    assert result.history[-1].metric > 0.95
    assert result.history[-1].validation_metric > 0.93
    assert result.history[0].loss > 4 * result.history[-1].loss


def test_bfloat16_learns_as_well_and_keeps_weights_in_float32() -> None:
    points = RANDOM.uniform(-1, 1, size=(600, 2)).astype("float32")
    inside = (points**2).sum(axis=1) < 2 / np.pi
    network = Network([Dense(16), Tanh(), Dense(2)], input_shape=(2,))
    options = {"optimizer": "adam", "step_size": 0.03, "batch_size": 32, "epochs": 30}
    narrow, wide = (
        training.fit(network, (points, inside), dtype=dtype, **options) for dtype in ("bfloat16", "float32")
    )
    assert narrow.history[-1].metric == pytest.approx(wide.history[-1].metric, abs=0.02)
    assert narrow.history[0].loss == pytest.approx(wide.history[0].loss, rel=0.02)
    assert narrow.history[0].loss != wide.history[0].loss
    assert {str(array.dtype) for _, array in named_arrays(narrow.weights)} == {"float32"}


def test_updates_too_small_for_bfloat16_add_up() -> None:
    """1,000 steps of 2^-10 away from 1, each of them lost in 8 bits."""
    network = Network([Dense(1, kernel_initializer="ones", bias=False)], input_shape=(1,))
    options = {"loss": "absolute_error", "batch_size": 1, "epochs": 1, "step_size": 2.0**-10, "dtype": "bfloat16"}
    result = training.fit(network, (np.ones((1000, 1)), np.full((1000, 1), 4.0)), **options)
    assert result.weights["dense_0"]["kernel"][0, 0] == pytest.approx(1 + 1000 / 1024, rel=1e-6)


def test_a_linear_network_finds_the_least_squares_solution() -> None:
    """Of several outputs, to the last digits, though the labels are noisy."""
    labels = X @ [[1, -2, 0.5], [0, 3, 1]] + [1, 2, 3] + RANDOM.normal(size=(50, 3))
    options = {"loss": "squared_error", "step_size": 0.2, "batch_size": 50, "epochs": 200, "dtype": "float64"}
    weights = training.fit(LINEAR, (X, labels), **options).weights["dense_0"]
    solution = np.linalg.lstsq(np.column_stack([X, np.ones(50)]), labels, rcond=None)[0]
    np.testing.assert_allclose(np.vstack([weights["kernel"], weights["bias"]]), solution, rtol=1e-9)


@pytest.mark.parametrize("devices", [2, 3])
def test_devices_share_every_batch_and_change_nothing(devices: int) -> None:
    options = {"batch_size": 50, "epochs": 3, "step_size": 0.1, "dtype": "float64"}
    data = (X, LABELS, WEIGHTS)
    one, many = (training.fit(NETWORK, data, validation=data, devices=count, **options) for count in (1, devices))
    assert_same_weights(one, many, 1e-13)
    for first, second in zip(one.history, many.history, strict=True):
        assert first[:5] == pytest.approx(second[:5], rel=1e-12)


@pytest.mark.parametrize(
    "labels",
    [LABELS.astype(dtype) for dtype in ("uint8", "int32", "float32", "float64")] + [np.eye(3)[LABELS], LABELS.tolist()],
    ids=["uint8", "int32", "float32", "float64", "one-hot", "list"],
)
def test_classes_may_come_as_any_numbers_or_one_hot(labels: Any) -> None:
    assert_same_weights(
        training.fit(NETWORK, (X, labels), epochs=2), training.fit(NETWORK, (X, LABELS), epochs=2), 1e-6
    )


def test_images_of_bytes_train_as_the_numbers_they_are() -> None:
    images = RANDOM.integers(0, 256, size=(50, 4, 4, 1)).astype("uint8")
    network = Network([Rescale(1 / 255), Flatten(), Dense(3)], input_shape=(4, 4, 1))
    results = [training.fit(network, (images.astype(dtype), LABELS), epochs=2) for dtype in ("uint8", "float64")]
    assert_same_weights(*results)


# What it tells


def scores(weights: Any) -> np.ndarray:
    return (
        np.tanh(X @ weights["dense_0"]["kernel"] + weights["dense_0"]["bias"]) @ weights["dense_2"]["kernel"]
        + (weights["dense_2"]["bias"])
    )


def loss_and_accuracy(weights: Any, rows: slice) -> tuple[float, float]:
    """The weighted mean cross-entropy of some rows with the penalties, and their accuracy."""
    outputs, labels = scores(weights)[rows], LABELS[rows]
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(labels)), labels]
    penalty = 0.3 / 2 * (weights["dense_0"]["kernel"] ** 2).sum() + 0.2 * np.abs(weights["dense_2"]["kernel"]).sum()
    right = outputs.argmax(axis=1) == labels
    return np.average(losses, weights=WEIGHTS[rows]) + penalty, np.average(right, weights=WEIGHTS[rows])


def test_history_holds_the_objective_and_the_metric_of_every_row() -> None:
    """A step too small to change the weights makes the figures those of the initial weights."""
    learned, held_out = ((X[rows], LABELS[rows], WEIGHTS[rows]) for rows in (slice(31), slice(31, 50)))
    options = {"step_size": 1e-30, "epochs": 2, "batch_size": 8, "dtype": "float64", "seed": 4}
    result = training.fit(NETWORK, learned, validation=held_out, **options)
    expected = loss_and_accuracy(result.weights, slice(31)) + loss_and_accuracy(result.weights, slice(31, 50))
    for epoch in result.history:
        assert epoch[:4] == pytest.approx(expected, rel=1e-12)
        assert epoch.rows == 31
        assert epoch.seconds > 0 and epoch.validation_seconds > 0
    assert result.seconds > result.compile_seconds > 0


def test_validation_is_of_the_weights_after_the_epoch_and_changes_none() -> None:
    network = replace(NETWORK, layers=[NETWORK.layers[0], Tanh(), NETWORK.layers[2], Dropout(0.5)])
    options = {"step_size": 0.1, "epochs": 1, "batch_size": 8, "dtype": "float64"}
    result = training.fit(network, (X, LABELS, WEIGHTS), validation=(X, LABELS, WEIGHTS), **options)
    epoch = result.history[0]
    expected = loss_and_accuracy(result.weights, slice(50))
    assert (epoch.validation_loss, epoch.validation_metric) == pytest.approx(expected, rel=1e-12)
    without = training.fit(network, (X, LABELS, WEIGHTS), **options)
    assert without.history[0][2:4] == (None, None)
    assert_same_weights(result, without)


def test_no_epochs_give_the_initial_weights() -> None:
    result = training.fit(NETWORK, (X, LABELS), epochs=0, seed=9)
    assert result.history == []
    weights, expected = dict(named_arrays(result.weights)), dict(named_arrays(NETWORK.init(9)))
    assert weights.keys() == expected.keys()
    for name, array in weights.items():
        assert isinstance(array, np.ndarray)
        np.testing.assert_allclose(array, expected[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("tol", "step_size", "epochs"), [(0.0, 1e-30, 5), (1e-6, 1e-30, 2), (1e-6, 0.01, 5), (0.9, 0.01, 2)]
)
def test_training_stops_when_an_epoch_gains_less_than_tol(tol: float, step_size: float, epochs: int) -> None:
    result = training.fit(NETWORK, (X, LABELS), tol=tol, step_size=step_size, epochs=5, dtype="float64")
    assert len(result.history) == epochs


def test_progress_is_reported_from_the_first_batch_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "REPORT_SECONDS", 0)
    messages: list[dict[str, Any]] = []
    result = training.fit(NETWORK, (X, LABELS), epochs=2, batch_size=10, report=messages.append)
    keys = {"epoch", "epochs", "rows", "total_rows", "loss", "metric", "seconds"}
    assert [message["rows"] for message in messages] == [10, 20, 30, 40, 50, 50] * 2
    for number, message in enumerate(messages):
        assert message.keys() - {"history"} == keys
        assert (message["epoch"], message["epochs"], message["total_rows"]) == (number // 6, 2, 50)
    ends = [message for message in messages if "history" in message]
    assert [end["history"] for end in ends] == [epoch._asdict() for epoch in result.history]
    assert [(end["loss"], end["metric"]) for end in ends] == [epoch[:2] for epoch in result.history]


# What it refuses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs must be at least 0, received -1"),
        ({"epochs": 1.0}, "epochs must be an integer, received 1.0"),
        ({"epochs": True}, "epochs must be an integer, received True"),
        ({"batch_size": 0}, "batch_size must be at least 1, received 0"),
        ({"seed": -1}, "seed must be at least 0, received -1"),
        ({"seed": 2**64}, "seed must be at least 0 and at most 9223372036854775807, received 1844"),
        ({"batch_size": 10**20}, "batch_size must be at least 1 and at most 2147483647, received 1000"),
        ({"step_size": 0.0}, "step_size of Training must be a number in \\(0, inf\\), received 0.0"),
        ({"step_size": float("inf")}, "step_size of Training must be a number in"),
        ({"step_size": "fast"}, "step_size of Training must be a number in .*received 'fast'"),
        ({"tol": -0.1}, "tol of Training must be a number in \\[0, inf\\), received -0.1"),
        ({"tol": float("nan")}, "tol of Training must be a number in"),
        ({"dtype": "float16"}, "dtype must be one of float32, bfloat16, float64, received 'float16'"),
        ({"optimizer": "adamm"}, "Optimizer is expected, received 'adamm'; choose one of .*Adam"),
        ({"loss": "adam"}, "Loss is expected, received 'adam'"),
        ({"exchange": "gossip"}, "Exchange is expected, received 'gossip'; choose one of AllReduce"),
        ({"network": "LeNet"}, "Network is expected, received 'LeNet'"),
        ({"network": Network([Dense(3)])}, "input_shape of Network is not set"),
        ({"network": Network([Dense(1)], input_shape=(2,))}, "with at least 2 classes, this one ends in"),
    ],
)
def test_training_says_which_setting_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**{"network": NETWORK} | options)


NO_ROWS = (X[:0], LABELS[:0])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (NO_ROWS, {}, "There are no rows to train on; check the data"),
        ((X, LABELS, np.zeros(50)), {}, "All rows weigh 0 or have no label; give at least one row"),
        ((X, LABELS, np.full(50, 1e-50)), {}, "All rows weigh 0 or have no label; give at least one row"),
        ((X, LABELS, np.full(50, 1e39)), {}, "Weights must be numbers that float32 holds, received 1e[+]39; scale"),
        ((X, LABELS), {"validation": (X, LABELS, np.zeros(50))}, "All validation rows weigh 0 or have no label; give"),
        ((X, LABELS, -WEIGHTS), {}, "weights must be finite and at least 0"),
        ((X[:, :1], LABELS), {}, r"takes rows of shape \(2,\) as 'features', received \(1,\); reshape"),
        ((X, LABELS[:9]), {}, "one entry a row, received 50, 9 and 50"),
        ((X, LABELS, WEIGHTS[:, None]), {}, r"weights must have shape \(n,\), one number a row, received \(50, 1\)"),
        ((X,), {}, r"The rows must be a tuple \(features, labels\) or \(features, labels, weights\), received 1 of"),
        (X[:2], {}, "The rows must be a tuple .*, received ndarray"),
        (
            (X, LABELS),
            {"validation": (X, LABELS, WEIGHTS, WEIGHTS)},
            "The validation rows must be a tuple .* received 4",
        ),
        ((X, LABELS + 1), {}, "whole numbers from 0 to 2, .*received 3"),
        ((X, LABELS + 0.5), {}, "whole numbers from 0 to 2"),
        ((X, np.full(50, 1.0000001)), {}, "whole numbers from 0 to 2, .*received 1.0000001; index"),
        ((X, X), {}, "takes 3 labels a row, since the network has 3 outputs, received 2"),
        ((X, LABELS), {"loss": "squared_error"}, "takes 3 labels a row, .*received 1"),
        ((X, LABELS), {"validation": (X, LABELS + 1)}, "whole numbers from 0 to 2"),
        ((X, LABELS), {"devices": 0}, "devices must be an integer from 1 to the 3 there are, received 0"),
        ((X, LABELS), {"devices": "2"}, "devices must be an integer from 1 to the 3 there are, received '2'"),
        ((X, LABELS), {"devices": 4}, "devices must be an integer from 1 to the 3 there are, received 4"),
    ],
)
def test_fit_says_what_is_wrong_with_the_rows(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.fit(NETWORK, data, **{"epochs": 1} | options)


def test_labels_must_be_numbers_that_training_can_hold() -> None:
    network, labels = Network([Dense(1)], input_shape=(2,)), np.where(np.arange(len(X)) == 7, 1e300, 1.0)
    with pytest.raises(ValueError, match="Labels must be numbers that float32 holds, received 1e[+]300; scale"):
        training.fit(network, (X, labels), loss="squared_error", epochs=1)
    result = training.fit(network, (X, labels), loss="absolute_error", epochs=1, dtype="float64")
    assert math.isfinite(result.history[0].loss)


def test_labels_that_lose_digits_are_named() -> None:
    """Seconds since 1970: float32 has 24 bits for 31."""
    network, seconds = Network([Dense(1)], input_shape=(2,)), 1_700_000_001 + 60.0 * np.arange(50)
    options: dict[str, Any] = {"loss": "absolute_error", "epochs": 1}
    assert training.fit(network, (X, seconds), **options).notes == [
        "Labels hold 1700000001, which float32 keeps as 1700000000; subtract a start from them and scale them, or set "
        "dtype to float64."
    ]
    assert training.fit(network, (X, seconds), dtype="float64", **options).notes == []
    assert training.fit(network, (X, seconds / 1e9), **options).notes == []


@pytest.mark.parametrize("fill", [1e20, 9.97e36, math.inf, math.nan])
@pytest.mark.parametrize("devices", [1, 3])
def test_a_row_of_weight_0_is_as_if_it_held_nothing(fill: float, devices: int) -> None:
    """As where missing measurements stand as NetCDF's 9.97e36: in training and in validation."""
    network = Network([Dense(4), BatchNorm(), Tanh(), Dense(2)], input_shape=(2,))
    labels, rows = RANDOM.normal(size=(50, 2)), RANDOM.permutation(50)[:9]
    weights = np.where(np.isin(np.arange(50), rows), 0.0, WEIGHTS)
    results = []
    for number in (0.0, fill):
        features, targets = X.copy(), labels.copy()
        features[rows], targets[rows] = number, number if math.isfinite(number) else 0.0
        data = (features, targets, weights)
        options = {"loss": "squared_error", "batch_size": 10, "epochs": 2, "devices": devices}
        results.append(training.fit(network, data, validation=data, **options))
    assert_same_weights(*results)
    assert [epoch[:4] for epoch in results[0].history] == [epoch[:4] for epoch in results[1].history]
    assert math.isfinite(results[1].history[1].validation_loss or math.nan)


def test_an_epoch_cut_short_before_any_row_that_weighs_is_no_error() -> None:
    weights, late = np.where(np.arange(50) < 40, 0.0, 1.0), EarlyStopping("loss", None, max_seconds=1e-9)
    result = training.fit(NETWORK, (X, LABELS, weights), batch_size=10, shuffle=False, early_stopping=late)
    assert result.stop_reason.startswith("max_seconds") and math.isnan(result.history[0].loss)


def test_no_validation_rows_are_no_validation() -> None:
    assert training.fit(NETWORK, (X, LABELS), validation=NO_ROWS, epochs=1).history[0][2:4] == (None, None)


# What it leaves alone


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def test_layers_and_training_import_no_pyspark() -> None:
    modules = "sparkdl, sparkdl.layers, sparkdl.launch.child, sparkdl.training.worker, sparkdl.datasets"
    done = python(f"import sys, {modules}; print('sparkdl.training.trainer' in sys.modules, 'pyspark' in sys.modules)")
    assert done.stdout.split() == ["True", "False"], done.stderr


BUILD = """
from sparkdl import Network
from sparkdl.layers import *
layers = [RandomFlip(), Conv(3, (3, 3)), BatchNorm(), Relu(), MaxPool((2, 2)), Dropout(0.5), Flatten(), Dense(2)]
network = Network(layers, input_shape=(8, 8, 1))
"""


@pytest.mark.parametrize(
    ("code", "starts"),
    [
        ("import jax; jax.devices()", True),  # else the others could not fail
        (BUILD + "network.init(0)", True),
        (BUILD + "Network.from_json(network.to_json()).summary()", False),
        (BUILD + "from sparkdl.training import Training; Training(network, optimizer='adam')", False),
        ("import sparkdl.spark, sparkdl.training.worker, sparkdl.launch.child", False),
        (BUILD + "from sparkdl import DeepClassifier; DeepClassifier(network=network, stepSize=0.1)", False),
    ],
)
def test_no_jax_backend_starts_before_it_must(code: str, starts: bool) -> None:
    """A platform that does not exist makes any start fail."""
    done = python(code, JAX_PLATFORMS="nowhere")
    assert ("nowhere" in done.stderr) == starts
    assert (done.returncode != 0) == starts, done.stderr
