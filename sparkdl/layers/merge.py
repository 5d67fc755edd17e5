"""Layers that make one array of several; x and dx are tuples, `input_shape` is the tuple of their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted


@dataclass(frozen=True)
class Merge(Layer):
    """A layer that reads several arrays.

    x  tuple of arrays (batch, *input_shape[i])     dx  tuple of their shapes     dL/dx
    y  (batch, *output_shape)                       dy  (batch, *output_shape)    dL/dy
    """

    def _several(self, shapes: Sequence[Shape]) -> None:
        if len(shapes) < 2 or not all(isinstance(shape, tuple) for shape in shapes):
            raise ValueError(
                f"{type(self).__name__} expects the outputs of two layers or more, received one of shape {shapes}; "
                "put it after branches, as in Parallel."
            )


@dataclass(frozen=True)
class Add(Merge):
    """The sum of arrays of one shape."""

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(set(input_shape)) > 1:
            raise ValueError(
                f"Add expects rows of one shape, received {' and '.join(map(str, input_shape))}; "
                "end all in the same shape, in Residual by a shortcut that does what its layers do to the shape."
            )
        return input_shape[0]

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        first, *others = x
        return sum(others, first)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return (dy,) * len(x)


@dataclass(frozen=True)
class Concatenate(Merge):
    """Arrays side by side along their last axis, the channels; their shapes agree but for that."""

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if not all(input_shape) or len({shape[:-1] for shape in input_shape}) > 1:
            raise ValueError(
                f"Concatenate expects rows that differ in their last axis alone, received "
                f"{' and '.join(map(str, input_shape))}; end the branches in layers that give the same."
            )
        return (*input_shape[0][:-1], sum(shape[-1] for shape in input_shape))

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return jnp.concatenate(x, axis=-1)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        *ends, _ = accumulate(array.shape[-1] for array in x)
        return tuple(jnp.split(dy, ends, axis=-1))
