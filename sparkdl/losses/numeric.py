"""Losses of numbers: distances between outputs and targets, and likelihoods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.losses.loss import Loss
from sparkdl.specs import check_range


@dataclass(frozen=True)
class SquaredError(Loss):
    """(o - t) ** 2, without a half."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return ((outputs - targets) ** 2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return 2 * (outputs - targets)


@dataclass(frozen=True)
class AbsoluteError(Loss):
    """|o - t|."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return jnp.abs(outputs - targets).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.sign(outputs - targets)


@dataclass(frozen=True)
class AbsolutePercentageError(Loss):
    """100 * |o - t| / |t|, in percent as Keras and Deeplearning4j have it.

    As in Keras |t| is at least 1e-7, so that labels of 0 cost finitely, but so much that they outweigh all others.
    """

    def losses(self, outputs: Array, targets: Array) -> Array:
        return (jnp.abs(outputs - targets) * _percent(targets)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.sign(outputs - targets) * _percent(targets)


def _percent(targets: Array) -> Array:
    return 100 / jnp.maximum(jnp.abs(targets), 1e-7)


@dataclass(frozen=True)
class SquaredLogarithmicError(Loss):
    """(log(1 + o) - log(1 + t)) ** 2 of labels t of at least 0.

    Outputs below 0 have o itself, the tangent at 0, in place of log(1 + o), so that the loss stays finite and leads
    back; Keras raises them to 0, from where no slope leads on.
    """

    label_range = (0.0, math.inf)

    def losses(self, outputs: Array, targets: Array) -> Array:
        return (_log_ratio(outputs, targets) ** 2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return 2 * _log_ratio(outputs, targets) / (1 + jnp.maximum(outputs, 0))


def _log_ratio(outputs: Array, targets: Array) -> Array:
    return jnp.log1p(jnp.maximum(outputs, 0)) + jnp.minimum(outputs, 0) - jnp.log1p(targets)


@dataclass(frozen=True)
class LogCosh(Loss):
    """log(cosh(o - t)): about (o - t) ** 2 / 2 of small distances, and |o - t| - log(2) of large ones."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        distance = jnp.abs(outputs - targets)
        near = jnp.log1p(2 * jnp.sinh(jnp.minimum(distance, 1) / 2) ** 2)  # where the next line loses digits
        far = distance + jnp.log1p(jnp.exp(-2 * distance)) - math.log(2)
        return jnp.where(distance < 1, near, far).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.tanh(outputs - targets)


@dataclass(frozen=True)
class Huber(Loss):
    """(o - t) ** 2 / 2 up to |o - t| = threshold, continued by its tangent (Huber 1964)."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "threshold")

    def losses(self, outputs: Array, targets: Array) -> Array:
        distance = jnp.abs(outputs - targets)
        near = jnp.minimum(distance, self.threshold)
        return (near * (distance - near / 2)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.clip(outputs - targets, -self.threshold, self.threshold)


@dataclass(frozen=True)
class Quantile(Loss):
    """max(q * (t - o), (q - 1) * (t - o)), whose mean is least where o is the quantile q of t (Koenker 1978).

    A row has one label; the network has an output for each quantile.

    Parameters
    ----------
    quantiles : sequence of float, default (0.5,)
        Between 0 and 1: Quantile((0.1, 0.5, 0.9)) gives the median and an interval that holds four in five labels.
    """

    quantiles: Sequence[float] = (0.5,)
    metric = "pinball"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.quantiles if isinstance(self.quantiles, tuple) else (self.quantiles,)
        if not given or not all(isinstance(quantile, (int, float)) and 0 < quantile < 1 for quantile in given):
            raise ValueError(f"quantiles of Quantile must be between 0 and 1, received {self.quantiles!r}.")
        object.__setattr__(self, "quantiles", tuple(map(float, given)))

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return 1

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        if output_shape[0] != len(self.quantiles):
            raise ValueError(
                f"Quantile of {len(self.quantiles)} quantiles needs a network of as many outputs, this one has "
                f"{output_shape[0]}; put Dense({len(self.quantiles)}) at its end."
            )

    def losses(self, outputs: Array, targets: Array) -> Array:
        lack, quantiles = targets - outputs, self._row(outputs)
        return jnp.maximum(quantiles * lack, (quantiles - 1) * lack).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        quantiles = self._row(outputs)
        return jnp.where(targets > outputs, -quantiles, jnp.where(targets < outputs, 1 - quantiles, 0))

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return self.losses(outputs, self.targets(outputs, labels))

    def _row(self, outputs: Array) -> Array:
        return jnp.asarray(self.quantiles, outputs.dtype)[None]


@dataclass(frozen=True)
class Poisson(Loss):
    """rate - t * log(rate), the negative log-likelihood of counts t without the constant log(t!).

    Parameters
    ----------
    log_rate : bool, default True
        Whether the outputs are logarithms of rates, which overflow past 88 in float32, or rates. Rates below 1e-8
        continue the loss by its tangent, so that it stays finite and leads back.
    """

    log_rate: bool = True
    label_range = (0.0, math.inf)

    def predict(self, outputs: Array) -> Array:
        return jnp.exp(outputs) if self.log_rate else outputs

    def losses(self, outputs: Array, targets: Array) -> Array:
        if self.log_rate:
            return (jnp.exp(outputs) - targets * outputs).sum(axis=1)
        rate = jnp.maximum(outputs, 1e-8)
        return (outputs - targets * (jnp.log(rate) + (outputs - rate) / rate)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        if self.log_rate:
            return jnp.exp(outputs) - targets
        return 1 - targets / jnp.maximum(outputs, 1e-8)


@dataclass(frozen=True)
class Wasserstein(Loss):
    """t * o of labels t, -1 or 1, as critics are trained by (Arjovsky et al. 2017).

    A critic tells how far apart two sets of rows are: of those labelled 1 its outputs become smaller than of those
    labelled -1. Where both weigh alike and its slope by a row is nowhere steeper than k, the loss times -2 / k is at
    most their Wasserstein distance, and the better the critic, the nearer to it. Nothing else bounds the loss from
    below, so its kernels need a `constraint`, such as MaxNorm(1). A fit trains a critic alone; to teach a generator by
    it in turn, as adversarial networks do, takes a loop of one's own.
    """

    label_range = (-1.0, 1.0)
    metric = "wasserstein"

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        encoded = super().encode(labels, output_shape)
        if len(wrong := encoded[np.abs(encoded) != 1]):
            raise ValueError(f"Labels of Wasserstein must be -1 or 1, received {wrong[0]:.15g}; map them.")
        return encoded

    def losses(self, outputs: Array, targets: Array) -> Array:
        return (targets * outputs).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return targets

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return self.losses(outputs, self.targets(outputs, labels))


@dataclass(frozen=True)
class CosineSimilarity(Loss):
    """1 - cos(o, t); the metric is the cosine.

    A zero vector has cosine 0 with every other, and its delta is -t / |t|: the way to the label.
    """

    metric = "cosine_similarity"
    least_outputs = 2

    def losses(self, outputs: Array, targets: Array) -> Array:
        return 1 - self.metrics(outputs, targets)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        (unit_outputs, norms), (unit_targets, _) = _unit(outputs), _unit(targets)
        cosine = (unit_outputs * unit_targets).sum(axis=1, keepdims=True)
        return (cosine * unit_outputs - unit_targets) / norms

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return (_unit(outputs)[0] * _unit(self.targets(outputs, labels))[0]).sum(axis=1)


def _unit(rows: Array) -> tuple[Array, Array]:
    """(rows of length 1, what they were divided by); zero rows are divided by 1."""
    largest = jnp.abs(rows).max(axis=1, keepdims=True)
    largest = jnp.where(largest > 0, largest, 1)  # else the squares of long rows overflow
    norms = largest * jnp.sqrt(((rows / largest) ** 2).sum(axis=1, keepdims=True))
    norms = jnp.where(norms > 0, norms, 1)
    return rows / norms, norms
