"""Slopes of rows of any length, each by itself, by JAX's own derivatives: what tests of layers compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def slopes_by_row(
    forward: Callable[[Any, Any], Any], weights: Any, rows: Sequence[Any], slopes: Sequence[Any], steps: int
) -> tuple[Any, Any]:
    """(dx, dweights) of y = forward(weights, row), from dL/dy of each; dx (batch, steps, inputs) is 0 in padding."""

    @jax.jit
    def found(weights: Any) -> tuple[Any, Any]:
        total, dx = jax.tree.map(jnp.zeros_like, weights), jnp.zeros((len(rows), steps, rows[0].shape[1]))
        for row, (x, dy) in enumerate(zip(rows, slopes, strict=True)):
            if len(x):
                own, below = jax.vjp(forward, weights, jnp.asarray(np.asarray(x)))[1](dy)
                total, dx = jax.tree.map(jnp.add, total, own), dx.at[row, : len(x)].set(below)
        return dx, total

    return found(weights)
