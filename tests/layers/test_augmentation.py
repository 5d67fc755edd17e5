"""Random image layers: what a draw does, that rows draw for themselves, and that inference is fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.augmentation import RandomBrightness, RandomContrast, RandomCrop, RandomFlip, RandomInvert
from sparkdl.layers.base import Array, Context, Layer

BATCH = 64
X = np.random.default_rng(0).uniform(0, 255, (BATCH, 5, 4, 2)).astype(np.float32)


def trained(layer: Layer, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y and what was drawn for it."""
    y, drawn = layer.train_forward({}, jnp.asarray(X), Context(jax.random.key(seed), jnp.ones(BATCH)))
    return np.asarray(y), np.asarray(drawn)


def test_crop_cuts_every_window_in_training_and_the_centre_at_inference() -> None:
    layer = RandomCrop((3, 2))
    y, corners = trained(layer)
    for image, row, (top, left) in zip(X, y, corners, strict=True):
        np.testing.assert_array_equal(row, image[top : top + 3, left : left + 2])
    assert {tuple(corner) for corner in corners} == {(top, left) for top in range(3) for left in range(3)}
    np.testing.assert_array_equal(layer.forward({}, jnp.asarray(X)), X[:, 1:4, 1:3])


def test_the_delta_of_a_crop_lies_where_it_was_cut() -> None:
    layer = RandomCrop((3, 2))
    y, corners = trained(layer)
    rows, outputs, context = jnp.asarray(X), jnp.asarray(y), Context(jax.random.key(0), jnp.ones(BATCH))
    dx = np.asarray(layer.train_delta({}, rows, outputs, outputs, jnp.asarray(corners), context))
    expected = np.zeros_like(X)
    for row, delta, (top, left) in zip(y, expected, corners, strict=True):
        delta[top : top + 3, left : left + 2] = row
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("axis, mirrored", [("horizontal", X[:, :, ::-1]), ("vertical", X[:, ::-1])])
def test_flip_mirrors_about_half_of_the_images(axis: str, mirrored: np.ndarray) -> None:
    y, drawn = trained(RandomFlip(axis))
    np.testing.assert_array_equal(y, np.where(drawn, mirrored, X))
    assert abs(drawn.mean() - 0.5) < 5 * 0.5 / np.sqrt(BATCH)


@pytest.mark.parametrize("low, high", [(0.0, 255.0), (-1.0, 3.5)])
def test_invert_swaps_the_ends_of_the_range_in_about_half_of_the_images(low: float, high: float) -> None:
    y, drawn = trained(RandomInvert((low, high)))
    np.testing.assert_array_equal(y, np.where(drawn, np.float32(low + high) - X, X))
    assert drawn.shape == (BATCH, 1, 1, 1) and abs(drawn.mean() - 0.5) < 5 * 0.5 / np.sqrt(BATCH)


def test_brightness_moves_each_image_as_a_whole_and_within_bounds() -> None:
    y, drawn = trained(RandomBrightness(20.0))
    np.testing.assert_allclose(y - X, np.broadcast_to(drawn, X.shape), atol=1e-4)
    assert drawn.min() < -10 and drawn.max() > 10 and np.abs(drawn).max() <= 20
    assert len(np.unique(drawn)) == BATCH


def test_contrast_scales_the_distance_to_the_channel_means() -> None:
    y, drawn = trained(RandomContrast(0.5, 2.0))
    mean = X.astype(np.float64).mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(y, (X - mean) * drawn + mean, rtol=1e-4, atol=1e-3)
    assert 0.5 <= drawn.min() < 0.8 and 1.7 < drawn.max() <= 2
    assert len(np.unique(drawn)) == BATCH


@pytest.mark.parametrize("layer", [RandomBrightness(200.0), RandomContrast(2.0, 9.0)], ids=repr)
def test_values_are_kept_within_a_range_if_there_is_one(layer: RandomBrightness | RandomContrast) -> None:
    kept = replace(layer, value_range=(20.0, 200.0))
    np.testing.assert_array_equal(trained(kept)[0], np.clip(trained(layer)[0], 20, 200))


@pytest.mark.parametrize(
    "layer",
    [RandomCrop((2, 2)), RandomFlip(), RandomInvert(), RandomBrightness(1.0), RandomContrast(0.9, 1.1)],
    ids=repr,
)
def test_a_key_decides_the_draw(layer: Layer) -> None:
    first, again, other = (trained(layer, seed)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    "layer", [RandomFlip(), RandomInvert(), RandomBrightness(9.0), RandomContrast(0.1, 3.0)], ids=repr
)
def test_inference_is_the_identity(layer: Layer) -> None:
    np.testing.assert_array_equal(layer.forward({}, jnp.asarray(X)), X)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_training_keeps_the_dtype_of_rows(dtype: type, float64: None) -> None:
    def through(x: Array) -> Array:
        context = Context(jax.random.key(0), jnp.ones(BATCH))
        variations = (RandomFlip(), RandomInvert(), RandomBrightness(9.0), RandomContrast(0.1, 3.0))
        for layer in (RandomCrop((4, 4)), *variations):
            x, _ = layer.train_forward({}, x, context)
        return x

    assert jax.eval_shape(through, jax.ShapeDtypeStruct(X.shape, dtype)).dtype == dtype


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RandomCrop((24, -1)), r"size of RandomCrop must be \(height, width\), .* received \(24, -1\)"),
        (lambda: RandomCrop((6, 4)).output_shape(X.shape[1:]), r"RandomCrop of size \(6, 4\) .* received \(5, 4, 2\)"),
        (lambda: RandomFlip("diagonal"), "axis of RandomFlip must be .* received 'diagonal'"),
        (lambda: RandomInvert(255), "value_range of RandomInvert must be .* received 255"),  # type: ignore[arg-type]
        (lambda: RandomInvert((0, "a")), "value_range of RandomInvert must be .* received"),  # type: ignore[arg-type]
        (lambda: RandomInvert((1.0, 0.0)), r"value_range of RandomInvert must be .* received \(1.0, 0.0\)"),
        (lambda: RandomBrightness(-1.0), "max_delta of RandomBrightness must be .* received -1.0"),
        (lambda: RandomBrightness(1.0, (2, 1)), r"value_range of RandomBrightness must be .* received \(2, 1\)"),
        (lambda: RandomContrast(1.2, 0.8), "0 <= lower < upper, received lower=1.2, upper=0.8"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
