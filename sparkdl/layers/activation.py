"""Activations; their deltas are written in terms of y wherever that is cheaper than differentiating again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import along_channels, check_channels
from sparkdl.specs import is_number


@dataclass(frozen=True)
class Activation(Layer):
    """A layer without weights whose x, y, dx and dy all have one shape, (batch, ...)."""

    each_step = True

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


@dataclass(frozen=True)
class Relu(Activation):
    """y = max(x, 0) (Nair and Hinton 2010). The subgradient at 0 is 0."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.maximum(x, 0)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(y > 0, dy, 0)


@dataclass(frozen=True)
class Relu6(Activation):
    """y = min(max(x, 0), 6), whose bound spares numbers of few bits (Howard et al. 2017). Its slope at 0 and 6 is 0."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.clip(x, 0, 6)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where((y > 0) & (y < 6), dy, 0)


@dataclass(frozen=True)
class LeakyRelu(Activation):
    """y = x where x > 0, slope * x elsewhere (Maas et al. 2013). The subgradient at 0 is `slope`.

    Parameters
    ----------
    slope : float, default 0.01
        Slope of the negative half.
    """

    slope: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.slope):
            raise ValueError(f"slope of LeakyRelu must be a finite number, received {self.slope!r}; 0.01 is usual.")

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.where(x > 0, x, self.slope * x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(x > 0, dy, self.slope * dy)


@dataclass(frozen=True)
class PRelu(Activation):
    """y = x where x > 0, slope * x elsewhere, with a learned slope of each channel (He et al. 2015).

    weights  slope (channels,), which all positions share

    The subgradient at 0 is `slope`.

    Parameters
    ----------
    initial : float, default 0.25
        Of every slope.
    """

    initial: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.initial):
            raise ValueError(f"initial of PRelu must be a finite number, received {self.initial!r}; 0.25 is usual.")

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"slope": jnp.full(input_shape[-1:], float(self.initial))}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.where(x > 0, x, along_channels(weights["slope"], x) * x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(x > 0, dy, along_channels(weights["slope"], x) * dy)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"slope": jnp.where(x > 0, 0, x * dy).sum(axis=tuple(range(x.ndim - 1)))}


@dataclass(frozen=True)
class Elu(Activation):
    """y = x where x > 0, alpha * (exp(x) - 1) elsewhere (Clevert et al. 2016). The subgradient at 0 is `alpha`.

    Parameters
    ----------
    alpha : float, default 1
        Minus the limit of y for small x; at least 0.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.alpha, 0):
            raise ValueError(
                f"alpha of Elu must be a finite number of at least 0, received {self.alpha!r}; 1 is usual."
            )

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.where(x > 0, x, self.alpha * jnp.expm1(jnp.minimum(x, 0)))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(y > 0, dy, dy * (y + self.alpha))


_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


@dataclass(frozen=True)
class Selu(Activation):
    """The scaled Elu that keeps mean 0 and variance 1 (Klambauer et al. 2017). The subgradient at 0 is the left one.

    y = 1.0507 * x where x > 0, 1.0507 * 1.6733 * (exp(x) - 1) elsewhere.
    """

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return _SELU_SCALE * jnp.where(x > 0, x, _SELU_ALPHA * jnp.expm1(jnp.minimum(x, 0)))

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * jnp.where(y > 0, _SELU_SCALE, y + _SELU_SCALE * _SELU_ALPHA)


@dataclass(frozen=True)
class Gelu(Activation):
    """y = x * P(Z <= x) for a standard normal Z (Hendrycks and Gimpel 2016).

    Parameters
    ----------
    approximate : bool, default False
        Use the paper's y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) instead of the error function.
    """

    approximate: bool = False

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * self._below(x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        below = self._below(x)
        if self.approximate:
            density = 2 * below * (1 - below) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        else:
            density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return dy * (below + x * density)

    def _below(self, x: Array) -> Array:
        """P(Z <= x), or its approximation; (1 + tanh(z)) / 2 is the sigmoid of 2 z, without cancellation."""
        if self.approximate:
            return lax.logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        return 0.5 * lax.erfc(-math.sqrt(0.5) * x)


@dataclass(frozen=True)
class Silu(Activation):
    """y = x * sigmoid(x), also called swish (Elfwing et al. 2018; Ramachandran et al. 2017)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * lax.logistic(x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        sigmoid = lax.logistic(x)
        return dy * (sigmoid + y * (1 - sigmoid))


@dataclass(frozen=True)
class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x))."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return lax.logistic(x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * y * (1 - y)


@dataclass(frozen=True)
class Tanh(Activation):
    """y = tanh(x)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.tanh(x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * (1 - y * y)


@dataclass(frozen=True)
class Softplus(Activation):
    """y = log(1 + exp(x)) (Dugas et al. 2001)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.logaddexp(x, 0)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * lax.logistic(x)


@dataclass(frozen=True)
class Softmax(Activation):
    """y = exp(x) / sum(exp(x)) over the last axis (Bridle 1990)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return check_channels(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jax.nn.softmax(x, axis=-1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class HardSigmoid(Activation):
    """y = min(max(x + 3, 0), 6) / 6, as in PyTorch and JAX (Howard et al. 2019). The subgradient at -3 and 3 is 0."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jnp.clip(x + 3, 0, 6) / 6

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.where(jnp.abs(x) < 3, dy / 6, 0)


@dataclass(frozen=True)
class Cube(Activation):
    """y = x^3 (Chen and Manning 2014)."""

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x * x * x

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * (3 * x * x)
