"""Rows times a number, or plus one: a constant, or one for each channel that is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import along_channels, check_channels
from sparkdl.specs import is_number


@dataclass(frozen=True)
class ByNumber(Layer):
    """A layer with one number for everything or, per channel, as many as the last axis is long.

    x, y, dx and dy all have one shape, (batch, ...).

    Parameters
    ----------
    number : float
    per_channel : bool, default False
        Whether every channel has a number of its own, which starts as the given one and is learned.
    """

    each_step = True

    number: float
    per_channel: bool = field(default=False, kw_only=True)

    weight: ClassVar[str]  # name of the learned array (channels,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.number):
            raise ValueError(f"number of {type(self).__name__} must be a finite number, received {self.number!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape) if self.per_channel else input_shape

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {self.weight: jnp.full(input_shape[-1:], float(self.number))} if self.per_channel else {}

    def numbers(self, weights: Weights, x: Array) -> Array | float:
        """The number, or those of the channels in x's rank."""
        return along_channels(weights[self.weight], x) if self.per_channel else self.number


@dataclass(frozen=True)
class Scale(ByNumber):
    """y = x * number, for rows of any shape: Deeplearning4j's ScaleVertex.

    Per channel it is LayerScale (Touvron et al. 2021, "Going deeper with image transformers"), which starts a branch
    of a residual network near nothing: Scale(1e-4, per_channel=True). See `Rescale` for a factor and an offset in one.

    x, y, dx and dy all have one shape, (batch, ...).
    weights  per channel, scale (channels,)

    Parameters
    ----------
    number : float
        The factor.
    per_channel : bool, default False
        Whether every channel has a factor of its own, which starts as the given one and is learned.
    """

    weight = "scale"

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * self.numbers(weights, x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * self.numbers(weights, x)


@dataclass(frozen=True)
class Shift(ByNumber):
    """y = x + number, for rows of any shape: Deeplearning4j's ShiftVertex; per channel, a bias.

    x, y, dx and dy all have one shape, (batch, ...).
    weights  per channel, bias (channels,)

    Parameters
    ----------
    number : float
        What is added.
    per_channel : bool, default False
        Whether every channel has a number of its own, which starts as the given one and is learned.
    """

    weight = "bias"

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x + self.numbers(weights, x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy
