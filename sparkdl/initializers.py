"""How fresh weights are drawn; jax.nn.initializers does the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
from jax import Array

from sparkdl.specs import Spec, check_range


def _check_kernel(initializer: Initializer, shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(
            f"{type(initializer).__name__} expects a kernel of shape (..., inputs, outputs) without empty axes, "
            f"received {tuple(shape)}; use Zeros(), Constant() or TruncatedNormal() there."
        )


@dataclass(frozen=True)
class Initializer(Spec):
    """Draws an array of weights from a random key."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        """An array of `shape` (..., inputs, outputs) in JAX's default float type.

        Raises
        ------
        ValueError
            The initializer is made for kernels, and `shape` is not a kernel's.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample method.")


@dataclass(frozen=True)
class Zeros(Initializer):
    """All zeros."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.nn.initializers.zeros(key, shape, float)


@dataclass(frozen=True)
class Ones(Initializer):
    """All ones."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.nn.initializers.ones(key, shape, float)


@dataclass(frozen=True)
class Constant(Initializer):
    """All equal to `value`."""

    value: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(-inf, inf)", "value")

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.nn.initializers.constant(self.value)(key, shape, float)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal, redrawn beyond two standard deviations from the mean; what is left deviates by 0.88 `stddev`.

    Parameters
    ----------
    stddev : float
        Standard deviation before truncation.
    mean : float, default 0
        Mean.
    """

    stddev: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "stddev")
        check_range(self, "(-inf, inf)", "mean")

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return self.mean + jax.nn.initializers.truncated_normal(self.stddev)(key, shape, float)


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """`gain` times a random matrix with orthonormal columns, or rows if it has fewer (Saxe et al. 2014).

    The matrix of a kernel (..., inputs, outputs) has `outputs` columns and one row for every other index.
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "gain")

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        _check_kernel(self, shape)
        return jax.nn.initializers.orthogonal(self.gain)(key, shape, float)


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Base of the initializers of mean 0 and variance `scale` / `fan`.

    In a kernel (*spatial, inputs, outputs) both fans count the spatial positions: fan_in is spatial * inputs, fan_out
    spatial * outputs, fan_avg their mean. The normal ones are truncated at two standard deviations, and widened so
    that the variance holds after truncation.
    """

    scale: ClassVar[float]
    fan: ClassVar[Literal["fan_in", "fan_avg"]]
    distribution: ClassVar[Literal["truncated_normal", "uniform"]]

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        _check_kernel(self, shape)
        draw = jax.nn.initializers.variance_scaling(self.scale, self.fan, self.distribution)
        return draw(key, shape, float)


@dataclass(frozen=True)
class GlorotNormal(VarianceScaling):
    """Truncated normal with variance 2 / (inputs + outputs) (Glorot & Bengio 2010)."""

    scale, fan, distribution = 1.0, "fan_avg", "truncated_normal"


@dataclass(frozen=True)
class GlorotUniform(VarianceScaling):
    """Uniform with variance 2 / (inputs + outputs) (Glorot & Bengio 2010)."""

    scale, fan, distribution = 1.0, "fan_avg", "uniform"


@dataclass(frozen=True)
class HeNormal(VarianceScaling):
    """Truncated normal with variance 2 / inputs (He et al. 2015)."""

    scale, fan, distribution = 2.0, "fan_in", "truncated_normal"


@dataclass(frozen=True)
class HeUniform(VarianceScaling):
    """Uniform with variance 2 / inputs (He et al. 2015)."""

    scale, fan, distribution = 2.0, "fan_in", "uniform"


@dataclass(frozen=True)
class LecunNormal(VarianceScaling):
    """Truncated normal with variance 1 / inputs (LeCun et al. 1998)."""

    scale, fan, distribution = 1.0, "fan_in", "truncated_normal"


@dataclass(frozen=True)
class LecunUniform(VarianceScaling):
    """Uniform with variance 1 / inputs (LeCun et al. 1998)."""

    scale, fan, distribution = 1.0, "fan_in", "uniform"
