"""Rows of any length before a layer that takes each of their steps as a row of its own, as most layers do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Context, Layer, Weights
from sparkdl.layers.ragged import Ragged, is_ragged, refuse_ragged, values_of

# What a composite asks of its children. Their own functions know nothing of steps: they are given those of all rows,
# one after the other, as the rows of a batch, of which the padding weighs nothing.


def shape_of_step(layer: Layer, shape: Any) -> Any:
    """The shape that the layer's own functions are given of rows of a shape, or of several."""
    if not layer.each_step:
        return shape
    if not any(isinstance(part, tuple) for part in shape):
        return shape[1:] if is_ragged(shape) else shape
    ragged = [is_ragged(part) for part in shape]
    if any(ragged) and not all(ragged):
        raise ValueError(
            f"{type(layer).__name__} expects rows of any length from all that it reads or from none, received {shape}; "
            "put LastStep, TimeMean or TimeMax behind those of any length."
        )
    return tuple(part[1:] for part in shape) if all(ragged) else shape


def output_shape(layer: Layer, shape: Any) -> Any:
    """Of the layer, for rows of a shape; those of any length keep their lengths."""
    if not layer.takes_ragged and not layer.each_step:
        refuse_ragged(type(layer).__name__, shape)
    step = shape_of_step(layer, shape)
    after = layer.output_shape(step)
    return after if step is shape else (None, *after)


def forward(layer: Layer, weights: Weights, x: Any) -> Any:
    """`layer.forward`."""
    if not _by_step(layer, x):
        return layer.forward(weights, x)
    return rejoined(layer.forward(weights, steps_of(x)), x)


def train_forward(layer: Layer, weights: Weights, x: Any, context: Context) -> tuple[Any, Any]:
    """`layer.train_forward`."""
    if not _by_step(layer, x):
        return layer.train_forward(weights, x, context)
    y, kept = layer.train_forward(weights, steps_of(x), of_steps(context, x))
    return rejoined(y, x), kept


def train_backward(
    layer: Layer, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context, wants_delta: bool
) -> tuple[Any, Weights]:
    """`layer.train_backward`."""
    if not _by_step(layer, x):
        return layer.train_backward(weights, x, y, dy, kept, context, wants_delta)
    rows = steps_of(x), steps_of(y), steps_of(dy)
    dx, gradient = layer.train_backward(weights, *rows, kept, of_steps(context, x), wants_delta)
    if dx is None:
        return None, gradient
    several = isinstance(x, tuple)
    parts = tuple(cut(part, own) for part, own in zip(dx if several else (dx,), x if several else (x,), strict=True))
    return parts if several else parts[0], gradient


def steps_of(x: Any) -> Any:
    """The steps of rows as rows (batch * steps, ...): of Ragged, of arrays (batch, steps, ...), or of several."""
    if isinstance(x, tuple):
        return tuple(map(steps_of, x))
    values = values_of(x)
    return values.reshape(-1, *values.shape[2:])


def rejoined(y: Array, x: Any) -> Any:
    """What became of the steps of x, as rows like those of x, or of the first of several."""
    first = x[0] if isinstance(x, tuple) else x
    values = cut(y, first)
    return replace(first, values=values) if isinstance(first, Ragged) else values


def of_steps(context: Context, x: Any) -> Context:
    """The context of the steps: each weighs what its row does, and padding nothing."""
    first = x[0] if isinstance(x, tuple) else x
    return replace(context, row_weights=step_weights(context.row_weights, first))


def step_weights(row_weights: Array, x: Any) -> Array:
    """(batch * steps,) of the steps of rows: each weighs what its row does, and padding nothing."""
    weights = jnp.repeat(row_weights, values_of(x).shape[1])
    return jnp.where(x.valid.reshape(-1), weights, 0) if isinstance(x, Ragged) else weights


def _by_step(layer: Layer, x: Any) -> bool:
    return layer.each_step and isinstance(x[0] if isinstance(x, tuple) else x, Ragged)


def cut(rows: Array, like: Any) -> Array:
    """Steps as the rows (batch, steps, ...) that they are of, as many as `like` has."""
    return rows.reshape(*values_of(like).shape[:2], *rows.shape[1:])
