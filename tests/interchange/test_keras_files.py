"""What a file of Keras may hold, and what it is refused for before it costs memory or runs anything."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

from keras_writer import (  # noqa: E402
    ARRAYS,
    KERNEL,
    MODEL,
    array,
    functional,
    hdf5,
    layer,
    operation,
    sequential,
    write,
    write_older,
)

from sparkdl import Graph, Network  # noqa: E402
from sparkdl.interchange import load_keras  # noqa: E402
from sparkdl.layers import (  # noqa: E402
    Crop,
    Layer,
    RandomAffine,
    RandomBrightness,
    RandomContrast,
    RandomFlip,
    RandomInvert,
)

BIG = 1 << 33  # numbers, of which nothing is stored


def changed(change: Callable[[Any], Any], tmp_path: Path) -> bytes:
    """The weights of a small model, opened to be changed."""
    path = tmp_path / "weights.h5"
    path.write_bytes(hdf5())
    with h5py.File(path, "a") as file:
        change(file)
    return path.read_bytes()


def in_place_of_the_kernel(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Takes the kernel out of a file and puts something else there."""

    def change(file: Any) -> None:
        group = file["layers/dense/vars"]
        del group["0"]
        make(group)

    return change


def soft(group: Any) -> None:
    group["0"] = h5py.SoftLink("/layers/dense/vars/1")


def external(group: Any) -> None:
    group["0"] = h5py.ExternalLink("/etc/passwd", "/")


def elsewhere(group: Any) -> None:
    group.create_dataset("0", (3, 2), "float32", external=[("/etc/passwd", 0, 24)])


def virtual(group: Any) -> None:
    layout = h5py.VirtualLayout((3, 2), "float32")
    layout[:] = h5py.VirtualSource("other.h5", "x", (3, 2))
    group.create_virtual_dataset("0", layout)


def bomb(group: Any) -> None:
    group.create_dataset("0", (BIG,), "float32", chunks=(1 << 20,), compression="gzip")


def plug_in(group: Any) -> None:
    group.create_dataset("0", (3, 2), "float32", chunks=(3, 2), compression=32_015, allow_unknown_filter=True)


def words(group: Any) -> None:
    group.create_dataset("0", data=["a", "b"])


def lost(group: Any) -> None:
    pass


def deeper(group: Any) -> None:
    group.create_group("0")


def other_shape(group: Any) -> None:
    group["0"] = KERNEL.T


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (soft, "'layers/dense/vars/0' is a link"),
        (external, "'layers/dense/vars/0' is a link"),
        (elsewhere, "'layers/dense/vars/0' lies in another file"),
        (virtual, "'layers/dense/vars/0' lies in another file"),
        (bomb, r"'layers/dense/vars/0' of shape \(8589934592,\) would take 34359738368 bytes, of which 0 are there"),
        (plug_in, "'layers/dense/vars/0' is packed by a plug-in of HDF5"),
        (words, "'layers/dense/vars/0' is of object, where floats are expected"),
        (lost, "it lacks 'layers/dense/vars/0'"),
        (deeper, "'layers/dense/vars/0' is no array"),
        (other_shape, r"weight 'dense/kernel' would have the shape \(3, 2\), where it has \(2, 3\)"),
    ],
)
def test_arrays_that_are_elsewhere_or_other_are_refused(make: Any, told: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.keras", weights=changed(in_place_of_the_kernel(make), tmp_path))
    with pytest.raises(ValueError, match=f"a.keras' cannot be read as a model of Keras: {told}; take it anew"):
        load_keras(path)


MEMBERS: list[tuple[dict[str, Any], str]] = [
    ({"../config.json": "{}"}, "its zip has the name '../config.json', which leads elsewhere"),
    ({"/config.json": "{}"}, "its zip has the name '/config.json', which leads elsewhere"),
    ({"config.json": None}, "its zip has no files 'config.json', where Keras writes one"),
    ({"config.json": "[1"}, "'config.json' is no JSON"),
    ({"config.json": "[" * 100_000}, "'config.json' is no JSON"),
    ({"config.json": "[]"}, "'config.json' is no JSON object"),
    ({"metadata.json": "{}"}, "it tells no version of Keras, but None"),
    ({"model.weights.h5": "{}"}, "HDF5 cannot read it"),
]


@pytest.mark.parametrize(("members", "told"), MEMBERS)
def test_a_zip_that_is_not_as_keras_writes_it_is_refused(members: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"cannot be read as a model of Keras: {told}"):
        load_keras(write(tmp_path / "a.keras", **members))


def test_what_would_be_much_larger_unpacked_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.15.1"}')
        archive.writestr("config.json", json.dumps(MODEL))
        archive.writestr("model.weights.h5", bytes(1 << 25))
    with pytest.raises(ValueError, match="'model.weights.h5' would take 33554432 bytes, of which 3[0-9]{4} are there"):
        load_keras(path)


def test_a_zip_that_names_a_file_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.keras")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="its zip has 2 files 'config.json'"):
        load_keras(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\x80\x04 a pickle"])
def test_what_is_no_such_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="cannot be read as a model of Keras"):
        load_keras(path)
    with pytest.raises(FileNotFoundError):
        load_keras(tmp_path / "none.keras")


def test_weights_alone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.weights.h5"
    path.write_bytes(hdf5())
    with pytest.raises(ValueError, match=r"it holds weights without a model, so write the whole by model.save\(...\)"):
        load_keras(path)


def test_a_heap_that_leads_nowhere_is_refused_before_hdf5_follows_it(tmp_path: Path) -> None:
    """HDF5's library goes round forever at an object that is free and has no size."""
    path = write_older(tmp_path / "a.h5", MODEL, OLDER)
    data = bytearray(path.read_bytes())
    first = data.index(b"GCOL") + 16  # an object of 16 bytes: index, references, padding, size
    data[first : first + 2], data[first + 8 : first + 16] = bytes(2), bytes(8)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="it has a heap of texts that leads nowhere"):
        load_keras(path)


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_zip_is_read_as_far_as_it_can_or_refused(seed: int, tmp_path: Path) -> None:
    """Nothing but a ValueError comes of bytes that are others; a zip has checksums of what HDF5's library is given."""
    rng, path = Random(seed), tmp_path / "a.keras"
    whole = write(path).read_bytes()
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data if rng.random() < 0.9 else data[: rng.randrange(len(data))])
        try:
            load_keras(path)
        except ValueError:
            refused += 1
    assert refused


STRANGE = [None, True, -1, 0, 1.5, 10**30, "x", "", [], [None], {}, {"class_name": "Dense"}, [["x", 0, 0]]]


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything within a configuration."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in items] + [place for _, part in items for place in places(part)]


@pytest.mark.parametrize("seed", range(3))
def test_a_configuration_with_anything_in_it_is_refused_at_most(seed: int, tmp_path: Path) -> None:
    rng, path = Random(seed), tmp_path / "a.keras"
    steps = [
        layer("Conv1D", "conv", filters=2, kernel_size=[3], strides=[1], padding="same", activation="relu"),
        layer("BatchNormalization", "norm", axis=-1, epsilon=0.1),
        layer("Bidirectional", "both", layer=layer("GRU", "gru", units=2, return_sequences=True), merge_mode="sum"),
        layer("TimeDistributed", "each", layer=layer("Dense", "inner", units=3)),
        layer("Reshape", "shape", target_shape=[-1, 2]),
        layer("GlobalAveragePooling1D", "mean", keepdims=True),
    ]
    between = [
        operation("Subtract", "less", 1.0, array("i")),
        operation("Concatenate", "both", [array("less"), array("i")], axis=-1),
        operation("ReLU", "relu", array("both"), module="keras.src.activations.activations", max_value=6),
        operation("Reshape", "shape", array("relu"), newshape=[-1, 3, 2]),
    ]
    models = [sequential(*steps, shape=(4, 3)), functional_of_keras_2(), functional([["shape", 0, 0]], *between)]
    for _ in range(120):
        model = json.loads(json.dumps(rng.choice(models)))
        container, key = rng.choice(places(model))
        container[key] = rng.choice(STRANGE)
        with suppress(ValueError):  # all else fails the test
            load_keras(write(path, model))


# What layers are refused for


def custom(module: str | None, registered: str | None = None) -> dict[str, Any]:
    return layer("Gate", units=2) | {"module": module, "registered_name": registered}


REFUSED: list[tuple[dict[str, Any], tuple[int | None, ...], str]] = [
    (layer("Lambda", function={"class_name": "__lambda__"}), (3,), "Layer 'it' is a Lambda of keras.layers, whose"),
    (custom("mine"), (3,), "Layer 'it' is a Gate of mine, whose code would have to run, and loading runs none"),
    (custom(None, "mine>Gate"), (3,), "Layer 'it' is a Gate of its own, whose code would have to run"),
    (layer("Gate"), (3,), "Layer 'it' is a Gate, which has no counterpart here"),
    (layer("Dense", units="2"), (3,), "'it' .Dense. has no counterpart here: units must be an integer, received '2'"),
    (layer("Dense", units=2, activation="glu"), (3,), "activation must be one of celu, .*, received 'glu'"),
    (layer("Dense", units=2, extra=3), (3,), "extra must be left out, received 3"),
    (layer("Dropout", rate=1.5), (3,), r"Layer 'it' \(Dropout\): rate of Dropout"),
    (layer("Conv2D", filters=1, kernel_size=[2, 2], data_format="channels_first"), (4, 4, 1), "data_format must be"),
    (layer("Conv2D", filters=1, kernel_size=[5, 5]), (4, 4, 1), r"Layer 'it' \(Conv2D\): size of Conv spans"),
    (layer("Conv2D", filters=1, kernel_size=[2, 2]), (None, None, 1), r"reads rows of shape \[None, None, None, 1\]"),
    (layer("BatchNormalization", axis=1), (4, 4, 1), "axis must be the last one, -1, received 1"),
    (layer("Embedding", input_dim=3, output_dim=2, mask_zero=True), (4,), "Output 'label' of the network is for each"),
    (layer("Masking", mask_value="0"), (4, 2), "mask_value must be a number, received '0'"),
    (layer("LSTM", units=2, recurrent_activation="gelu"), (4, 2), "recurrent_activation must be 'sigmoid' or 'elu' or"),
    (layer("LSTM", units=2, stateful=True), (4, 2), "stateful must be False or None, received True"),
    (layer("Bidirectional", layer=layer("Dense", units=2)), (4, 2), "layer must be one of GRU, LSTM, SimpleRNN"),
    (layer("PReLU", shared_axes=None), (4, 4, 1), r"shared_axes must be \[1, 2\], all but the last, received None"),
    (layer("ReLU", max_value=1.0, negative_slope=0.1), (3,), "max_value must be None with a slope or a threshold"),
    (layer("ReLU", threshold=1.0, negative_slope=0.1), (3,), "max_value must be None with a slope or a threshold"),
    (layer("ReLU", max_value=-1.0), (3,), "low and high of HardTanh must be finite numbers, low below high"),
    (layer("Normalization", axis=[1], invert=False), (3, 2), "axis must be the last one"),
    (layer("CenterCrop", height=4, width=5), (4, 4, 1), "width must be at most that of the images, 4, received 5"),
    (layer("Resizing", height=4, width=5, crop_to_aspect_ratio=True), (4, 4, 1), "crop_to_aspect_ratio must be False"),
    (layer("Discretization", bin_boundaries=None, num_bins=3), (3,), "bin_boundaries must be a list of numbers"),
    (layer("RandomBrightness", factor=[0.0, 0.2]), (4, 4, 1), "factor must be a number, or two that differ in their"),
    (layer("RandomCrop", height=2, width=2), (4, 4, 1), "Layer 'it' is a RandomCrop, which has no counterpart here"),
    (layer("RandomInvert", factor=[0, 0.5]), (4, 4, 1), "factor must be 1.0, or two numbers that are 1 together"),
    (layer("RandomInvert", factor=1.0, value_range=[-1, 1]), (4, 4, 1), "value_range must be one that begins with 0"),
    (layer("RandomRotation", factor="much"), (4, 4, 1), "factor must be two numbers, received 'much'"),
    (layer("RandomRotation", factor=0.1, interpolation="nearest"), (4, 4, 1), "interpolation must be 'bilinear'"),
    (layer("RandomZoom", height_factor=[-1.0, 0.0]), (4, 4, 1), "zoom of RandomAffine must be above -1"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "shape", "told"), REFUSED, ids=[f"{one[0]['class_name']} {one[2]}" for one in REFUSED])
def test_a_layer_without_a_counterpart_is_named(one: Any, shape: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", sequential(one, shape=shape)))


VARIED: list[tuple[dict[str, Any], tuple[Layer, ...]]] = [
    (layer("RandomFlip"), (RandomFlip("horizontal", name="it"), RandomFlip("vertical", name="it_random_flip"))),
    (layer("RandomFlip", mode="vertical"), (RandomFlip("vertical", name="it"),)),
    (layer("RandomRotation", factor=0.1), (RandomAffine(rotation=(-36.0, 36.0), name="it"),)),
    (
        layer("RandomRotation", factor=[0, 0.25], fill_mode="constant", fill_value=2),
        (RandomAffine(rotation=(0.0, 90.0), fill="constant", value=2.0, name="it"),),
    ),
    (
        layer("RandomTranslation", height_factor=0.1, width_factor=[0.2, 0.3], fill_mode="nearest"),
        (RandomAffine(shift=(-0.1, 0.1), width_shift=(0.2, 0.3), fill="nearest", name="it"),),
    ),
    (layer("RandomZoom", height_factor=[-0.2, 0.1]), (RandomAffine(zoom=(-0.2, 0.1), name="it"),)),
    (
        layer("RandomZoom", height_factor=0.2, width_factor=-0.1, fill_mode="wrap"),
        (RandomAffine(zoom=(-0.2, 0.2), width_zoom=(-0.1, 0.1), fill="wrap", name="it"),),
    ),
    (
        layer("RandomBrightness", factor=0.2, data_format="channels_last"),
        (RandomBrightness(51.0, (0.0, 255.0), name="it"),),
    ),
    (
        layer("RandomBrightness", factor=[-0.5, 0.5], value_range=[-1, 1]),
        (RandomBrightness(1.0, (-1.0, 1.0), name="it"),),
    ),
    (layer("RandomContrast", factor=0.25), (RandomContrast(0.75, 1.25, (0.0, 255.0), name="it"),)),
    (
        layer("RandomContrast", factor=[0.0, 0.5], value_range=[0, 1]),
        (RandomContrast(1.0, 1.5, (0.0, 1.0), name="it"),),
    ),
    (layer("RandomInvert", factor=1.0, value_range=[0, 1]), (RandomInvert((0.0, 1.0), name="it"),)),
    (layer("CenterCrop", height=3, width=2), (Crop(((0, 1), (1, 1)), name="it"),)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "wanted"), VARIED, ids=[f"{one[0]['config']}" for one in VARIED])
def test_what_prepares_and_varies_images_becomes_layers_of_ours(
    one: dict[str, Any], wanted: tuple[Layer, ...], tmp_path: Path
) -> None:
    flat = layer("Flatten", "flat")
    network, _ = load_keras(write(tmp_path / "a.keras", sequential(one, flat, shape=(4, 4, 1))))
    assert isinstance(network, Network)
    assert list(network.layers[:-1]) == list(wanted)


def test_a_model_of_a_class_of_its_own_is_refused(tmp_path: Path) -> None:
    model = MODEL | {"module": "keras", "class_name": "Mine"}
    with pytest.raises(ValueError, match="The model is a Mine, of a class of its own whose code would have to run"):
        load_keras(write(tmp_path / "a.keras", model))


def calling(kind: str, name: str, *sources: list[Any], **options: Any) -> dict[str, Any]:
    """A layer of a functional model, called once."""
    return layer(kind, name, **options) | {"name": name, "inbound_nodes": [[[*source, {}] for source in sources]]}


@pytest.mark.parametrize("read", [0, 1])
def test_a_model_of_several_outputs_within_a_model_is_named(read: int, tmp_path: Path) -> None:
    relus = [calling("ReLU", name, ["i", 0, 0]) for name in ("a", "b")]
    inner = functional([["a", 0, 0], ["b", 0, 0]], *relus, name="two") | {"inbound_nodes": [[["i", 0, 0, {}]]]}
    model = functional([["end", 0, 0]], inner, calling("ReLU", "end", ["two", 0, read]))
    told = r"Layer 'two' \(Functional\) is a model with 2 outputs within another, where one of 1 output can be read"
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", model))


@pytest.mark.parametrize("between", [[], [calling("Activation", "j", ["i", 0, 0], activation="linear")]])
def test_an_input_that_is_an_output_is_named(between: Any, tmp_path: Path) -> None:
    last = ["j" if between else "i", 0, 0]
    model = functional([["a", 0, 0], last], calling("ReLU", "a", ["i", 0, 0]), *between)
    told = "The model 'whole' puts out its input 'i' as it is, which cannot be read; leave that output out and save"
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", model))


def test_a_recurrent_layer_with_two_given_states_is_named(tmp_path: Path) -> None:
    states = [{"class_name": "__keras_tensor__", "config": {"keras_history": ["i", 0, 0]}}] * 2
    calls = [{"args": states[:1], "kwargs": {"initial_state": states}}]
    lstm = layer("LSTM", "lstm", units=3) | {"name": "lstm", "inbound_nodes": calls}
    told = r"Layer 'lstm' \(LSTM\): initial_state of a call must be one array, received 2"
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", functional([["lstm", 0, 0]], lstm)))


def test_a_bidirectional_layer_frozen_one_way_is_named_as_its_arrays_are_in_another_order(tmp_path: Path) -> None:
    one, other = (layer("GRU", "gru", units=2, trainable=kept, go_backwards=kept) for kept in (False, True))
    model = sequential(layer("Bidirectional", "both", layer=one, backward_layer=other), shape=(4, 3))
    told = r"Layer 'both' \(Bidirectional\) has no counterpart here: backward_layer must be like its layer, Gru\(train"
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", model))


def test_a_layer_whose_weights_are_shared_by_calls_with_other_options_is_named(tmp_path: Path) -> None:
    attention = layer("MultiHeadAttention", "shared", num_heads=1, key_dim=2)
    calls = [[["i", 0, 0, {}], ["i", 0, 0, {"use_causal_mask": causal}]] for causal in (False, True)]
    both = calling("Add", "both", ["shared", 0, 0], ["shared", 1, 0])
    model = functional([["both", 0, 0]], attention | {"name": "shared", "inbound_nodes": calls}, both)
    model["config"]["layers"][0]["config"]["batch_shape"] = [None, 5, 3]
    told = (
        r"Layer 'shared' \(MultiHeadAttention\) is called in two ways, for rows of other shapes or with other options"
    )
    with pytest.raises(ValueError, match=told):
        load_keras(write(tmp_path / "a.keras", model))


# What Keras 2 wrote otherwise

OLDER = {"dense": {"dense/kernel:0": KERNEL, "dense/bias:0": ARRAYS["layers/dense/vars/1"]}}
X = np.array([[1, 2, 3], [0, 1, -1]], "float32")


def test_a_sequential_model_of_keras_2_is_read(tmp_path: Path) -> None:
    dense = {"name": "dense", "batch_input_shape": [None, 3], "dtype": "float32", "units": 2, "activation": "relu"}
    model = {"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "Dense", "config": dense}]}}
    network, weights = load_keras(write_older(tmp_path / "a.h5", model, OLDER))
    assert isinstance(network, Network)
    np.testing.assert_allclose(network.forward(weights, X), np.maximum(X @ KERNEL + [1, -1], 0))


def test_the_hard_sigmoid_of_keras_2_has_another_slope(tmp_path: Path) -> None:
    lstm = {"name": "it", "batch_input_shape": [None, 4, 3], "units": 2, "recurrent_activation": "hard_sigmoid"}
    model = {"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "LSTM", "config": lstm}]}}
    arrays = {"it/kernel:0": np.ones((3, 8)), "it/recurrent_kernel:0": np.ones((2, 8)), "it/bias:0": np.zeros(8)}
    network, weights = load_keras(write_older(tmp_path / "a.h5", model, {"it": arrays}))
    x = np.full((1, 4, 3), 0.2, "float32")
    h = c = 0.0
    for _ in range(4):
        z = 0.6 + 2 * h
        gate = min(max(0.2 * z + 0.5, 0), 1)
        c = gate * c + gate * np.tanh(z)
        h = gate * np.tanh(c)
    np.testing.assert_allclose(network.forward(weights, x), [[h, h]], rtol=1e-6)


def functional_of_keras_2() -> dict[str, Any]:
    def older(kind: str, name: str, nodes: Any, **options: Any) -> dict[str, Any]:
        return {"class_name": kind, "name": name, "config": {"name": name, **options}, "inbound_nodes": nodes}

    layers = [
        older("InputLayer", "x", [], batch_input_shape=[None, 3], dtype="float32", sparse=False, ragged=False),
        older("InputLayer", "y", [], batch_input_shape=[None, 3], dtype="float32", sparse=False, ragged=False),
        older("Dense", "dense", [[["x", 0, 0, {}]], [["y", 0, 0, {}]]], units=2, activation="linear"),
        older("Add", "add", [[["dense", 0, 0, {}], ["dense", 1, 0, {}]]]),
        older("LeakyReLU", "leaky", [[["add", 0, 0, {}]]], alpha=0.1),
    ]
    ends = {"input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["leaky", 0, 0]]}
    return {"class_name": "Model", "config": {"name": "m", "layers": layers, **ends}}


def test_a_functional_model_of_keras_2_is_read(tmp_path: Path) -> None:
    model = functional_of_keras_2()
    network, weights = load_keras(write_older(tmp_path / "a.h5", model, OLDER))
    assert isinstance(network, Graph)
    total = (X + X[::-1]) @ KERNEL + 2 * np.array([1, -1])
    np.testing.assert_allclose(network.forward(weights, (X, X[::-1].copy())), np.where(total > 0, total, 0.1 * total))


@pytest.mark.parametrize("first", [0, 1])
def test_models_within_a_model_of_keras_2_count_calls_from_0_or_from_their_own_making(
    first: int, tmp_path: Path
) -> None:
    model = functional_of_keras_2()
    layers, dense = model["config"]["layers"], {"class_name": "Dense", "config": {"name": "dense", "units": 2}}
    inner = {"class_name": "Sequential", "name": "inner", "config": {"name": "inner", "layers": [dense]}}
    layers[2] = inner | {"inbound_nodes": layers[2]["inbound_nodes"]}
    calls = [["inner", first, 0, {}], ["inner", first + 1, 0, {}]]
    layers[3:] = [{"class_name": "Subtract", "name": "less", "config": {"name": "less"}, "inbound_nodes": [calls]}]
    model["config"]["output_layers"] = [["less", 0, 0], ["inner", first + 1, 0]]
    network, weights = load_keras(write_older(tmp_path / "a.h5", model, {"inner": OLDER["dense"]}))
    y = X[::-1].copy()
    less, second = network.forward(weights, (X, y))
    np.testing.assert_allclose(less, (X - y) @ KERNEL)
    np.testing.assert_allclose(second, y @ KERNEL + [1, -1])


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("dense/kernel:0",), "layer 'dense' has the arrays dense/kernel:0, not kernel, bias"),
        (("dense/bias:0", "dense/kernel:0"), "layer 'dense' has the arrays dense/bias:0, dense/kernel:0, not kernel"),
        (("../kernel:0", "bias:0"), "it has the name 'model_weights/dense/../kernel:0', which leads elsewhere"),
    ],
)
def test_arrays_of_other_names_are_refused(names: tuple[str, ...], told: str, tmp_path: Path) -> None:
    path = write_older(tmp_path / "a.h5", MODEL, OLDER)
    with h5py.File(path, "a") as file:
        file["model_weights/dense"].attrs["weight_names"] = [name.encode() for name in names]
    with pytest.raises(ValueError, match=told):
        load_keras(path)


def test_a_hard_sigmoid_of_keras_2_is_another_one(tmp_path: Path) -> None:
    model = sequential(layer("Activation", activation="hard_sigmoid"))
    x = np.array([[-2.75, 0.5, 2.75]], "float32")
    newer, older = write(tmp_path / "a.keras", model), write_older(tmp_path / "a.h5", model, {})
    np.testing.assert_allclose(load_keras(newer).network.forward({}, x), np.clip(x / 6 + 0.5, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(load_keras(older).network.forward({}, x), np.clip(x / 5 + 0.5, 0, 1), rtol=1e-6)


def test_a_thresholded_relu_of_keras_2_is_read(tmp_path: Path) -> None:
    path = write_older(tmp_path / "a.h5", sequential(layer("ThresholdedReLU", theta=0.5)), {})
    x = np.array([[0.25, 0.5, 0.75]], "float32")
    np.testing.assert_array_equal(load_keras(path).network.forward({}, x), [[0, 0, 0.75]])


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    for dtype in ("float16", "bfloat16"):
        arrays: dict[str, Any] = dict(ARRAYS)
        bits = (KERNEL.view("uint32") >> 16).astype("uint16").view("V2")  # of brain floats, as Keras stores them
        arrays["layers/dense/vars/0"] = KERNEL.astype("float16") if dtype == "float16" else bits

        def mark(file: Any, dtype: str = dtype) -> None:
            file["layers/dense/vars/0"].attrs["dtype"] = dtype

        path = tmp_path / "weights.h5"
        path.write_bytes(hdf5(arrays))
        with h5py.File(path, "a") as file:
            mark(file)
        kernel = load_keras(write(tmp_path / "a.keras", weights=path.read_bytes())).weights["dense"]["kernel"]
        assert kernel.dtype == np.float32
        np.testing.assert_array_equal(kernel, KERNEL)


def test_without_h5py_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.keras")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'sparkdl-jax\[keras\]'"):
        load_keras(path)


def test_sparkdl_alone_loads_neither_h5py_nor_keras() -> None:
    code = (
        "import sys, sparkdl.interchange; print([name for name in ('h5py', 'keras', 'zipfile') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "h5py" not in done.stdout and "keras" not in done.stdout
