"""Fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.factored import Factored
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.specs import check_integers


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

    each_step = True

    units: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "units")

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
        y = matmul(x, weights["kernel"])
        return y + weights["bias"][None] if self.bias else y

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return matmul(dy, weights["kernel"].T)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        kernel = transposed_product(x, dy)
        return {"kernel": kernel, "bias": dy.sum(axis=0)} if self.bias else {"kernel": kernel}

    def train_gradient(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        if not context.factored:
            return self.gradient(weights, x, y, dy)
        return {"kernel": Factored(x, dy)} | ({"bias": dy.sum(axis=0)} if self.bias else {})


@dataclass(frozen=True)
class Maxout(KernelLayer):
    """The largest of several affine maps of flat rows, unit by unit (Goodfellow et al. 2013).

    x        (batch, inputs)        dx  (batch, inputs)   dL/dx
    y        (batch, units)         dy  (batch, units)    dL/dy
    weights  kernel (inputs, pieces * units), bias (pieces * units,): the maps one after another

    Parameters
    ----------
    units : int
        Number of outputs.
    pieces : int, default 2
        Number of maps.
    """

    each_step = True

    units: int
    pieces: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "units", "pieces")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                f"Maxout expects rows of shape (inputs,), received {input_shape}; put Flatten() before it."
            )
        return (self.units,)

    def multiply_adds(self, input_shape: Shape) -> int:
        return input_shape[0] * self.units * self.pieces

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return self.init_kernel(key, (input_shape[0], self.pieces * self.units))

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return self._pieces(weights, x).max(axis=1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return matmul(self._dpieces(weights, x, dy), weights["kernel"].T)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        dpieces = self._dpieces(weights, x, dy)
        kernel = transposed_product(x, dpieces)
        return {"kernel": kernel, "bias": dpieces.sum(axis=0)} if self.bias else {"kernel": kernel}

    def _pieces(self, weights: Weights, x: Array) -> Array:
        """What the maps give, (batch, pieces, units)."""
        y = matmul(x, weights["kernel"])
        return (y + weights["bias"][None] if self.bias else y).reshape(-1, self.pieces, self.units)

    def _dpieces(self, weights: Weights, x: Array, dy: Array) -> Array:
        """dy at the map that is the largest, the first of equal ones; (batch, pieces * units)."""
        largest = self._pieces(weights, x).argmax(axis=1)
        chosen = jnp.arange(self.pieces)[None, :, None] == largest[:, None]
        return jnp.where(chosen, dy[:, None], 0).reshape(-1, self.pieces * self.units)
