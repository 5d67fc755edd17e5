"""Activations against their formulas in NumPy and SciPy float64, far out on both sides, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from sparkdl.layers.activation import (
    Activation,
    Elu,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Selu,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Tanh,
)

Function = Callable[[np.ndarray], np.ndarray]


def elu(x: np.ndarray, scale: float, alpha: float) -> np.ndarray:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def elu_slope(x: np.ndarray, scale: float, alpha: float) -> np.ndarray:
    return scale * np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def gelu_tanh_slope(x: np.ndarray) -> np.ndarray:
    tanh = gelu_tanh(x)
    return (1 + tanh) / 2 + x / 2 * (1 - tanh**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


SELU = (1.0507009873554805, 1.6732632423543772)
# The slopes at the kinks are the subgradients that the docstrings promise.
FORMULAS: list[tuple[Activation, Function, Function]] = [
    (Relu(), lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
    (LeakyRelu(0.2), lambda x: np.where(x > 0, x, 0.2 * x), lambda x: np.where(x > 0, 1, 0.2)),
    (Elu(1.5), lambda x: elu(x, 1, 1.5), lambda x: elu_slope(x, 1, 1.5)),
    (Selu(), lambda x: elu(x, *SELU), lambda x: elu_slope(x, *SELU)),
    (Gelu(), lambda x: x * special.ndtr(x), lambda x: special.ndtr(x) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)),
    (Gelu(approximate=True), lambda x: x / 2 * (1 + gelu_tanh(x)), gelu_tanh_slope),
    (
        Silu(),
        lambda x: x * special.expit(x),
        lambda x: special.expit(x) + x * special.expit(x) * special.expit(-x),
    ),
    (Sigmoid(), special.expit, lambda x: special.expit(x) * special.expit(-x)),
    (Tanh(), np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    (Softplus(), lambda x: np.logaddexp(0, x), special.expit),
    (HardSigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), lambda x: (np.abs(x) < 3) / 6),
]
POINTS = np.array([-1e4, -100, -20, -3, -1.5, -1e-3, 0, 1e-3, 0.7, 3, 5, 20, 100, 1e4])


@pytest.mark.parametrize(
    "layer, formula, slope", FORMULAS, ids=lambda value: repr(value) * isinstance(value, Activation)
)
@pytest.mark.parametrize("dtype, tolerance", [(jnp.float32, 1e-6), (jnp.float64, 1e-14)], ids=["float32", "float64"])
def test_formula_and_slope_hold_from_minus_to_plus_ten_thousand(
    layer: Activation, formula: Function, slope: Function, dtype: type, tolerance: float, float64: None
) -> None:
    x, dy = jnp.asarray(POINTS, dtype)[None], jnp.asarray(np.linspace(-2, 3, len(POINTS)), dtype)[None]
    y = layer.forward({}, x)
    dx = layer.delta({}, x, y, dy)
    assert y.dtype == dx.dtype == dtype
    given = np.asarray(x, np.float64)
    np.testing.assert_allclose(y, formula(given), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(dx, np.asarray(dy, np.float64) * slope(given), rtol=4 * tolerance, atol=4 * tolerance)


def test_softmax_and_its_delta_are_those_of_the_jacobian(float64: None) -> None:
    x = np.array([[[1.0, 2.0, -1.0], [0.1, 0.2, 0.3]], [[1e4, -1e4, 0.0], [1e4, 1e4, -1e4]]])
    dy = np.random.default_rng(0).normal(size=x.shape)
    y = special.softmax(x, axis=-1)
    jacobian = y[..., None] * np.eye(3) - y[..., None] * y[..., None, :]
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-14)):
        rows, slopes = jnp.asarray(x, dtype), jnp.asarray(dy, dtype)
        produced = Softmax().forward({}, rows)
        np.testing.assert_allclose(produced, y, rtol=tolerance, atol=tolerance)
        dx = Softmax().delta({}, rows, produced, slopes)
        np.testing.assert_allclose(dx, np.einsum("...ij,...j->...i", jacobian, dy), rtol=tolerance, atol=tolerance)


def test_all_agree_with_pytorch_at_the_kinks_too(float64: None) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    oracles = [
        (Relu(), functional.relu),
        (LeakyRelu(), functional.leaky_relu),
        (Elu(), functional.elu),
        (Selu(), functional.selu),
        (Gelu(), functional.gelu),
        (Gelu(approximate=True), lambda x: functional.gelu(x, approximate="tanh")),
        (Silu(), functional.silu),
        (Sigmoid(), functional.sigmoid),
        (Tanh(), functional.tanh),
        (Softplus(), lambda x: functional.softplus(x, threshold=1000)),
        (Softmax(), lambda x: functional.softmax(x, dim=-1)),
        (HardSigmoid(), lambda x: functional.relu6(x + 3) / 6),  # its own hardsigmoid has a float32 1/6
    ]
    x = np.linspace(-4, 4, 33).reshape(3, 11)  # in steps of 1/4: -3, 0 and 3 are among them
    dy = np.random.default_rng(1).normal(size=x.shape)
    for layer, oracle in oracles:
        rows = torch.tensor(x, requires_grad=True)
        expected = oracle(rows)
        expected.backward(torch.tensor(dy))
        y = layer.forward({}, jnp.asarray(x))
        np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-12, atol=1e-14, err_msg=repr(layer))
        dx = layer.delta({}, jnp.asarray(x), y, jnp.asarray(dy))
        np.testing.assert_allclose(dx, rows.grad.numpy(), rtol=1e-12, atol=1e-14, err_msg=repr(layer))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LeakyRelu(float("nan")), "slope of LeakyRelu must be a finite number, received nan"),
        (lambda: Elu(-1.0), "alpha of Elu must be a finite number of at least 0, received -1.0"),
        (lambda: Softmax().output_shape(()), r"Softmax expects rows of shape \(..., channels\), received \(\)"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
