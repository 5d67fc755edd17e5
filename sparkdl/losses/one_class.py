"""The loss of networks that learn of usual rows alone."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sparkdl.losses.categorical import HingeLoss
from sparkdl.specs import check_range


@dataclass(frozen=True)
class OneClassHinge(HingeLoss):
    """max(0, -s * o) / nu, where s is 1 for a label above 0 and else -1: a row costs on the other side of 0 alone.

    For a network that ends in `OneClass` and is trained on usual rows, whose label is 1; o below 0 says that a row is
    none. If there are some that are known to be none, their label is 0 or -1.

    Parameters
    ----------
    nu : float, default 0.05
        Above 0 and at most 1: the share of the usual rows, about, that is to lie below 0.
    """

    nu: float = 0.05
    one_class = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, 1]", "nu")

    def losses(self, outputs: Array, targets: Array) -> Array:
        return jnp.maximum(0, -targets * outputs).sum(axis=1) / self.nu

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.where(targets * outputs < 0, -targets, 0) / self.nu
