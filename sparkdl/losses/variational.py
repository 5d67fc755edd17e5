"""The loss of variational autoencoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.layers.sampling import scales_of
from sparkdl.losses.distributions import DistributionLoss
from sparkdl.losses.loss import Loss
from sparkdl.losses.numeric import SquaredError
from sparkdl.specs import check_integers, check_range


@dataclass(frozen=True)
class EvidenceLowerBound(DistributionLoss):
    """reconstruction + beta * sum((m ** 2 + s ** 2 - 1) / 2 - log(s)): the bound's negative (Kingma & Welling 2014).

    The network is a variational autoencoder. Its outputs are first those that the loss `reconstruction` takes, then, of
    a row's code, the means m and what the standard deviations s are made of, as `GaussianSample` takes them. The second
    term is the Kullback-Leibler divergence of the code's distribution from normal numbers of mean 0 and variance 1.

    Labels are what is to be reconstructed, mostly the features themselves. The predictions are those of
    `reconstruction`, followed by m and s; "mse" is of what is reconstructed.

    Parameters
    ----------
    latent : int
        Numbers of a code.
    reconstruction : Loss or str, default SquaredError()
        A negative log-likelihood up to a constant. Of squared errors the scale counts: GaussianLikelihood learns it,
        and sigmoid_cross_entropy has none.
    beta : float, default 1
        Another than 1 is that of a beta-VAE (Higgins et al. 2017).
    """

    latent: int
    reconstruction: Loss | str = SquaredError()
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "reconstruction", Loss.of(self.reconstruction))
        check_integers(self, 1, "latent")
        check_range(self, "[0, inf)", "beta")
        if self._own.whole_batch:
            raise ValueError(
                f"reconstruction of EvidenceLowerBound must be a loss of each row by itself, received {self._own!r}."
            )

    @property
    def _own(self) -> Loss:
        return Loss.of(self.reconstruction)

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return self._own.labels_a_row(self._reconstructed(output_shape))

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        if output_shape[0] <= 2 * self.latent:
            raise ValueError(
                f"EvidenceLowerBound(latent={self.latent}) needs a network of more than {2 * self.latent} outputs, "
                f"{self.latent} means and as many deviations after what is reconstructed, this one has "
                f"{output_shape[0]}; end it in Concatenate() of decoder and encoder."
            )
        self._own.check(self._reconstructed(output_shape))

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self._own.encode(labels, self._reconstructed(output_shape))

    def targets(self, outputs: Array, labels: Array) -> Array:
        return self._own.targets(self._split(outputs)[0], labels)

    def losses(self, outputs: Array, targets: Array) -> Array:
        rows, means, raw = self._split(outputs)
        scales = scales_of(raw)
        divergence = ((means**2 + scales**2 - 1) / 2 - jnp.log(scales)).sum(axis=1)
        return self._own.losses(rows, targets) + self.beta * divergence

    def slopes(self, outputs: Array, targets: Array) -> Array:
        rows, means, raw = self._split(outputs)
        scales = scales_of(raw)
        of_code = means, (scales - 1 / scales) * jax.nn.sigmoid(raw)
        return jnp.concatenate([self._own.slopes(rows, targets), *(self.beta * part for part in of_code)], axis=1)

    def predict(self, outputs: Array) -> Array:
        rows, means, raw = self._split(outputs)
        return jnp.concatenate([self._own.predict(rows), means, scales_of(raw)], axis=1)

    def mean(self, predictions: Any) -> Any:
        rows = predictions[:, : -2 * self.latent]
        return self._own.mean(rows) if isinstance(self._own, DistributionLoss) else rows

    def _split(self, outputs: Array) -> tuple[Array, Array, Array]:
        """What is reconstructed, the means of the code, and what its deviations are made of."""
        first, last = outputs.shape[1] - 2 * self.latent, outputs.shape[1] - self.latent
        return outputs[:, :first], outputs[:, first:last], outputs[:, last:]

    def _reconstructed(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of a row's outputs the shape of those that the loss of reconstruction takes."""
        return (output_shape[0] - 2 * self.latent,)
