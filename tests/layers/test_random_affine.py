"""RandomAffine: places are those of the formula, fills those of SciPy, and every image is changed by its own draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import affine_transform

from sparkdl.layers import RandomAffine
from sparkdl.layers.base import Context

BATCH, HEIGHT, WIDTH = 6, 7, 10
X = np.random.default_rng(0).uniform(0, 255, (BATCH, HEIGHT, WIDTH, 2)).astype(np.float32)
CENTRE = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2])
SCIPYS = {"reflect": "reflect", "nearest": "nearest", "wrap": "grid-wrap", "constant": "grid-constant"}


def trained(layer: RandomAffine, x: Any = X, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y and what was drawn for it."""
    y, drawn = layer.train_forward({}, jnp.asarray(x), Context(jax.random.key(seed), jnp.ones(len(x))))
    return np.asarray(y), np.asarray(drawn)


def by_scipy(image: np.ndarray, drawn: np.ndarray, fill: str, value: float) -> np.ndarray:
    """An image changed as `drawn` says."""
    angle, down, right, tall, wide = drawn.astype(np.float64)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.diag([tall, wide])
    offset = CENTRE - matrix @ (CENTRE + [down, right])
    channels = [
        affine_transform(image[..., channel].astype(np.float64), matrix, offset, order=1, mode=SCIPYS[fill], cval=value)
        for channel in range(image.shape[-1])
    ]
    return np.stack(channels, axis=-1)


@pytest.mark.parametrize("fill", SCIPYS)
def test_images_are_those_of_scipy(fill: str) -> None:
    layer = RandomAffine(40.0, 0.2, (-0.1, 0.3), (-0.3, 0.4), 0.2, fill=fill, value=7.0)
    y, drawn = trained(layer)
    for image, row, numbers in zip(X, y, drawn, strict=True):
        np.testing.assert_allclose(row, by_scipy(image, numbers, fill, 7.0), atol=0.02)


def test_an_image_turns_counterclockwise_and_moves_down_and_to_the_right() -> None:
    square = np.zeros((1, 5, 5, 1), np.float32)
    square[0, 0, 2] = 1.0  # at the top
    turned, _ = trained(RandomAffine(rotation=(90.0, 90.0)), square)
    np.testing.assert_allclose(turned[0, :, :, 0], np.rot90(square[0, :, :, 0]), atol=1e-5)
    moved, _ = trained(RandomAffine(shift=(0.2, 0.2), width_shift=(0.4, 0.4), fill="constant"), square)
    np.testing.assert_allclose(np.argwhere(moved[0, :, :, 0] > 0.5), [[1, 4]])


def test_draws_lie_within_their_bounds_and_each_image_has_its_own() -> None:
    many = np.zeros((400, 4, 8, 1), np.float32)
    layer = RandomAffine(rotation=(-10.0, 30.0), shift=0.25, zoom=(0.0, 0.5))
    _, drawn = trained(layer, many)
    least = [np.radians(-10), -0.25 * 4, -0.25 * 8, 1.0, 1.0]
    most = [np.radians(30), 0.25 * 4, 0.25 * 8, 1.5, 1.5]
    for numbers, low, high in zip(drawn.T, least, most, strict=True):
        assert low <= numbers.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < numbers.max() <= high
        assert len(set(numbers)) > 350
    np.testing.assert_array_equal(drawn[:, 3], drawn[:, 4])  # shapes stay as they are
    assert abs(np.corrcoef(drawn[:, 1], drawn[:, 2])[0, 1]) < 0.2  # but shifts are of two draws
    assert (trained(RandomAffine(zoom=0.5, width_zoom=0.5), many)[1][:, 3:] @ [1, -1] != 0).all()


def test_a_key_decides_the_draw_and_inference_is_the_identity() -> None:
    layer = RandomAffine(10.0, 0.1)
    first, again, other = (trained(layer, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(layer.forward({}, jnp.asarray(X)), X)


def test_without_bounds_images_stay_as_they_are() -> None:
    np.testing.assert_allclose(trained(RandomAffine())[0], X, rtol=1e-6)


def test_the_delta_is_the_transpose_of_what_was_done() -> None:
    layer = RandomAffine(25.0, 0.2, zoom=0.2)
    y, drawn = trained(layer)
    dy = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    context = Context(jax.random.key(0), jnp.ones(BATCH))
    dx = np.asarray(layer.train_delta({}, *map(jnp.asarray, (X, y, dy, drawn)), context))
    # y is linear in x, so <dy, A x> = <A' dy, x>.
    np.testing.assert_allclose((dy * y).sum(), (dx * X).sum(), rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_rows_keep_their_dtype_and_bfloat16_tells_places_apart(dtype: type, float64: None) -> None:
    large = np.tile(np.arange(300, dtype=np.float64)[None, :, None, None] % 128, (1, 1, 4, 1))
    y, _ = trained(RandomAffine(shift=(-1 / 300, -1 / 300), width_shift=(0.0, 0.0)), jnp.asarray(large, dtype))
    assert y.dtype == dtype
    np.testing.assert_allclose(y[0, 1:-1, :, 0].astype("float64"), large[0, 2:, :, 0], atol=0.6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomAffine("15"), "rotation of RandomAffine must be a finite number, .* received '15'"),  # type: ignore[arg-type]
        (lambda: RandomAffine(shift=(0.2, 0.1)), r"shift of RandomAffine must be .* received \(0.2, 0.1\)"),
        (lambda: RandomAffine(rotation=None), "rotation of RandomAffine must be .* received None"),  # type: ignore[arg-type]
        (lambda: RandomAffine(zoom=1.0), "zoom of RandomAffine must be above -1, .* received 1.0"),
        (
            lambda: RandomAffine(width_zoom=(-1.5, 0.0)),
            r"width_zoom of RandomAffine must be above -1, .* \(-1.5, 0.0\)",
        ),
        (lambda: RandomAffine(fill="mirror"), "fill of RandomAffine must be one of reflect, .* received 'mirror'"),
        (lambda: RandomAffine(value=float("nan")), "value of RandomAffine must be a finite number, received nan"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
