"""Fully connected layer: y = x @ kernel + bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkdl.layers.base import Array, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.factored import Factored


@dataclass(frozen=True)
class Dense(KernelLayer):
    """Affine map of flat rows.

    x        (batch, inputs)        dx  (batch, inputs)   dL/dx
    y        (batch, units)         dy  (batch, units)    dL/dy
    weights  kernel (inputs, units), bias (units,); gradients are sums over the batch

    Parameters
    ----------
    units : int
        Number of outputs.
    """

    units: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.units, int) or self.units < 1:
            raise ValueError(f"units of Dense must be a positive integer, received {self.units!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(f"Dense expects rows of shape (inputs,), received {input_shape}; put Flatten() before it.")
        return (self.units,)

    def multiply_adds(self, input_shape: Shape) -> int:
        return input_shape[0] * self.units

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return self.init_kernel(key, (input_shape[0], self.units))

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        y = x @ weights["kernel"]
        return y + weights["bias"][None] if self.bias else y

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy @ weights["kernel"].T

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        kernel = x.T @ dy
        return {"kernel": kernel, "bias": dy.sum(axis=0)} if self.bias else {"kernel": kernel}

    def train_gradient(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        if not context.factored:
            return self.gradient(weights, x, y, dy)
        return {"kernel": Factored(x, dy)} | ({"bias": dy.sum(axis=0)} if self.bias else {})
