"""Convolution by products, of small images and of bfloat16: the values of the direct sum, and where it is chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sparkdl.layers import Conv
from sparkdl.layers.base import Array

RANDOM = np.random.default_rng(4)


@pytest.mark.parametrize(
    ("layer", "spatial"),
    [
        (Conv(5, (3, 3), padding="same", bias=False), (2, 2)),
        (Conv(5, (3, 3), padding="same", bias=False), (1, 1)),
        (Conv(5, (3, 3), strides=2, padding="same", bias=False), (2, 2)),
        (Conv(5, (3, 3), strides=2, padding="same", bias=False), (4, 4)),  # delta's alone
        (Conv(5, (3, 3), dilation=(1, 2), padding="full", bias=False), (2, 2)),
        (Conv(5, (5, 2), strides=(1, 3), padding=((3, 1), (0, 5)), bias=False), (2, 3)),
        (Conv(5, (2, 2), padding=((3, 3), (3, 3)), bias=False), (1, 1)),  # more padding than windows reach
        (Conv(5, (7,), padding="same", bias=False), (4,)),
        (Conv(5, (3, 3, 3), padding="same", bias=False), (2, 2, 2)),
    ],
    ids=str,
)
def test_it_and_its_slopes_are_those_of_the_direct_sum(layer: Conv, spatial: tuple[int, ...]) -> None:
    weights = layer.init(jax.random.key(0), (*spatial, 4))
    x = jnp.asarray(RANDOM.normal(size=(6, *spatial, 4)), "float32")

    def direct(kernel: Array, x: Array) -> Array:
        windows, axes = layer._windows(spatial), "DHW"[-len(spatial) :]
        rest = windows.strides, windows.padding, None, windows.dilation
        names = (f"N{axes}C", f"{axes}IO", f"N{axes}C")
        return lax.conv_general_dilated(x, kernel, *rest, dimension_numbers=names)

    expected, back = jax.vjp(direct, weights["kernel"], x)
    y = layer.forward(weights, x)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    dy = jnp.asarray(RANDOM.normal(size=y.shape), "float32")
    dkernel, dx = back(dy)
    np.testing.assert_allclose(layer.delta(weights, x, y, dy), dx, atol=1e-5)
    np.testing.assert_allclose(layer.gradient(weights, x, y, dy)["kernel"], dkernel, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "rows"),
    [
        (Conv(24, (3, 3), padding="same", bias=False), (6, 7, 5, 128)),
        (Conv(130, (3, 3), strides=2, padding="same", bias=False), (6, 8, 9, 128)),
        (Conv(128, (2, 3), dilation=(1, 2), padding="full", bias=False), (5, 6, 6, 130)),
        (Conv(128, (3,), padding="same", bias=False), (6, 11, 128)),
        (Conv(256, (3, 3), padding="same", bias=False), (7, 32, 32, 128)),  # in parts
    ],
    ids=str,
)
def test_many_channels_of_bfloat16_are_added_up_in_float32_and_rounded_once(layer: Conv, rows: tuple[int, ...]) -> None:
    weights = jax.tree.map(lambda array: array.astype("bfloat16"), layer.init(jax.random.key(0), rows[1:]))
    x = jnp.asarray(RANDOM.normal(size=rows), "bfloat16")
    widened = jax.tree.map(lambda array: array.astype("float32"), weights)
    y = layer.forward(weights, x)
    dy = jnp.asarray(RANDOM.normal(size=y.shape), "bfloat16")
    exact = layer.forward(widened, x.astype("float32"))
    for found, expected in (
        (y, exact),
        (layer.delta(weights, x, y, dy), layer.delta(widened, x.astype("float32"), exact, dy.astype("float32"))),
    ):
        assert found.dtype == jnp.bfloat16
        bound = 2.0**-8 * np.abs(expected) + 1e-4 * float(expected.std())
        assert (np.abs(found.astype("float32") - expected) <= bound).all()


@pytest.mark.parametrize(
    ("layer", "positions", "is_product"),
    [
        (Conv(64, (3, 3), padding="same", bias=False), 2, (True, True)),
        (Conv(64, (3, 3), padding="same", bias=False), 3, (False, False)),
        (Conv(64, (3, 3), strides=2, padding="same", bias=False), 4, (False, True)),
        (Conv(64, (3, 3), padding="same", groups=2), 2, (False, False)),
    ],
    ids=str,
)
def test_where_xla_would_take_plain_loops(layer: Conv, positions: int, is_product: tuple[bool, bool]) -> None:
    weights = layer.init(jax.random.key(0), (positions, positions, 64))
    x = jnp.zeros((8, positions, positions, 64), "float32")
    y = layer.forward(weights, x)
    programs = (
        jax.jit(layer.forward).lower(weights, x).compile().as_text(),
        jax.jit(layer.delta).lower(weights, x, y, y).compile().as_text(),
    )
    assert tuple(" convolution(" not in program for program in programs) == is_product
