"""Image preparation against NumPy formulas and PyTorch's resampling."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.image import Rescale, Resize, Standardize


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 255, shape)


def test_rescale_is_affine(float64: None) -> None:
    x = images(2, 3, 4, 1)
    np.testing.assert_allclose(Rescale(1 / 127.5, offset=-1).forward({}, jnp.asarray(x)), x / 127.5 - 1, rtol=1e-12)


@pytest.mark.parametrize("contrast", [1.0, 1e-4], ids=["deviation", "lower bound"])
def test_standardize_divides_by_the_deviation_down_to_its_bound(contrast: float, float64: None) -> None:
    x = images(3, 4, 5, 2) * contrast
    expected = [(row - row.mean()) / max(row.std(), 1 / np.sqrt(40)) for row in x]
    np.testing.assert_allclose(Standardize().forward({}, jnp.asarray(x)), expected, rtol=1e-10)


def test_standardize_keeps_a_constant_image_and_its_delta_finite() -> None:
    x, dy = jnp.full((1, 2, 3, 1), 7.0), jnp.arange(6.0).reshape(1, 2, 3, 1)
    y = Standardize().forward({}, x)
    np.testing.assert_array_equal(y, np.zeros(x.shape))
    expected = np.sqrt(6) * (np.arange(6).reshape(x.shape) - 2.5)
    np.testing.assert_allclose(Standardize().delta({}, x, y, dy), expected, rtol=1e-6)


def test_resize_interpolates_between_pixel_centres() -> None:
    x = jnp.asarray([0.0, 4.0, 8.0]).reshape(1, 1, 3, 1)
    y = np.asarray(Resize((2, 6)).forward({}, x))
    np.testing.assert_allclose(y[0, :, :, 0], [[0, 1, 3, 5, 7, 8]] * 2, rtol=1e-6)
    nearest = np.asarray(Resize((1, 6), method="nearest").forward({}, x))
    np.testing.assert_array_equal(nearest[0, 0, :, 0], [0, 0, 4, 4, 8, 8])


@pytest.mark.parametrize("method, theirs", [("linear", "bilinear"), ("cubic", "bicubic")])
@pytest.mark.parametrize("size", [(3, 4), (9, 11), (4, 10)], ids=["smaller", "larger", "both"])
def test_resize_agrees_with_pytorch(method: str, theirs: str, size: tuple[int, int], float64: None) -> None:
    torch = pytest.importorskip("torch")
    x = images(2, 7, 8, 2)
    channels_first = torch.tensor(x.transpose(0, 3, 1, 2))
    expected = torch.nn.functional.interpolate(channels_first, size, mode=theirs, antialias=True)
    y = Resize(size, method=method).forward({}, jnp.asarray(x))
    np.testing.assert_allclose(y, expected.numpy().transpose(0, 2, 3, 1), rtol=1e-6)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Rescale(float("inf")), "scale of Rescale must be a finite number, received inf"),
        (lambda: Resize((0, 3)), r"size of Resize must be \(height, width\), .* received \(0, 3\)"),
        (lambda: Resize((3, 3), method="area"), "method of Resize must be .* received 'area'"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
