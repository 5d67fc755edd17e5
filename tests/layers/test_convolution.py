"""Convolution against sums written out position by position, against PyTorch, and the sentences it refuses with."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.base import Shape
from sparkdl.layers.convolution import Conv
from sparkdl.layers.windows import Padding

CONVOLUTIONS = [
    (Conv(2, (3, 2)), (5, 4, 2), ((0, 0), (0, 0))),
    (Conv(2, (4, 3), padding="same"), (5, 6, 2), ((1, 2), (1, 1))),
    (Conv(2, (3, 2), padding="full"), (4, 3, 1), ((2, 2), (1, 1))),
    (Conv(2, (3, 3), strides=(2, 3), padding="same"), (6, 5, 2), ((0, 1), (0, 1))),
    (Conv(2, (2, 2), strides=3), (9, 8, 2), ((0, 0), (0, 0))),
    (Conv(2, (2, 2), dilation=(3, 1), padding="full"), (4, 3, 2), ((3, 3), (1, 1))),
    (Conv(4, (2, 2), dilation=2, strides=2, padding="same", groups=2), (6, 5, 4), ((0, 1), (1, 1))),
    (Conv(6, (2, 3), padding=((4, 0), (1, 2)), groups=3), (3, 4, 3), ((4, 0), (1, 2))),
    (Conv(3, 3, strides=2, bias=False), (8, 2), ((0, 0),)),
    (Conv(2, (2, 3), strides=2), (4, 5, 3), ((0, 0), (0, 0))),  # channels and filters widened
    (Conv(17, (2, 3), padding="same"), (3, 4, 5), ((0, 1), (1, 1))),  # channels widened
    (Conv(2, (1, 1), strides=(2, 3)), (6, 5, 4), ((0, 0), (0, 0))),  # a product, more channels than filters
    (Conv(4, 1, strides=3), (8, 2), ((0, 0),)),  # and fewer
    (Conv(2, (2, 3, 2), padding="same"), (3, 2, 3, 2), ((0, 1), (1, 1), (0, 1))),
]


def convolved(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray, layer: Conv, pads: Padding) -> np.ndarray:
    """One product of numbers after the other, from x already padded by the pairs the table states."""
    rank = x.ndim - 2
    size, (inputs, filters) = kernel.shape[:rank], kernel.shape[rank:]
    strides, dilation = (np.broadcast_to(value, rank) for value in (layer.strides, layer.dilation))
    x = np.pad(x, ((0, 0), *pads, (0, 0)))
    counts = [(x.shape[1 + a] - (size[a] - 1) * dilation[a] - 1) // strides[a] + 1 for a in range(rank)]
    y = np.zeros((x.shape[0], *counts, filters))
    for row, *window, f in np.ndindex(*y.shape):
        first = f // (filters // layer.groups) * inputs
        y[(row, *window, f)] = bias[f]
        for *position, c in np.ndindex(*size, inputs):
            at = tuple(np.multiply(window, strides) + np.multiply(position, dilation))
            y[(row, *window, f)] += x[(row, *at, first + c)] * kernel[(*position, c, f)]
    return y


@pytest.mark.parametrize(("layer", "shape", "pads"), CONVOLUTIONS, ids=str)
def test_forward_is_the_sum_of_products(layer: Conv, shape: Shape, pads: Padding, float64: None) -> None:
    random = np.random.default_rng(3)
    weights = {name: random.standard_normal(w.shape) for name, w in layer.init(jax.random.key(0), shape).items()}
    x = random.standard_normal((2, *shape))
    bias = weights.get("bias", np.zeros(layer.filters))
    expected = convolved(x, weights["kernel"], bias, layer, pads)
    assert layer.output_shape(shape) == expected.shape[1:]
    y = layer.forward(jax.tree.map(jnp.asarray, weights), jnp.asarray(x))
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("strides", "padding", "dilation", "groups"), list(product((1, 3), (0, 2), (1, 2), (1, 2))))
def test_the_three_kernels_equal_those_of_pytorch(
    strides: int, padding: int, dilation: int, groups: int, float64: None
) -> None:
    torch = pytest.importorskip("torch")
    layer = Conv(4, (3, 2), strides, ((padding, padding),) * 2, dilation, groups)
    random = np.random.default_rng(3)
    x, kernel = random.standard_normal((2, 8, 7, 2)), random.standard_normal((3, 2, 2 // groups, 4))
    bias = random.standard_normal(4)
    theirs = torch.tensor(np.moveaxis(x, -1, 1), requires_grad=True)
    their_kernel = torch.tensor(np.transpose(kernel, (3, 2, 0, 1)), requires_grad=True)
    their_bias = torch.tensor(bias, requires_grad=True)
    expected = torch.nn.functional.conv2d(theirs, their_kernel, their_bias, strides, padding, dilation, groups)
    dy = random.standard_normal((2, *expected.shape[2:], 4))
    expected.backward(torch.tensor(np.moveaxis(dy, -1, 1)))
    weights = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}
    y = layer.forward(weights, jnp.asarray(x))
    gradient = layer.gradient(weights, jnp.asarray(x), y, jnp.asarray(dy))
    dx = layer.delta(weights, jnp.asarray(x), y, jnp.asarray(dy))
    np.testing.assert_allclose(y, np.moveaxis(expected.detach().numpy(), 1, -1), atol=1e-12)
    np.testing.assert_allclose(dx, np.moveaxis(theirs.grad.numpy(), 1, -1), atol=1e-12)
    np.testing.assert_allclose(gradient["kernel"], np.transpose(their_kernel.grad.numpy(), (2, 3, 1, 0)), atol=1e-12)
    np.testing.assert_allclose(gradient["bias"], their_bias.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv(64, (5, 5)), (24, 24, 3), 20 * 20 * 64 * 5 * 5 * 3),
        (Conv(8, (3, 3), padding="same", strides=2, groups=4), (9, 9, 4), 5 * 5 * 8 * 3 * 3),
        (Conv(2, 3), (10, 5), 8 * 2 * 3 * 5),
    ],
    ids=str,
)
def test_multiply_adds_are_counted(layer: Conv, shape: Shape, expected: int) -> None:
    assert layer.multiply_adds(shape) == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"filters": 0}, "filters of Conv must be a positive integer, received 0"),
        ({"size": (3, 0)}, "size of Conv must be a positive integer or a tuple of one to three, received .3, 0."),
        ({"size": ()}, "size of Conv must be"),
        ({"size": (1, 1, 1, 1)}, "size of Conv must be"),
        ({"strides": 1.5}, "strides of Conv must be .* received 1.5"),
        ({"dilation": -1}, "dilation of Conv must be .* received -1"),
        ({"padding": "sames"}, "padding of Conv must be 'full', 'same', 'valid' or .* received 'sames'"),
        ({"padding": 2}, "padding of Conv must be .* received 2"),
        ({"padding": ((1, -1), (0, 0))}, "padding of Conv must be"),
        ({"padding": ((1, 1),)}, "Conv needs as many entries .* size=.3, 3., padding=..1, 1.,"),
        ({"size": 3, "strides": (1, 2)}, "Conv needs as many entries"),
        ({"groups": 0}, "groups of Conv must be a positive integer, received 0"),
        ({"groups": 3}, "filters of Conv must be a multiple of groups=3, received 4"),
    ],
    ids=str,
)
def test_arguments_are_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"filters": 4, "size": (3, 3), **arguments}
    with pytest.raises(ValueError, match=sentence):
        Conv(**given)


@pytest.mark.parametrize(
    ("layer", "shape", "sentence"),
    [
        (Conv(4, (3, 3)), (8, 8), r"\(height, width, channels\), received \(8, 8\)"),
        (Conv(4, (3, 3), groups=2), (8, 8, 3), "channels are a multiple of groups=2, received"),
        (Conv(4, (5, 5)), (3, 8, 1), r"size of Conv spans \(5, 5\) positions, more than the \(3, 8\) of a row"),
    ],
    ids=str,
)
def test_rows_are_refused_in_a_sentence(layer: Conv, shape: Shape, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer.output_shape(shape)


def test_same_padding_gives_the_windows_of_tensorflow() -> None:
    for n, size, stride in product(range(1, 9), range(1, 5), range(1, 5)):
        assert Conv(1, size, stride, "same").output_shape((n, 1)) == (-(-n // stride), 1)
