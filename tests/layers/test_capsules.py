"""Capsules against the procedure of the paper in NumPy's loops, against PyTorch, and on digits of a kind."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network, training
from sparkdl.layers import Capsules, CapsuleStrength, Conv, PrimaryCapsules, Relu, Squash
from sparkdl.losses import MarginLoss

RANDOM = np.random.default_rng(17)
X = RANDOM.normal(size=(4, 6, 3))  # of 6 capsules below, of 3 numbers each
KERNEL = RANDOM.normal(size=(6, 5, 3, 2))


def squash(vector: np.ndarray) -> np.ndarray:
    """Equation 1, as it stands."""
    length = np.linalg.norm(vector)
    return length**2 / (1 + length**2) * vector / length


def routed(x: np.ndarray, kernel: np.ndarray, routings: int) -> np.ndarray:
    """Procedure 1, of one row."""
    inputs, capsules = kernel.shape[:2]
    forecasts = [[x[i] @ kernel[i, j] for j in range(capsules)] for i in range(inputs)]
    logits = np.zeros((inputs, capsules))
    for _ in range(routings):
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found = [squash(sum(shares[i, j] * forecasts[i][j] for i in range(inputs))) for j in range(capsules)]
        logits = logits + [[forecasts[i][j] @ found[j] for j in range(capsules)] for i in range(inputs)]
    return np.array(found)


@pytest.mark.parametrize("routings", [1, 2, 3])
def test_capsules_gather_what_those_below_foretell(routings: int, float64: None) -> None:
    layer = Capsules(5, 2, routings)
    y = layer.forward({"kernel": jnp.asarray(KERNEL)}, jnp.asarray(X))
    np.testing.assert_allclose(y, [routed(row, KERNEL, routings) for row in X], rtol=1e-12)
    strengths = CapsuleStrength().forward({}, y)
    np.testing.assert_allclose(strengths, np.linalg.norm(y, axis=2), rtol=1e-12)
    assert float(strengths.max()) < 1
    assert layer.init(jax.random.key(0), (6, 3))["kernel"].shape == KERNEL.shape


def test_their_slopes_through_all_routings_are_those_of_pytorch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    x, kernel = (torch.tensor(array, requires_grad=True) for array in (X, KERNEL))
    forecasts = (x[:, :, None, None] @ kernel).squeeze(3)
    logits = torch.zeros(4, 6, 5, 1, dtype=x.dtype)
    for _ in range(3):
        total = (torch.softmax(logits, 2) * forecasts).sum(1, keepdim=True)
        length = total.norm(dim=3, keepdim=True)
        y = total * length / (1 + length**2)
        logits = logits + (forecasts * y).sum(3, keepdim=True)
    dy = RANDOM.normal(size=(4, 5, 2))
    y[:, 0].backward(torch.tensor(dy))
    given = {"kernel": jnp.asarray(KERNEL)}, jnp.asarray(X), jnp.asarray(y[:, 0].detach().numpy()), jnp.asarray(dy)
    layer = Capsules(5, 2)
    np.testing.assert_allclose(layer.forward(*given[:2]), given[2], rtol=1e-10)
    np.testing.assert_allclose(layer.delta(*given), x.grad.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer.gradient(*given)["kernel"], kernel.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_first_ones_are_the_channels_of_a_convolution_at_each_position(float64: None) -> None:
    layer, images = PrimaryCapsules(2, 3, (2, 3), (1, 2)), RANDOM.normal(size=(2, 3, 6, 2))
    weights = jax.tree.map(
        lambda array: jnp.asarray(RANDOM.normal(size=array.shape)), layer.init(jax.random.key(0), (3, 6, 2))
    )
    kernel, bias = np.asarray(weights["conv"]["kernel"]), np.asarray(weights["conv"]["bias"])
    expected = [
        [
            squash((np.tensordot(image[row : row + 2, 2 * column : 2 * column + 3], kernel, 3) + bias)[at : at + 3])
            for row in range(2)
            for column in range(2)
            for at in (0, 3)
        ]
        for image in images
    ]
    np.testing.assert_allclose(layer.forward(weights, jnp.asarray(images)), expected, rtol=1e-12)


@pytest.mark.parametrize("layer", [Squash(), CapsuleStrength(), Capsules(2, 4)], ids=repr)
def test_vectors_of_zeros_have_no_length_and_finite_slopes(layer: Any) -> None:
    x, weights = jnp.zeros((2, 3, 4)), {"kernel": jnp.ones((3, 2, 4, 4))} if isinstance(layer, Capsules) else {}
    y = layer.forward(weights, x)
    assert not np.asarray(y).any()
    assert not np.asarray(layer.delta(weights, x, y, jnp.ones_like(y))).any()


@pytest.mark.parametrize("several", [False, True], ids=["one class", "any of them"])
def test_they_tell_shapes_wherever_these_are(several: bool) -> None:
    shapes = np.array([[[1, 1, 1], [0, 0, 0], [1, 1, 1]], [[1, 0, 1]] * 3, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]], float)
    there = RANDOM.random((240, 3)) < 0.5 if several else np.eye(3, dtype=bool)[RANDOM.integers(0, 3, 240)]
    images = RANDOM.normal(scale=0.1, size=(240, 8, 8, 1))
    for image, row in zip(images, there, strict=True):
        corners = RANDOM.permutation([(0, 0), (0, 5), (5, 0), (5, 5)])
        for kind in np.flatnonzero(row):
            top, left = corners[kind]
            image[top : top + 3, left : left + 3, 0] += shapes[kind]
    layers = [Conv(16, (3, 3)), Relu(), PrimaryCapsules(4, 4, (3, 3), 2), Capsules(3, 6), CapsuleStrength()]
    labels = there.astype(float) if several else there.argmax(axis=1)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.005, "epochs": 25, "batch_size": 40, "devices": 2}
    result = training.fit(Network(layers, input_shape=(8, 8, 1)), (images, labels), loss=MarginLoss(), **given)
    assert (result.history[-1].metric or 0) > 0.95


def test_what_is_no_capsules_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel of PrimaryCapsules must be a positive integer"):
        PrimaryCapsules(2, 3, 0)
    with pytest.raises(ValueError, match="routings of Capsules must be a positive integer, received 0"):
        Capsules(2, 3, routings=0)
