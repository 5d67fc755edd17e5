"""Layers that prepare images, rows of shape (height, width, channels), inside the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.specs import is_integer, is_number


def image_shape(layer: Layer, input_shape: Shape) -> Shape:
    """`input_shape` if it is that of an image."""
    if len(input_shape) != 3:
        raise ValueError(
            f"{type(layer).__name__} expects rows of shape (height, width, channels), received {input_shape}; "
            "put Reshape((height, width, channels)) before it."
        )
    return input_shape


def check_size(layer: Layer, size: Any) -> None:
    """ValueError unless `size` is a height and a width."""
    if not (isinstance(size, tuple) and len(size) == 2 and all(is_integer(n, 1) for n in size)):
        raise ValueError(
            f"size of {type(layer).__name__} must be (height, width), two positive integers, received {size!r}."
        )


@dataclass(frozen=True)
class Rescale(Layer):
    """y = x * scale + offset, for rows of any shape: Rescale(1 / 255) maps bytes to [0, 1].

    Parameters
    ----------
    scale : float
        Factor.
    offset : float, default 0
        What is added afterwards.
    """

    each_step = True

    scale: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "offset"):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} of Rescale must be a finite number, received {getattr(self, name)!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * self.scale + self.offset

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * self.scale


@dataclass(frozen=True)
class Standardize(Layer):
    """Gives every row mean 0 and standard deviation 1, for rows of any shape.

    y = (x - mean) / max(deviation, 1 / sqrt(n)) over the n numbers of a row; the lower bound keeps constant images
    finite. This is TensorFlow's `tf.image.per_image_standardization`.
    """

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        axes = tuple(range(1, x.ndim))
        centred = x - x.mean(axis=axes, keepdims=True)
        variance = (centred * centred).mean(axis=axes, keepdims=True)
        return centred * lax.rsqrt(jnp.maximum(variance, 1 / math.prod(x.shape[1:])))


@dataclass(frozen=True)
class Resize(Layer):
    """Resamples images to another height and width (`jax.image.resize`).

    x  (batch, height, width, channels)        dx  of x's shape   dL/dx
    y  (batch, *size, channels)                dy  of y's shape   dL/dy

    Parameters
    ----------
    size : tuple of int
        Height and width of y.
    method : {"linear", "nearest", "cubic"}, default "linear"
        Interpolation; "cubic" is Keys' kernel with a = -0.5.
    antialias : bool, default True
        Whether shrinking smooths first, as Pillow does; TensorFlow and Keras do not unless they are told to.
    """

    size: tuple[int, int]
    method: str = "linear"
    antialias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self, self.size)
        if self.method not in ("linear", "nearest", "cubic"):
            raise ValueError(f"method of Resize must be 'linear', 'nearest' or 'cubic', received {self.method!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*self.size, image_shape(self, input_shape)[2])

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jax.image.resize(x, (x.shape[0], *self.output_shape(x.shape[1:])), self.method, self.antialias)
