"""How fresh weights are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.compiler import ONCE
from sparkdl.specs import Spec, check_range

# What is drawn at once, for the first numbers of it: a program takes longer to compile than to draw any of these.
COUNTS = tuple(1 << bits for bits in range(12, 21, 2))
LEFT = 0.87962566103423978  # of the standard deviation of a normal distribution that is cut at two of them
Draw = Callable[[Array, tuple[int, ...]], Array]


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, float, -1)


def _truncated_normal(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.truncated_normal(key, -2, 2, shape, float)


@partial(jax.jit, static_argnums=(0, 2), compiler_options=ONCE)
def _compiled(draw: Draw, key: Array, shape: tuple[int, ...]) -> Array:
    return draw(key, shape)


def _drawn(draw: Draw, key: Array, shape: tuple[int, ...]) -> Any:
    """What `draw` gives; every number depends on the key and its index alone. Few are NumPy's, unless traced."""
    wanted = math.prod(shape)
    if isinstance(key, jax.core.Tracer) or wanted > COUNTS[-1]:  # of so many, drawing takes longer than compiling
        return draw(key, shape)
    count = next(count for count in COUNTS if count >= wanted)
    return np.asarray(_compiled(draw, key, (count,)))[:wanted].reshape(shape)


def filled(shape: tuple[int, ...], value: float) -> Array:
    """An array of one value in JAX's default float type, for which no program is compiled."""
    return jax.device_put(np.full(shape, value, float))


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
        return filled(shape, 0)


@dataclass(frozen=True)
class Ones(Initializer):
    """All ones."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return filled(shape, 1)


@dataclass(frozen=True)
class Constant(Initializer):
    """All equal to `value`."""

    value: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(-inf, inf)", "value")

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return filled(shape, self.value)


@dataclass(frozen=True)
class ByDeviation(Initializer):
    """Base of the normal distributions.

    Parameters
    ----------
    stddev : float
        Standard deviation, before any truncation.
    mean : float, default 0
        Mean.
    """

    stddev: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "stddev")
        check_range(self, "(-inf, inf)", "mean")

    def _scaled(self, draw: Draw, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.device_put(self.mean + self.stddev * _drawn(draw, key, shape))


@dataclass(frozen=True)
class TruncatedNormal(ByDeviation):
    """Normal, redrawn beyond two standard deviations from the mean; what is left deviates by 0.88 `stddev`."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return self._scaled(_truncated_normal, key, shape)


@dataclass(frozen=True)
class Normal(ByDeviation):
    """Normal."""

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return self._scaled(jax.random.normal, key, shape)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between two numbers.

    Parameters
    ----------
    low, high : float
        The smallest, and what the largest is below.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(-inf, inf)", "low", "high")
        if self.low >= self.high:
            raise ValueError(
                f"low of Uniform must be less than its high, {self.high!r}, received {self.low!r}; give the smaller "
                "number first."
            )

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return jax.device_put(middle + half * _drawn(_uniform, key, shape))


@dataclass(frozen=True)
class Identity(Initializer):
    """`gain` from each input to the output of the same number, and 0 elsewhere.

    In a kernel (*spatial, inputs, outputs) it stands at the middle position, of two in the middle at the first, where
    padding "same" has a row handed on as it is. Recurrent weights of ReLUs may begin so (Le et al. 2015).
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(-inf, inf)", "gain")

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        _check_kernel(self, shape)
        kernel = np.zeros(shape, float)
        kernel[tuple((size - 1) // 2 for size in shape[:-2])] = self.gain * np.eye(shape[-2], shape[-1])
        return jax.device_put(kernel)


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
        sides = (math.prod(shape[:-1]), shape[-1])
        drawn = _drawn(jax.random.normal, key, (max(sides), min(sides)))
        library: Any = jnp if isinstance(drawn, Array) else np
        columns, upper = library.linalg.qr(drawn)
        matrix = self.gain * columns * library.sign(library.diagonal(upper))[None]
        return jax.device_put((matrix if sides[0] >= sides[1] else matrix.T).reshape(shape))


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
        *spatial, inputs, outputs = shape
        fan = math.prod(spatial) * (inputs if self.fan == "fan_in" else (inputs + outputs) / 2)
        is_uniform = self.distribution == "uniform"
        drawn = _drawn(_uniform if is_uniform else _truncated_normal, key, shape)
        variance = drawn.dtype.type(self.scale / fan)  # rounded as jax.nn.initializers does
        deviation = np.sqrt(3 * variance) if is_uniform else np.sqrt(variance) / variance.dtype.type(LEFT)
        return jax.device_put(drawn * deviation)


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
