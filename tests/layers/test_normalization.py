"""Local response and layer normalization against loops and formulas in NumPy float64, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.batch_norm import BatchNorm
from sparkdl.layers.normalization import LayerNorm, LocalResponseNorm


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


@pytest.mark.parametrize(
    "layer",
    [
        LocalResponseNorm(),
        LocalResponseNorm(radius=2, bias=2.0, alpha=1e-2, beta=0.75),
        LocalResponseNorm(radius=1, bias=0.5, alpha=0.3, beta=1.3),
        LocalResponseNorm(radius=0, beta=0.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 2, 7)], ids=str)
def test_local_response_norm_is_the_sum_over_neighbours(
    layer: LocalResponseNorm, shape: tuple[int, ...], float64: None
) -> None:
    x = 3 * normal(*shape)
    expected = np.empty_like(x)
    for i in range(7):
        energy = sum(x[..., j] ** 2 for j in range(7) if abs(j - i) <= layer.radius)
        expected[..., i] = x[..., i] / (layer.bias + layer.alpha * energy) ** layer.beta
    np.testing.assert_allclose(layer.forward({}, jnp.asarray(x)), expected, rtol=1e-13)


def test_local_response_norm_agrees_with_pytorch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    x, dy = normal(2, 3, 4, 6), normal(2, 3, 6, 4).swapaxes(2, 3)
    rows = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    oracle = torch.nn.LocalResponseNorm(size=5, alpha=5 * 0.2, beta=0.75, k=1.5)  # it divides alpha by size
    expected = oracle(rows)
    expected.backward(torch.tensor(dy.transpose(0, 3, 1, 2)))
    layer = LocalResponseNorm(radius=2, bias=1.5, alpha=0.2, beta=0.75)
    y = layer.forward({}, jnp.asarray(x))
    np.testing.assert_allclose(y, expected.detach().numpy().transpose(0, 2, 3, 1), rtol=1e-12)
    dx = layer.delta({}, jnp.asarray(x), y, jnp.asarray(dy))
    np.testing.assert_allclose(dx, rows.grad.numpy().transpose(0, 2, 3, 1), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_the_formula(scale: bool, bias: bool, float64: None) -> None:
    layer = LayerNorm(epsilon=1e-3, scale=scale, bias=bias)
    x, weights = 2 * normal(2, 3, 5) + 1, {"scale": normal(5), "bias": 2 * normal(5)}
    fresh = layer.init(jax.random.key(0), (3, 5))
    assert {name: value.tolist() for name, value in fresh.items()} == {
        name: start for name, start, used in (("scale", [1.0] * 5, scale), ("bias", [0.0] * 5, bias)) if used
    }
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    expected = expected * (weights["scale"] if scale else 1) + (weights["bias"] if bias else 0)
    y = layer.forward({name: jnp.asarray(weights[name]) for name in fresh}, jnp.asarray(x))
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_layer_norm_agrees_with_pytorch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    x, dy, scale, bias = normal(2, 3, 5), normal(3, 2, 5).swapaxes(0, 1), normal(5), 2 * normal(5)
    given = [torch.tensor(value, requires_grad=True) for value in (x, scale, bias)]
    expected = torch.nn.functional.layer_norm(given[0], (5,), given[1], given[2], eps=1e-5)
    expected.backward(torch.tensor(dy))
    layer, weights = LayerNorm(), {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)}
    y = layer.forward(weights, jnp.asarray(x))
    gradient = layer.gradient(weights, jnp.asarray(x), y, jnp.asarray(dy))
    produced = (y, layer.delta(weights, jnp.asarray(x), y, jnp.asarray(dy)), gradient["scale"], gradient["bias"])
    for ours, theirs in zip(produced, (expected.detach(), *(value.grad for value in given)), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-10, atol=1e-13)


def test_layer_norm_of_half_precision_rows_computes_in_float32() -> None:
    layer, x = LayerNorm(scale=False, bias=False), jnp.asarray(normal(4, 300) + 8, jnp.bfloat16)
    y, exact = layer.forward({}, x), np.asarray(x, np.float64)
    expected = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol=2**-8, atol=1e-5)  # rounded once, at the end


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LocalResponseNorm(radius=-1), "radius of LocalResponseNorm must be an integer .* received -1"),
        (lambda: LocalResponseNorm(bias=0.0), "expects a positive bias, .* received bias=0.0"),
        (lambda: LocalResponseNorm(beta=-1.0), "alpha and beta of at least 0, received .* beta=-1.0"),
        (lambda: LayerNorm(epsilon=0.0), "epsilon of LayerNorm must be a positive number, received 0.0"),
        (lambda: BatchNorm(momentum=1.0), "momentum of BatchNorm, .* received 1.0; PyTorch's 0.1 is 0.9 here"),
        (lambda: BatchNorm().output_shape(()), r"BatchNorm expects rows of shape \(..., channels\), received \(\)"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
