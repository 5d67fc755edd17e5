"""Losses of networks that put out a distribution of the labels: their negative log-likelihoods."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.layers.sampling import scales_of
from sparkdl.losses.loss import Loss
from sparkdl.specs import check_integers, check_range

HALF_LOG_TURN = math.log(2 * math.pi) / 2


@dataclass(frozen=True)
class DistributionLoss(Loss):
    """Base of the negative log-likelihoods of labels under distributions whose parameters are the outputs.

    `predict` gives the parameters on the labels' scale. "mse" is of their mean, which `evaluate` measures, too.
    """

    @abstractmethod
    def mean(self, predictions: Any) -> Any:
        """The labels that predictions, an array of NumPy's or JAX's, lead one to expect: (batch, labels)."""
        raise NotImplementedError(f"{type(self).__name__} has no mean.")

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return ((self.mean(self.predict(outputs)) - self.targets(outputs, labels)) ** 2).sum(axis=1)


@dataclass(frozen=True)
class _WithScales(DistributionLoss):
    """Base of those whose outputs are standard deviations, too, softplus(o) + least_scale.

    That neither overflows nor vanishes, however far an output is off, where the exp(o) of a logarithm does both; a
    least one is what Lakshminarayanan et al. (2017) give variances.

    Parameters
    ----------
    least_scale : float, default 1e-3
        In the labels' unit. Without one a label that is met exactly would count without bound.
    """

    least_scale: float = field(default=1e-3, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "least_scale")

    def _scales(self, raw: Array) -> Array:
        return scales_of(raw, self.least_scale)


@dataclass(frozen=True)
class GaussianLikelihood(_WithScales):
    """log(s) + ((t - m) / s) ** 2 / 2 + log(2 * pi) / 2: labels are normal, independently (Nix and Weigend 1994).

    The network has two outputs for each label: first the means m of all, then what their standard deviations s are
    made of, softplus(o) + least_scale. The predictions are m and s. PyTorch's `GaussianNLLLoss(full=True)` of s ** 2.
    """

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return math.prod(output_shape) // 2

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        if output_shape[0] % 2:
            raise ValueError(
                f"GaussianLikelihood needs a network of two outputs for each label, this one has {output_shape[0]}; "
                "put Dense(2 * labels) at its end."
            )

    def predict(self, outputs: Array) -> Array:
        means, raw = jnp.split(outputs, 2, axis=1)
        return jnp.concatenate([means, self._scales(raw)], axis=1)

    def mean(self, predictions: Any) -> Any:
        return predictions[:, : predictions.shape[1] // 2]

    def losses(self, outputs: Array, targets: Array) -> Array:
        means, raw = jnp.split(outputs, 2, axis=1)
        scales = self._scales(raw)
        return (jnp.log(scales) + ((targets - means) / scales) ** 2 / 2 + HALF_LOG_TURN).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        means, raw = jnp.split(outputs, 2, axis=1)
        scales = self._scales(raw)
        apart = (targets - means) / scales
        return jnp.concatenate([-apart / scales, (1 - apart**2) / scales * jax.nn.sigmoid(raw)], axis=1)


@dataclass(frozen=True)
class MixtureDensity(_WithScales):
    """-log(sum(p * normal(t; m, s))) over normal distributions of a row's labels (Bishop 1994).

    With k of them the outputs are k logits, of which the shares p are the softmax; k times as many means m as there are
    labels, those of one distribution after those of another; and k of which the standard deviations s are made,
    softplus(o) + least_scale, each for all labels alike. The predictions are p, m and s, and their mean is sum(p * m).
    Two distributions that come to lie on each other seldom part again: give more than labels have places.

    Parameters
    ----------
    components : int
        How many distributions; the network has components * (labels + 2) outputs.
    """

    components: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "components")

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return max(1, math.prod(output_shape) // self.components - 2)

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        if output_shape[0] % self.components or output_shape[0] < 3 * self.components:
            raise ValueError(
                f"MixtureDensity of {self.components} components needs a network of {self.components} * (labels + 2) "
                f"outputs, this one has {output_shape[0]}; put Dense({3 * self.components}) at its end for one label."
            )

    def predict(self, outputs: Array) -> Array:
        logits, means, raw = self._split(outputs)
        return jnp.concatenate([jax.nn.softmax(logits), means.reshape(len(means), -1), self._scales(raw)], axis=1)

    def mean(self, predictions: Any) -> Any:
        shares, means, _ = self._split(predictions)
        return (shares[:, :, None] * means).sum(axis=1)

    def losses(self, outputs: Array, targets: Array) -> Array:
        return -jax.nn.logsumexp(self._joint(outputs, targets), axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        logits, means, raw = self._split(outputs)
        scales = self._scales(raw)
        apart = (targets[:, None] - means) / scales[:, :, None]
        caused = jax.nn.softmax(self._joint(outputs, targets))  # the share of each in the label's density
        of_means = -caused[:, :, None] * apart / scales[:, :, None]
        of_scales = caused * (targets.shape[1] - (apart**2).sum(axis=2)) / scales
        found = jax.nn.softmax(logits) - caused, of_means.reshape(len(means), -1), of_scales * jax.nn.sigmoid(raw)
        return jnp.concatenate(found, axis=1)

    def _joint(self, outputs: Array, targets: Array) -> Array:
        """Logarithms of p * normal(t; m, s), (batch, components)."""
        logits, means, raw = self._split(outputs)
        scales = self._scales(raw)
        squares = (((targets[:, None] - means) / scales[:, :, None]) ** 2).sum(axis=2)
        return jax.nn.log_softmax(logits) - squares / 2 - targets.shape[1] * (jnp.log(scales) + HALF_LOG_TURN)

    def _split(self, rows: Any) -> tuple[Any, Any, Any]:
        """Of outputs or predictions what is of shares, of means (batch, components, labels), and of scales."""
        first, last = self.components, rows.shape[1] - self.components
        return rows[:, :first], rows[:, first:last].reshape(len(rows), first, -1), rows[:, last:]
