"""Convolutions of sequences: causal ones against PyTorch and Keras, and rows of any length against each row alone."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import (
    AvgPool,
    Conv,
    ConvTranspose,
    Dense,
    DepthwiseConv,
    LastStep,
    Layer,
    Ragged,
    SeparableConv,
)

pytestmark = pytest.mark.usefixtures("float64")
LENGTHS = (5, 0, 2)
OVER_TIME = [
    Conv(3, 3, padding="causal", dilation=2),
    Conv(3, 4, padding="same"),
    Conv(4, (3,), padding=((1, 1),), groups=2),
    Conv(3, 1),
    DepthwiseConv(3, padding="causal", dilation=2),
    SeparableConv(3, 2, padding="same"),
]


@partial(jax.jit, static_argnums=0)
def kernels(layer: Layer, weights: Any, x: Any, dy: Any) -> Any:
    """(y, dx, dweights)."""
    y = layer.forward(weights, x)
    return y, layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy)


@partial(jax.jit, static_argnums=0)
def together_and_alone(layer: Layer, weights: Any, x: Ragged, dy: Any) -> tuple[Any, list[Any]]:
    """`kernels` of rows of `LENGTHS`, and of every row that has steps as the only one, without padding; one program."""
    rows = [(slice(row, row + 1), slice(length)) for row, length in enumerate(LENGTHS) if length]
    alone = [kernels(layer, weights, x.values[at], dy[at if dy.ndim == 3 else at[0]]) for at in rows]
    return kernels(layer, weights, x, dy), alone


def weights_of(layer: Layer, channels: int, random: np.random.Generator) -> Any:
    abstract = jax.eval_shape(lambda: layer.init(jax.random.key(0), (None, channels)))  # type: ignore[arg-type]
    return jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape)), abstract)


def assert_sum(found: Any, parts: list[Any]) -> None:
    total = jax.tree.map(lambda *arrays: np.sum(arrays, axis=0), *parts)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-10), found, total)


@pytest.mark.parametrize(("size", "dilation", "strides", "groups"), [(3, 1, 1, 1), (3, 4, 1, 2), (2, 2, 3, 1)])
def test_a_causal_convolution_is_pytorchs_of_rows_padded_before(
    size: int, dilation: int, strides: int, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(2)
    layer = Conv(4, size, strides, "causal", dilation, groups)
    x, weights = random.standard_normal((3, 9, 2)), weights_of(layer, 2, random)
    theirs = torch.tensor(x, requires_grad=True)
    kernel = torch.tensor(np.transpose(weights["kernel"], (2, 1, 0)).copy(), requires_grad=True)
    bias = torch.tensor(np.array(weights["bias"]), requires_grad=True)
    padded = torch.nn.functional.pad(theirs.transpose(1, 2), ((size - 1) * dilation, 0))
    expected = torch.nn.functional.conv1d(padded, kernel, bias, strides, 0, dilation, groups).transpose(1, 2)
    dy = random.standard_normal(expected.shape)
    expected.backward(torch.tensor(dy))
    assert layer.output_shape((9, 2)) == expected.shape[1:]
    y, dx, gradient = kernels(layer, weights, jnp.asarray(x), jnp.asarray(dy))
    np.testing.assert_allclose(y, expected.detach(), atol=1e-12)
    np.testing.assert_allclose(dx, theirs.grad, atol=1e-12)
    np.testing.assert_allclose(gradient["kernel"], kernel.grad.permute(2, 1, 0), atol=1e-12)
    np.testing.assert_allclose(gradient["bias"], bias.grad, atol=1e-12)


def test_a_causal_convolution_is_that_of_keras() -> None:
    keras = pytest.importorskip("keras")
    random = np.random.default_rng(2)
    for dilation, strides in ((1, 1), (3, 1), (1, 2)):
        layer = Conv(4, 3, strides, "causal", dilation)
        x, weights = random.standard_normal((3, 9, 2)), weights_of(layer, 2, random)
        peer = keras.layers.Conv1D(4, 3, strides, "causal", dilation_rate=dilation, dtype="float64")
        peer.build((None, 9, 2))
        peer.set_weights([weights["kernel"], weights["bias"]])
        expected = keras.ops.convert_to_numpy(peer(x))
        np.testing.assert_allclose(layer.forward(weights, jnp.asarray(x)), expected, atol=1e-12)


def test_no_window_of_a_causal_convolution_reads_a_later_step() -> None:
    random = np.random.default_rng(3)
    layer = Conv(2, 3, padding="causal", dilation=2)
    weights, x = weights_of(layer, 2, random), random.standard_normal((1, 8, 2))
    slopes = jax.jit(jax.jacobian(partial(layer.forward, weights)))(jnp.asarray(x))
    reads = np.abs(np.asarray(slopes)[0, :, :, 0]).sum(axis=(1, 3)) > 0
    assert [list(np.flatnonzero(row)) for row in reads] == [
        [at for at in (step - 4, step - 2, step) if at >= 0] for step in range(8)
    ]


@pytest.mark.parametrize("layer", OVER_TIME, ids=str)
def test_rows_of_any_length_are_what_each_is_alone_whatever_the_padding(layer: Layer) -> None:
    random = np.random.default_rng(4)
    weights = weights_of(layer, 4, random)
    values = random.standard_normal((len(LENGTHS), 6, 4))
    dy = random.standard_normal((*values.shape[:2], layer.output_shape((6, 4))[-1]))
    for row, length in enumerate(LENGTHS):
        values[row, length:] = dy[row, length:] = np.nan
    x = Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))
    (y, dx, gradient), alone = together_and_alone(layer, weights, x, jnp.asarray(dy))
    assert isinstance(y, Ragged) and not isinstance(dx, Ragged)
    np.testing.assert_array_equal(y.lengths, LENGTHS)
    for row, length in enumerate(LENGTHS):
        assert not np.asarray(y.values)[row, length:].any() and not np.asarray(dx)[row, length:].any()
    for row, (own_y, own_dx, _) in zip((0, 2), alone, strict=True):
        np.testing.assert_allclose(y.values[row, : LENGTHS[row]], own_y[0], atol=1e-12)
        np.testing.assert_allclose(dx[row, : LENGTHS[row]], own_dx[0], atol=1e-12)
    assert_sum(gradient, [own for _, _, own in alone])


def test_a_network_keeps_the_lengths_and_its_step_is_that_of_the_rows_alone() -> None:
    layers = [Conv(4, 3, padding="causal"), Conv(4, 3, padding="same", dilation=2), LastStep(), Dense(2)]
    network = Network(layers, input_shape=(None, 3))
    assert network.shapes((None, 3))[1:] == [(None, 4), (None, 4), (4,), (2,)]
    assert network.multiply_adds() == 3 * 3 * 4 + 3 * 4 * 4 + 4 * 2  # of a step, and the last layer
    random = np.random.default_rng(5)
    weights = jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape)), network.abstract_weights())
    x = Ragged(jnp.asarray(random.standard_normal((3, 6, 3))), jnp.array(LENGTHS, "int32"))
    (y, _, gradient), alone = together_and_alone(network, weights, x, jnp.ones((3, 2)))
    np.testing.assert_allclose(y[:: len(LENGTHS) - 1], [own[0] for own, _, _ in alone], atol=1e-12)
    gradient["dense_3"]["bias"] -= 1  # of the row without steps
    assert_sum(gradient, [own for _, _, own in alone])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Network([Conv(2, 3)], input_shape=(None, 3)),
            r"Layer 0 \(Conv\): Conv expects rows of one length, received rows of any, \(None, 3\); give it padding=",
        ),
        (lambda: Network([Conv(2, 3, 2, "causal")], input_shape=(None, 3)), "strides of 1, with which each keeps its"),
        (lambda: Network([Conv(2, 3, padding="full")], input_shape=(None, 3)), "Conv expects rows of one length"),
        (lambda: Network([Conv(2, 3, padding=((1, 0),))], input_shape=(None, 3)), "Conv expects rows of one length"),
        (lambda: Network([DepthwiseConv(3)], input_shape=(None, 3)), "expects rows of one length.*padding='causal'"),
        (lambda: Conv(2, (3, 3), padding="causal"), r"'causal' along a single axis, the time, received size=\(3, 3\)"),
        (lambda: Conv(2, 3, padding="casual"), "spatial axis, or 'causal' along a single one, received 'casual'"),
        (lambda: AvgPool(3, padding="causal"), "padding of AvgPool must be 'full', 'same', 'valid' or a .low, high"),
        (lambda: ConvTranspose(3, 2, padding="causal"), "padding of ConvTranspose must be"),
    ],
)
def test_what_keeps_no_lengths_is_refused_when_it_is_built(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.compile(sentence)):
        make()
