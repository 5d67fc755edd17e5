"""Layers that normalize each row by itself: over neighbouring channels, all channels, or positions as well."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.initializers import filled
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.specs import check_integers, is_integer, is_number


def check_channels(layer: Layer, input_shape: Shape) -> Shape:
    """`input_shape` if it has an axis of channels."""
    if not input_shape:
        raise ValueError(
            f"{type(layer).__name__} expects rows of shape (..., channels), received (); put Reshape((1,)) before it."
        )
    return input_shape


@dataclass(frozen=True)
class LocalResponseNorm(Layer):
    """Divides each channel by the energy of its neighbours (Krizhevsky et al. 2012, section 3.3).

    y_i = x_i / (bias + alpha * sum_j x_j^2)^beta over the channels j with |j - i| <= radius: formula and defaults of
    TensorFlow's `tf.nn.local_response_normalization`. x, y, dx and dy all have one shape, (batch, ..., channels).

    Parameters
    ----------
    radius : int, default 5
        Number of neighbours on either side.
    bias, alpha, beta : float, default 1, 1 and 0.5
        As in the formula; bias must be positive, alpha and beta at least 0.
    """

    radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_integer(self.radius, 0):
            raise ValueError(
                f"radius of LocalResponseNorm must be an integer of at least 0, received {self.radius!r}; "
                "it counts the neighbouring channels on one side."
            )
        if not (all(is_number(n, 0) for n in (self.bias, self.alpha, self.beta)) and self.bias):
            raise ValueError(
                "LocalResponseNorm expects a positive bias, and alpha and beta of at least 0, "
                f"received bias={self.bias!r}, alpha={self.alpha!r}, beta={self.beta!r}."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * self._factor(self._energy(x))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        energy = self._energy(x)
        return dy * self._factor(energy) - 2 * self.alpha * self.beta * x * self._neighbourhood(dy * y / energy)

    def _neighbourhood(self, x: Array) -> Array:
        """Sums over neighbouring channels, as one product with a band matrix: no window reduction is as fast."""
        channels = x.shape[-1]
        band = jnp.triu(jnp.tri(channels, k=self.radius, dtype=x.dtype), -self.radius)
        return (x.reshape(math.prod(x.shape[:-1]), channels) @ band).reshape(x.shape)

    def _energy(self, x: Array) -> Array:
        return self.bias + self.alpha * self._neighbourhood(x * x)

    def _factor(self, energy: Array) -> Array:
        """energy^-beta, without a power where two roots do."""
        if self.beta not in (0.5, 0.75):
            return energy**-self.beta
        root = lax.rsqrt(energy)
        return root if self.beta == 0.5 else root * jnp.sqrt(root)


def wide(x: Array) -> Array:
    """x in float32 at least: means and variances do not survive half precision."""
    return x.astype(np.promote_types(x.dtype, np.float32))


def along_channels(values: Array, x: Array) -> Array:
    """`values` (channels,) in x's rank and dtype."""
    return values.astype(x.dtype).reshape(*(1,) * (x.ndim - 1), -1)


def row_sums(x: Array) -> Array:
    """x summed over positions, (batch, channels)."""
    return x.sum(axis=tuple(range(1, x.ndim - 1)))


@dataclass(frozen=True)
class Standardization(Layer):
    """y = standard * scale + bias: what batch and layer normalization share, however they arrive at `standard`.

    x, y, dx and dy all have one shape, (batch, ..., channels); scale and bias have shape (channels,).

    Parameters
    ----------
    epsilon : float, default 1e-5
        Added to the variance; positive.
    scale, bias : bool, default True
        Whether to multiply by a learned scale and to add a learned bias.
    """

    each_step = True

    epsilon: float = field(default=1e-5, kw_only=True)
    scale: bool = field(default=True, kw_only=True)
    bias: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.epsilon, 0) and self.epsilon):
            raise ValueError(
                f"epsilon of {type(self).__name__} must be a positive number, received {self.epsilon!r}; 1e-5 is usual."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        weights = {"scale": filled(input_shape[-1:], 1)} if self.scale else {}
        return weights | ({"bias": filled(input_shape[-1:], 0)} if self.bias else {})

    def scaled(self, weights: Weights, standard: Array) -> Array:
        """standard * scale."""
        return standard * along_channels(weights["scale"], standard) if self.scale else standard

    def affine(self, weights: Weights, standard: Array) -> Array:
        """standard * scale + bias."""
        y = self.scaled(weights, standard)
        return y + along_channels(weights["bias"], y) if self.bias else y

    def affine_gradient(self, weights: Weights, dscale: Array, dbias: Array) -> Weights:
        """Those of dL/dscale and dL/dbias that there are weights for."""
        gradients = {"scale": dscale, "bias": dbias}
        return {name: value.astype(weights[name].dtype) for name, value in gradients.items() if name in weights}


@dataclass(frozen=True)
class OfEachRow(Standardization):
    """A standardization by what each row says of itself: LayerNorm, GroupNorm and RMSNorm."""

    @abstractmethod
    def _standard(self, x: Array) -> tuple[Array, Array]:
        """Each number as it is before scale and bias, and the factor that it was multiplied by, in float32 at least."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self.affine(weights, self._standard(x)[0]).astype(x.dtype)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        dy = wide(dy)
        dscale, dbias = row_sums(dy * self._standard(x)[0]).sum(axis=0), row_sums(dy).sum(axis=0)
        return self.affine_gradient(weights, dscale, dbias)


@dataclass(frozen=True)
class LayerNorm(OfEachRow):
    """Gives each position's channels mean 0 and variance 1, then scales and shifts them (Ba et al. 2016).

    y = (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and (biased) variance over the last axis.
    """

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        standard, factor = self._standard(x)
        dstandard = self.scaled(weights, wide(dy))
        along = (dstandard * standard).mean(axis=-1, keepdims=True)
        dx = factor * (dstandard - dstandard.mean(axis=-1, keepdims=True) - standard * along)
        return dx.astype(x.dtype)

    def _standard(self, x: Array) -> tuple[Array, Array]:
        """(x - mean) / deviation, and 1 / deviation."""
        x = wide(x)
        centred = x - x.mean(axis=-1, keepdims=True)
        factor = lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + self.epsilon)
        return centred * factor, factor


@dataclass(frozen=True)
class GroupNorm(OfEachRow):
    """Gives each group of channels mean 0 and variance 1 over a row's positions (Wu and He 2018).

    y = (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and (biased) variance over all positions of a row and
    the channels of a group, which are neighbours. As many groups as channels is instance normalization.

    Parameters
    ----------
    groups : int, default 32
        A divisor of the channels.
    """

    groups: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "groups")

    def output_shape(self, input_shape: Shape) -> Shape:
        if check_channels(self, input_shape)[-1] % self.groups:
            raise ValueError(
                f"GroupNorm expects rows whose channels are a multiple of groups={self.groups}, received {input_shape}."
            )
        return input_shape

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        standard, factor = self._standard(x)
        dstandard = self.scaled(weights, wide(dy))
        along = self._mean(dstandard * standard)
        return (factor * (dstandard - self._mean(dstandard) - standard * along)).astype(x.dtype)

    def _standard(self, x: Array) -> tuple[Array, Array]:
        """(x - mean) / deviation, and 1 / deviation, of shape (batch, 1, ..., channels)."""
        x = wide(x)
        centred = x - self._mean(x)
        factor = lax.rsqrt(self._mean(centred * centred) + self.epsilon)
        return centred * factor, factor

    def _mean(self, x: Array) -> Array:
        """The mean of each channel's group, (batch, 1, ..., channels)."""
        channels = row_sums(x).reshape(len(x), self.groups, -1) / math.prod(x.shape[1:-1])
        means = jnp.broadcast_to(channels.mean(axis=2, keepdims=True), channels.shape)
        return means.reshape(len(x), *(1,) * (x.ndim - 2), -1)


@dataclass(frozen=True)
class RMSNorm(OfEachRow):
    """Divides each position's channels by their root mean square, then scales them (Zhang and Sennrich 2019).

    y = x / sqrt(mean(x * x) + epsilon) * scale, the mean over the last axis; a bias is added if asked for.
    """

    bias: bool = field(default=False, kw_only=True)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        standard, factor = self._standard(x)
        dstandard = self.scaled(weights, wide(dy))
        along = (dstandard * standard).mean(axis=-1, keepdims=True)
        return (factor * (dstandard - standard * along)).astype(x.dtype)

    def _standard(self, x: Array) -> tuple[Array, Array]:
        """x / root, and 1 / root."""
        x = wide(x)
        factor = lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        return x * factor, factor


@dataclass(frozen=True)
class L2Normalize(Layer):
    """Gives each position a length of 1 over its channels: y = x / sqrt(sum(x * x)); zeros stay zeros.

    x, y, dx and dy all have one shape, (batch, ..., channels).
    """

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return unit(x)


def unit(x: Array) -> Array:
    """Vectors along the last axis, of length 1; zeros, and what has no slope there, stay zeros."""
    squares = (x * x).sum(axis=-1, keepdims=True)
    is_zero = squares == 0
    return jnp.where(is_zero, 0, x * lax.rsqrt(jnp.where(is_zero, 1, squares)))
