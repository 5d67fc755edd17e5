"""RandomErasing: a rectangle of some images is hidden, as large and as oblong as was asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers import RandomErasing
from sparkdl.layers.base import Context

BATCH, HEIGHT, WIDTH = 2000, 30, 40
X = np.random.default_rng(0).uniform(1, 2, (BATCH, HEIGHT, WIDTH, 1)).astype(np.float32)


def trained(layer: RandomErasing, x: Any = X, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y and what was drawn for it."""
    y, drawn = layer.train_forward({}, jnp.asarray(x), Context(jax.random.key(seed), jnp.ones(len(x))))
    return np.asarray(y), np.asarray(drawn)


def test_the_rectangle_is_hidden_and_nothing_else() -> None:
    x = np.repeat(X[:50], 3, axis=-1)
    y, drawn = trained(RandomErasing(0.7, value=-5.0), x)
    expected = x.copy()
    for image, (top, left, bottom, right) in zip(expected, drawn, strict=True):
        image[top:bottom, left:right] = -5.0
    np.testing.assert_array_equal(y, expected)


def test_of_every_other_image_a_part_is_hidden_of_the_size_and_shape_asked_for() -> None:
    y, _ = trained(RandomErasing())
    share = (y == 0).mean(axis=(1, 2, 3))
    some = share[share > 0]
    assert abs(len(some) / BATCH - 0.5) < 5 * 0.5 / np.sqrt(BATCH)
    # Some are cut to the height of the image: sqrt(0.33 * 1200 * 3.3) is 36 rows.
    assert 0.015 < some.min() < 0.03 and 0.3 < some.max() < 0.34
    assert abs(some.mean() - (0.02 + 0.33) / 2) < 0.015


@pytest.mark.parametrize("ratio", [(0.25, 0.5), (1.0, 1.0), (2.0, 4.0)])
def test_rectangles_are_as_oblong_as_was_asked_for(ratio: tuple[float, float]) -> None:
    _, drawn = trained(RandomErasing(1.0, (0.1, 0.15), ratio))
    heights, widths = (drawn[:, 2:] - drawn[:, :2]).T
    logs = np.log(heights / widths)
    low, high = np.log(ratio)
    assert low - 0.12 < logs.min() < low + 0.1 and high - 0.1 < logs.max() < high + 0.12  # of whole pixels
    assert abs(logs.mean() - (low + high) / 2) < 0.03
    assert abs((heights * widths).mean() / (HEIGHT * WIDTH) - 0.125) < 0.005


def test_every_place_is_equally_likely() -> None:
    _, drawn = trained(RandomErasing(1.0, (1 / 1200, 1 / 1200), (1.0, 1.0)))  # a pixel
    assert (drawn[:, 2:] - drawn[:, :2] == 1).all()
    for starts, size in zip(drawn.T[:2], (HEIGHT, WIDTH), strict=True):
        assert set(starts) == set(range(size))
        assert abs(starts.mean() - (size - 1) / 2) < 5 * size / np.sqrt(12 * BATCH)


def test_what_is_too_high_ends_at_the_edges_and_everything_may_be_hidden() -> None:
    y, drawn = trained(RandomErasing(1.0, (0.5, 0.5), (100.0, 100.0)))
    assert (drawn[:, 0] == 0).all() and (drawn[:, 2] == HEIGHT).all()
    whole, _ = trained(RandomErasing(1.0, (1.0, 1.0), (0.75, 0.75)))
    assert not whole.any() and y.any()


def test_the_delta_is_0_where_x_was_hidden() -> None:
    layer = RandomErasing(1.0)
    y, drawn = trained(layer, X[:20])
    context = Context(jax.random.key(0), jnp.ones(20))
    dx = layer.train_delta(*({}, jnp.asarray(X[:20]), jnp.asarray(y), jnp.asarray(y)), jnp.asarray(drawn), context)
    np.testing.assert_array_equal(dx, np.where(y == 0, 0, y))


def test_a_key_decides_the_draw_and_inference_is_the_identity() -> None:
    first, again, other = (trained(RandomErasing(), X[:20], seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(RandomErasing(1.0).forward({}, jnp.asarray(X[:20])), X[:20])
    np.testing.assert_array_equal(trained(RandomErasing(0.0), X[:20])[0], X[:20])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_rows_keep_their_dtype(dtype: type, float64: None) -> None:
    assert trained(RandomErasing(), jnp.asarray(X[:20], dtype))[0].dtype == dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomErasing(1.5), r"rate of RandomErasing must be a number in \[0, 1\], received 1.5"),
        (lambda: RandomErasing(area=0.2), "area of RandomErasing must be two .* of at most 1, received 0.2"),  # type: ignore[arg-type]
        (lambda: RandomErasing(area=(0.1, 1.5)), r"area of RandomErasing .* of at most 1, received \(0.1, 1.5\)"),
        (lambda: RandomErasing(ratio=(0.0, 1.0)), r"ratio of RandomErasing must be two positive .* \(0.0, 1.0\)"),
        (lambda: RandomErasing(value=float("inf")), "value of RandomErasing must be a finite number, received inf"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
