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
        norms = _norms(array, axes)
        return jnp.where(norms > self.limit, array * (self.limit / jnp.where(norms > 0, norms, 1)), array)


@dataclass(frozen=True)
class MinMaxNorm(Constraint):
    """Vectors of a length between two bounds, or brought nearer to that; zeros, which have no direction, stay.

    A vector of length n becomes one of length n + rate * (clip(n, least, most) - n), as Keras's does.

    Parameters
    ----------
    least, most : float, default 0 and 1
        Bounds of the Euclidean norm.
    rate : float, default 1
        How much of the way to the nearest length that is allowed an update goes, in (0, 1].
    """

    least: float = 0.0
    most: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "least")
        check_range(self, "(0, inf)", "most")
        check_range(self, "(0, 1]", "rate")
        if self.least > self.most:
            raise ValueError(
                f"least of MinMaxNorm must be at most its most, {self.most!r}, received {self.least!r}; give the "
                "smaller norm first."
            )

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        norms = _norms(array, axes)
        wanted = norms + self.rate * (jnp.clip(norms, self.least, self.most) - norms)
        return array * (wanted / jnp.where(norms > 0, norms, 1))


@dataclass(frozen=True)
class UnitNorm(Constraint):
    """Vectors of length 1; zeros, which have no direction, stay."""

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        norms = _norms(array, axes)
        return array / jnp.where(norms > 0, norms, 1)


@dataclass(frozen=True)
class NonNegative(Constraint):
    """Numbers of at least 0."""

    def project(self, array: Array, axes: tuple[int, ...]) -> Array:
        return jnp.maximum(array, 0)


def _norms(array: Array, axes: tuple[int, ...]) -> Array:
    return jnp.sqrt((array * array).sum(axis=axes, keepdims=True))
