"""Capsules: vectors whose direction says what a thing is like, and whose length how sure it is that it is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp

from sparkdl.initializers import HeNormal, Initializer, TruncatedNormal
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.convolution import Conv
from sparkdl.layers.shape import Reshape
from sparkdl.layers.windows import Padding, check_windows
from sparkdl.specs import check_integers


def _lengths(x: Array) -> Array:
    """Of the vectors along the last axis, which stays as one number; the derivative of a length of 0 is 0."""
    squares = (x * x).sum(axis=-1, keepdims=True)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def _squashed(x: Array) -> Array:
    lengths = _lengths(x)
    return x * (lengths / (1 + lengths * lengths))


@dataclass(frozen=True)
class Squash(Layer):
    """Vectors along the last axis, shortened to a length below 1: x * |x| / (1 + |x| ** 2) (Sabour et al. 2017, eq. 1).

    x, y, dx and dy all have one shape, (batch, ..., size).
    """

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape:
            raise ValueError(
                f"Squash expects rows of shape (..., size), received {input_shape}; put Reshape before it."
            )
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _squashed(x)


@dataclass(frozen=True)
class PrimaryCapsules(Composite):
    """The first capsules, at every position of an image: a convolution, whose channels are cut into vectors, squashed.

    x        (batch, *spatial, channels)
    y        (batch, positions * capsules, size), those of a position one after another
    weights  conv: as of `Conv` with capsules * size filters

    Parameters
    ----------
    capsules : int
        At each position.
    size : int
        Of the vector of each.
    kernel, strides, padding
        As of `Conv`, which calls the first `size`.
    kernel_initializer : Initializer or str, default HeNormal()
    """

    capsules: int
    size: int
    kernel: int | Shape
    strides: int | Shape = 1
    padding: Padding = "valid"
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)

    def __post_init__(self) -> None:
        check_integers(self, 1, "capsules", "size")
        check_windows(self, self.padding, kernel=self.kernel, strides=self.strides)
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        conv = Conv(
            self.capsules * self.size,
            self.kernel,
            self.strides,
            self.padding,
            kernel_initializer=self.kernel_initializer,
            trainable=self.trainable,
        )
        return (
            Child("conv", conv, (0,)),
            Child("vectors", Reshape((-1, self.size)), (1,)),
            Child("squash", Squash(), (2,)),
        )


@dataclass(frozen=True)
class Capsules(Layer):
    """Capsules that each gather what those below foretell of them, by routing (Sabour, Frosst and Hinton 2017).

    Capsule i below foretells x_i @ kernel_ij of capsule j. Of its forecasts those count most that agree with what comes
    of all: shares c_ij = softmax over j of b_ij; y_j = squash(sum over i of c_ij * x_i @ kernel_ij); and b_ij, at first
    0, gains the forecast's dot product with y_j from one routing to the next (procedure 1 there).

    x        (batch, inputs, width)        dx  (batch, inputs, width)    dL/dx, through all routings
    y        (batch, capsules, size)       dy  (batch, capsules, size)   dL/dy
    weights  kernel (inputs, capsules, width, size); gradients are sums over the batch

    Parameters
    ----------
    capsules : int
        Such as one for each class.
    size : int
        Of the vector of each.
    routings : int, default 3
        With 1 all forecasts count alike.
    kernel_initializer : Initializer or str, default TruncatedNormal(0.1)
        As in the authors' program.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Capsules, CapsuleStrength, Conv, PrimaryCapsules, Relu
    >>> layers = [Conv(256, (9, 9)), Relu(), PrimaryCapsules(32, 8, (9, 9), 2), Capsules(10, 16), CapsuleStrength()]
    >>> Network(layers, input_shape=(28, 28, 1)).output_shape()  # the paper's, to be trained by MarginLoss
    (10,)
    """

    capsules: int
    size: int
    routings: int = 3
    kernel_initializer: Initializer | str = field(default=TruncatedNormal(0.1), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        check_integers(self, 1, "capsules", "size", "routings")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2:
            raise ValueError(
                f"Capsules expects rows of shape (inputs, width), received {input_shape}; put PrimaryCapsules "
                "before it."
            )
        return (self.capsules, self.size)

    def multiply_adds(self, input_shape: Shape) -> int:
        inputs, width = input_shape
        return inputs * self.capsules * self.size * (width + 2 * self.routings - 1)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        inputs, width = input_shape
        shape = (inputs, self.capsules, width, self.size)
        return {"kernel": Initializer.of(self.kernel_initializer).sample(key, shape)}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        forecasts = jnp.einsum("biw,icws->bics", x, weights["kernel"])

        def gathered(agreement: Array) -> Array:
            return _squashed(jnp.einsum("bic,bics->bcs", jax.nn.softmax(agreement, axis=2), forecasts))

        agreement = jnp.zeros_like(forecasts[..., 0])
        y = gathered(agreement)
        for _ in range(self.routings - 1):
            agreement = agreement + jnp.einsum("bics,bcs->bic", forecasts, y)
            y = gathered(agreement)
        return y


@dataclass(frozen=True)
class CapsuleStrength(Layer):
    """The lengths of capsules, between 0 and 1: how sure each is that its thing is there.

    x  (batch, capsules, size)    dx  (batch, capsules, size)   dL/dx, 0 of vectors of zeros
    y  (batch, capsules)          dy  (batch, capsules)         dL/dy
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2:
            raise ValueError(
                f"CapsuleStrength expects rows of shape (capsules, size), received {input_shape}; put it "
                "after Capsules."
            )
        return input_shape[:1]

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _lengths(x)[..., 0]
