"""Proves every row of the layer tables: shapes, derivatives, sums over rows, JSON, compilation, dtypes, training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_table import Row

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights

TABLES = [import_module(name) for name in ("layer_table", "layer_table_more") if find_spec(name)]
ROWS = [Row(*row) for table in TABLES for rows in vars(table).values() if isinstance(rows, list) for row in rows]

each_row = pytest.mark.parametrize("row", ROWS, ids=[f"{row.layer}-{'x'.join(map(str, row.shape))}" for row in ROWS])


class Case(NamedTuple):
    """Random weights and rows, and dL/dy of a random loss."""

    weights: Weights
    x: Array
    y: Array
    dy: Array


def case(layer: Layer, shape: Shape) -> Case:
    """Three rows, all drawn by NumPy: to compile a layer's own initializer takes longer than all of its kernels."""
    random = np.random.default_rng(7)
    weights = {
        name: jnp.asarray(random.uniform(0.5 if name in layer.statistics() else -1.0, 1.5, w.shape))
        for name, w in jax.eval_shape(lambda: layer.init(jax.random.key(0), shape)).items()
    }
    x = jnp.asarray(random.standard_normal((3, *shape)))
    y = layer.forward(weights, x)
    return Case(weights, x, y, jnp.asarray(random.standard_normal(y.shape)))


def context() -> Context:
    return Context(jax.random.key(5), jnp.asarray([1.0, 2.5, 0.0]))


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Equal structure, and arrays equal to within `tolerance` of the largest expected number."""

    def check(one: Array, other: Array) -> None:
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(1.0, float(np.abs(other).max())))

    jax.tree.map(check, actual, expected)


def assert_slopes(
    loss: Callable[[Weights, Any], float], weights: Weights, x: Array, dweights: Weights, dx: Array
) -> None:
    """dx, and every entry of dweights, against central differences of the loss along a random direction."""
    step, random = 1e-5, np.random.default_rng(11)
    points = {"x": np.asarray(x), **jax.tree.map(np.asarray, weights)}
    for name, derivative in {"x": dx, **dweights}.items():
        direction = random.standard_normal(points[name].shape)
        above, below = ({**points, name: points[name] + sign * step * direction} for sign in (1, -1))
        slope = (loss(above, above.pop("x")) - loss(below, below.pop("x"))) / (2 * step)
        assert np.vdot(derivative, direction) == pytest.approx(slope, rel=1e-6, abs=1e-7), name


@each_row
def test_the_promised_shape_is_produced(row: Row) -> None:
    layer, shape, _ = row
    for batch in (1, 3):
        weights = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
        x = jax.ShapeDtypeStruct((batch, *shape), "float32")
        assert jax.eval_shape(layer.forward, weights, x).shape == (batch, *layer.output_shape(shape))


@each_row
def test_delta_and_gradient_are_the_derivatives_of_forward(row: Row, float64: None) -> None:
    layer, shape, _ = row
    weights, x, y, dy = case(layer, shape)
    dx, dweights = layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy)
    assert_same((dweights, dx), jax.jit(lambda *at: jax.vjp(layer.forward, *at)[1](dy))(weights, x))
    assert_slopes(lambda *at: float(np.vdot(layer.forward(*at), dy)), weights, x, dweights, dx)


@each_row
def test_a_batch_is_its_rows_and_its_gradient_their_sum(row: Row, float64: None) -> None:
    layer, shape, _ = row
    weights, *arrays = case(layer, shape)
    rows = [[jnp.asarray(np.asarray(array)[i : i + 1]) for array in arrays] for i in range(3)]
    x, y, dy = arrays
    assert_same(np.concatenate([layer.forward(weights, x) for x, _, _ in rows]), y)
    assert_same(np.concatenate([layer.delta(weights, *row) for row in rows]), layer.delta(weights, x, y, dy))
    total = jax.tree.map(lambda *values: np.sum(values, axis=0), *(layer.gradient(weights, *row) for row in rows))
    assert_same(total, layer.gradient(weights, x, y, dy))


@each_row
def test_compiled_and_eager_kernels_agree(row: Row, float64: None) -> None:
    layer, shape, _ = row
    weights, x, y, dy = case(layer, shape)
    compiled = (y, layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy))
    with jax.disable_jit():
        eager = (layer.forward(weights, x), layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy))
    assert_same(eager, compiled)


@each_row
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_kernels_keep_the_dtype_of_rows(row: Row, dtype: str, float64: None) -> None:
    layer, shape, _ = row

    def kernels(key: Array, x: Array) -> Any:
        weights = jax.tree.map(lambda value: value.astype(dtype), layer.init(key, shape))
        y = layer.forward(weights, x)
        return y, layer.delta(weights, x, y, y), layer.gradient(weights, x, y, y)

    results = jax.eval_shape(kernels, jax.random.key(0), jax.ShapeDtypeStruct((2, *shape), dtype))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(results)} == {dtype}


@each_row
def test_training_runs_the_derivatives_of_its_own_forward(row: Row, float64: None) -> None:
    """Layers that draw random numbers do so with a fixed key; those with statistics see the whole, weighted batch."""
    layer, shape, _ = row
    weights, x, _, dy = case(layer, shape)

    @jax.jit
    def forward(weights: Weights, x: Array) -> Array:
        return layer.train_forward(weights, x, context())[0]

    @jax.jit
    def step(weights: Weights, x: Array) -> tuple[Weights, Array | None, Weights]:
        y, kept = layer.train_forward(weights, x, context())
        dx, dweights = layer.train_backward(weights, x, y, dy, kept, context(), True)
        return dweights, dx, layer.new_statistics(weights, kept)

    dweights, dx, statistics = step(weights, x)
    assert dx is not None
    dweights, (every, expected) = layer.learned(dweights), jax.jit(lambda *at: jax.vjp(forward, *at)[1](dy))(weights, x)
    assert_same((dweights, dx), (layer.learned(every), expected))
    assert_slopes(lambda *at: float(np.vdot(forward(*at), dy)), weights, x, dweights, dx)
    assert {name: value.shape for name, value in statistics.items()} == {
        name: weights[name].shape for name in layer.statistics()
    }


@each_row
def test_a_frozen_first_layer_costs_neither_gradient_nor_delta(row: Row) -> None:
    layer, shape, _ = row
    frozen = replace(layer, trainable=False)

    def step(x: Array) -> tuple[Array | None, Weights]:
        weights = frozen.init(jax.random.key(0), shape)
        y, kept = frozen.train_forward(weights, x, context())
        return frozen.train_backward(weights, x, y, y, kept, context(), False)

    assert jax.eval_shape(step, jax.ShapeDtypeStruct((3, *shape), "float32")) == (None, {})


@each_row
def test_a_layer_is_its_json(row: Row) -> None:
    copy = Layer.from_json(json.loads(json.dumps(row.layer.to_json())))
    assert copy == row.layer
    assert hash(copy) == hash(row.layer)
    assert repr(copy) == repr(row.layer)


@pytest.mark.parametrize(
    ("layer", "shape"), [(row.layer, row.refused) for row in ROWS if row.refused is not None], ids=str
)
def test_rows_that_do_not_fit_are_refused_by_name(layer: Layer, shape: Shape) -> None:
    with pytest.raises(ValueError, match=f"{type(layer).__name__} .*received|of {type(layer).__name__} "):
        layer.output_shape(shape)
