"""Rows in parts: into how many, and that what comes of them is that of all rows at once."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers import Conv
from sparkdl.layers.row_parts import PART_BYTES, map_parts, parts_of, sum_parts

RANDOM = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("rows", "row_bytes", "weight_bytes", "parts"),
    [
        (64, PART_BYTES // 64, 0, 1),
        (64, PART_BYTES // 8, 0, 8),
        (60, PART_BYTES // 8, 0, 10),  # the least of 8 and more that divides the rows
        (64, PART_BYTES // 8, 4 * PART_BYTES, 2),  # parts are not smaller than the weights
        (7, PART_BYTES, 0, 7),
        (61, PART_BYTES // 8, 0, 9),  # which leave two rows to fill up
        (3, 4 * PART_BYTES, 0, 3),  # no parts are smaller than a row
        (0, PART_BYTES, 0, 1),
    ],
)
def test_parts_are_equal_and_fit_the_cache(rows: int, row_bytes: int, weight_bytes: int, parts: int) -> None:
    assert parts_of(rows, row_bytes, weight_bytes) == parts


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("rows", [6, 7])
def test_parts_come_to_what_the_whole_comes_to(rows: int, parts: int) -> None:
    x, dy = (RANDOM.normal(size=(rows, 3)) for _ in range(2))
    np.testing.assert_array_equal(map_parts(lambda rows: rows * 2 + 1, parts, jnp.asarray(x)), x * 2 + 1)
    total = sum_parts(lambda a, b: a.T @ b, parts, jnp.asarray(x), jnp.asarray(dy))
    np.testing.assert_allclose(total, x.T @ dy, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("rows", "parts", "lengths"), [(12, 1, [3] * 4), (24, 3, [2] * 4), (6, 2, [3]), (7, 2, [1] * 4)]
)
def test_parts_in_blocks_come_to_what_the_whole_comes_to(rows: int, parts: int, lengths: list[int]) -> None:
    x, dy = (RANDOM.normal(size=(rows, 3)) for _ in range(2))

    def products(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> jax.Array:
        assert [len(block) for block in a] == [len(block) for block in b] == lengths
        return sum((one.T @ other for one, other in zip(a, b, strict=True)), jnp.zeros((3, 3)))

    total = sum_parts(products, parts, jnp.asarray(x), jnp.asarray(dy), blocks=4)
    np.testing.assert_allclose(total, x.T @ dy, rtol=0, atol=1e-14)


def test_many_small_parts_are_not_lost_in_bfloat16() -> None:
    ones = jnp.ones((1024, 1), jnp.bfloat16)
    assert float(sum_parts(lambda part: part.sum(), 1024, ones)) == 1024


@pytest.mark.parametrize("rows", [37, 40])
@pytest.mark.parametrize(
    "layer",
    [
        Conv(8, (3, 3), 2, ((1, 1), (1, 1)), bias=False),
        Conv(8, (1, 1), bias=False),
        Conv(8, (1, 1), 2, bias=False),
        Conv(8, 1, 3, bias=False),
        Conv(40, (3, 3), padding="same", bias=False),
    ],
    ids=str,
)
def test_a_convolution_of_many_rows_is_that_of_each(layer: Conv, rows: int) -> None:
    shape = (32, 40) if layer.size == 1 else (16, 16, 40)
    x = jnp.asarray(RANDOM.normal(size=(rows, *shape)))
    weights = {"kernel": jnp.asarray(RANDOM.normal(size=(*layer._size, 40, layer.filters)))}
    y = layer.forward(weights, x)
    dy = jnp.asarray(RANDOM.normal(size=y.shape))
    ones = [(x[at : at + 1], y[at : at + 1], dy[at : at + 1]) for at in range(len(x))]
    np.testing.assert_allclose(y, jnp.concatenate([layer.forward(weights, one) for one, *_ in ones]), atol=1e-10)
    dx = jnp.concatenate([layer.delta(weights, *one) for one in ones])
    np.testing.assert_allclose(layer.delta(weights, x, y, dy), dx, atol=1e-10)
    kernel = sum(layer.gradient(weights, *one)["kernel"] for one in ones)
    np.testing.assert_allclose(layer.gradient(weights, x, y, dy)["kernel"], kernel, atol=1e-9)
