"""Winograd's convolution against the direct sum: rounding, transforms, and where it is chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sparkdl.layers import Conv, winograd
from sparkdl.layers.base import Array

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("size", [3, 5])
def test_the_three_matrices_correlate(size: int) -> None:
    a, g, b = winograd.matrices(size)
    x, kernel = RANDOM.normal(size=winograd.OUTPUTS + size - 1), RANDOM.normal(size=size)
    np.testing.assert_allclose(a.T @ ((g @ kernel) * (b.T @ x)), np.correlate(x, kernel, "valid"), atol=1e-12)


def direct(kernel: Array, x: Array) -> Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(
    ("size", "extent", "rows"), [(3, 9, 4), (5, 12, 4), (3, 9, 96), (5, 12, 24)], ids=["3", "5", "3 parts", "5 parts"]
)
def test_in_float32_the_error_is_a_few_millionths(size: int, extent: int, rows: int) -> None:
    layer = Conv(64, (size, size), padding="same", bias=False)
    x, dy = (jnp.asarray(RANDOM.normal(size=(rows, extent, extent, 64)), "float32") for _ in range(2))
    kernel = jnp.asarray(RANDOM.normal(size=(size, size, 64, 64)) / (8 * size), "float32")
    assert layer._tiles(kernel.shape, x) is not None
    y, back = jax.vjp(direct, kernel, x)
    dkernel, dx = back(dy)
    weights = {"kernel": kernel}
    results = layer.forward(weights, x), layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy)["kernel"]
    for found, expected in zip(results, (y, dx, dkernel), strict=True):
        error = jnp.sqrt(((found - expected) ** 2).mean()) / expected.std()
        assert 0 < error < 1e-5  # 0 would mean that it was the direct sum


def test_bfloat16_is_computed_in_float32_and_rounded_once() -> None:
    layer = Conv(64, (3, 3), padding="same", bias=False)
    x, dy = (jnp.asarray(RANDOM.normal(size=(4, 9, 9, 64)), "bfloat16") for _ in range(2))
    kernel = jnp.asarray(RANDOM.normal(size=(3, 3, 64, 64)) / 24, "bfloat16")
    assert layer._tiles(kernel.shape, x) is not None
    y, back = jax.vjp(direct, kernel.astype("float32"), x.astype("float32"))
    dkernel, dx = back(dy.astype("float32"))
    weights = {"kernel": kernel}
    results = layer.forward(weights, x), layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy)["kernel"]
    for found, expected in zip(results, (y, dx, dkernel), strict=True):
        assert found.dtype == jnp.bfloat16
        bound = 2.0**-8 * np.abs(expected) + 1e-4 * float(expected.std())
        assert (np.abs(found.astype("float32") - expected) <= bound).all()


@pytest.mark.parametrize(
    ("layer", "rows", "dtype"),
    [
        (Conv(64, (5, 5)), (16, 12, 12, 3), "float32"),  # few channels
        (Conv(16, (5, 5)), (16, 12, 12, 64), "float32"),  # few filters
        (Conv(64, (3, 3), strides=2), (16, 12, 12, 64), "float32"),
        (Conv(64, (3, 3), dilation=2), (16, 12, 12, 64), "float32"),
        (Conv(64, (3, 3), groups=2), (16, 12, 12, 64), "float32"),
        (Conv(64, (1, 1)), (16, 12, 12, 64), "float32"),
        (Conv(64, (3, 5)), (16, 12, 12, 64), "float32"),
        (Conv(64, (3,)), (16, 12, 64), "float32"),
        (Conv(64, (5, 5)), (16, 7, 7, 64), "float32"),  # not a whole tile of outputs
        (Conv(64, (3, 3)), (16, 12, 12, 64), "float16"),
    ],
    ids=str,
)
def test_other_shapes_are_convolved_directly(layer: Conv, rows: tuple[int, ...], dtype: str) -> None:
    kernel = (*layer._size, rows[-1] // layer.groups, layer.filters)
    assert layer._tiles(kernel, jax.ShapeDtypeStruct(rows, dtype)) is None  # type: ignore[arg-type]
