"""Activations against their formulas in NumPy and SciPy float64, far out on both sides, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from sparkdl.layers.activation import (
    Activation,
    Cube,
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
from sparkdl.layers.log_probabilities import LogSigmoid, LogSoftmax
from sparkdl.layers.rectifying import Celu, HardSwish, Mish, ThresholdedRelu
from sparkdl.layers.squashing import HardTanh, RationalTanh, RectifiedTanh, Softsign
from sparkdl.losses import SoftmaxCrossEntropy

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


def mish_slope(x: np.ndarray) -> np.ndarray:
    softplus = np.logaddexp(0, x)
    return np.tanh(softplus) + x * special.expit(x) * 4 * special.expit(2 * softplus) * special.expit(-2 * softplus)


def rational_tanh(x: np.ndarray) -> np.ndarray:
    u = 2 * x / 3
    return 1.7159 * np.sign(u) * (1 - 1 / (1 + abs(u) + u**2 + 1.41645 * u**4))


def rational_tanh_slope(x: np.ndarray) -> np.ndarray:
    u = 2 * x / 3
    denominator = 1 + abs(u) + u**2 + 1.41645 * u**4
    return 1.7159 * 2 / 3 * (1 + np.sign(u) * (2 * u + 4 * 1.41645 * u**3)) / denominator**2


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
    (
        HardSwish(),
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.where(np.abs(x) < 3, x / 3 + 0.5, 1.0 * (x > 0)),
    ),
    (Mish(), lambda x: x * np.tanh(np.logaddexp(0, x)), mish_slope),
    (Celu(1.5), lambda x: 1.5 * elu(x / 1.5, 1, 1), lambda x: elu_slope(x / 1.5, 1, 1)),
    (ThresholdedRelu(3), lambda x: np.where(x > 3, x, 0), lambda x: 1.0 * (x > 3)),
    (Softsign(), lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
    (HardTanh(), lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) < 1)),
    (HardTanh(-3, 5), lambda x: np.clip(x, -3, 5), lambda x: 1.0 * ((x > -3) & (x < 5))),
    (RationalTanh(), rational_tanh, rational_tanh_slope),
    (RectifiedTanh(), lambda x: np.tanh(np.maximum(x, 0)), lambda x: (x > 0) / np.cosh(np.clip(x, 0, 300)) ** 2),
    (Cube(), lambda x: x**3, lambda x: 3 * x**2),
    (LogSigmoid(), lambda x: -np.logaddexp(0, -x), lambda x: special.expit(-x)),
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


def test_log_softmax_and_its_delta_are_those_of_the_jacobian(float64: None) -> None:
    x = np.array([[[1.0, 2.0, -1.0], [0.1, 0.2, 0.3]], [[1e4, -1e4, 0.0], [1e4, 1e4, -1e4]]])
    dy = np.random.default_rng(0).normal(size=x.shape)
    jacobian = np.eye(3) - special.softmax(x, axis=-1)[..., None, :]
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-14)):
        rows, slopes = jnp.asarray(x, dtype), jnp.asarray(dy, dtype)
        y = LogSoftmax().forward({}, rows)
        np.testing.assert_allclose(y, special.log_softmax(x, axis=-1), rtol=tolerance, atol=tolerance)
        dx = LogSoftmax().delta({}, rows, y, slopes)
        np.testing.assert_allclose(dx, np.einsum("...ij,...i->...j", jacobian, dy), rtol=tolerance, atol=tolerance)


def test_a_network_that_ends_in_log_softmax_has_the_cross_entropy_of_one_without_it(float64: None) -> None:
    x, labels = np.random.default_rng(0).normal(size=(4, 3)), jnp.array([0, 2, 1, 1])
    loss, even = SoftmaxCrossEntropy(), jnp.ones(4)
    for rows in (x, 1e4 * x):
        logits = jnp.asarray(rows)
        y = LogSoftmax().forward({}, logits)
        np.testing.assert_allclose(loss.predict(y), special.softmax(rows, axis=-1), rtol=1e-10, atol=1e-14)
        dx = LogSoftmax().delta({}, logits, y, loss.delta(y, labels, even))
        np.testing.assert_allclose(dx, loss.delta(logits, labels, even), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "layer", [Mish(), RationalTanh(), Softsign(), LogSigmoid()], ids=lambda layer: type(layer).__name__
)
def test_the_slope_of_autodiff_is_theirs_where_both_halves_meet(layer: Activation, float64: None) -> None:
    x = jnp.zeros((1, 1))
    y, transpose = jax.vjp(lambda x: layer.forward({}, x), x)
    np.testing.assert_allclose(transpose(jnp.ones_like(x))[0], layer.delta({}, x, y, jnp.ones_like(x)), rtol=1e-14)


@pytest.mark.parametrize("layer", [Softsign(), RationalTanh()], ids=lambda layer: type(layer).__name__)
def test_they_stay_at_their_bounds_up_to_the_largest_numbers(layer: Activation) -> None:
    x = jnp.array([[-3e38, -1e20, 1e10, 3e38]])
    y = layer.forward({}, x)
    np.testing.assert_allclose(y, np.sign(x) * (1.7159 if isinstance(layer, RationalTanh) else 1), rtol=1e-6)
    np.testing.assert_allclose(layer.delta({}, x, y, jnp.ones_like(x)), 0, atol=1e-10)


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
        (
            HardSwish(),
            lambda x: x * functional.relu6(x + 3) / 6,
        ),  # its own has other slopes at the kinks in some versions
        (Mish(), functional.mish),
        (Celu(0.5), lambda x: functional.celu(x, 0.5)),
        (ThresholdedRelu(0.75), lambda x: functional.threshold(x, 0.75, 0)),
        (Softsign(), functional.softsign),
        (HardTanh(-2, 3), lambda x: functional.hardtanh(x, -2, 3)),
        (LogSigmoid(), functional.logsigmoid),
        (LogSoftmax(), lambda x: functional.log_softmax(x, dim=-1)),
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
        (lambda: Celu(0), "alpha of Celu must be a finite number above 0, received 0"),
        (lambda: Celu(float("inf")), "alpha of Celu must be a finite number above 0, received inf"),
        (lambda: ThresholdedRelu("1"), "theta of ThresholdedRelu must be a finite number, received '1'"),
        (lambda: HardTanh(1.0, 1.0), "finite numbers, low below high, received 1.0 and 1.0; -1.0 and 1.0 are usual"),
        (lambda: HardTanh(high=float("inf")), "low below high, received -1.0 and inf"),
        (lambda: LogSoftmax().output_shape(()), r"LogSoftmax expects rows of shape \(..., channels\), received \(\)"),
        (lambda: Softmax().output_shape(()), r"Softmax expects rows of shape \(..., channels\), received \(\)"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
