"""What a layer's weights are held to: each update is followed by the nearest weights that are allowed."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sparkdl.specs import Spec, check_range


@dataclass(frozen=True)
class Constraint(Spec):
    """Weights that are allowed, of a kernel or a table.

    A vector is what leads to one output of a kernel, or a row of a table of vectors.
    """

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The nearest weights that are allowed, of the array's shape; `axes` are those of a vector."""
        raise NotImplementedError(f"{type(self).__name__} has no project method.")


@dataclass(frozen=True)
class MaxNorm(Constraint):
    """Vectors no longer than `limit` (Srebro et al. 2005; with dropout: Srivastava et al. 2014, section 5.1).

    Parameters
    ----------
    limit : float, default 2
        Largest Euclidean norm.
    """

    limit: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "limit")

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        norms = jnp.sqrt((array * array).sum(axis=axes, keepdims=True))
        return jnp.where(norms > self.limit, array * (self.limit / jnp.where(norms > 0, norms, 1)), array)


@dataclass(frozen=True)
class UnitNorm(Constraint):
    """Vectors of length 1; zeros, which have no direction, stay."""

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        norms = jnp.sqrt((array * array).sum(axis=axes, keepdims=True))
        return array / jnp.where(norms > 0, norms, 1)


@dataclass(frozen=True)
class NonNegative(Constraint):
    """Numbers of at least 0."""

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        return jnp.maximum(array, 0)
