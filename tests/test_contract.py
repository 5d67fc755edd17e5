"""A user's own layers and losses: derived as they say, and refused before training where they break the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import BatchNorm, Dense, Layer, MaxPool, Relu
from sparkdl.layers.base import Array, Context, Shape, Weights
from sparkdl.losses import Loss, SquaredError
from sparkdl.training import Training

# Overriding only what a layer or a loss of sparkdl's computes


@dataclass(frozen=True)
class TenfoldDense(Dense):
    def forward(self, weights: Weights, x: Array) -> Array:
        return 10 * super().forward(weights, x)

    delta, gradient, train_gradient = Layer.delta, Layer.gradient, Layer.train_gradient


@dataclass(frozen=True)
class SiluAsRelu(Relu):
    def forward(self, weights: Weights, x: Array) -> Array:
        return jax.nn.silu(x)

    delta = Layer.delta


@dataclass(frozen=True)
class DoubledMaxPool(MaxPool):
    def forward(self, weights: Weights, x: Array) -> Array:
        return 2 * super().forward(weights, x)

    delta, train_forward, train_delta = Layer.delta, Layer.train_forward, Layer.train_delta


@dataclass(frozen=True)
class TenfoldError(SquaredError):
    def losses(self, outputs: Array, targets: Array) -> Array:
        return 10 * super().losses(outputs, targets)

    slopes = Loss.slopes


@pytest.mark.parametrize(
    ("layer", "shape"), [(TenfoldDense(2), (3,)), (SiluAsRelu(), (3,)), (DoubledMaxPool(2), (4, 4, 1))], ids=repr
)
def test_a_layer_that_overrides_forward_trains_by_the_derivatives_of_that(layer: Layer, shape: Shape) -> None:
    random = np.random.default_rng(3)
    weights = layer.init(jax.random.key(0), shape)
    x = jnp.asarray(random.standard_normal((5, *shape)), "float32")
    context = Context(jax.random.key(0), jnp.ones(5), factored=True)
    y, kept = layer.train_forward(weights, x, context)
    np.testing.assert_allclose(y, layer.forward(weights, x), rtol=1e-6)
    dy = jnp.asarray(random.standard_normal(y.shape), "float32")
    expected = jax.vjp(layer.forward, weights, x)[1](dy)
    derived = layer.gradient(weights, x, y, dy), layer.delta(weights, x, y, dy)
    trained = layer.train_backward(weights, x, y, dy, kept, context, True)[::-1]
    for found in (derived, trained):
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), found, expected)


def test_a_loss_that_overrides_losses_has_the_slopes_of_that() -> None:
    outputs, targets = jnp.asarray([[1.0], [3.0]]), jnp.zeros((2, 1))
    np.testing.assert_allclose(TenfoldError().slopes(outputs, targets), [[20.0], [60.0]])


def test_derivatives_of_ones_own_stay() -> None:
    class Flipped(Relu):
        def forward(self, weights: Weights, x: Array) -> Array:
            return -x

        def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
            return -dy

    class Again(Flipped):
        pass

    assert Flipped.delta is Again.delta is Flipped.__dict__["delta"]


def test_a_base_may_have_kernels_for_the_forward_that_its_classes_write() -> None:
    class Linear(Layer):
        def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
            return self.forward(weights, dy)

    class Tripled(Linear):
        def forward(self, weights: Weights, x: Array) -> Array:
            return 3 * x

    assert Tripled().delta({}, jnp.ones(1), jnp.ones(1), jnp.full(1, 2.0)) == 6


def test_a_class_whose_kernels_are_written_for_what_it_overrides_is_refused_with_the_remedy() -> None:
    def forward(self: Any, weights: Weights, x: Array) -> Array:
        return 2 * x

    def train_forward(self: Any, weights: Weights, x: Array, context: Context) -> tuple[Array, Any]:
        return x, None

    for base, method, sentence in (
        (Relu, forward, "overrides forward, but inherits delta from Relu, .*in the class: delta = Layer.delta$"),
        (Dense, forward, ".*inherits delta, gradient, train_gradient from Dense, .* = Layer.delta, Layer.gradient, "),
        (BatchNorm, forward, "overrides forward, but inherits delta, train_forward, train_delta, train_gradient from "),
        (MaxPool, train_forward, "overrides train_forward, but inherits train_delta from MaxPool, "),
        (Dense, train_forward, "overrides train_forward, but inherits train_gradient from Dense, "),
    ):
        with pytest.raises(TypeError, match=f"^Own {sentence}"):
            type("Own", (base,), {method.__name__: method, "__module__": __name__})
    with pytest.raises(
        TypeError, match="Own overrides losses, but inherits slopes from SquaredError, .* = Loss.slopes"
    ):
        type("Own", (SquaredError,), {"losses": TenfoldError.losses, "__module__": __name__})


# What breaks the contract


@dataclass(frozen=True)
class Scale(Layer):
    """y = g * x, broken as told."""

    broken: str = ""

    def init(self, key: Array, input_shape: Shape) -> Weights:
        if self.broken == "init":
            return jnp.ones(input_shape)  # type: ignore[return-value]
        return {"g": jnp.ones(input_shape)}

    def output_shape(self, input_shape: Shape) -> Shape:
        return (99,) if self.broken == "promise" else input_shape

    def forward(self, weights: Weights, x: Array) -> Array:
        if self.broken == "forward":
            raise KeyError("gain")
        return weights["g"][None] * x

    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy.sum() if self.broken == "delta" else weights["g"][None] * dy

    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        whole = x * dy
        kinds = {"rows": {"g": whole}, "scalar": {"g": whole.sum()}, "name": {"h": whole.sum(axis=0)}, "none": None}
        return kinds.get(self.broken, {"g": whole.sum(axis=0)})  # type: ignore[return-value]


def line_of(code: str) -> int:
    """The first line of this file that says so."""
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if code in line)


def training(layer: Layer | None = None, loss: Loss | str = "squared_error") -> Training:
    inner = Network([layer or Relu(), Relu()], name="block")
    return Training(Network([inner, Dense(3)], input_shape=(3,)), loss=loss)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("init", r"Layer 'block/scale_0' .* fails .*init must give a dict of arrays by name, received "),
        ("promise", r"forward of Layer 'block/scale_0' \(Scale\) must give an array of shape \(7, 99\) .*\(7, 3\)"),
        (
            "forward",
            r"Layer 'block/scale_0' \(Scale\) fails for 7 rows: KeyError: 'gain' \(.*test_contract.py, line {}\); mend",
        ),
        ("delta", r"delta of Layer 'block/scale_0' .* of shape \(7, 3\) when it is given 7 rows, received \(\)"),
        ("rows", r"gradient of .* of shape \(3,\) for its weight 'g' when it is given 7 rows, received \(7, 3\)"),
        ("scalar", r"gradient of .* of shape \(3,\) for its weight 'g' when it is given 7 rows, received \(\)"),
        ("name", r"gradient of .* of shape \(3,\) for its weight 'g' when it is given 7 rows, received nothing"),
        ("none", r"gradient of Layer 'block/scale_0' \(Scale\) must give a dict of arrays, received None"),
    ],
)
def test_kernels_that_fail_or_give_other_shapes_are_refused(broken: str, sentence: str) -> None:
    training(Scale())
    with pytest.raises(ValueError, match=sentence.replace("{}", str(line_of('raise KeyError("gain")')))):
        training(Scale(broken))


def test_a_forward_without_return_is_named() -> None:
    class Forgetful(Layer):
        def forward(self, weights: Weights, x: Array) -> Array:  # type: ignore[empty-body]
            x + 1

    class Lost(Layer):
        def forward(self, weights: Weights, x: Array) -> Array:
            return weights["kernel"] * x

    class Unpacked(Layer):
        def output_shape(self, input_shape: Shape) -> Shape:
            height, width = input_shape
            return (height * width,)

    for layer, sentence, line in (
        (Forgetful(), "forward must return an array, received None.", ""),
        (Lost(), "KeyError: 'kernel'", 'return weights["kernel"] * x'),
        (Unpacked(), "not enough values to unpack .expected 2, got 1.", "height, width = input_shape"),
    ):
        where = rf" \({__file__}, line {line_of(line)}\)" if line else ""
        with pytest.raises(ValueError, match=rf"Layer 0 \({type(layer).__name__}\): {sentence}{where}$"):
            Network([layer], input_shape=(3,))


LOSSES: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "mean": (lambda o, t: ((o - t) ** 2).mean(), r"must give an array of shape \(7,\) .*received \(\)"),
    "outputs": (lambda o, t: (o - t) ** 2, r"must give an array of shape \(7,\) .*received \(7, 3\)"),
    "misfit": (lambda o, t: o @ t, r"fails for 7 rows: TypeError: "),
}


def test_a_loss_may_take_the_numbers_of_classes_as_its_targets() -> None:
    @dataclass(frozen=True)
    class Chosen(Loss):
        takes_classes = True

        def targets(self, outputs: Array, labels: Array) -> Array:
            return labels

        def losses(self, outputs: Array, targets: Array) -> Array:
            return -jnp.take_along_axis(outputs, targets[:, None], axis=1)[:, 0]

        def metrics(self, outputs: Array, labels: Array) -> Array:
            return (outputs.argmax(axis=1) == labels).astype(outputs.dtype)

    assert training(loss=Chosen()).loss == Chosen()


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_must_give_one_number_a_row(kind: str) -> None:
    function, sentence = LOSSES[kind]

    @dataclass(frozen=True)
    class Own(Loss):
        def losses(self, outputs: Array, targets: Array) -> Array:
            return function(outputs, targets)

    with pytest.raises(ValueError, match=f"losses of Own {sentence}"):
        training(loss=Own())
