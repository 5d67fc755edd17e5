"""How PyTorch's layers lay out what ours hold: each array's way here and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.layers.base import Shape


class Layout(NamedTuple):
    """An array's two forms.

    Attributes
    ----------
    shape : callable
        The shape of theirs, given that of ours.
    read : callable
        Ours, given theirs and the shape of ours.
    write : callable
        Theirs, given ours.
    """

    shape: Callable[[Shape], Shape]
    read: Callable[[Array, Shape], Array]
    write: Callable[[Array], Array]


def _axes(*forth: int) -> Layout:
    """Theirs with its axes in another order: axis `forth[i]` of theirs is axis i of ours."""
    back = tuple(int(axis) for axis in np.argsort(forth))
    return Layout(
        lambda shape: tuple(shape[axis] for axis in back),
        lambda array, shape: array.transpose(forth),
        lambda array: array.transpose(back),
    )


def _matrix(inputs: int, transposed: bool) -> Layout:
    """A matrix whose rows ours cuts into axes: `inputs` of its first axes are rows (-1: all but the last)."""

    def flat(shape: Shape) -> Shape:
        cut = inputs % len(shape)
        return math.prod(shape[:cut]), math.prod(shape[cut:])

    return Layout(
        lambda shape: flat(shape)[::-1] if transposed else flat(shape),
        lambda array, shape: (array.T if transposed else array).reshape(shape),
        lambda array: array.reshape(flat(array.shape)).T if transposed else array.reshape(flat(array.shape)),
    )


def after_flatten(before: Shape) -> Layout:
    """A linear layer's matrix behind a Flatten of images (height, width, channels), which are theirs channels first."""
    height, width, channels = before

    def read(array: Array, shape: Shape) -> Array:
        return array.reshape(-1, channels, height, width).transpose(2, 3, 1, 0).reshape(shape)

    def write(array: Array) -> Array:
        return array.reshape(height, width, channels, -1).transpose(3, 2, 0, 1).reshape(array.shape[::-1])

    return Layout(lambda shape: shape[::-1], read, write)


def _leading(axes: int) -> Layout:
    """Theirs has so many axes, the first of them of length 1."""

    def padded(shape: Shape) -> Shape:
        return (1,) * (axes - len(shape)) + tuple(shape)

    return Layout(padded, lambda array, shape: array.reshape(shape), lambda array: array.reshape(padded(array.shape)))


AS_IT_IS = Layout(lambda shape: shape, lambda array, shape: array, lambda array: array)
CONV = _axes(2, 3, 1, 0)  # (out, in, height, width) as (height, width, in, out); of a depthwise one, too
LINEAR = _matrix(-1, transposed=True)  # (out, in) as (in, out), or as (heads, size, out)
TO_HEADS = _matrix(1, transposed=True)  # (heads * size, in) as (in, heads, size)
PLAIN = _matrix(-1, transposed=False)  # (in, out) as it is, or as (heads, size, out)
PLAIN_TO_HEADS = _matrix(1, transposed=False)  # (in, heads * size) as (in, heads, size)
VECTOR = Layout(
    lambda shape: (math.prod(shape),), lambda array, shape: array.reshape(shape), lambda array: array.reshape(-1)
)
TOKEN = _leading(3)  # (1, 1, size) as (size,); (1, steps, size) as (steps, size)
