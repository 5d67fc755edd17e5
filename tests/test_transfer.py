"""A network's layers are frozen, cut off and replaced by name, and keep their weights by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from sparkdl import Network, training
from sparkdl.layers import BatchNorm, Conv, Dense, Flatten, Relu, Rescale, Tanh
from sparkdl.transfer import shared_layers
from sparkdl.weights import named_arrays, nested_weights

pytestmark = pytest.mark.usefixtures("unoptimized")

Array = np.ndarray[Any, Any]

NETWORK = Network([Rescale(0.5), Dense(5), Tanh(), Dense(3), Relu(), Dense(2)], input_shape=(4,))
BLOCKS = Network([Network([Dense(3), Tanh()], name="block"), Flatten(), Dense(2)], input_shape=(4,))
IMAGES = Network([Conv(2, (2, 2)), BatchNorm(), Relu(), Flatten(), Dense(3)], input_shape=(4, 4, 1))
ROWS = np.random.default_rng(4).standard_normal((7, 4))


def flat(weights: Any) -> dict[str, Array]:
    return {path: np.asarray(array) for path, array in named_arrays(weights)}


def random_weights(network: Network, seed: int = 5) -> Any:
    """Weights that no initializer gives, biases included."""
    random = np.random.default_rng(seed)
    shapes = named_arrays(network.abstract_weights())
    return nested_weights({path: random.uniform(0.5, 1.5, array.shape).astype("float32") for path, array in shapes})


def assert_equal(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for path, array in one.items():
        assert array.dtype == other[path].dtype
        np.testing.assert_array_equal(array, other[path])


# Freezing


def test_frozen_layers_keep_their_names_and_learn_nothing() -> None:
    frozen = NETWORK.frozen("dense_1", "dense_5")
    assert frozen.names == NETWORK.names
    assert frozen.learned(frozen.abstract_weights()).keys() == {"dense_3"}
    assert NETWORK.learned(NETWORK.abstract_weights()).keys() == {"dense_1", "dense_3", "dense_5"}
    assert Network.from_json(frozen.to_json()) == frozen


def test_all_layers_through_one_are_frozen() -> None:
    until = NETWORK.frozen(until="dense_3")
    assert until.learned(until.abstract_weights()).keys() == {"dense_5"}
    both = NETWORK.frozen("dense_5", until="dense_1")
    assert both.learned(both.abstract_weights()).keys() == {"dense_3"}


def test_a_network_within_the_network_is_frozen_as_a_whole() -> None:
    frozen = BLOCKS.frozen("block")
    assert frozen.learned(frozen.abstract_weights()).keys() == {"dense_2"}


def test_training_leaves_frozen_layers_and_their_statistics_bit_for_bit() -> None:
    random = np.random.default_rng(8)
    x, labels = random.standard_normal((12, 4, 4, 1)).astype("float32"), np.arange(12) % 3
    start = random_weights(IMAGES)
    frozen = IMAGES.frozen(until="batch_norm_1")
    result = training.fit(frozen, (x, labels), initial=start, optimizer="adam", epochs=2, batch_size=6)
    before, after = flat(start), flat(result.weights)
    for path, array in before.items():
        assert (array.tobytes() == after[path].tobytes()) == (not path.startswith("dense_4/"))


# Parts and heads


def test_the_layers_up_to_one_make_its_features() -> None:
    weights = random_weights(NETWORK)
    features = NETWORK.up_to("tanh_2")
    assert (features.names, features.output_shape()) == (("rescale_0", "dense_1", "tanh_2"), (5,))
    kernel, bias = (weights["dense_1"][name].astype(float) for name in ("kernel", "bias"))
    actual = features.forward({"dense_1": weights["dense_1"]}, ROWS.astype("float32"))
    np.testing.assert_allclose(actual, np.tanh(0.5 * ROWS @ kernel + bias), rtol=1e-5)


def test_a_new_head_takes_the_place_of_the_layers_after_one() -> None:
    weights = random_weights(NETWORK)
    changed = NETWORK.with_head([Dense(4, name="wide"), Tanh(), Dense(6, name="head")], after="tanh_2")
    assert changed.names == ("rescale_0", "dense_1", "tanh_2", "wide", "tanh_4", "head")
    assert changed.output_shape() == (6,)
    started, fresh = flat(changed.initialized(weights, 3)), flat(changed.init(3))
    old = {path: array for path, array in flat(weights).items() if path.startswith("dense_1/")}
    assert_equal(started, fresh | old)


def test_a_new_head_on_a_frozen_network_learns() -> None:
    frozen = Network(NETWORK.layers, input_shape=(4,), trainable=False)
    for base in (frozen, NETWORK.frozen(until="dense_5")):
        changed = base.with_head([Dense(2, name="head")], after="relu_4")
        assert changed.learned(changed.abstract_weights()).keys() == {"head"}


def test_a_new_layer_may_not_take_the_weights_of_the_one_it_replaces_by_chance() -> None:
    sentence = r"The new Dense would be called 'dense_3', as a layer that it replaces is, .*Dense\(\.\.\., name='head'"
    with pytest.raises(ValueError, match=sentence):
        NETWORK.with_head([Dense(3)], after="tanh_2")
    assert NETWORK.with_head([Dense(3, name="dense_3")], after="tanh_2").names[-1] == "dense_3"
    assert NETWORK.with_head([Dense(2, name="head"), Relu()], after="tanh_2").names[-1] == "relu_4"


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda: NETWORK.frozen("dense_2"), "no layer 'dense_2'; its layers are rescale_0, dense_1, tanh_2, dense_3"),
        (lambda: NETWORK.frozen(until="block"), "The network has no layer 'block'"),
        (lambda: NETWORK.frozen(), "frozen expects names of layers or until=..., received neither"),
        (lambda: NETWORK.up_to("dense"), "The network has no layer 'dense'; its layers are"),
        (lambda: NETWORK.with_head([Dense(2)], after="dense"), "The network has no layer 'dense'; its layers are"),
        (lambda: NETWORK.with_head(Dense(2), after="tanh_2"), "layers of with_head must be a list of layers"),  # type: ignore[arg-type]
        (lambda: IMAGES.with_head([Dense(2, name="head")], after="relu_2"), r"Layer 3 \(Dense\): .*put Flatten"),
    ],
)
def test_what_cannot_be_changed_so_is_refused(change: Callable[[], Network], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        change()


# Weights to start from


def test_layers_start_from_weights_of_their_name_and_all_others_afresh() -> None:
    weights = random_weights(NETWORK)
    given = {name: weights[name] for name in ("dense_3", "dense_5")} | {"elsewhere": {"kernel": np.zeros(9)}}
    own = {path: array for path, array in flat(weights).items() if not path.startswith("dense_1/")}
    assert_equal(flat(NETWORK.initialized(given, 6)), flat(NETWORK.init(6)) | own)


def test_weights_of_another_dtype_take_the_networks() -> None:
    weights = {"dense_1": {"kernel": np.arange(20).reshape(4, 5), "bias": np.linspace(0, 1, 5)}}
    started = flat(NETWORK.initialized(weights, 6))
    assert {array.dtype.name for array in started.values()} == {"float32"}
    np.testing.assert_array_equal(started["dense_1/kernel"], np.arange(20).reshape(4, 5))
    np.testing.assert_array_equal(started["dense_1/bias"], np.linspace(0, 1, 5).astype("float32"))


@pytest.mark.parametrize(
    "network, weights, sentence",
    [
        (
            NETWORK,
            {"conv_0": {"kernel": np.zeros(3)}},
            r"are of layers conv_0, none of which the network has \(those with weights: dense_1, dense_3, dense_5\)",
        ),
        (NETWORK, 5, "must be a dict by name of the layer, .* received 5"),
        (NETWORK, {}, "are of layers of no name, none of which"),
        (
            NETWORK,
            {"dense_5": {"kernel": np.zeros((3, 10)), "bias": np.zeros(10)}},
            r"Layer 'dense_5': the network has \(2,\) as its bias, the initial weights have \(10,\); "
            r"to start the layer afresh give it a name of its own, as in Dense\(3, name='head'\)",
        ),
        (NETWORK, {"dense_5": {"kernel": np.zeros((3, 2))}}, r"\(2,\) as its bias, the initial weights have nothing"),
        (
            BLOCKS,
            {"block": {"dense_0": {"kernel": np.zeros((4, 2)), "bias": np.zeros(3)}}},
            r"Layer 'block': the network has \(4, 3\) as its dense_0/kernel, the initial weights have \(4, 2\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(network: Network, weights: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        network.initialized(weights, 0)
    with pytest.raises(ValueError, match=sentence):  # as the driver asks, without computing any weights
        shared_layers(network.abstract_weights(), weights)


# Activations


def test_activations_are_those_of_numpy(float64: None) -> None:
    weights = jax.tree.map(np.float64, random_weights(BLOCKS))
    y, found = BLOCKS.activations(weights, ROWS, ["block/dense_0", "block", "dense_2"])
    inner = ROWS @ weights["block"]["dense_0"]["kernel"] + weights["block"]["dense_0"]["bias"]
    outputs = np.tanh(inner) @ weights["dense_2"]["kernel"] + weights["dense_2"]["bias"]
    expected = {"block/dense_0": inner, "block": np.tanh(inner), "dense_2": outputs}
    assert found.keys() == expected.keys()
    for path, values in expected.items():
        np.testing.assert_allclose(found[path], values, rtol=1e-12)
    np.testing.assert_allclose(y, outputs, rtol=1e-12)


def test_no_activations_are_found_unless_asked_for() -> None:
    weights = random_weights(BLOCKS)
    y, found = BLOCKS.activations(weights, ROWS.astype("float32"), [])
    assert found == {}
    np.testing.assert_array_equal(y, BLOCKS.forward(weights, ROWS.astype("float32")))


def test_activations_of_an_unknown_layer_are_refused() -> None:
    assert BLOCKS.paths == ("block", "block/dense_0", "block/tanh_1", "flatten_1", "dense_2")
    for path in ("dense_0", "flatten_1/dense_0", "block/"):
        sentence = f"no layer '{path}'; its layers are block, block/dense_0, block/tanh_1, flatten_1, dense_2"
        with pytest.raises(ValueError, match=sentence):
            BLOCKS.activations(random_weights(BLOCKS), ROWS.astype("float32"), [path])
