"""What the functions of ready networks take beside their own arguments: weights, frozen layers, prepared images."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sparkdl import Graph, Network, models
from sparkdl.interchange import save_weights
from sparkdl.interchange.imported import Imported
from sparkdl.models.pretrained import PREPARATIONS
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

OF_COLUMNS = {"embedded", "normalization", "tabular", "vocabulary"}  # their networks come of what is given
READY = sorted(name for name, value in vars(models).items() if inspect.isfunction(value) and name not in OF_COLUMNS)
SMALL = {"blocks": (2, 1), "filters": 4}  # a residual network


def weights_of(network: Network | Graph, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda array: draw.uniform(0.1, 1, array.shape).astype("float32"), network.abstract_weights())


@pytest.mark.parametrize("name", READY)
def test_every_ready_network_takes_them(name: str) -> None:
    parameters = inspect.signature(getattr(models, name)).parameters
    added = list(parameters)[-5:]
    assert added == ["weights", "names", "seed", "frozen_until", "preprocess"]
    assert all(parameters[each].kind is inspect.Parameter.KEYWORD_ONLY for each in added)


@pytest.fixture
def file(tmp_path: Path) -> tuple[Path, Any]:
    """A residual network's weights for 10 classes by torchvision's names, and these weights."""
    network = models.resnet((16, 16, 3), 10, **SMALL)
    weights = weights_of(network)
    save_weights(tmp_path / "a.safetensors", weights, network, "torchvision")
    return tmp_path / "a.safetensors", weights


def test_weights_come_with_the_network_and_other_classes_start_afresh(file: tuple[Path, Any]) -> None:
    path, weights = file
    started = models.resnet((16, 16, 3), 10, **SMALL, weights=path)
    assert isinstance(started, Imported)
    assert started.network == models.resnet((16, 16, 3), 10, **SMALL)
    assert [name for name, _ in named_arrays(started.weights)] == [name for name, _ in named_arrays(weights)]
    network, others = models.resnet((16, 16, 3), classes=5, **SMALL, weights=str(path), names="timm", seed=3)
    fresh = network.init(3)
    for name, array in named_arrays(others):
        np.testing.assert_array_equal(array, dict(named_arrays(fresh if "fc/" in name else weights))[name])


def test_layers_are_frozen_through_one_or_the_last_of_a_stage() -> None:
    network = models.resnet((16, 16, 3), 5, **SMALL, frozen_until="layer1")
    assert network == models.resnet((16, 16, 3), 5, **SMALL).frozen(until="layer1_1")
    assert network.learned(network.abstract_weights()).keys() == {"layer2_0", "fc"}
    encoder = models.bert(2, 50, 8, 2, 2, frozen_until="block_0")
    assert encoder.learned(encoder.abstract_weights()).keys() == {"block_1", "pooled", "outputs"}


@pytest.mark.parametrize("given", [*PREPARATIONS, ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1])], ids=str)
def test_bytes_are_prepared_within_the_network(given: Any, file: tuple[Path, Any]) -> None:
    path, weights = file
    network, taken = models.resnet((16, 16, 3), 10, **SMALL, weights=path, preprocess=given)
    assert isinstance(network, Network)
    pixels = np.random.default_rng(2).integers(0, 256, (2, 16, 16, 3))
    mean, deviation = (np.array(numbers) for numbers in PREPARATIONS.get(str(given), given))
    prepared = ((pixels / 255 - mean) / deviation).astype("float32")
    expected = models.resnet((16, 16, 3), 10, **SMALL).forward(weights, prepared)
    np.testing.assert_allclose(network.forward(taken, pixels.astype("float32")), expected, rtol=1e-4)


def test_faces_are_prepared_as_by_facenet_pytorch() -> None:
    """Its `fixed_image_standardization`: (x - 127.5) / 128."""
    network = models.resnet((16, 16, 3), 10, **SMALL, preprocess="facenet")
    assert isinstance(network, Network)
    prepared = network.up_to("normalized")
    pixels = np.arange(768.0).reshape(1, 16, 16, 3).astype("float32") % 256
    found = prepared.forward(prepared.init(0), pixels)
    np.testing.assert_allclose(found, (pixels - 127.5) / 128, atol=1e-6)


def test_prepared_networks_keep_the_names_of_their_layers(tmp_path: Path) -> None:
    """So that a file by our own names fits them, with or without what prepares."""
    plain = models.lenet((28, 28, 1))
    save_weights(tmp_path / "a", weights_of(plain))
    network, taken = models.lenet((28, 28, 1), weights=tmp_path / "a", preprocess=([0.3], [0.4]))
    assert network.names == ("rescaled", "normalized", *plain.names)
    np.testing.assert_allclose(taken["normalized"]["variance"], [0.16], rtol=1e-6)
    save_weights(tmp_path / "b", taken)
    again = models.lenet((28, 28, 1), weights=tmp_path / "b", preprocess=([0.3], [0.4]))
    np.testing.assert_array_equal(again.weights["dense_7"]["kernel"], taken["dense_7"]["kernel"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"preprocess": "caffe"},
            "preprocess must be one of 'imagenet', 'inception', 'facenet', or the means .* received 'caffe'",
        ),
        ({"preprocess": 0.5}, "preprocess must be one of 'imagenet', .* received 0.5; choose one of them"),
        ({"preprocess": ([0.5], [0.5])}, "is for a Network that reads images of 1 channels, received one that reads"),
        ({"frozen_until": "layer9"}, "no layer 'layer9'; its layers are conv1"),
        ({"names": "timm"}, "names and seed of resnet are of weights=, which is not given"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        models.resnet((16, 16, 3), 5, **SMALL, **given)
