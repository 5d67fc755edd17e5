"""Batch normalization whose statistics are those of the whole batch, however many workers share it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from sparkdl.initializers import filled
from sparkdl.layers.base import Array, Context, Shape, Weights, jitted
from sparkdl.layers.normalization import Standardization, along_channels, row_sums, wide
from sparkdl.specs import is_number

FAR = 25.0  # a square of a mean, in variances: up to it, sums of products as they are keep five of float32's digits


def _nonzero(total: Array) -> Array:
    """A divisor that a step without any weight can bear."""
    return jnp.where(total > 0, total, 1)


class BatchStatistics(NamedTuple):
    """Mean and variance (channels,) of the weighted rows of a batch, and their weight times the number of positions."""

    mean: Array
    variance: Array
    total: Array


def _is_far(mean: Array, variance: Array) -> Array:
    """Whether a channel lies so far from 0 that products must be of distances from its mean, as of raw features."""
    return (mean * mean > FAR * variance).any()


@dataclass(frozen=True)
class BatchNorm(Standardization):
    """Gives each channel mean 0 and variance 1 over the batch, then scales and shifts it (Ioffe and Szegedy 2015).

    y = (x - mean) / sqrt(variance + epsilon) * scale + bias. In training, mean and variance are those of all workers'
    rows and positions, every row counting by its weight; their running averages, the weights "mean" and "variance"
    (channels,), stand in for them at inference. Both variances are biased, as in Keras. A frozen layer
    (trainable=False) uses the running averages in training too and leaves them alone, as in Keras.

    Parameters
    ----------
    momentum : float, default 0.9
        Share of the old running average that a step keeps, in [0, 1); PyTorch's `momentum` is 1 minus this.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.momentum, 0) and self.momentum < 1):
            raise ValueError(
                f"momentum of BatchNorm, the share of the old average, must be at least 0 and below 1, "
                f"received {self.momentum!r}; PyTorch's 0.1 is 0.9 here."
            )

    def init(self, key: Array, input_shape: Shape) -> Weights:
        channels = input_shape[-1:]
        return super().init(key, input_shape) | {"mean": filled(channels, 0), "variance": filled(channels, 1)}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self.affine(weights, self._standard(x, weights["mean"], weights["variance"])).astype(x.dtype)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return self._unstandardized(weights, wide(dy), weights["variance"]).astype(x.dtype)

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, BatchStatistics | None]:
        if not self.trainable:
            return self.forward(weights, x), None
        batch = self._batch_statistics(wide(x), context)
        return self.affine(weights, self._standard(x, batch.mean, batch.variance)).astype(x.dtype), batch

    def train_delta(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: BatchStatistics | None, context: Context
    ) -> Array:
        if kept is None:
            return self.delta(weights, x, y, dy)
        dy, standard = wide(dy), self._standard(x, kept.mean, kept.variance)
        whole = context.sum_over_workers(self._sums(dy, x, kept))  # the statistics depend on every worker's rows
        share = context.row_weights.astype(dy.dtype).reshape(-1, *(1,) * (dy.ndim - 1)) / _nonzero(kept.total)
        through = share * (along_channels(whole[0], dy) + standard * along_channels(whole[1], dy))
        return self._unstandardized(weights, dy - through, kept.variance).astype(x.dtype)

    def train_gradient(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: BatchStatistics | None, context: Context
    ) -> Weights:
        if kept is None:
            return self.gradient(weights, x, y, dy)
        sums = self._sums(wide(dy), x, kept)
        return self.affine_gradient(weights, dscale=sums[1], dbias=sums[0])

    def statistics(self) -> frozenset[str]:
        return frozenset({"mean", "variance"})

    def new_statistics(self, weights: Weights, kept: BatchStatistics | None) -> Weights:
        if kept is None:
            return {}
        old = {name: weights[name] for name in ("mean", "variance")}
        share = jnp.where(kept.total > 0, self.momentum, 1)
        return {name: share * old[name] + (1 - share) * getattr(kept, name).astype(old[name].dtype) for name in old}

    def _standard(self, x: Array, mean: Array, variance: Array) -> Array:
        x = wide(x)
        return (x - along_channels(mean, x)) * lax.rsqrt(along_channels(variance, x) + self.epsilon)

    def _unstandardized(self, weights: Weights, dy: Array, variance: Array) -> Array:
        """dL/dx where mean and variance are constants."""
        return self.scaled(weights, dy) * lax.rsqrt(along_channels(variance, dy) + self.epsilon)

    def _batch_statistics(self, x: Array, context: Context) -> BatchStatistics:
        """On a CPU by one exchange and two passes over x, where no channel is far from 0.

        XLA would write distances from the mean to memory there to sum their squares, which takes as long as all else.
        """
        rows = context.row_weights.astype(x.dtype)[:, None]
        own_total = rows.sum(axis=0) * math.prod(x.shape[1:-1])

        def means(*arrays: Array) -> tuple[Array, ...]:
            """Those over all workers' rows, (channels,) each, and then the rows' total weight."""
            own = [*((rows * row_sums(array)).sum(axis=0) for array in arrays), own_total]
            sums = context.sum_over_workers(jnp.concatenate(own))
            return *jnp.split(sums[:-1] / _nonzero(sums[-1]), len(arrays)), sums[-1]

        def variance(mean: Array) -> Array:
            centred = x - along_channels(mean, x)
            return means(centred * centred)[0]

        def from_distances() -> BatchStatistics:
            mean, total = means(x)
            return BatchStatistics(mean, variance(mean), total)

        def from_squares() -> BatchStatistics:
            mean, square, total = means(x, x * x)
            rest = jnp.maximum(square - mean * mean, 0)
            far = _is_far(mean, rest + self.epsilon)
            return BatchStatistics(mean, lax.cond(far, variance, lambda _: rest, mean), total)

        return lax.platform_dependent(cpu=from_squares, default=from_distances)

    def _sums(self, dy: Array, x: Array, kept: BatchStatistics) -> Array:
        """Sums of dy and of dy * standard over rows and positions, (2, channels); found once where both ways ask."""
        x, sums, variance = wide(x), row_sums(dy).sum(axis=0), kept.variance + self.epsilon

        def from_distances() -> Array:
            return row_sums(dy * (x - along_channels(kept.mean, x))).sum(axis=0)

        def from_products() -> Array:
            products = row_sums(dy * x).sum(axis=0) - kept.mean * sums
            return lax.cond(_is_far(kept.mean, variance), from_distances, lambda: products)

        products = lax.platform_dependent(cpu=from_products, default=from_distances)
        return jnp.stack([sums, products * lax.rsqrt(variance)])
