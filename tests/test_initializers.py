"""Initializers draw the variances their papers give, from a key alone."""

from __future__ import annotations

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.initializers import (
    Constant,
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    Identity,
    Initializer,
    LecunNormal,
    LecunUniform,
    Normal,
    Ones,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    Zeros,
)
from sparkdl.layers import Conv, Dense

pytestmark = pytest.mark.usefixtures("unoptimized")

KERNEL = (3, 3, 20, 60)  # inputs: 9 * 20, outputs: 9 * 60
INPUTS, OUTPUTS = 180, 540
RANDOM: list[Initializer] = [GlorotNormal(), GlorotUniform(), HeNormal(), HeUniform(), LecunNormal(), LecunUniform()]
RANDOM += [TruncatedNormal(0.1), Normal(0.1), Uniform(-0.1, 0.2), Orthogonal()]


def sampled(initializer: Initializer, shape: tuple[int, ...] = KERNEL, seed: int = 3) -> np.ndarray:
    return np.asarray(initializer.sample(jax.random.key(seed), shape))


@pytest.mark.parametrize(
    ("initializer", "variance"),
    [
        (GlorotNormal(), 2 / (INPUTS + OUTPUTS)),
        (GlorotUniform(), 2 / (INPUTS + OUTPUTS)),
        (HeNormal(), 2 / INPUTS),
        (HeUniform(), 2 / INPUTS),
        (LecunNormal(), 1 / INPUTS),
        (LecunUniform(), 1 / INPUTS),
    ],
)
def test_variance_follows_the_fans(initializer: Initializer, variance: float) -> None:
    kernel = sampled(initializer)  # 10800 numbers: their variance is known to 1.4 %
    uniform = "Uniform" in type(initializer).__name__
    assert kernel.shape == KERNEL and kernel.dtype == np.float32
    assert abs(kernel.mean()) < 5 * np.sqrt(variance / kernel.size)
    assert kernel.var() == pytest.approx(variance, rel=0.06)
    # A normal cut at two deviations has 0.8796 of its deviation left, and is widened by as much.
    largest = np.sqrt(3 * variance) if uniform else 2 * np.sqrt(variance) / 0.87962566
    assert 0.98 * largest < np.abs(kernel).max() <= largest * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3, 20, 60), (1100, 1000)], ids=str)
@pytest.mark.parametrize(
    ("initializer", "name", "arguments"),
    [
        (GlorotNormal(), "glorot_normal", ()),
        (GlorotUniform(), "glorot_uniform", ()),
        (HeNormal(), "he_normal", ()),
        (HeUniform(), "he_uniform", ()),
        (LecunNormal(), "lecun_normal", ()),
        (LecunUniform(), "lecun_uniform", ()),
        (TruncatedNormal(0.1), "truncated_normal", (0.1,)),
        (Normal(0.1), "normal", (0.1,)),
        (Uniform(0.0, 0.3), "uniform", (0.3,)),
        (Orthogonal(2.0), "orthogonal", (2.0,)),
    ],
)
def test_kernels_are_those_of_jax_traced_or_not(
    initializer: Initializer, name: str, arguments: tuple[float, ...], shape: tuple[int, ...]
) -> None:
    """Of numbers that a program draws for kernels of any shape, and of as many as are wanted."""
    if isinstance(initializer, Orthogonal) and len(shape) < 4 and shape[0] > 1000:
        shape = (300, 40)
    key = jax.random.key(7)
    expected = np.asarray(getattr(jax.nn.initializers, name)(*arguments)(key, shape))
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(initializer.sample(key, shape), expected, rtol=0, atol=1e-6 * largest)
    traced = jax.jit(lambda key: initializer.sample(key, shape))(key)
    np.testing.assert_allclose(traced, expected, rtol=0, atol=1e-6 * largest)


def test_fresh_weights_of_any_shape_take_few_programs(caplog: pytest.LogCaptureFixture) -> None:
    network = Network([Dense(16 + size) for size in range(20)], input_shape=(7,))
    network.init(0)
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        replace(network, input_shape=(9,), layers=[*network.layers, Dense(3)]).init(1)
    assert not [record.getMessage() for record in caplog.records if "XLA compilation" in record.getMessage()]


def test_truncated_normal_is_cut_at_two_deviations_around_its_mean() -> None:
    draw = sampled(TruncatedNormal(stddev=0.5, mean=3.0), (20000,))
    assert 1.97 < draw.min() < 2.03 < 3.97 < draw.max() < 4.0
    assert draw.mean() == pytest.approx(3, abs=0.02)
    assert draw.std() == pytest.approx(0.5 * 0.87962566, rel=0.03)


def test_normal_and_uniform_numbers_lie_where_they_are_told_to() -> None:
    normal, uniform = sampled(Normal(0.5, 3.0), (20000,)), sampled(Uniform(-1.0, 3.0), (20000,))
    assert (normal.mean(), normal.std()) == (pytest.approx(3, abs=0.02), pytest.approx(0.5, rel=0.03))
    assert normal.min() < 1.5 < 4.5 < normal.max()  # nothing is cut
    assert -1 <= uniform.min() < -0.98 < 2.98 < uniform.max() <= 3
    assert (uniform.mean(), uniform.std()) == (pytest.approx(1, abs=0.05), pytest.approx(4 / np.sqrt(12), rel=0.03))


def test_a_uniform_s_bounds_are_given_in_order() -> None:
    with pytest.raises(ValueError, match="low of Uniform must be less than its high, 1.0, received 2.0"):
        Uniform(2.0, 1.0)


@pytest.mark.parametrize("shape", [(4, 4), (2, 5), (5, 2)])
def test_an_identity_hands_on_as_many_numbers_as_it_can(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=(6, shape[0]))
    expected = np.zeros((6, shape[1]))
    expected[:, : min(shape)] = -2 * rows[:, : min(shape)]
    np.testing.assert_allclose(rows @ sampled(Identity(-2.0), shape), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [(3, 5), (2, 4), (1, 1)], ids=str)
def test_a_convolution_by_the_identity_gives_its_input(size: tuple[int, int]) -> None:
    network = Network([Conv(3, size, padding="same", kernel_initializer="identity")], input_shape=(6, 7, 3))
    images = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype("float32")
    np.testing.assert_allclose(network.forward(network.init(0), images), images, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 2, 3, 4), (4, 4)])
def test_orthogonal_keeps_lengths_along_its_shorter_side(shape: tuple[int, ...]) -> None:
    matrix = sampled(Orthogonal(gain=2.0), shape).reshape(-1, shape[-1])
    short = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    np.testing.assert_allclose(short.T @ short, 4 * np.eye(short.shape[1]), atol=1e-5)


@pytest.mark.parametrize(("initializer", "value"), [(Zeros(), 0), (Ones(), 1), (Constant(-2.5), -2.5)])
def test_constants_fill_any_shape(initializer: Initializer, value: float) -> None:
    for shape in [(3,), (2, 3), (2, 2, 3, 4)]:
        np.testing.assert_array_equal(sampled(initializer, shape), np.full(shape, value, "float32"))


@pytest.mark.parametrize("initializer", RANDOM, ids=repr)
def test_the_key_decides(initializer: Initializer) -> None:
    first, again, other = (sampled(initializer, (4, 3), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.parametrize("initializer", [*RANDOM, Zeros(), Ones(), Constant(1.5), Identity()], ids=repr)
@pytest.mark.usefixtures("float64")
def test_float64_is_drawn_where_it_is_the_default(initializer: Initializer) -> None:
    assert sampled(initializer, (2, 3)).dtype == np.float64


@pytest.mark.parametrize("initializer", [Orthogonal(), HeNormal(), GlorotUniform(), Identity()], ids=repr)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3)])
def test_only_kernels_have_fans(initializer: Initializer, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=f"{type(initializer).__name__} expects a kernel .* received {re.escape(str(shape))}"
    ):
        sampled(initializer, shape)


@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        (TruncatedNormal, (0.0,), "stddev"),
        (TruncatedNormal, (1.0, float("nan")), "mean"),
        (Normal, (-1.0,), "stddev"),
        (Uniform, (0.0, float("inf")), "high"),
        (Identity, (float("nan"),), "gain"),
        (Orthogonal, (-1.0,), "gain"),
        (Constant, ("one",), "value"),
        (Constant, (None,), "value"),
        (Constant, (True,), "value"),
    ],
)
def test_fields_are_checked(kind: type[Initializer], arguments: tuple, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} of {kind.__name__} must be a number in"):
        kind(*arguments)
