"""Two dense layers for each step, the second back to as many numbers as the step has: the other half of a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparkdl.constraints import Constraint
from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.activation import Gelu
from sparkdl.layers.base import Array, Context, KernelLayer, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import check_channels
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.specs import check_integers, check_range


class Passed(NamedTuple):
    """What went through a FeedForward, of the rows of all steps.

    Attributes
    ----------
    z : Array (rows, units)
        What the activation read.
    active : Array (rows, units)
        What it gave.
    beside : Array (rows, units) or None
        By what that is multiplied, of a gated one.
    stays : Array (rows, units) or None
        What dropout leaves, if there is any.
    """

    z: Array
    active: Array
    beside: Array | None
    stays: Array | None


@dataclass(frozen=True)
class FeedForward(KernelLayer):
    """y = activation(x @ inner + bias) @ outer + bias for each step (Vaswani et al. 2017, section 3.3).

    x, y, dx and dy all have one shape, (batch, ..., inputs).
    weights  inner kernel (inputs, units), bias (units,); outer kernel (units, inputs), bias (inputs,)
             gate as inner, if `gated`

    Parameters
    ----------
    units : int
    activation : Layer or str, default "gelu"
        One without weights.
    dropout : float, default 0
        Probability of dropping, in training, a number that `outer` reads.
    gated : bool, default False
        Whether the activation is of a third product, x @ gate + bias, and multiplied with that by `inner` (Shazeer
        2020, "GLU variants improve transformer"): with "relu" ReGLU, with "silu" SwiGLU.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Embedding, FeedForward, Residual
    >>> Network([Embedding(100, 8), Residual([FeedForward(32)])], input_shape=(None,)).output_shape()
    (None, 8)
    """

    each_step = True

    units: int
    activation: Layer | str = Gelu()
    dropout: float = 0.0
    gated: bool = False
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "activation", Layer.of(self.activation))
        check_integers(self, 1, "units")
        check_range(self, "[0, 1)", "dropout")

    def output_shape(self, input_shape: Shape) -> Shape:
        between, activation = (self.units,), self._activation
        learned = jax.eval_shape(lambda: activation.init(jax.random.key(0), between))
        if learned or activation.output_shape(between) != between:
            raise ValueError(
                "activation of FeedForward must be a layer without weights that keeps the shape of rows, received "
                f"{activation!r}; write 'gelu' or 'relu'."
            )
        return check_channels(self, input_shape)

    def multiply_adds(self, input_shape: Shape) -> int:
        numbers = 1
        for size in input_shape:
            numbers *= size or 1
        return numbers * self.units * (3 if self.gated else 2)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        inputs = input_shape[-1]
        shapes = dict.fromkeys(self._inward, (inputs, self.units)) | {"outer": (self.units, inputs)}
        keys = jax.random.split(key, len(shapes))
        return {name: self.init_kernel(own, shape) for own, (name, shape) in zip(keys, shapes.items(), strict=True)}

    def penalty(self, weights: Weights) -> Array | float:
        kernels = [part["kernel"] for part in weights.values()] if self.l1 or self.l2 else []
        return sum(self.l1 * abs(kernel).sum() + self.l2 / 2 * (kernel * kernel).sum() for kernel in kernels)

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        project = Constraint.of(self.constraint).project
        return {name: part | {"kernel": project(part["kernel"], (0,))} for name, part in weights.items()}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._run(weights, x, None)[0]

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], True, False)[0]

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], False, True)[1]

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Passed]:
        return self._run(weights, x, context.key)

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Passed, context: Context) -> Array:
        return self._back(weights, x, dy, kept, True, False)[0]

    def train_gradient(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: Passed, context: Context
    ) -> Weights:
        return self._back(weights, x, dy, kept, False, True)[1]

    def train_backward(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: Passed, context: Context, wants_delta: bool
    ) -> tuple[Array | None, Weights]:
        return self._back(weights, x, dy, kept, wants_delta, self.trainable)

    @property
    def _activation(self) -> Layer:
        assert isinstance(self.activation, Layer)
        return self.activation

    @property
    def _inward(self) -> tuple[str, ...]:
        """The kernels that read x, that of the activation last."""
        return ("inner", "gate") if self.gated else ("inner",)

    def _run(self, weights: Weights, x: Array, key: Array | None) -> tuple[Array, Passed]:
        *beside, z = (self._product(weights[name], _flat(x)) for name in self._inward)
        active = self._activation.forward({}, z)
        stays = None if key is None or not self.dropout else jax.random.bernoulli(key, 1 - self.dropout, z.shape)
        passed = Passed(z, active, beside[0] if beside else None, stays)
        return self._product(weights["outer"], self._between(passed)).reshape(x.shape), passed

    def _back(
        self, weights: Weights, x: Array, dy: Array, passed: Passed, wants_delta: bool, wants_gradient: bool
    ) -> tuple[Any, Weights]:
        """(dx or None, dweights or {})."""
        if not wants_delta and not wants_gradient:
            return None, {}
        rows, slopes = _flat(x), _flat(dy)
        between = self._thinned(matmul(slopes, weights["outer"]["kernel"].T), passed.stays)
        of_active = between if passed.beside is None else between * passed.beside
        of_inward = [self._activation.delta({}, passed.z, passed.active, of_active)]
        if self.gated:
            of_inward.insert(0, between * passed.active)
        known = dict(zip(self._inward, of_inward, strict=True))
        gradient: Weights = {}
        if wants_gradient:
            gradient = {name: self._gradient(rows, slope) for name, slope in known.items()}
            gradient["outer"] = self._gradient(self._between(passed), slopes)
        if not wants_delta:
            return None, gradient
        first, *others = (matmul(slope, weights[name]["kernel"].T) for name, slope in known.items())
        return sum(others, first).reshape(x.shape), gradient

    def _between(self, passed: Passed) -> Array:
        """What `outer` reads."""
        made = passed.active if passed.beside is None else passed.active * passed.beside
        return self._thinned(made, passed.stays)

    def _thinned(self, rows: Array, stays: Array | None) -> Array:
        return rows if stays is None else jnp.where(stays, rows / (1 - self.dropout), 0)

    def _product(self, weights: Weights, rows: Array) -> Array:
        y = matmul(rows, weights["kernel"])
        return y + weights["bias"][None] if self.bias else y

    def _gradient(self, rows: Array, slopes: Array) -> Weights:
        return {"kernel": transposed_product(rows, slopes)} | ({"bias": slopes.sum(axis=0)} if self.bias else {})


def _flat(x: Array) -> Array:
    """(batch, ..., inputs) as (rows, inputs)."""
    return x.reshape(-1, x.shape[-1])
