"""Layers that multiply what passes by learned numbers between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from sparkdl.initializers import Constant, HeNormal, Initializer, filled
from sparkdl.layers.activation import Relu
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.pooling import check_rank
from sparkdl.layers.products import matmul
from sparkdl.specs import check_integers, check_range


@dataclass(frozen=True)
class Highway(Layer):
    """y = gate * activation(x @ kernel + bias) + (1 - gate) * x, gate = sigmoid(x @ gate_kernel + gate_bias).

    From Srivastava et al. 2015, "Highway networks".

    x, y, dx and dy all have one shape, (batch, inputs).
    weights  kernel and gate_kernel (inputs, inputs), bias and gate_bias (inputs,)

    Parameters
    ----------
    activation : Layer, default Relu()
        Without weights, and that keeps the shape of its rows.
    kernel_initializer : Initializer or str
        Of both kernels; biases start at 0.
    gate_bias_initializer : Initializer or str, default Constant(-2)
        Below 0 lets most of x pass at first.
    l2 : float, default 0
        The objective gains l2 / 2 * the sum of squares of both kernels.
    """

    each_step = True

    activation: Layer = Relu()
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)
    gate_bias_initializer: Initializer | str = field(default=Constant(-2), kw_only=True)
    l2: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_initializer", "gate_bias_initializer"):
            object.__setattr__(self, name, Initializer.of(getattr(self, name)))
        check_range(self, "[0, inf)", "l2")
        if not isinstance(self.activation, Layer):
            raise ValueError(f"activation of Highway must be a Layer, received {self.activation!r}; write Tanh().")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                f"Highway expects rows of shape (inputs,), received {input_shape}; put Flatten() before it."
            )
        if self.activation.init(jax.random.key(0), input_shape) or (
            self.activation.output_shape(input_shape) != input_shape
        ):
            raise ValueError(
                f"activation of Highway must have no weights and keep shapes, received {self.activation!r}."
            )
        return input_shape

    def multiply_adds(self, input_shape: Shape) -> int:
        return 2 * input_shape[0] ** 2

    def penalties(self) -> dict[str, tuple[float, float]]:
        return {"kernel": (0.0, self.l2), "gate_kernel": (0.0, self.l2)} if self.l2 else {}

    def init(self, key: Array, input_shape: Shape) -> Weights:
        (inputs,) = input_shape
        keys, kernels = jax.random.split(key, 3), Initializer.of(self.kernel_initializer)
        return {
            "kernel": kernels.sample(keys[0], (inputs, inputs)),
            "bias": filled((inputs,), 0),
            "gate_kernel": kernels.sample(keys[1], (inputs, inputs)),
            "gate_bias": Initializer.of(self.gate_bias_initializer).sample(keys[2], (inputs,)),
        }

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        made = self.activation.forward({}, matmul(x, weights["kernel"]) + weights["bias"][None])
        gate = jax.nn.sigmoid(matmul(x, weights["gate_kernel"]) + weights["gate_bias"][None])
        return gate * made + (1 - gate) * x


@dataclass(frozen=True)
class SqueezeExcite(Layer):
    """Multiplies each channel by a gate that all channels' means decide (Hu et al. 2018, "Squeeze-and-excitation").

    gate = sigmoid(max(mean @ squeeze + squeeze_bias, 0) @ excite + excite_bias), mean over the positions of a row.

    x, y, dx and dy all have one shape, (batch, *spatial, channels).
    weights  squeeze (channels, units), squeeze_bias (units,), excite (units, channels), excite_bias (channels,)

    Parameters
    ----------
    units : int
        Numbers that the means are squeezed into; a sixteenth of the channels in the paper.
    kernel_initializer : Initializer or str
        Of `squeeze` and `excite`; biases start at 0.
    """

    units: int
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        check_integers(self, 1, "units")

    def output_shape(self, input_shape: Shape) -> Shape:
        check_rank(self, input_shape)
        return input_shape

    def init(self, key: Array, input_shape: Shape) -> Weights:
        channels, kernels = input_shape[-1], Initializer.of(self.kernel_initializer)
        squeeze_key, excite_key = jax.random.split(key)
        return {
            "squeeze": kernels.sample(squeeze_key, (channels, self.units)),
            "squeeze_bias": filled((self.units,), 0),
            "excite": kernels.sample(excite_key, (self.units, channels)),
            "excite_bias": filled((channels,), 0),
        }

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        mean = x.mean(axis=tuple(range(1, x.ndim - 1)))
        squeezed = jnp.maximum(mean @ weights["squeeze"] + weights["squeeze_bias"][None], 0)
        gate = jax.nn.sigmoid(squeezed @ weights["excite"] + weights["excite_bias"][None])
        return x * jnp.expand_dims(gate, range(1, x.ndim - 1))
