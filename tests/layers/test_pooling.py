"""Pooling against loops over windows: ties, NaN, padding, large windows, and no scatter in delta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.base import Context, Layer, Shape
from sparkdl.layers.norm_pooling import GlobalLpPool, LpPool
from sparkdl.layers.pooling import AvgPool, GlobalAvgPool, GlobalMaxPool, GlobalSumPool, MaxPool, SumPool
from sparkdl.layers.windows import Padding

Pads = tuple[tuple[int, int], ...]

POOLS = [
    ((2, 2), (2, 2), "valid", (5, 4, 2), ((0, 0), (0, 0))),
    ((3, 3), (2, 2), "valid", (7, 8, 2), ((0, 0), (0, 0))),
    ((3, 2), (2, 2), "same", (6, 5, 2), ((0, 1), (0, 1))),
    ((3, 3), (1, 1), "same", (4, 3, 1), ((1, 1), (1, 1))),
    ((3, 2), (1, 2), "full", (4, 3, 2), ((2, 2), (1, 1))),
    ((2, 2), (3, 4), "valid", (8, 7, 2), ((0, 0), (0, 0))),
    ((4, 3), (2, 1), ((0, 3), (2, 0)), (5, 3, 1), ((0, 3), (2, 0))),
    ((13, 11), (13, 11), "valid", (26, 12, 1), ((0, 0), (0, 0))),
    ((3,), (2,), "full", (6, 2), ((2, 2),)),
    ((2, 2, 3), (1, 2, 2), "same", (3, 3, 4, 1), ((0, 1), (0, 1), (0, 1))),
]
each_pool = pytest.mark.parametrize(("size", "strides", "padding", "shape", "pads"), POOLS, ids=str)


def windows(x: np.ndarray, size: Shape, strides: Shape, pads: Pads) -> list[tuple[tuple[int, ...], list[Any]]]:
    """(index of y, indices of x in row-major order that lie in the row) for every window."""
    batch, *inputs, channels = x.shape
    counts = [(n + sum(p) - k) // s + 1 for n, k, s, p in zip(inputs, size, strides, pads, strict=True)]
    lows = [low for low, _ in pads]
    found = []
    for row, *window, channel in np.ndindex(batch, *counts, channels):
        places = (np.multiply(window, strides) + position - lows for position in np.ndindex(*size))
        inside = [tuple(place) for place in places if all(0 <= p < n for p, n in zip(place, inputs, strict=True))]
        found.append(((row, *window, channel), [(row, *place, channel) for place in inside]))
    return found


@each_pool
def test_the_first_maximum_of_a_window_takes_its_delta(
    size: Shape, strides: Shape, padding: Padding, shape: Shape, pads: Pads, float64: None
) -> None:
    random = np.random.default_rng(1)
    layer = MaxPool(size, strides, padding)
    x = random.integers(-2, 2, (2, *shape)).astype(float)  # small integers: nearly every window has ties
    dy = random.standard_normal((2, *layer.output_shape(shape)))
    y, dx = np.zeros_like(dy), np.zeros_like(x)
    for window, places in windows(x, size, strides, pads):
        winner = max(places, key=lambda place: x[place])  # Python's max returns the first
        y[window] = x[winner]
        dx[winner] += dy[window]
    produced = layer.forward({}, jnp.asarray(x))
    np.testing.assert_array_equal(produced, y)
    np.testing.assert_allclose(layer.delta({}, jnp.asarray(x), produced, jnp.asarray(dy)), dx, rtol=0, atol=1e-12)


@each_pool
@pytest.mark.parametrize("count_padding", [False, True])
def test_the_average_is_over_real_elements_unless_padding_counts(
    size: Shape, strides: Shape, padding: Padding, shape: Shape, pads: Pads, count_padding: bool, float64: None
) -> None:
    random = np.random.default_rng(1)
    layer = AvgPool(size, strides, padding, count_padding)
    x = random.standard_normal((2, *shape))
    dy = random.standard_normal((2, *layer.output_shape(shape)))
    y, dx = np.zeros_like(dy), np.zeros_like(x)
    for window, places in windows(x, size, strides, pads):
        count = np.prod(size) if count_padding else len(places)
        y[window] = sum(x[place] for place in places) / count
        for place in places:
            dx[place] += dy[window] / count
    produced = layer.forward({}, jnp.asarray(x))
    np.testing.assert_allclose(produced, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.delta({}, jnp.asarray(x), produced, jnp.asarray(dy)), dx, rtol=0, atol=1e-12)


@each_pool
@pytest.mark.parametrize("p", [0, 1, 2, 3, 4])
def test_sums_and_norms_are_those_of_each_window(
    size: Shape, strides: Shape, padding: Padding, shape: Shape, pads: Pads, p: int, float64: None
) -> None:
    """SumPool with p = 0; numbers in a window of zeros have no slope."""
    random = np.random.default_rng(1)
    layer = LpPool(size, strides, padding, p) if p else SumPool(size, strides, padding)
    x = random.standard_normal((2, *shape))
    x[0, :2] = 0
    dy = random.standard_normal((2, *layer.output_shape(shape)))
    y, dx = np.zeros_like(dy), np.zeros_like(x)
    for window, places in windows(x, size, strides, pads):
        own = np.array([x[place] for place in places])
        y[window] = np.linalg.norm(own, p) if p else own.sum()
        for place in places:
            share = np.sign(x[place]) * (abs(x[place]) / y[window]) ** (p - 1) if p and y[window] else float(not p)
            dx[place] += dy[window] * share
    produced = layer.forward({}, jnp.asarray(x))
    np.testing.assert_allclose(produced, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.delta({}, jnp.asarray(x), produced, jnp.asarray(dy)), dx, rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_a_norm_over_all_positions_is_that_of_one_window(p: int, float64: None) -> None:
    random = np.random.default_rng(2)
    x, dy = random.standard_normal((3, 4, 5, 2)), jnp.asarray(random.standard_normal((3, 2)))
    x[1, ..., 0] = 0
    y = GlobalLpPool(p).forward({}, jnp.asarray(x))
    np.testing.assert_allclose(y, np.linalg.norm(x.reshape(3, 20, 2), p, axis=1), rtol=1e-12)
    dx = GlobalLpPool(p).delta({}, jnp.asarray(x), y, dy)
    whole = LpPool((4, 5), p=p)
    np.testing.assert_allclose(dx, whole.delta({}, x, y[:, None, None], dy[:, None, None]), rtol=1e-12)
    assert not np.asarray(dx)[1, ..., 0].any()
    np.testing.assert_allclose(GlobalSumPool().forward({}, jnp.asarray(x)), x.sum(axis=(1, 2)), rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_are_those_of_pytorch(p: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    x, dy = random.uniform(0.1, 2, (2, 7, 8, 3)).astype("float32"), random.normal(size=(2, 3, 4, 3)).astype("float32")
    theirs = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
    expected = torch.nn.LPPool2d(p, (3, 2), (2, 2))(theirs)
    expected.backward(torch.tensor(np.moveaxis(dy, -1, 1).copy()))
    layer = LpPool((3, 2), 2, p=p)
    y = layer.forward({}, x)
    np.testing.assert_allclose(y, np.moveaxis(expected.detach().numpy(), 1, -1), rtol=1e-5)
    dx = layer.delta({}, x, y, jnp.asarray(dy))
    np.testing.assert_allclose(dx, np.moveaxis(theirs.grad.numpy(), 1, -1), rtol=1e-5, atol=1e-5)


def test_global_maximum_gives_its_delta_to_the_first() -> None:
    x = jnp.array([[[[1.0], [5.0], [2.0]], [[5.0], [0.0], [5.0]]], [[[0.0], [0.0], [0.0]], [[0.0], [0.0], [0.0]]]])
    y = GlobalMaxPool().forward({}, x)
    dx = GlobalMaxPool().delta({}, x, y, jnp.array([[3.0], [4.0]]))
    np.testing.assert_array_equal(y, [[5.0], [0.0]])
    np.testing.assert_array_equal(dx[..., 0], [[[0, 3, 0], [0, 0, 0]], [[4, 0, 0], [0, 0, 0]]])


@pytest.mark.parametrize("layer", [MaxPool(3, 2), MaxPool(3, 2, "full"), GlobalMaxPool()], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_is_not_hidden_by_a_larger_number(layer: Layer, place: int) -> None:
    x = jnp.array([5.0, 7.0, 6.0]).at[place].set(jnp.nan)[None, :, None]
    y = layer.forward({}, x)
    assert jnp.isnan(y).any()


def test_sums_over_windows_of_bfloat16_are_rounded_once() -> None:
    values = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (2, 150, 2)), jnp.bfloat16)
    exact, averaged = np.asarray(values, np.float64), AvgPool(50).forward({}, values)
    assert averaged.dtype == jnp.bfloat16
    expected = exact.reshape(2, 3, 50, 2).mean(axis=2)
    np.testing.assert_allclose(np.asarray(averaged, np.float64), expected, rtol=2**-8)

    spread = AvgPool(50, 1, "full", count_padding=True)  # every position is in 50 windows
    y = spread.forward({}, values[:, :9])
    dy = jnp.asarray(np.random.default_rng(1).uniform(1, 2, y.shape), jnp.bfloat16)
    shares = np.asarray(dy / jnp.asarray(50, jnp.bfloat16), np.float64)
    dx = spread.delta({}, values[:, :9], y, dy)
    assert dx.dtype == jnp.bfloat16
    expected = np.stack([shares[:, at : at + 50].sum(axis=1) for at in range(9)], axis=1)
    np.testing.assert_allclose(np.asarray(dx, np.float64), expected, rtol=2**-8)


@pytest.mark.parametrize("layer", [SumPool(50), LpPool(50, p=1), LpPool(50), GlobalLpPool(3), GlobalSumPool()], ids=str)
def test_sums_and_norms_of_bfloat16_are_rounded_once(layer: Layer) -> None:
    values = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (2, 150, 2)), jnp.bfloat16)
    y = layer.forward({}, values)
    assert y.dtype == layer.delta({}, values, y, y).dtype == jnp.bfloat16
    exact, p = np.asarray(values, np.float64).reshape(2, -1, 150 if y.ndim == 2 else 50, 2), getattr(layer, "p", 1)
    expected = np.linalg.norm(exact, p, axis=2).reshape(y.shape)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol=2**-8)


@pytest.mark.parametrize(
    "layer", [MaxPool(3, 2, "same"), AvgPool(3, 2, "same"), SumPool(3, 2, "same"), LpPool(3, 2, "same")], ids=str
)
def test_delta_neither_scatters_nor_reduces_windows(layer: Layer) -> None:
    x, y = (jax.ShapeDtypeStruct((2, *shape), "float32") for shape in ((8, 8, 2), layer.output_shape((8, 8, 2))))
    program = jax.jit(layer.delta).lower({}, x, y, y).as_text()
    assert "stablehlo.pad" in program
    assert "scatter" not in program
    assert "reduce_window" not in program


@pytest.mark.parametrize(("size", "dtype"), [((8, 16), "int8"), ((3, 43), "int16")], ids=str)
def test_the_position_of_a_maximum_is_stored_in_the_fewest_bytes(size: Shape, dtype: str) -> None:
    layer = MaxPool(size)
    x, context = jnp.zeros((1, *size, 1)).at[0, -1, -1, 0].set(1.0), Context(jax.random.key(0), jnp.ones(1))
    _, stored = jax.jit(lambda x: layer.train_forward({}, x, context))(x)
    assert str(stored.dtype) == dtype
    assert stored.item() == size[0] * size[1] - 1


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (lambda: MaxPool(0), "size of MaxPool must be .* received 0"),
        (lambda: MaxPool((2, 2), (2,)), r"MaxPool needs as many entries .* size=\(2, 2\), strides=\(2,\)"),
        (lambda: AvgPool(2, (2, -1)), r"strides of AvgPool must be .* received \(2, -1\)"),
        (lambda: LpPool(2, p=0), "p of LpPool must be a positive integer, received 0"),
        (lambda: GlobalLpPool(2.5), "p of GlobalLpPool must be a positive integer, received 2.5"),
        (lambda: AvgPool(2, padding="half"), "padding of AvgPool must be .* received 'half'"),
    ],
)
def test_arguments_are_refused_in_a_sentence(layer: Callable[[], Layer], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer()


@pytest.mark.parametrize(
    ("layer", "shape", "sentence"),
    [
        (MaxPool((2, 2)), (8, 3), r"MaxPool expects rows with 2 spatial axes .* received \(8, 3\)"),
        (AvgPool(2, padding=((0, 1),)), (8, 8, 3), "AvgPool expects rows with 1 spatial axes"),
        (GlobalAvgPool(), (3,), r"GlobalAvgPool expects rows with 1 or 2 or 3 spatial axes .* received \(3,\)"),
        (MaxPool(4), (3, 9, 1), r"size of MaxPool spans \(4, 4\) positions, more than the \(3, 9\) of a row"),
        (MaxPool(2, padding=((2, 0), (0, 0))), (8, 8, 1), "padding of MaxPool must be less than size=2, received"),
    ],
    ids=str,
)
def test_rows_are_refused_in_a_sentence(layer: Layer, shape: Shape, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer.output_shape(shape)
