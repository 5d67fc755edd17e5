"""Layers that make one array of several; x and dx are tuples, `input_shape` is the tuple of their shapes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import unit


@dataclass(frozen=True)
class Merge(Layer):
    """A layer that reads several arrays.

    x  tuple of arrays (batch, *input_shape[i])     dx  tuple of their shapes     dL/dx
    y  (batch, *output_shape)                       dy  (batch, *output_shape)    dL/dy
    """

    each_step = True

    def _several(self, shapes: Sequence[Shape]) -> None:
        if len(shapes) < 2 or not all(isinstance(shape, tuple) for shape in shapes):
            raise ValueError(
                f"{type(self).__name__} expects the outputs of two layers or more, received one of shape {shapes}; "
                "put it after branches, as in Parallel, or give it several sources in a Graph."
            )


@dataclass(frozen=True)
class Elementwise(Merge):
    """A merge of arrays of one shape, which is y's too."""

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(set(input_shape)) > 1:
            raise ValueError(
                f"{type(self).__name__} expects rows of one shape, received {' and '.join(map(str, input_shape))}; "
                "end all in the same shape, in Residual by a shortcut that does what its layers do to the shape."
            )
        return input_shape[0]


@dataclass(frozen=True)
class Add(Elementwise):
    """The sum of arrays of one shape."""

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        first, *others = x
        return sum(others, first)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return (dy,) * len(x)


@dataclass(frozen=True)
class Subtract(Elementwise):
    """The first of two arrays of one shape less the second."""

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        shape = super().output_shape(input_shape)
        if len(input_shape) > 2:
            raise ValueError(
                f"Subtract expects two arrays, received {len(input_shape)}; add up what is to be taken off."
            )
        return shape

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return x[0] - x[1]

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return dy, -dy


@dataclass(frozen=True)
class Multiply(Elementwise):
    """The product of arrays, number by number.

    Their rows are of one shape, but that an axis of one may be 1 where that of another is longer: (1, 1, channels) are
    factors for all positions of an image (height, width, channels), as in squeeze and excitation (Hu et al. 2018).
    """

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        longest = tuple(max(sizes) for sizes in zip(*input_shape, strict=False))
        fit = [all(n in (1, most) for n, most in zip(shape, longest, strict=False)) for shape in input_shape]
        if not all(fit) or len(set(map(len, input_shape))) > 1:
            return super().output_shape(input_shape)
        return longest

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return functools.reduce(jnp.multiply, x)


@dataclass(frozen=True)
class Average(Elementwise):
    """The mean of arrays of one shape."""

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        first, *others = x
        return sum(others, first) / len(x)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return (dy / len(x),) * len(x)


@dataclass(frozen=True)
class OneOf(Elementwise):
    """Base of those whose y is, at every place, the number of one of the arrays; equal ones share its delta."""

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        chosen = [(array == y).astype(dy.dtype) for array in x]
        share = dy / sum(chosen[1:], chosen[0])
        return tuple(mine * share for mine in chosen)


@dataclass(frozen=True)
class Maximum(OneOf):
    """The largest of the numbers that arrays of one shape have at a place; equal ones share its delta."""

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return functools.reduce(jnp.maximum, x)


@dataclass(frozen=True)
class Minimum(OneOf):
    """The smallest of the numbers that arrays of one shape have at a place; equal ones share its delta."""

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return functools.reduce(jnp.minimum, x)


@dataclass(frozen=True)
class Stack(Elementwise):
    """Arrays of one shape one after another, along a new axis before the others; see `Unstack`."""

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        return (len(input_shape), *super().output_shape(input_shape))

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return jnp.stack(x, axis=1)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return tuple(dy[:, index] for index in range(len(x)))


@dataclass(frozen=True)
class Dot(Merge):
    """The dot product of two vectors, as of a user and an item; y is (batch, 1).

    Parameters
    ----------
    normalize : bool, default False
        Whether to divide by the vectors' lengths, which gives their cosine; vectors of zeros have cosine 0.
    """

    normalize: bool = False

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        return _of_two_vectors(self, input_shape)

    def multiply_adds(self, input_shape: Sequence[Shape]) -> int:  # type: ignore[override]
        return input_shape[0][0]

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        one, other = map(unit, x) if self.normalize else x
        return (one * other).sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Distance(Merge):
    """The Euclidean distance of two vectors, sqrt(sum((a - b) ** 2)); y is (batch, 1).

    Where they are equal the delta is 0.

    Parameters
    ----------
    squared : bool, default False
        Whether to leave out the root.
    """

    squared: bool = False

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        return _of_two_vectors(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        squares = ((x[0] - x[1]) ** 2).sum(axis=1, keepdims=True)
        return squares if self.squared else jnp.sqrt(squares)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        apart = x[0] - x[1]
        slope = 2 * apart if self.squared else jnp.where(y > 0, apart / jnp.where(y > 0, y, 1), 0)
        return dy * slope, -dy * slope


def _of_two_vectors(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    if len(shapes) > 2 or len(set(shapes)) > 1 or len(shapes[0]) != 1:
        raise ValueError(
            f"{type(layer).__name__} expects two vectors of one length, received {' and '.join(map(str, shapes))}; "
            "end both sides in the same Dense(units)."
        )
    return (1,)


@dataclass(frozen=True)
class Concatenate(Merge):
    """Arrays side by side along their last axis, the channels; their shapes agree but for that.

    Rows of shape () are taken for vectors of one number.
    """

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        shapes = [shape or (1,) for shape in input_shape]
        if len({shape[:-1] for shape in shapes}) > 1:
            raise ValueError(
                f"Concatenate expects rows that differ in their last axis alone, received "
                f"{' and '.join(map(str, input_shape))}; end the branches in layers that give the same."
            )
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return jnp.concatenate([_widened(array) for array in x], axis=-1)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        *ends, _ = accumulate(_widened(array).shape[-1] for array in x)
        return tuple(part.reshape(array.shape) for part, array in zip(jnp.split(dy, ends, axis=-1), x, strict=True))


def _widened(array: Array) -> Array:
    return array[:, None] if array.ndim == 1 else array
