"""The loss of the strengths of capsules."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sparkdl.losses.categorical import ClassLoss, share_right
from sparkdl.specs import check_range


@dataclass(frozen=True)
class MarginLoss(ClassLoss):
    """t * max(0, upper - o) ** 2 + absent * (1 - t) * max(0, o - lower) ** 2 of strengths o.

    Equation 4 of Sabour, Frosst and Hinton (2017). The outputs are between 0 and 1, as of `CapsuleStrength`, and count
    as probabilities that each class is there. A row may have one class, or any of them: of labels (batch, outputs) the
    accuracy is the share of outputs on the right side of 1/2.

    Parameters
    ----------
    upper, lower : float, default 0.9 and 0.1
        Strength from which on a class that is there costs nothing, and up to which one that is not.
    absent : float, default 0.5
        What classes that are not there count, of which there are more.
    """

    upper: float = 0.9
    lower: float = 0.1
    absent: float = 0.5
    label_range = (0.0, 1.0)
    least_outputs = 2
    gives_probabilities = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1]", "upper", "lower")
        check_range(self, "[0, inf)", "absent")
        if self.lower >= self.upper:
            raise ValueError(f"lower of MarginLoss must be below upper, {self.upper!r}, received {self.lower!r}.")

    def predict(self, outputs: Array) -> Array:
        return jnp.clip(outputs, 0, 1)

    def losses(self, outputs: Array, targets: Array) -> Array:
        lack, excess = self._parts(outputs)
        return (targets * lack**2 + self.absent * (1 - targets) * excess**2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        lack, excess = self._parts(outputs)
        return 2 * (self.absent * (1 - targets) * excess - targets * lack)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        if labels.shape != outputs.shape:
            return super().metrics(outputs, labels)
        return share_right(outputs > 0.5, self.targets(outputs, labels) > 0.5, outputs.dtype)

    def _parts(self, outputs: Array) -> tuple[Array, Array]:
        return jnp.maximum(self.upper - outputs, 0), jnp.maximum(outputs - self.lower, 0)
