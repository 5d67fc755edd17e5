"""Layers made of layers: who reads what, sums where several read one, freezing, paths, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import (
    Add,
    BatchNorm,
    Composite,
    Concatenate,
    Context,
    Conv,
    Dense,
    Layer,
    Parallel,
    Relu,
    Rescale,
    Residual,
    Tanh,
)
from sparkdl.layers.base import Array, Weights
from sparkdl.layers.composite import Child
from sparkdl.weights import named_arrays, updated


@dataclass(frozen=True)
class Crossed(Composite):
    """Two diamonds, one layer that reads one source twice, and one that is read by three."""

    frozen: bool = False

    @property
    def children(self) -> tuple[Child, ...]:
        return (
            Child("first", Dense(3, trainable=not self.frozen), (0,)),
            Child("bent", Tanh(), (1,)),
            Child("norm", BatchNorm(), (1,)),
            Child("both", Add(), (2, 3, 1)),
            Child("twice", Concatenate(), (4, 4, 0)),
            Child("last", Dense(2), (5,)),
        )


def case(layer: Layer, shape: Any, rows: int = 5) -> tuple[Weights, Array, Array, Context]:
    """Weights, rows, dL/dy, and the context of a step."""
    random = np.random.default_rng(4)
    weights = jax.tree.map(lambda w: jnp.asarray(random.uniform(0.1, 1, w.shape)), layer.init(jax.random.key(0), shape))
    x, dy = (jnp.asarray(random.normal(size=(rows, *row))) for row in (shape, layer.output_shape(shape)))
    return weights, x, dy, Context(jax.random.key(0), jnp.asarray(random.uniform(0, 2, rows)))


@pytest.mark.parametrize("frozen", [False, True])
def test_derivatives_are_summed_over_all_that_read(frozen: bool, float64: None) -> None:
    layer = Crossed(frozen)
    weights, x, dy, context = case(layer, (4,))

    def value(learned: Weights, x: Array) -> Array:
        return (layer.train_forward(updated(weights, learned), x, context)[0] * dy).sum()

    @jax.jit
    def by_kernels(weights: Weights, x: Array) -> tuple[Any, Any]:
        y, kept = layer.train_forward(weights, x, context)
        return tuple(layer.train_backward(weights, x, y, dy, kept, context, delta) for delta in (True, False))

    (dx, gradient), (nothing, same) = by_kernels(weights, x)
    expected = jax.jit(jax.grad(value, (0, 1)))(layer.learned(weights), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), (gradient, dx), expected)
    assert ("first" in gradient) is not frozen
    assert nothing is None and jax.tree.all(jax.tree.map(np.array_equal, same, gradient))


def test_deltas_are_added_in_the_order_of_the_readers() -> None:
    """Which decides the bits: of 1, 1e8 and -1e8 the one is lost unless the large ones meet first."""

    @dataclass(frozen=True)
    class Scaled(Composite):
        scales: tuple[float, ...]

        @property
        def children(self) -> tuple[Child, ...]:
            readers = [Child(f"r{at}", Rescale(scale), (0,)) for at, scale in enumerate(self.scales)]
            return *readers, Child("sum", Add(), (1, 2, 3))

    for scales, expected in (((1.0, 1e8, -1e8), 0.0), ((1e8, -1e8, 1.0), 1.0)):
        layer = Scaled(scales)
        x, context = jnp.ones((1, 1), "float32"), Context(jax.random.key(0), jnp.ones(1))
        y, kept = layer.train_forward({}, x, context)
        assert layer.train_delta({}, x, y, jnp.ones_like(y), kept, context).item() == expected


def test_residual_and_parallel_are_their_parts_put_together(float64: None) -> None:
    layer = Residual([Conv(6, (3, 3), 2, "same"), BatchNorm()], [Conv(6, (1, 1), 2)])
    weights, x, _, _ = case(layer, (5, 5, 4))
    body, shortcut = weights["body"], weights["shortcut"]
    convolved = Conv(6, (3, 3), 2, "same").forward(body["conv_0"], x)
    expected = BatchNorm().forward(body["batch_norm_1"], convolved)
    expected += Conv(6, (1, 1), 2).forward(shortcut["conv_0"], x)
    np.testing.assert_allclose(layer.forward(weights, x), expected, rtol=1e-12)
    branches = Parallel([Dense(2), Tanh(name="bent")])
    weights, x, _, _ = case(branches, (3,))
    expected = np.concatenate([Dense(2).forward(weights["dense_0"], x), np.tanh(x)], axis=1)
    np.testing.assert_allclose(branches.forward(weights, x), expected, rtol=1e-12)


BLOCKS = Network(
    [
        Conv(4, (3, 3)),
        Residual([Conv(4, (3, 3), padding="same", l2=0.5), BatchNorm()]),
        Parallel([Conv(2, (1, 1)), Relu()]),
        Residual([Conv(6, (1, 1))], [Relu()], name="last"),
    ],
    input_shape=(6, 6, 2),
)


def test_paths_lead_to_every_layer() -> None:
    assert BLOCKS.paths == (
        *("conv_0", "residual_1", "residual_1/body", "residual_1/body/conv_0", "residual_1/body/batch_norm_1"),
        *("residual_1/sum", "parallel_2", "parallel_2/conv_0", "parallel_2/relu_1", "parallel_2/merge"),
        *("last", "last/body", "last/body/conv_0", "last/shortcut", "last/shortcut/relu_0", "last/sum"),
    )
    leaves = list(BLOCKS.leaves((6, 6, 2)))
    bottom = [path for path in BLOCKS.paths if not any(other.startswith(f"{path}/") for other in BLOCKS.paths)]
    assert [leaf.path for leaf in leaves] == bottom
    assert leaves[-1].before == ((4, 4, 6), (4, 4, 6)) and leaves[-1].after == (4, 4, 6)


def test_activations_are_what_layers_within_put_out(float64: None) -> None:
    weights, x, _, context = case(BLOCKS, (6, 6, 2))
    y, found = BLOCKS.activations(weights, x, ["residual_1/body/conv_0", "parallel_2", "last/sum"])
    inner = Conv(4, (3, 3)).forward(weights["conv_0"], x)
    expected = Conv(4, (3, 3), padding="same").forward(weights["residual_1"]["body"]["conv_0"], inner)
    np.testing.assert_allclose(found["residual_1/body/conv_0"], expected, rtol=1e-12)
    assert found["parallel_2"].shape == (5, 4, 4, 6)
    np.testing.assert_array_equal(found["last/sum"], y)
    outputs = dict(BLOCKS.train_outputs(BLOCKS.train_forward(weights, x, context)[1]))
    np.testing.assert_allclose(outputs["residual_1/body/conv_0"], expected, rtol=1e-12)
    assert outputs.keys() == {leaf.path for leaf in BLOCKS.leaves((6, 6, 2))}


def test_penalties_and_frozen_blocks() -> None:
    weights, x, dy, context = case(BLOCKS, (6, 6, 2))
    kernel = weights["residual_1"]["body"]["conv_0"]["kernel"]
    assert float(BLOCKS.penalty(weights)) == pytest.approx(0.25 * float((kernel**2).sum()), rel=1e-6)
    frozen = BLOCKS.frozen("residual_1", "last")
    y, kept = frozen.train_forward(weights, x, context)
    _, gradient = frozen.train_backward(weights, x, y, dy, kept, context, False)
    assert {name for name, _ in named_arrays(gradient)} == {
        *("conv_0/kernel", "conv_0/bias", "parallel_2/conv_0/kernel", "parallel_2/conv_0/bias")
    }
    statistics = frozen.new_statistics(weights, kept)
    assert jax.tree.all(jax.tree.map(np.array_equal, updated(weights, statistics), weights))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Network([Residual([Conv(6, (3, 3))])], input_shape=(5, 5, 4)),
            r"^Layer 0 \(Residual\): layers and shortcut: Add expects rows of one shape, received \(3, 3, 6\) and "
            r"\(5, 5, 4\); end all in the same shape, in Residual by a shortcut",
        ),
        (
            lambda: Network([Residual([Relu()], [Dense(3)])], input_shape=(5, 5, 4)),
            r"^Layer 0 \(Residual\): shortcut: Layer 0 \(Dense\): Dense expects rows of shape \(inputs,\)",
        ),
        (
            lambda: Network([Parallel([Relu(), Conv(6, (3, 3))])], input_shape=(5, 5, 4)),
            r"^Layer 0 \(Parallel\): merge \(Concatenate\): Concatenate expects rows that differ in their last axis "
            r"alone, received \(5, 5, 4\) and \(3, 3, 6\)",
        ),
        (
            lambda: Network([Relu(), Add()], input_shape=(3,)),
            r"^Layer 1 \(Add\): Add expects the outputs of two ",
        ),
        (lambda: Residual(Relu()), r"layers of Residual must be a list of layers, received Relu\(\)"),
        (lambda: Residual([]), "layers of Residual must hold at least one layer, received none"),
        (lambda: Parallel([Relu()]), "branches of Parallel must hold at least two layers, received one layer"),
        (lambda: Parallel([Relu(name="merge"), Tanh()]), "names must differ within a network, 'merge' stands twice"),
        (lambda: Parallel([Relu(), Tanh()], merge="add"), "merge of Parallel must be a Layer, received 'add'"),
    ],
)
def test_what_does_not_fit_is_named(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_frozen_one_whose_children_learn_is_refused() -> None:
    network = Network([Crossed(), Dense(2)], input_shape=(4,)).frozen("crossed_0")
    with pytest.raises(ValueError, match=r"^Children of Crossed\(trainable=False\) .* 'first' learns; have `children`"):
        network.init(0)
