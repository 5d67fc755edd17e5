"""Layers that disturb what passes in training, and do nothing at inference."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self
from zlib import crc32

import jax
import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.ragged import values_of, with_values
from sparkdl.specs import check_range, is_number


@dataclass(frozen=True)
class Noise(Layer):
    """Base of the layers whose y is x at inference; x, y, dx and dy all have one shape, (batch, ...)."""

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {}  # each segment is disturbed by itself

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class Dropout(Noise):
    """Sets inputs to 0 at random in training and does nothing at inference (Srivastava et al. 2014).

    The inputs that stay are multiplied by 1 / (1 - rate), so that the expectation of y is x.
    x, y, dx and dy all have one shape, (batch, ...).

    Parameters
    ----------
    rate : float
        Probability of DROPPING an input, in [0, 1): Dropout(0.1) keeps nine in ten.
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate(self, "an input")

    def drawn_shape(self, shape: Shape) -> Shape:
        """Of what is drawn for x of this shape; along an axis of 1 all fare alike."""
        return shape

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, Array]:
        values = values_of(x)
        stays = jax.random.bernoulli(context.key, 1 - self.rate, self.drawn_shape(values.shape))
        return with_values(x, jnp.where(stays, values / (1 - self.rate), 0)), stays

    def train_delta(self, weights: Weights, x: Any, y: Any, dy: Array, kept: Array, context: Context) -> Array:
        return jnp.where(kept, dy / (1 - self.rate), 0)


@dataclass(frozen=True)
class SpatialDropout(Dropout):
    """A Dropout of whole channels, at all positions of a row alike (Tompson et al. 2015).

    x, y, dx and dy all have one shape, (batch, *spatial, channels); rows may be of any length (None, channels),
    of which `truncated` draws anew for every segment.
    """

    each_step = False

    @property
    def takes_ragged(self) -> bool:
        return True

    def drawn_shape(self, shape: Shape) -> Shape:
        return (shape[0], *(1 for _ in shape[1:-1]), *shape[1:][-1:])


@dataclass(frozen=True)
class StochasticDepth(Dropout):
    """A Dropout of whole rows: the last layer of a Residual's body, it skips the body (Huang et al. 2016).

    x, y, dx and dy all have one shape, (batch, ...); rows may be of any length.
    """

    each_step = False

    @property
    def takes_ragged(self) -> bool:
        return True

    def drawn_shape(self, shape: Shape) -> Shape:
        return (shape[0], *(1 for _ in shape[1:]))


@dataclass(frozen=True)
class AlphaDropout(Noise):
    """Dropout for networks of Selu: mean 0 and variance 1 stay what they are (Klambauer et al. 2017, section 3).

    y = a * (x where it stays, else d) + b with Selu's least value d = -1.7581, and a and b such that the mean and the
    variance of y are those of x if these are 0 and 1.

    Parameters
    ----------
    rate : float
        Probability of dropping an input, in [0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate(self, "an input")

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        stays = jax.random.bernoulli(context.key, 1 - self.rate, x.shape)
        return self._factor * jnp.where(stays, x, LEAST_SELU) - self._factor * LEAST_SELU * self.rate, stays

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return jnp.where(kept, self._factor * dy, 0)

    @property
    def _factor(self) -> float:
        return 1 / math.sqrt((1 - self.rate) * (1 + self.rate * LEAST_SELU**2))


LEAST_SELU = -1.0507009873554805 * 1.6732632423543772  # its limit for small x: minus scale times alpha


@dataclass(frozen=True)
class GaussianDropout(Noise):
    """Multiplies inputs by normal numbers of mean 1 and the variance of a Dropout (Srivastava et al. 2014, section 10).

    Parameters
    ----------
    rate : float
        Of the Dropout, in [0, 1): the variance is rate / (1 - rate).
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate(self, "an input")

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        gain = 1 + math.sqrt(self.rate / (1 - self.rate)) * jax.random.normal(context.key, x.shape, x.dtype)
        return x * gain, gain

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return dy * kept


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """Adds normal numbers of mean 0.

    Parameters
    ----------
    stddev : float
        Their standard deviation, at least 0.
    """

    stddev: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "stddev")

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, None]:
        return x + self.stddev * jax.random.normal(context.key, x.shape, x.dtype), None

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: None, context: Context) -> Array:
        return dy


@dataclass(frozen=True)
class _DisturbedWeights(Composite):
    """Base of the layers around a layer whose weights are disturbed in training, for rows that are taken together.

    Together are a worker's rows of a batch or, on CPUs, a part of them; others are drawn for the next. Weights of one
    axis, such as biases, are left alone.
    """

    layer: Layer

    def __post_init__(self) -> None:
        if not isinstance(self.layer, Layer):
            kind = type(self).__name__
            raise ValueError(f"layer of {kind} must be a Layer, received {self.layer!r}; write Dense(8).")
        if not self.trainable and self.layer.trainable:
            object.__setattr__(self, "layer", replace(self.layer, trainable=False))
        super().__post_init__()

    @abstractmethod
    def _disturbed(self, key: Array, weight: Array) -> Array:
        """An array of weights as training uses it."""

    def _slopes(self, key: Array, gradient: Array) -> Array:
        """Its gradient, from that by what training used: the same, where weights are multiplied by what is drawn."""
        return self._disturbed(key, gradient)

    @cached_property
    def children(self) -> tuple[Child, ...]:
        return (Child("layer", self.layer, (0,)),)

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        return replace(self, layer=layers.get("layer", self.layer))

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, Any]:
        return super().train_forward(_of_each(self._disturbed, weights, context), x, context)

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        used, whole = _of_each(self._disturbed, weights, context), replace(context, factored=False, apart=False)
        dx, gradient = super().train_backward(used, x, y, dy, kept, whole, wants_delta)
        return dx, _of_each(self._slopes, gradient, context)  # which needs it as arrays in the shapes of the weights

    train_delta, train_gradient = Composite.train_delta, Composite.train_gradient  # which ask train_backward
    new_state = Composite.new_state


def _of_each(function: Callable[[Array, Array], Array], weights: Weights, context: Context) -> Weights:
    """A function of a key, the same in every pass of a step, and of an array of at least two axes; of others they."""

    def of(path: Any, array: Array) -> Array:
        if array.ndim < 2:
            return array
        return function(jax.random.fold_in(context.key, crc32(jax.tree_util.keystr(path).encode())), array)

    return jax.tree.map_with_path(of, weights)


@dataclass(frozen=True)
class DropConnect(_DisturbedWeights):
    """A layer whose weights are dropped at random in training, for rows that are taken together (Wan et al. 2013).

    Together are a worker's rows of a batch or, on CPUs, a part of them; others are drawn for the next. Those that stay
    are multiplied by 1 / (1 - rate); weights of one axis, such as biases, all stay.

    x, y, dx and dy are those of the layer.
    weights  {"layer": those of the layer}

    Parameters
    ----------
    layer : Layer
        Such as a Dense.
    rate : float
        Probability of dropping a weight, in [0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate(self, "a weight")

    def _disturbed(self, key: Array, weight: Array) -> Array:
        return jnp.where(jax.random.bernoulli(key, 1 - self.rate, weight.shape), weight / (1 - self.rate), 0)


@dataclass(frozen=True)
class WeightNoise(_DisturbedWeights):
    """A layer whose weights have normal numbers added in training, or are multiplied by such (Murray and Edwards 1994).

    They are drawn once for rows that are taken together, a worker's of a batch or, on CPUs, a part of them; weights of
    one axis, such as biases, are left alone. At inference it is the layer: Deeplearning4j's WeightNoise.

    x, y, dx and dy are those of the layer.
    weights  {"layer": those of the layer}

    Parameters
    ----------
    layer : Layer
        Such as a Dense.
    stddev : float
        Standard deviation of the numbers, at least 0.
    additive : bool, default True
        Whether to add numbers of mean 0; False multiplies by numbers of mean 1.
    """

    stddev: float
    additive: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "stddev")

    def _disturbed(self, key: Array, weight: Array) -> Array:
        noise = self.stddev * jax.random.normal(key, weight.shape, weight.dtype)
        return weight + noise if self.additive else weight * (1 + noise)

    def _slopes(self, key: Array, gradient: Array) -> Array:
        return gradient if self.additive else super()._slopes(key, gradient)


def check_rate(layer: Any, dropped: str) -> None:
    """ValueError unless `rate` of the layer is a probability below 1."""
    if not (is_number(layer.rate, 0) and layer.rate < 1):
        raise ValueError(
            f"rate of {type(layer).__name__}, the probability of dropping {dropped}, must be at least 0 and below 1, "
            f"received {layer.rate!r}; {type(layer).__name__}(0.5) drops half of them."
        )
