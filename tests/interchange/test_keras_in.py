"""A model that Keras saved puts out here what it puts out there, layer by layer and as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras_peer
import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.interchange import load_keras
from sparkdl.interchange.imported import Imported
from sparkdl.layers import Ragged
from sparkdl.layers.ragged import as_ragged
from sparkdl.network import named_arrays
from sparkdl.specs import Spec

pytest.importorskip("h5py")
pytest.importorskip("keras")
pytestmark = pytest.mark.usefixtures("unoptimized")

ROWS = [(table, name) for table, models in keras_peer.TABLES.items() for name in models]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The folder that Keras has written a table's models to, by the table; a process, as it reads its settings once."""

    @cache
    def folder(table: str) -> Path:
        path = tmp_path_factory.mktemp(table)
        command = [sys.executable, keras_peer.__file__, str(path), table]
        environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        return path

    yield folder


def put_out(model: Imported, x: list[np.ndarray]) -> list[np.ndarray]:
    """All outputs, each row being of any length where the network takes such."""
    rows: list[Any] = [jnp.asarray(array.astype("int32") if array.dtype.kind == "i" else array) for array in x]
    shapes = model.network.input_shapes.values()
    rows = [as_ragged(array) if None in shape else array for array, shape in zip(rows, shapes, strict=True)]
    y = model.network.forward(model.weights, tuple(rows) if len(rows) > 1 else rows[0])
    return [np.asarray(one.values if isinstance(one, Ragged) else one) for one in (y if isinstance(y, tuple) else (y,))]


@pytest.mark.parametrize(("table", "name"), ROWS, ids=[f"{table} {name}" for table, name in ROWS])
def test_outputs_are_those_of_keras(table: str, name: str, peer: Any) -> None:
    model = load_keras(peer(table) / f"{name}.keras")
    with np.load(peer(table) / f"{name}.npz") as arrays:
        found = put_out(model, [arrays[x] for x in arrays if x.startswith("x")])
        wanted = [arrays[y] for y in arrays if y.startswith("y")]
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * abs(other).max())
    assert Spec.from_json(model.network.to_json()) == model.network
    if name in keras_peer.NO_H5:
        return
    older = load_keras(peer(table) / f"{name}.h5")
    assert older.network == model.network
    for (path, array), (_, same) in zip(named_arrays(model.weights), named_arrays(older.weights), strict=True):
        np.testing.assert_array_equal(array, same, err_msg=path)


def test_layers_in_a_row_are_a_network_that_ends_in_raw_scores_where_one_likes(peer: Any) -> None:
    network, weights = load_keras(peer("models") / "row_of_layers.keras")
    assert isinstance(network, Network)
    assert network.names == ("conv", "conv_relu", "flat", "predictions", "predictions_softmax")
    rows = np.random.default_rng(0).normal(size=(5, *keras_peer.IMAGE)).astype("float32")
    scores = network.up_to("predictions").forward(weights, jnp.asarray(rows))
    exponents = np.exp(np.asarray(scores, "float64"))
    found = network.forward(weights, jnp.asarray(rows))
    np.testing.assert_allclose(found, exponents / exponents.sum(1, keepdims=True), rtol=1e-5)


def test_a_fit_starts_from_the_weights(peer: Any) -> None:
    network, weights = load_keras(peer("models") / "row_of_layers.keras")
    assert isinstance(network, Network)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, *keras_peer.IMAGE)).astype("float32"), rng.integers(0, 3, 30)
    scores = network.up_to("predictions")
    options: dict[str, Any] = {"loss": "softmax_cross_entropy", "epochs": 1, "batch_size": 30, "initial": weights}
    still = training.fit(scores, rows, step_size=1e-30, **options)
    for (path, array), (_, same) in zip(named_arrays(weights), named_arrays(still.weights), strict=True):
        np.testing.assert_array_equal(array, same, err_msg=path)
    probabilities = np.asarray(network.forward(weights, jnp.asarray(rows[0])), "float64")
    wanted = -np.log(probabilities[np.arange(30), rows[1]]).mean()
    assert still.history[0].loss == pytest.approx(wanted, rel=1e-5)


def test_names_and_shared_layers_stay(peer: Any) -> None:
    network, _ = load_keras(peer("models") / "shared.keras")
    assert isinstance(network, Graph)
    assert network.input_shapes == {"one": (4,), "two_5": (4,)}
    assert network.output_names == ("sum",)
    owners = {child.name: child.key for child in network.children}
    assert owners["shared_dense_1"] == owners["shared_dense_2"] == "shared_dense"


def test_frozen_layers_stay_frozen(peer: Any) -> None:
    network, weights = load_keras(peer("models") / "nested.keras")
    learned = {path for path, _ in named_arrays(network.learned(weights))}
    everything = {path for path, _ in named_arrays(weights)}
    assert {path.split("/")[-1] for path in everything - learned} == {"kernel", "bias", "mean", "variance"}
    assert len([path for path in everything - learned if path.endswith("/kernel")]) == 1


def test_recurrent_layers_that_are_frozen_within_a_bidirectional_one_stay_frozen(peer: Any) -> None:
    network, weights = load_keras(peer("layers") / "bidirectional frozen within.keras")
    assert {path.split("/")[0] for path, _ in named_arrays(network.learned(weights))} == {"head"}


def test_what_a_normalization_has_learned_is_known_to_fresh_weights(peer: Any) -> None:
    network, weights = load_keras(peer("layers") / "normalization learned.keras")
    fresh = network.init(0)["columns"]
    for name, array in weights["columns"].items():
        np.testing.assert_allclose(fresh[name], array, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("masked_steps", "Output 'label' of the network is for each step, while those that are masked are left out"),
        ("masked_by_another", r"Layer 'lstm' \(LSTM\) is called with mask, for which there is no counterpart here"),
        ("masked_and_more", r"Layer 'conv1d' \(Conv1D\) heeds no mask in Keras, while here the steps that are masked"),
    ],
)
def test_masks_may_be_left_out_for_rows_without_padding(name: str, told: str, peer: Any) -> None:
    path = peer("unmasked") / f"{name}.keras"
    with pytest.raises(ValueError, match=told):
        load_keras(path)
    with np.load(path.with_suffix(".npz")) as arrays:
        (found,) = put_out(load_keras(path, masks=False), [arrays["x0"]])
        assert (arrays["x0"] == 0).any()  # which Keras has masked, and which no layer behind heeds
        np.testing.assert_allclose(found, arrays["y0"], rtol=0, atol=1e-5)
