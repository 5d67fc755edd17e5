"""A loss in a module of a user's own, which lies beside the program and on no other machine; see `test_custom.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.losses import Loss
from sparkdl.specs import check_range

Array = Any
LIMIT = 2.0
ABOVE = np.array([0.0, 1.0], "float32")


@jax.custom_vjp
def bent(excess: Array, share: float) -> Array:
    """(share - 1) * excess below 0, share * excess above."""
    return jnp.where(excess < 0, (share - 1) * excess, share * excess)


def _bent_forward(excess: Array, share: float) -> tuple[Array, tuple[Array, float]]:
    return bent(excess, share), (excess, share)


def _bent_backward(kept: tuple[Array, float], change: Array) -> tuple[Array, Array]:
    excess, share = kept
    return change * jnp.where(excess < 0, share - 1, share), (change * excess).sum()


bent.defvjp(_bent_forward, _bent_backward)


@jax.jit
def slanted(excess: Array, share: float) -> Array:
    """`bent`, compiled."""
    return bent(excess, share)


@dataclass(frozen=True)
class Pinball(Loss):
    """l = sum of `slanted(t - o)`, whose minimum is the quantile `share` of t (Koenker and Bassett 1978)."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, 1)", "share")

    def losses(self, outputs: Array, targets: Array) -> Array:
        return slanted(targets - outputs, self.share).sum(axis=-1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        above = jnp.asarray(ABOVE, outputs.dtype)[(outputs > targets).astype(int)]
        return above - self.share
