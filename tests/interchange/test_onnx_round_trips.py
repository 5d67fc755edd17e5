"""What is written as ONNX is read again: networks of the same layers' arithmetic, which train on."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from onnx_peer import assert_same, random_weights, rows_of
from test_onnx_networks import READY
from test_onnx_out import FIRSTS, Row, network_of

from sparkdl import Graph, Network, training
from sparkdl.base_network import BaseNetwork
from sparkdl.interchange import load_onnx, save_onnx
from sparkdl.layers import (
    BatchNorm,
    Concatenate,
    Conv,
    Dense,
    DepthwiseConv,
    Dropout,
    Embedding,
    GlobalAvgPool,
    LastStep,
    Lstm,
    MaxPool,
    Relu,
    Residual,
)
from sparkdl.layers.activation import Activation
from sparkdl.layers.ragged import Ragged, values_of
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

LENGTHS = (4, 1, 2)
# What is written of these is told by operators that no layer is known for.
APART = {
    "AttentionPool",
    "Bucketize",
    "CapsuleStrength",
    "Capsules",
    "DotInteractions",
    "EachStep",
    "LearnedSelfAttention",
    "LocallyConnected",
    "MaskedEmbedding",
    "Masking",
    "MultiHeadAttention",  # of fewer heads of keys, and that are turned
    "PrimaryCapsules",
    "Prototypes",
    "RecurrentAttention",
    "RepeatStep",
    "Squash",
    "Standardize",
}
ROWS = [row for row in FIRSTS if type(row.layer).__name__ not in APART]
ACTIVATIONS = [row.layer for row in FIRSTS if isinstance(row.layer, Activation)]
PARTED = [row for row in FIRSTS if type(row.layer).__name__ in APART]
NETWORKS = (
    "bert",
    "forecaster",
    "ft_transformer",
    "gpt2",
    "lstm_classifier both ways",
    "mobilenet_v2",
    "resnet of bottlenecks",
    "tcn",
    "transformer_classifier",
    "two_tower",
    "unet, valid",
    "vgg16",
    "vit",
    "wide_and_deep",
)


def check(network: BaseNetwork, path: Path) -> BaseNetwork:
    """The network that comes of the file, after it has computed the same."""
    weights, rows = random_weights(network), rows_of(network, LENGTHS)
    save_onnx(path, network, weights)
    found, own = load_onnx(path)
    assert [*found.input_shapes.values()] == [*network.input_shapes.values()]
    wanted, given = network.forward(weights, rows.x), found.forward(own, rows.x)
    pairs = zip(*(y if isinstance(y, tuple) else (y,) for y in (given, wanted)), strict=True)
    for one, other in pairs:
        assert isinstance(one, Ragged) is isinstance(other, Ragged)
        assert_same(np.asarray(values_of(one)), other)
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.layer}-{row.shape}") for row in ROWS])
def test_a_layer_comes_back_as_layers_that_compute_the_same(row: Row, tmp_path: Path) -> None:
    check(network_of(row), tmp_path / "a.onnx")


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("layer", ACTIVATIONS, ids=repr)
def test_an_activation_comes_back_as_itself(layer: Activation, opset: int, tmp_path: Path) -> None:
    network = Network([layer], input_shape=(3, 4))
    save_onnx(tmp_path / "a.onnx", network, network.init(0), opset)
    (found,) = (child.layer for child in load_onnx(tmp_path / "a.onnx").network.children)
    numbers = {one.name: pytest.approx(getattr(layer, one.name)) for one in fields(layer) if one.name != "name"}
    assert (type(found), {one: getattr(found, one) for one in numbers}) == (type(layer), numbers)


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.layer}-{row.shape}") for row in PARTED])
def test_others_are_refused_in_a_sentence(row: Row, tmp_path: Path) -> None:
    network = network_of(row)
    save_onnx(tmp_path / "a.onnx", network, random_weights(network))
    with pytest.raises(ValueError, match=r"a\.onnx' cannot be imported: it"):
        load_onnx(tmp_path / "a.onnx")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_ready_network_comes_back(name: str, tmp_path: Path) -> None:
    check(READY[name], tmp_path / "a.onnx")


QUICK = {
    "images": Network(
        [
            Conv(4, (3, 3), 2, ((1, 1), (1, 1)), bias=False, name="conv1"),
            BatchNorm(),
            Relu(),
            MaxPool(2),
            Residual([DepthwiseConv((3, 3), padding="same"), Relu(), Conv(4, (1, 1))]),
            GlobalAvgPool(),
            Dropout(0.5),
            Dense(3),
        ],
        input_shape=(8, 10, 3),
    ),
    "series": Network([Lstm(4), LastStep(), Dense(2)], input_shape=(None, 3)),
    "two inputs": Graph(
        {"city": (), "facts": (4,)},
        {
            "place": (Embedding(5, 3), "city"),
            "both": (Concatenate(), "place", "facts"),
            "kind": (Dense(3), "both"),
            "price": (Dense(1), "both"),
        },
        ("kind", "price"),
    ),
}


@pytest.mark.parametrize("name", QUICK)
def test_networks_of_each_sort_come_back(name: str, tmp_path: Path) -> None:
    network, found = QUICK[name], check(QUICK[name], tmp_path / "a.onnx")
    if name != "images":  # in which Residual is cut up, and Dropout left out
        kept = [child.name for child in network.children]
        assert [child.name for child in found.children] == kept
        assert found.output_names == network.output_names


def test_it_trains_on_as_the_network_would_that_was_written(tmp_path: Path) -> None:
    network = QUICK["series"]
    weights, rows = network.init(0), rows_of(network, LENGTHS)
    save_onnx(tmp_path / "a.onnx", network, weights)
    found, own = load_onnx(tmp_path / "a.onnx")
    labels, given = np.arange(len(LENGTHS), dtype="int32") % 2, {"epochs": 1, "batch_size": 3, "optimizer": "sgd"}
    x = [row[:length] for row, length in zip(rows.x.values, LENGTHS, strict=True)]
    results = [
        training.fit(net, (x, labels), initial=start, **given) for net, start in ((network, weights), (found, own))
    ]
    one, other = (result.weights for result in results)
    assert one.keys() == other.keys()
    for (path, array), (_, wanted) in zip(named_arrays(other), named_arrays(one), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-6, err_msg=path)
