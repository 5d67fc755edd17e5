"""Depthwise, separable, transposed and local convolutions, and moves in space, against PyTorch and NumPy in float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers import (
    Conv,
    ConvTranspose,
    Crop,
    DepthToSpace,
    DepthwiseConv,
    Layer,
    LocallyConnected,
    SeparableConv,
    SpaceToDepth,
    UpSample,
    ZeroPad,
)

RANDOM = np.random.default_rng(11)
pytestmark = pytest.mark.usefixtures("float64")


def images(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


def channels_first(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(array, -1, 1)


def channels_last(array: Any) -> np.ndarray:
    return np.moveaxis(array.detach().numpy(), 1, -1)


@pytest.mark.parametrize(
    ("layer", "theirs"),
    [
        (ConvTranspose(4, (3, 2)), {}),
        (ConvTranspose(4, (3, 3), 2, ((1, 1), (1, 1)), extra=1), {"stride": 2, "padding": 1, "output_padding": 1}),
        (ConvTranspose(4, (4, 4), 2, "same"), {"stride": 2, "padding": 1}),
        (ConvTranspose(4, (2, 3), (1, 2), dilation=2), {"stride": (1, 2), "dilation": 2}),
    ],
    ids=str,
)
def test_a_transposed_convolution_is_pytorchs(layer: ConvTranspose, theirs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x, size = images(2, 5, 4, 3), layer.size
    assert isinstance(size, tuple)
    kernel, bias = images(*size, 4, 3), images(4)
    given = torch.tensor(channels_first(x)), torch.tensor(kernel.transpose(3, 2, 0, 1)), torch.tensor(bias)
    expected = channels_last(torch.nn.functional.conv_transpose2d(*given, **theirs))
    y = layer.forward({"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}, jnp.asarray(x))
    assert y.shape[1:] == layer.output_shape(x.shape[1:])
    np.testing.assert_allclose(y, expected, atol=1e-12)


def test_a_transposed_convolution_starts_as_the_convolution_it_transposes_would() -> None:
    kernel = ConvTranspose(6, (3, 3)).init(jax.random.key(0), (5, 5, 4))["kernel"]
    assert kernel.shape == (3, 3, 6, 4)
    assert np.std(kernel) == pytest.approx(np.sqrt(2 / (9 * 4)), rel=0.2)  # He: of the inputs, not of the filters


@pytest.mark.parametrize("multiplier", [1, 3])
def test_a_depthwise_convolution_is_pytorchs_of_as_many_groups(multiplier: int) -> None:
    torch = pytest.importorskip("torch")
    x, kernel, bias = images(2, 6, 5, 4), images(3, 2, 1, 4 * multiplier), images(4 * multiplier)
    given = torch.tensor(channels_first(x)), torch.tensor(kernel.transpose(3, 2, 0, 1)), torch.tensor(bias)
    expected = channels_last(torch.nn.functional.conv2d(*given, stride=2, groups=4))
    layer = DepthwiseConv((3, 2), 2, multiplier=multiplier)
    y = layer.forward({"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}, jnp.asarray(x))
    np.testing.assert_allclose(y, expected, atol=1e-12)


def test_a_separable_convolution_is_a_depthwise_one_and_one_of_size_1() -> None:
    layer = SeparableConv(5, (3, 3), 2, "same", multiplier=2)
    weights, x = layer.init(jax.random.key(1), (6, 7, 3)), jnp.asarray(images(2, 6, 7, 3))
    hidden = DepthwiseConv((3, 3), 2, "same", multiplier=2, bias=False).forward(weights["depthwise"], x)
    expected = Conv(5, (1, 1)).forward(weights["pointwise"], hidden)
    np.testing.assert_array_equal(layer.forward(weights, x), expected)
    sizes = jax.tree.map(jnp.size, weights)
    assert sizes == {"depthwise": {"kernel": 9 * 6}, "pointwise": {"kernel": 6 * 5, "bias": 5}}


def test_a_local_convolution_has_a_kernel_at_every_window() -> None:
    layer, x = LocallyConnected(3, (2, 2), (2, 1)), images(2, 5, 4, 2)
    weights = layer.init(jax.random.key(0), (5, 4, 2))
    kernel, bias = (np.asarray(weights[name], "float64") for name in ("kernel", "bias"))
    bias = bias + images(*bias.shape)
    assert kernel.shape == (2, 3, 8, 3)
    expected = np.empty((2, 2, 3, 3))
    for row in range(2):
        for column in range(3):
            window = x[:, 2 * row : 2 * row + 2, column : column + 2].reshape(2, -1)
            expected[:, row, column] = window @ kernel[row, column] + bias[row, column]
    y = layer.forward({"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}, jnp.asarray(x))
    np.testing.assert_allclose(y, expected, atol=1e-12)
    assert np.std(kernel) == pytest.approx(np.sqrt(2 / 8), rel=0.25)  # He: of a window's inputs


def test_a_depthwise_convolution_of_bfloat16_rounds_its_sums_once() -> None:
    random, layer = np.random.default_rng(3), DepthwiseConv(48, padding="full", bias=False)
    x, kernel, dy = (
        jnp.asarray(random.uniform(1, 2, shape), jnp.bfloat16) for shape in ((2, 6, 3), (48, 1, 3), (2, 53, 3))
    )
    y = layer.forward({"kernel": kernel}, x)
    dx = layer.delta({"kernel": kernel}, x, y, dy)
    rows, taps, slopes = (np.asarray(array, np.float64) for array in (x, kernel[:, 0], dy))
    expected = np.zeros((2, 53, 3))
    for at in range(6):
        expected[:, at : at + 48] += rows[:, at, None] * taps[::-1]
    expected_dx = np.stack([(slopes[:, at : at + 48] * taps[::-1]).sum(axis=1) for at in range(6)], axis=1)
    assert y.dtype == dx.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol=2**-8)
    np.testing.assert_allclose(np.asarray(dx, np.float64), expected_dx, rtol=2**-8)


def test_the_delta_of_kernels_of_their_own_is_rounded_once_in_bfloat16() -> None:
    random, layer = np.random.default_rng(4), LocallyConnected(2, 40, bias=False)
    x, kernel, dy = (
        jnp.asarray(random.uniform(1, 2, shape), jnp.bfloat16) for shape in ((2, 79, 1), (40, 40, 2), (2, 40, 2))
    )
    dx = layer.delta({"kernel": kernel}, x, dy, dy)
    expected = np.zeros((2, 79, 1))
    for at in range(40):
        expected[:, at : at + 40, 0] += np.asarray(dy, np.float64)[:, at] @ np.asarray(kernel, np.float64)[at].T
    assert dx.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(dx, np.float64), expected, rtol=2**-8)


@pytest.mark.parametrize(("method", "theirs"), [("nearest", "nearest"), ("linear", "bilinear")])
def test_more_positions_are_pytorchs(method: str, theirs: str) -> None:
    torch = pytest.importorskip("torch")
    x = images(2, 3, 4, 2)
    expected = torch.nn.functional.interpolate(torch.tensor(channels_first(x)), scale_factor=(2, 3), mode=theirs)
    y = UpSample((2, 3), method=method).forward({}, jnp.asarray(x))
    np.testing.assert_allclose(y, channels_last(expected), atol=1e-12)


def test_space_becomes_depth_in_the_order_of_row_column_and_channel() -> None:
    x = images(2, 4, 6, 3)
    y = np.asarray(SpaceToDepth(2).forward({}, jnp.asarray(x)))
    np.testing.assert_array_equal(y[:, 1, 2], x[:, 2:4, 4:6].reshape(2, -1))
    np.testing.assert_array_equal(DepthToSpace(2).forward({}, jnp.asarray(y)), x)


def test_depth_becomes_space_as_in_pytorch_but_for_the_order_of_channels() -> None:
    torch = pytest.importorskip("torch")
    x = images(2, 3, 2, 8)
    theirs = x.reshape(2, 3, 2, 4, 2).swapaxes(3, 4).reshape(2, 3, 2, 8)  # theirs has the channel first
    expected = channels_last(torch.nn.functional.pixel_shuffle(torch.tensor(channels_first(theirs)), 2))
    np.testing.assert_array_equal(DepthToSpace(2).forward({}, jnp.asarray(x)), expected)


@pytest.mark.parametrize("margins", [1, (2, 0), ((1, 2), (0, 3))])
def test_margins_are_numpys(margins: Any) -> None:
    x = images(2, 5, 6, 2)
    pairs = [(margins, margins)] * 2 if isinstance(margins, int) else margins
    pairs = [pair if isinstance(pair, tuple) else (pair, pair) for pair in pairs]
    padded = np.pad(x, [(0, 0), *pairs, (0, 0)])
    np.testing.assert_array_equal(ZeroPad(margins).forward({}, jnp.asarray(x)), padded)
    np.testing.assert_array_equal(Crop(margins).forward({}, jnp.asarray(padded)), x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConvTranspose(0, 3), "filters of ConvTranspose must be a positive integer, received 0"),
        (lambda: ConvTranspose(2, 3, 2, "full"), "padding of ConvTranspose must be .* received 'full'"),
        (lambda: ConvTranspose(2, 3, 2, extra=2), "extra of ConvTranspose must be at least 0 and below the strides 2"),
        (lambda: ConvTranspose(2, 3, 2, "same", extra=1), "extra of ConvTranspose must be 0 where padding is 'same'"),
        (lambda: DepthwiseConv(3, multiplier=0), "multiplier of DepthwiseConv must be a positive integer"),
        (lambda: LocallyConnected(2.5, 3), "filters of LocallyConnected must be a positive integer"),
        (lambda: UpSample(2, method="area"), "method of UpSample must be .* received 'area'"),
        (lambda: ZeroPad(-1), "margins of ZeroPad must be an integer of at least 0"),
        (lambda: SpaceToDepth(0), "size of SpaceToDepth must be a positive integer, received 0"),
        (lambda: SeparableConv(0, 3), "filters of Conv must be a positive integer"),
    ],
)
def test_what_makes_no_layer_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_frozen_separable_convolution_learns_nothing() -> None:
    layer: Layer = SeparableConv(2, 3, trainable=False)
    assert layer.learned(layer.init(jax.random.key(0), (5, 2))) == {}
