"""Proves every row of the layer tables: shapes, derivatives, sums over rows, JSON, compilation, dtypes, training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_table import Row

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, map_shapes
from sparkdl.layers.composite import Composite
from sparkdl.layers.ragged import Ragged, abstract_rows, is_ragged, values_of, with_values
from sparkdl.specs import Spec
from sparkdl.weights import named_arrays, nested_weights

NAMES = ("layer_table", "layer_table_more", "layer_table_breadth", "layer_table_categories", "layer_table_sequences")
TABLES = [import_module(name) for name in NAMES if find_spec(name)]
ROWS = [Row(*row) for table in TABLES for rows in vars(table).values() if isinstance(rows, list) for row in rows]

FIRSTS = list({type(row.layer): row for row in reversed(ROWS)}.values())  # of each kind


def each(rows: list[Row]) -> pytest.MarkDecorator:
    """A test of every row, slow for the second and further of a kind."""
    return pytest.mark.parametrize(
        "row",
        [
            pytest.param(
                row,
                id=f"{row.layer}-{'x'.join(map(str, row.shape))}",
                marks=[] if any(row is first for first in FIRSTS) else [pytest.mark.slow],
            )
            for row in rows
        ],
    )


each_row = each(ROWS)


class Case(NamedTuple):
    """Random weights and rows, and dL/dy of a random loss."""

    weights: Weights
    x: Array
    dy: Array


class Results(NamedTuple):
    """What a layer's kernels give, and the derivatives (by weights, by x) of its forward kernel by JAX.

    Nothing varies with integers: where x holds such, dx and its derivative are None.
    """

    y: Array
    dx: Array
    dweights: Weights
    expected: tuple[Weights, Array]


def case(layer: Layer, shape: Shape) -> Case:
    """Three rows, all drawn by NumPy: to compile a layer's own initializer takes longer than all of its kernels."""
    random = np.random.default_rng(7)
    abstract = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
    learned = dict(named_arrays(layer.learned(abstract)))
    weights = nested_weights(
        {
            path: jnp.asarray(random.uniform(-1.0 if path in learned else 0.5, 1.5, array.shape))
            for path, array in named_arrays(abstract)
        }
    )
    x = map_shapes(lambda row: rows_of(layer, row, random), shape)
    y = jax.eval_shape(layer.forward, weights, x)
    return Case(weights, x, jnp.asarray(random.standard_normal(values_of(y).shape)))


def rows_of(layer: Layer, row: Shape, random: np.random.Generator) -> Any:
    """Three rows; where they are of any length of 4, 0 and 2 steps, with numbers in the padding, too."""
    ragged = is_ragged(row)
    size = (3, 6, *row[1:]) if ragged else (3, *row)
    values = random.integers(0, 5, size, "int32") if layer.takes_integers else random.standard_normal(size)
    return Ragged(jnp.asarray(values), jnp.array([4, 0, 2], "int32")) if ragged else jnp.asarray(values)


def x_of(function: Callable[[Ragged], Ragged], x: Any) -> Any:
    """x with a function applied to what of it is of any length."""
    several = isinstance(x, tuple)
    parts = [function(part) if isinstance(part, Ragged) else part for part in (x if several else (x,))]
    return tuple(parts) if several else parts[0]


def by_values(function: Callable[..., Any], x: Any) -> Callable[..., Any]:
    """The function (weights, x) as one of the weights and x's values."""
    return lambda weights, values: values_of(function(weights, with_values(x, values)))


def slopes(layer: Layer, derivatives: tuple[Weights, Any]) -> tuple[Weights, Any]:
    return (derivatives[0], None) if layer.takes_integers else derivatives


@partial(jax.jit, static_argnums=0)
def kernels(layer: Layer, weights: Weights, x: Array, dy: Array) -> Results:
    """All in one program: compiling is most of the work here."""
    _, derivatives = jax.vjp(by_values(layer.forward, x), weights, values_of(x))
    y = layer.forward(weights, x)
    dx = None if layer.takes_integers else layer.delta(weights, x, y, dy)
    return Results(values_of(y), dx, layer.gradient(weights, x, y, dy), slopes(layer, derivatives(dy)))


def repeated(layer: Layer, weights: Weights, x: Array, dy: Array, index: int) -> Results:
    """What row `index` gives, as the mean of a batch of nothing else: for a batch of one, all were compiled again."""
    batch = jax.tree.map(lambda array: np.repeat(np.asarray(array)[index : index + 1], len(dy), axis=0), (x, dy))
    results = jax.tree.map(np.asarray, kernels(layer, weights, *batch))
    mean = jax.tree.map(lambda total: total / len(dy), results.dweights)
    return results._replace(y=results.y[:1], dx=jax.tree.map(lambda array: array[:1], results.dx), dweights=mean)


@partial(jax.jit, static_argnums=0)
def training_kernels(layer: Layer, weights: Weights, x: Array, dy: Array) -> tuple[Results, Weights]:
    """The same of a training step, and the new statistics."""
    train = by_values(lambda *at: layer.train_forward(*at, context())[0], x)
    _, derivatives = jax.vjp(train, weights, values_of(x))
    y, kept = layer.train_forward(weights, x, context())
    dx, dweights = layer.train_backward(weights, x, y, dy, kept, context(), not layer.takes_integers)
    assert (dx is None) == layer.takes_integers
    return Results(values_of(y), dx, dweights, slopes(layer, derivatives(dy))), layer.new_statistics(weights, kept)


def abstract(layer: Layer, batch: int, shape: Any, dtype: str) -> Any:
    kind = "int32" if layer.takes_integers else dtype
    return map_shapes(lambda row: abstract_rows(batch, row, kind), shape)


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
    derivatives = dict(jax.tree.leaves_with_path((dweights, dx)))
    points, structure = jax.tree.flatten_with_path((weights, values_of(x)))
    assert derivatives.keys() <= {path for path, _ in points}
    for path, derivative in derivatives.items():
        direction = random.standard_normal(derivative.shape)
        moved = ([at + by * direction if key == path else at for key, at in points] for by in (step, -step))
        moved_to = (jax.tree.unflatten(structure, leaves) for leaves in moved)
        above, below = (loss(at, with_values(x, values)) for at, values in moved_to)
        slope = (above - below) / (2 * step)
        assert np.vdot(derivative, direction) == pytest.approx(slope, rel=1e-6, abs=1e-7), path


@each_row
def test_the_promised_shape_is_produced(row: Row) -> None:
    layer, shape, _ = row
    for batch in (1, 3):
        weights = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
        x = abstract(layer, batch, shape, "float32")
        promised = values_of(abstract_rows(batch, layer.output_shape(shape), "float32")).shape
        if layer.gives_lengths:  # of rows with as many steps, of which it leaves some out
            promised = (batch, values_of(x).shape[1], *promised[2:])
        assert values_of(jax.eval_shape(layer.forward, weights, x)).shape == promised


@each_row
def test_delta_and_gradient_are_the_derivatives_of_forward(row: Row, float64: None) -> None:
    layer, shape, _ = row
    weights, x, dy = case(layer, shape)
    _, dx, dweights, expected = kernels(layer, weights, x, dy)
    assert_same((dweights, dx), expected)
    assert_slopes(lambda *at: float(np.vdot(kernels(layer, *at, dy).y, dy)), weights, x, dweights, dx)


@each_row
def test_a_batch_is_its_rows_and_its_gradient_their_sum(row: Row, float64: None) -> None:
    layer, shape, _ = row
    weights, x, dy = case(layer, shape)
    rows = [repeated(layer, weights, x, dy, i) for i in range(3)]
    batch = kernels(layer, weights, x, dy)
    assert_same(np.concatenate([row.y for row in rows]), batch.y)
    assert_same(jax.tree.map(lambda *parts: np.concatenate(parts), *(row.dx for row in rows)), batch.dx)
    total = jax.tree.map(lambda *values: np.sum(values, axis=0), *(row.dweights for row in rows))
    assert_same(total, batch.dweights)


@pytest.mark.parametrize("row", [row for row in ROWS if "None" in str(row.shape)], ids=str)
@pytest.mark.parametrize("steps", [4, 19])
def test_what_a_row_is_padded_with_and_how_far_changes_nothing(row: Row, steps: int, float64: None) -> None:
    layer, shape, _ = row
    weights, x, dy = case(layer, shape)

    def otherwise(rows: Any) -> Any:
        values = np.full((3, steps, *rows.values.shape[2:]), -9, rows.values.dtype)
        for at, length in enumerate(np.asarray(rows.lengths)):
            values[at, :length] = rows.values[at, :length]
        return Ragged(jnp.asarray(values), rows.lengths)

    other = x_of(otherwise, x)
    ragged_y = is_ragged(layer.output_shape(shape))
    other_dy = otherwise(Ragged(dy, jnp.array([4, 0, 2], "int32"))).values if ragged_y else dy

    def cut(slopes: Any) -> Any:
        return values_of(x_of(lambda rows: replace(rows, values=rows.values[:, :4]), with_values(x, slopes)))

    def without_padding(results: Results) -> Any:
        """What there is of steps cut to the longest row; padding has no derivative."""
        y, dx, dweights, (expected, expected_dx) = results
        return y[:, :4] if ragged_y else y, dweights, expected, None if dx is None else (cut(dx), cut(expected_dx))

    found = without_padding(kernels(layer, weights, other, other_dy))
    assert_same(found, without_padding(kernels(layer, weights, x, dy)), 1e-14)


@each([row for row in FIRSTS if not isinstance(row.layer, Composite)])
def test_compiled_and_eager_kernels_agree(row: Row, float64: None) -> None:
    """A batch of one and one of more. Eagerly every operation is compiled alone: of layers not made of others only."""
    layer, shape, _ = row
    weights, x, dy = case(layer, shape)
    compiled = repeated(layer, weights, x, dy, 0)
    x, dy = jax.tree.map(lambda array: jnp.asarray(np.asarray(array)[:1]), (x, dy))
    with jax.disable_jit():
        y = layer.forward(weights, x)
        dx = None if layer.takes_integers else layer.delta(weights, x, y, dy)
        eager = (values_of(y), dx, layer.gradient(weights, x, y, dy))
    assert_same(eager, compiled[:3])


@each_row
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_kernels_keep_the_dtype_of_rows(row: Row, dtype: str, float64: None) -> None:
    layer, shape, _ = row

    def kernels(key: Array, x: Array) -> Any:
        weights = jax.tree.map(lambda value: value.astype(dtype), layer.init(key, shape))
        y = layer.forward(weights, x)
        dy = values_of(y)
        dx = None if layer.takes_integers else layer.delta(weights, x, y, dy)
        return dy, dx, layer.gradient(weights, x, y, dy)

    results = jax.eval_shape(kernels, jax.random.key(0), abstract(layer, 2, shape, dtype))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(results)} == {dtype}


@each_row
def test_training_runs_the_derivatives_of_its_own_forward(row: Row, float64: None) -> None:
    """Layers that draw random numbers do so with a fixed key; those with statistics see the whole, weighted batch."""
    layer, shape, _ = row
    weights, x, dy = case(layer, shape)
    (_, dx, dweights, (every, expected)), statistics = training_kernels(layer, weights, x, dy)
    dweights = layer.learned(dweights)
    assert_same((dweights, dx), (layer.learned(every), expected))
    assert_slopes(lambda *at: float(np.vdot(training_kernels(layer, *at, dy)[0].y, dy)), weights, x, dweights, dx)
    learned = dict(named_arrays(layer.learned(weights)))
    held = {path: array.shape for path, array in named_arrays(weights) if path not in learned}
    assert {path: array.shape for path, array in named_arrays(statistics)}.items() <= held.items()


@each_row
def test_a_frozen_first_layer_costs_neither_gradient_nor_delta(row: Row) -> None:
    layer, shape, _ = row
    frozen = replace(layer, trainable=False)

    def step(x: Array) -> tuple[Array | None, Weights]:
        weights = frozen.init(jax.random.key(0), shape)
        y, kept = frozen.train_forward(weights, x, context())
        return frozen.train_backward(weights, x, y, values_of(y), kept, context(), False)

    assert jax.eval_shape(step, abstract(layer, 3, shape, "float32")) == (None, {})


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


def of_type(kind: type, spec: Spec) -> Iterator[tuple[Spec, str]]:
    """Every field of a spec, and of the specs in it, that holds one of exactly this type."""
    for one in fields(spec):
        value = getattr(spec, one.name)
        for part in value if isinstance(value, tuple) else [value]:
            if isinstance(part, Spec):
                yield from of_type(kind, part)
        if type(value) is kind:
            yield spec, one.name


@pytest.mark.parametrize(
    "row", [row for row in FIRSTS if any(of_type(int, row.layer))], ids=lambda row: type(row.layer).__name__
)
def test_integers_are_python_s_or_numpy_s_and_neither_bools_nor_fractions(row: Row) -> None:
    for spec, name in of_type(int, row.layer):
        value = getattr(spec, name)
        if "float" in str(spec.__dataclass_fields__[name].type):
            continue
        assert replace(spec, **{name: np.int64(value)}) == spec
        for other in (True, value + 0.5):
            with pytest.raises(ValueError, match=name):
                replace(spec, **{name: other})


@pytest.mark.parametrize("row", FIRSTS, ids=lambda row: type(row.layer).__name__)
def test_flags_are_true_or_false(row: Row) -> None:
    for spec, name in of_type(bool, row.layer):
        assert replace(spec, **{name: np.bool_(getattr(spec, name))}) == spec
        if "|" in str(spec.__dataclass_fields__[name].type):
            continue
        for other in ("no", 1, None):
            with pytest.raises(ValueError, match=f"{name} of .* must be True or False, received {other!r}"):
                replace(spec, **{name: other})
