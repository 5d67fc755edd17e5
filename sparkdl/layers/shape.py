"""Layers that only change the shape of a row, or take a part of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.specs import check_integers, is_integer


@dataclass(frozen=True)
class Reshaping(Layer):
    """Gives each row the shape that `output_shape` promises, in row-major order.

    x  (batch, *input_shape)        dx  (batch, *input_shape)    dL/dx
    y  (batch, *output_shape)       dy  (batch, *output_shape)   dL/dy
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x.reshape(x.shape[0], *self.output_shape(x.shape[1:]))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy.reshape(x.shape)


@dataclass(frozen=True)
class Flatten(Reshaping):
    """Makes each row one vector, as Dense expects it."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return super().forward(weights, lax.platform_dependent(x, cpu=_computed, default=lambda x: x))

    delta = Reshaping.delta


def _computed(x: Array) -> Array:
    """x, which XLA is to compute in its own shape.

    It would make one loop of what is before and the flat row, which a CPU has no vectors for: after a pool, half of the
    forward pass and of the step of a CNN of 16 filters, a tenth of larger ones.
    """
    if x.ndim < 3 or x.shape[-1] == 1 or not x.size:
        return x
    first = x[(0,) * x.ndim]
    always = (first == first) | (first != first)  # not known to XLA, which does not look past a condition
    return lax.cond(always, lambda x: x, jnp.zeros_like, x)


@dataclass(frozen=True)
class Reshape(Reshaping):
    """Gives each row another shape.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row of y, without the batch axis; one size may be -1 and is then inferred.
    """

    shape: Shape

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.shape if isinstance(self.shape, tuple) else (0,)
        if not all(is_integer(size, -1) and size for size in sizes) or sizes.count(-1) > 1:
            raise ValueError(
                f"shape of Reshape must be a tuple of positive sizes, one of which may be -1, received {self.shape!r}; "
                "leave the batch axis out."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        count, known = math.prod(input_shape), math.prod(size for size in self.shape if size != -1)
        shape = tuple(count // known if size == -1 else size for size in self.shape)
        if math.prod(shape) != count:
            raise ValueError(
                f"Reshape to {self.shape} expects as many numbers in a row, received rows of shape {input_shape}; "
                f"choose sizes whose product is {count}."
            )
        return shape


@dataclass(frozen=True)
class Permute(Layer):
    """The axes of a row in another order.

    Parameters
    ----------
    axes : tuple of int
        Which axis of x each axis of y is, from 0 and without the batch axis: Permute((1, 0)) transposes a matrix.
    """

    axes: Shape

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.axes, tuple) or sorted(self.axes) != list(range(len(self.axes))):
            raise ValueError(
                f"axes of Permute must hold each number from 0 to below their count, received {self.axes!r}; leave "
                "the batch axis out."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != len(self.axes):
            raise ValueError(f"Permute expects rows of {len(self.axes)} axes, received {input_shape}; change its axes.")
        return tuple(input_shape[axis] for axis in self.axes)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x.transpose(0, *(axis + 1 for axis in self.axes))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy.transpose(0, *(self.axes.index(axis) + 1 for axis in range(len(self.axes))))


@dataclass(frozen=True)
class RepeatVector(Layer):
    """A row several times, along a new first axis: a vector becomes a sequence.

    x  (batch, ...)            dx  (batch, ...)           dL/dx
    y  (batch, times, ...)     dy  (batch, times, ...)    dL/dy

    Parameters
    ----------
    times : int
        How often.
    """

    times: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "times")

    def output_shape(self, input_shape: Shape) -> Shape:
        return (self.times, *input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (x.shape[0], self.times, *x.shape[1:]))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy.sum(axis=1)


@dataclass(frozen=True)
class Unstack(Layer):
    """One of the arrays that are stacked along the first axis of a row; see `Stack`.

    Parameters
    ----------
    index : int
        Which, from 0.
    """

    index: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 0, "index")

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[0] <= self.index:
            raise ValueError(
                f"Unstack expects rows of shape (more than {self.index}, ...), received {input_shape}; lower its index."
            )
        return input_shape[1:]

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x[:, self.index]


@dataclass(frozen=True)
class Subset(Layer):
    """Some neighbouring channels, of the last axis of a row.

    Parameters
    ----------
    start, stop : int
        The first, and the one after the last, from 0.
    """

    each_step = True

    start: int
    stop: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_integer(self.start, 0) and is_integer(self.stop) and self.start < self.stop):
            raise ValueError(
                f"Subset expects start and stop, integers with 0 <= start < stop, received {self.start!r} and "
                f"{self.stop!r}."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] < self.stop:
            raise ValueError(
                f"Subset expects rows of shape (..., at least {self.stop}), received {input_shape}; lower its stop."
            )
        return (*input_shape[:-1], self.stop - self.start)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x[..., self.start : self.stop]
