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
    Initializer,
    LecunNormal,
    LecunUniform,
    Ones,
    Orthogonal,
    TruncatedNormal,
    Zeros,
)
from sparkdl.layers import Dense

pytestmark = pytest.mark.usefixtures("unoptimized")

KERNEL = (3, 3, 20, 60)  # inputs: 9 * 20, outputs: 9 * 60
INPUTS, OUTPUTS = 180, 540
RANDOM: list[Initializer] = [GlorotNormal(), GlorotUniform(), HeNormal(), HeUniform(), LecunNormal(), LecunUniform()]
RANDOM += [TruncatedNormal(0.1), Orthogonal()]


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


@pytest.mark.parametrize("initializer", [*RANDOM, Zeros(), Ones(), Constant(1.5)], ids=repr)
@pytest.mark.usefixtures("float64")
def test_float64_is_drawn_where_it_is_the_default(initializer: Initializer) -> None:
    assert sampled(initializer, (2, 3)).dtype == np.float64


@pytest.mark.parametrize("initializer", [Orthogonal(), HeNormal(), GlorotUniform()], ids=repr)
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
        (Orthogonal, (-1.0,), "gain"),
        (Constant, ("one",), "value"),
        (Constant, (None,), "value"),
        (Constant, (True,), "value"),
    ],
)
def test_fields_are_checked(kind: type[Initializer], arguments: tuple, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} of {kind.__name__} must be a number in"):
        kind(*arguments)
