"""A network is its layers in a row: shapes, names, JSON, summary, and the chain of their kernels down and up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import (
    BatchNorm,
    Context,
    Conv,
    ConvTranspose,
    Dense,
    DepthwiseConv,
    Dropout,
    Elu,
    Flatten,
    GlobalAvgPool,
    Layer,
    LayerNorm,
    LeakyRelu,
    LocalResponseNorm,
    Lstm,
    MaxPool,
    PRelu,
    RandomBrightness,
    RandomContrast,
    Relu,
    Rescale,
    Tanh,
    TemporalConvNet,
    TransformerEncoder,
    UpSample,
)
from sparkdl.specs import FORMAT
from sparkdl.weights import count_weights, named_arrays, nested_weights, updated

pytestmark = pytest.mark.usefixtures("unoptimized")

Array = jax.Array

LENET = Network(
    [
        Conv(6, (5, 5), padding="same"),
        Tanh(),
        MaxPool((2, 2)),
        Conv(16, (5, 5), name="second"),
        Tanh(),
        MaxPool((2, 2)),
        Flatten(),
        Dense(120),
        Tanh(),
        Dense(10, bias=False),
    ],
    input_shape=(28, 28, 1),
)
SMALL = [Conv(2, (2, 2), l2=0.5), BatchNorm(), Tanh(), Flatten(), Dense(3, l1=0.25)]
FLAT = Network(SMALL, input_shape=(4, 4, 1))
NESTED = Network(
    [Network(SMALL[:2]), Tanh(), Network([Network([Flatten()]), Dense(3, l1=0.25)])],
    input_shape=(4, 4, 1),
)


def case(network: Network, rows: int = 5) -> tuple[Any, Array, Array, Context]:
    """Weights, rows, dL/dy, and the context of a step."""
    random = np.random.default_rng(2)
    assert network.input_shape is not None
    x = jnp.asarray(random.standard_normal((rows, *network.input_shape)))
    dy = jnp.asarray(random.standard_normal((rows, *network.output_shape())))
    return network.init(1), x, dy, Context(jax.random.key(0), jnp.asarray(random.uniform(0, 2, rows)))


def backward(network: Network, weights: Any, x: Array, dy: Array, context: Context, wants_delta: bool) -> Any:
    y, kept = network.train_forward(weights, x, context)
    return network.train_backward(weights, x, y, dy, kept, context, wants_delta)


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), actual, expected)


# Shapes and names


def test_shapes_follow_the_layers() -> None:
    images = [(28, 28, 1), (28, 28, 6), (28, 28, 6), (14, 14, 6), (10, 10, 16), (10, 10, 16), (5, 5, 16)]
    assert LENET.shapes((28, 28, 1)) == [*images, (400,), (120,), (120,), (10,)]
    assert LENET.output_shape() == (10,)
    assert LENET.output_shape((32, 32, 1)) == (10,)
    assert Network([Dense(3)], input_shape=4).input_shape == (4,)  # type: ignore[arg-type]


def test_weights_are_named_by_type_and_position_or_by_the_layer() -> None:
    assert LENET.names[:4] == ("conv_0", "tanh_1", "max_pool_2", "second")
    names = {name for name, _ in named_arrays(jax.eval_shape(lambda: LENET.init(0)))}
    expected = "conv_0/kernel conv_0/bias second/kernel second/bias dense_7/kernel dense_7/bias dense_9/kernel"
    assert names == set(expected.split())


@pytest.mark.parametrize(
    ("layers", "input_shape", "message"),
    [
        ([Conv(3, (2, 2)), Relu(), Dense(2)], (4, 4, 1), r"^Layer 2 \(Dense\): .*received \(3, 3, 3\); put Flatten"),
        ([Relu(), Network([Relu(), Dense(2)])], (4, 4), r"^Layer 1 \(Network\): Layer 1 \(Dense\): Dense expects"),
        ([MaxPool((5, 5))], (4, 4, 1), r"^Layer 0 \(MaxPool\): "),
        ([], (4,), "at least one layer, received none"),
        (Dense(3), (4,), r"layers of Network must be a list of layers, received Dense\(units=3\)"),
        ([Dense(3), "relu"], (4,), "Layer 1 of the network must be a Layer, received 'relu'"),
        ([Dense(3), Relu], (4,), r"Layer 1 of the network must be a Layer, .*; write Relu\(\.\.\.\)"),
        ([Dense(3, name="a"), Dense(2, name="a")], (4,), "names must differ within a network, 'a' stands twice"),
        ([Relu(name="dense_1"), Dense(2)], (4,), "'dense_1' stands twice"),
        ([Dense(3, name="a/b")], (4,), "may not hold a slash, received 'a/b'"),
        ([Dense(3)], (0,), r"input_shape must hold positive integers, received \(0,\)"),
        ([Dense(3)], (4.0,), r"input_shape must hold positive integers, received \(4.0,\)"),
    ],
)
def test_layers_that_do_not_fit_are_named(layers: Any, input_shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Network(layers, input_shape=input_shape)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(2, name=3), "name of Dense must be a string or None, received 3"),
        (lambda: Dense(2, trainable="no"), "trainable of Dense must be True or False, received 'no'"),
        (lambda: Dense(2, l2=math.nan), r"l2 of Dense must be a number in \[0, inf\), received nan"),
        (lambda: Conv(2, (3, 3), l1="a"), r"l1 of Conv must be a number in \[0, inf\), received 'a'"),
        (lambda: Dropout("0.5"), "rate of Dropout, .*received '0.5'"),
        (lambda: Dropout(None), "rate of Dropout, .*received None"),
        (lambda: LeakyRelu("0.1"), "slope of LeakyRelu must be a finite number, received '0.1'"),
        (lambda: LeakyRelu(True), "slope of LeakyRelu must be a finite number, received True"),
        (lambda: PRelu((0.1, 0.2)), r"initial of PRelu must be a finite number, received \(0.1, 0.2\)"),
        (lambda: Elu(None), "alpha of Elu must be a finite number of at least 0, received None"),
        (lambda: LayerNorm(epsilon="1e-5"), "epsilon of LayerNorm must be a positive number, received '1e-5'"),
        (lambda: BatchNorm(momentum="0.9"), "momentum of BatchNorm, .*received '0.9'"),
        (lambda: BatchNorm(momentum=False), "momentum of BatchNorm, .*received False"),
        (lambda: LocalResponseNorm(beta="0.5"), "LocalResponseNorm expects .*beta='0.5'"),
        (lambda: Rescale("1/255"), "scale of Rescale must be a finite number, received '1/255'"),
        (lambda: RandomBrightness("9"), "max_delta of RandomBrightness must be .*received '9'"),
        (lambda: RandomContrast(None, 1.2), "RandomContrast expects .*lower=None"),
        (lambda: Conv(2, (3, 3), strides=None), "strides of Conv must be a positive integer or .*received None"),
        (lambda: DepthwiseConv(3, dilation=None), "dilation of DepthwiseConv must be .*received None"),
        (lambda: MaxPool(None), "size of MaxPool must be .*received None"),
        (lambda: UpSample(None), "size of UpSample must be .*received None"),
        (lambda: ConvTranspose(2, 3, None), "strides of ConvTranspose must be .*received None"),
        (lambda: MaxPool(2, padding=()), r"padding of MaxPool must be .*received \(\)"),
    ],
)
def test_arguments_of_any_layer_are_checked(make: Callable[[], Layer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make", [lambda rate: TemporalConvNet([2], dropout=rate), lambda rate: TransformerEncoder(2, 4, dropout=rate)]
)
def test_a_rate_may_be_a_number_of_numpy(make: Callable[[Any], Any]) -> None:
    layer = make(np.float32(0.25))
    assert layer == make(0.25) and type(layer.dropout) is float
    with pytest.raises(ValueError, match=r"dropout of .* must be a number in \[0, 1\), received np.float32\(1.0\)"):
        make(np.float32(1))


@pytest.mark.parametrize("method", ["output_shape", "summary", "multiply_adds"])
def test_a_network_without_an_input_shape_asks_for_it(method: str) -> None:
    with pytest.raises(ValueError, match=r"not set; write Network\(layers, input_shape=\.\.\.\)"):
        getattr(Network([Dense(3)]), method)()


IMAGES = Network([Conv(3, (3, 3)), Relu(), GlobalAvgPool(), Dense(2)], input_shape=(8, 8, 1))


@pytest.mark.parametrize(
    ("network", "x", "message"),
    [
        (Network([Dense(3)], input_shape=(4,)), np.ones((2, 5)), r"shape \(batch, 4\) for input .*received \(2, 5\)"),
        (Network([Dense(3)], input_shape=(4,)), np.ones(4), r"shape \(batch, 4\) .*received \(4,\)"),
        (Network([Dense(3)], input_shape=(4,)), [[1.0, 2.0, 3.0, 4.0]], r"shape \(batch, 4\) .*received list"),
        (Network([Flatten(), Dense(3)], input_shape=(4, 4, 1)), np.ones((2, 5, 5, 1)), r"received \(2, 5, 5, 1\)"),
        (IMAGES, np.ones((2, 8, 8, 3)), r"shape \(batch, 8, 8, 1\) .*received \(2, 8, 8, 3\)"),
        (IMAGES, np.ones((2, 2, 2, 1)), r"received \(2, 2, 2, 1\)"),
        (Network([Lstm(3)], input_shape=(None, 4)), np.ones((2, 5, 3)), r"shape \(batch, steps, 4\) .*\(2, 5, 3\)"),
        (Network([Lstm(3)], input_shape=(None, 4)), np.ones((2, 4)), r"shape \(batch, steps, 4\) .*\(2, 4\)"),
    ],
)
def test_rows_of_another_shape_are_refused_by_what_computes(network: Network, x: Any, message: str) -> None:
    x = x if isinstance(x, list) else jnp.asarray(x, "float32")
    for compute in (network.forward, lambda weights, x: network.activations(weights, x, network.names)):
        with pytest.raises(ValueError, match=message):
            compute(network.init(0), x)


def test_images_of_other_sizes_are_taken_where_the_weights_fit_them() -> None:
    weights, larger = IMAGES.init(0), np.ones((2, 12, 9, 1), "float32")
    same = replace(IMAGES, input_shape=(12, 9, 1))
    np.testing.assert_array_equal(IMAGES.forward(weights, larger), same.forward(weights, larger))


# Values: JSON, equality, summary


@pytest.mark.parametrize(
    "network", [LENET, FLAT, NESTED, Network([Dense(3)]), Network([Dropout(0.5)], trainable=False)]
)
def test_a_network_is_its_json(network: Network) -> None:
    text = json.dumps(network.to_json())
    copy = Network.from_json(text)
    assert copy == network and hash(copy) == hash(network) and repr(copy) == repr(network)
    assert json.loads(text)["format"] == FORMAT


def test_networks_differ_by_layers_order_and_input() -> None:
    others = [
        replace(FLAT, input_shape=(5, 5, 1)),
        replace(FLAT, layers=[*SMALL[:-1], Dense(4, l1=0.25)]),
        replace(FLAT, layers=[SMALL[0], SMALL[2], SMALL[1], *SMALL[3:]]),
        replace(FLAT, trainable=False),
        NESTED,
    ]
    assert len({FLAT, replace(FLAT), *others}) == 6


def test_json_of_a_newer_format_is_refused() -> None:
    data = FLAT.to_json() | {"format": FORMAT + 1}
    with pytest.raises(ValueError, match=f"written in format {FORMAT + 1}, this sparkdl reads up to {FORMAT}; upgrade"):
        Network.from_json(data)


def test_the_summary_counts_weights_and_multiply_adds() -> None:
    lines = LENET.summary().splitlines()
    counts = {line.split()[0]: line.replace(",", "").split()[-2:] for line in lines[3:-2]}
    weights = {0: 5 * 5 * 6 + 6, 3: 5 * 5 * 6 * 16 + 16, 7: 400 * 120 + 120, 9: 120 * 10}
    operations = {0: 28 * 28 * 5 * 5 * 6, 3: 10 * 10 * 5 * 5 * 6 * 16, 7: 400 * 120, 9: 120 * 10}
    assert counts == {str(i): [str(weights.get(i, 0)), str(operations.get(i, 0))] for i in range(10)}
    assert lines[-1].split() == ["total", f"{sum(weights.values()):,}", f"{sum(operations.values()):,}"]
    assert f"second: {LENET.layers[3]!r}  (10, 10, 16) " in lines[6]
    assert LENET.multiply_adds() == sum(operations.values())
    assert count_weights(jax.eval_shape(lambda: LENET.init(0))) == sum(weights.values())


# Weights


def test_every_layer_draws_from_a_key_of_its_own_and_the_seed_decides() -> None:
    network = Network([Dense(4), Dense(4)], input_shape=(4,))
    first, again, too, other = (network.init(seed) for seed in (3, jax.random.key(3), np.int64(3), 4))
    assert jax.tree.all(jax.tree.map(np.array_equal, first, again))
    assert jax.tree.all(jax.tree.map(np.array_equal, first, too))
    kernels = [weights[layer]["kernel"] for weights in (first, other) for layer in ("dense_0", "dense_1")]
    assert len({kernel.tobytes() for kernel in map(np.asarray, kernels)}) == 4
    for seed in ("a", 1.5, True):
        with pytest.raises(
            ValueError, match=f"key of init must be an integer, or a key of jax.random, received {seed!r}"
        ):
            network.init(seed)  # type: ignore[arg-type]


def test_named_arrays_and_nested_weights_are_inverse() -> None:
    weights = jax.eval_shape(lambda: NESTED.init(0))
    flat = dict(named_arrays(weights))
    assert "network_0/conv_0/kernel" in flat
    assert "network_2/dense_1/bias" in flat
    back = nested_weights(flat)
    assert jax.tree.structure(back) == jax.tree.structure(weights)
    assert jax.tree.all(jax.tree.map(lambda a, b: a is b, back, weights))


def test_updated_replaces_what_is_given_and_keeps_the_rest() -> None:
    old = {"a": {"kernel": 1, "bias": 2}, "b": {"c": {"kernel": 3}}}
    assert updated(old, {"a": {"bias": 5}, "b": {"c": {"kernel": 6}}}) == {
        "a": {"kernel": 1, "bias": 5},
        "b": {"c": {"kernel": 6}},
    }
    assert old == {"a": {"kernel": 1, "bias": 2}, "b": {"c": {"kernel": 3}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dense_4/kernel": np.zeros((18, 4))}, r"'dense_4/kernel': .* has \(18, 3\) there, .* have \(18, 4\)"),
        ({"dense_5/kernel": np.zeros(3)}, r"'dense_5/kernel': the network has nothing there, .* have \(3,\)"),
        ({"conv_0/bias": None}, r"'conv_0/bias': the network has \(2,\) there, the given weights have nothing"),
    ],
)
def test_weights_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    arrays = dict(named_arrays(jax.eval_shape(lambda: FLAT.init(0))))
    FLAT.check_weights(nested_weights(arrays))
    changed = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(ValueError, match=message):
        FLAT.check_weights(nested_weights(changed))


# Down and up


def test_forward_chains_the_layers(float64: None) -> None:
    weights, x, _, _ = case(FLAT)
    y = x
    for name, layer in zip(FLAT.names, FLAT.layers, strict=True):
        y = layer.forward(weights.get(name, {}), y)
    assert_same(FLAT.forward(weights, x), y)


@pytest.mark.parametrize("network", [FLAT, NESTED], ids=["flat", "nested"])
def test_the_chain_of_kernels_is_the_derivative_of_the_whole(network: Network, float64: None) -> None:
    """By every weight and by the rows, through batch statistics of weighted rows."""
    weights, x, dy, context = case(network)
    learned = network.learned(weights)

    def value(learned: Any, x: Array) -> Array:
        return (network.train_forward(updated(weights, learned), x, context)[0] * dy).sum()

    dx, gradient = backward(network, weights, x, dy, context, True)
    assert_same((gradient, dx), jax.jit(jax.grad(value, (0, 1)))(learned, x))
    nothing, same = backward(network, weights, x, dy, context, False)
    assert nothing is None
    assert_same(same, gradient)


def test_nesting_changes_no_number(float64: None) -> None:
    weights, x, dy, context = case(FLAT)
    inner = {"network_0": {name: weights[name] for name in ("conv_0", "batch_norm_1")}}
    nested = inner | {"network_2": {"dense_1": weights["dense_4"]}}
    assert_same(NESTED.forward(nested, x), FLAT.forward(weights, x))
    assert float(NESTED.penalty(nested)) == pytest.approx(float(FLAT.penalty(weights)), rel=1e-14)
    _, flat = backward(FLAT, weights, x, dy, context, False)
    _, deep = backward(NESTED, nested, x, dy, context, False)
    assert_same(deep["network_0"] | {"dense_4": deep["network_2"]["dense_1"]}, flat)
    statistics = [
        network.new_statistics(values, network.train_forward(values, x, context)[1])
        for network, values in ((FLAT, weights), (NESTED, nested))
    ]
    assert_same(statistics[1], {"network_0": statistics[0]})
    assert statistics[0].keys() == {"batch_norm_1"}
    assert NESTED.multiply_adds() == FLAT.multiply_adds() == 9 * 4 * 2 + 18 * 3


def test_the_penalty_sums_over_layers(float64: None) -> None:
    weights = jax.tree.map(np.asarray, FLAT.init(5))
    expected = 0.5 / 2 * (weights["conv_0"]["kernel"] ** 2).sum() + 0.25 * np.abs(weights["dense_4"]["kernel"]).sum()
    assert float(FLAT.penalty(weights)) == pytest.approx(expected, rel=1e-14)


def test_a_frozen_network_freezes_all_it_holds() -> None:
    frozen = replace(NESTED, trainable=False)
    weights, x, dy, context = case(frozen)
    assert frozen.learned(weights) == {}
    assert backward(frozen, weights, x, dy, context, False) == (None, {})
    conv_frozen = replace(FLAT, layers=[replace(SMALL[0], trainable=False), *SMALL[1:]])
    _, gradient = backward(conv_frozen, *case(conv_frozen), False)
    assert gradient.keys() == {"batch_norm_1", "dense_4"}


@dataclass(frozen=True)
class Probe(Layer):
    """Passes rows on, and notes in `asked` whether its delta was wanted."""

    asked = []  # type: ignore[var-annotated]

    def forward(self, weights: Any, x: Array) -> Array:
        return x

    def train_backward(self, *arguments: Any) -> tuple[Array | None, Any]:
        *_, dy, _, _, wants_delta = arguments
        self.asked.append((self.name, wants_delta))
        return (dy if wants_delta else None), {}


@pytest.mark.parametrize(
    ("frozen", "wants_delta", "asked"),
    [
        (False, False, [("upper", True)]),
        (True, False, []),
        (False, True, [("upper", True), ("lower", True)]),
    ],
)
def test_no_delta_is_computed_that_no_weight_below_needs(
    frozen: bool, wants_delta: bool, asked: list[tuple[str, bool]]
) -> None:
    """Below the lowest learned weights the chain ends; a probe with nothing to learn under it is never asked."""
    layers = [Probe(name="lower"), Rescale(0.5), Dense(4, trainable=not frozen), Probe(name="upper"), Dense(2)]
    network = Network(layers, input_shape=(3,))
    Probe.asked.clear()
    weights, x, dy, context = case(network)
    backward(network, weights, x, dy, context, wants_delta)
    assert Probe.asked == asked
