"""One vector of each sequence: its first or last step, or the mean, sum or greatest numbers of all its steps."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.ragged import Ragged, as_ragged


@dataclass(frozen=True)
class TimePool(Layer):
    """Base of the layers that make one vector of a sequence.

    x  Ragged of (batch, steps, ...) and (batch,), or (batch, steps, ...)     dx  (batch, steps, ...)   dL/dx
    y  (batch, ...), zeros for a row without steps                            dy  (batch, ...)          dL/dy
    """

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) < 2:
            raise ValueError(
                f"{type(self).__name__} expects rows of shape (steps, ...), or (None, ...) of any length, received "
                f"{input_shape}; put a layer before it that makes a vector of each step, such as Embedding."
            )
        return tuple(input_shape[1:])


@dataclass(frozen=True)
class FirstStep(TimePool):
    """The first step of every sequence, such as the one that BERT makes the vector of a text of."""

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        rows = as_ragged(x)
        return jnp.where(_valid(rows)[:, 0], rows.values[:, 0], 0)

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        rows = as_ragged(x)
        first = jnp.where(_valid(rows)[:, 0], dy, 0)
        return jnp.zeros_like(rows.values).at[:, 0].set(first)


@dataclass(frozen=True)
class LastStep(TimePool):
    """The last step of every sequence, such as what an LSTM has come to there."""

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        rows = as_ragged(x)
        return jnp.where(_last(rows), rows.values, 0).sum(axis=1)

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        return jnp.where(_last(as_ragged(x)), dy[:, None], 0)


@dataclass(frozen=True)
class TimeMean(TimePool):
    """The mean over the steps of every sequence."""

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        rows = as_ragged(x)
        return self._shared_out(rows, _sum(rows))

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        rows = as_ragged(x)
        return _at_each_step(rows, self._shared_out(rows, dy))

    def _shared_out(self, rows: Ragged, sums: Array) -> Array:
        steps = jnp.maximum(jnp.asarray(rows.lengths), 1).astype(sums.dtype)
        return sums / steps.reshape(-1, *(1,) * (sums.ndim - 1))


@dataclass(frozen=True)
class TimeSum(TimePool):
    """The sum over the steps of every sequence."""

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        return _sum(as_ragged(x))

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        return _at_each_step(as_ragged(x), dy)


@dataclass(frozen=True)
class TimeMax(TimePool):
    """The greatest of every number over the steps of a sequence; the first step that has it gets all of dy."""

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        rows = as_ragged(x)
        return jnp.where(_valid(rows).any(axis=1), self._masked(rows).max(axis=1), 0)

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        rows = as_ragged(x)
        first = self._masked(rows).argmax(axis=1)[:, None]
        at = jnp.arange(rows.values.shape[1], dtype=first.dtype).reshape(1, -1, *(1,) * (first.ndim - 2))
        return jnp.where((at == first) & _valid(rows), dy[:, None], 0)

    def _masked(self, rows: Ragged) -> Array:
        return jnp.where(_valid(rows), rows.values, -jnp.inf)


def _valid(rows: Ragged) -> Array:
    """What is no padding, in the rank of the values."""
    return rows.valid.reshape(*rows.valid.shape, *(1,) * (rows.values.ndim - 2))


def _sum(rows: Ragged) -> Array:
    """Over the steps that are no padding."""
    return jnp.where(_valid(rows), rows.values, 0).sum(axis=1)


def _at_each_step(rows: Ragged, dy: Array) -> Array:
    """dy at every step that is no padding."""
    return jnp.where(_valid(rows), dy[:, None], 0)


def _last(rows: Ragged) -> Array:
    """Where the last step of every row is, in the rank of the values."""
    lengths = jnp.asarray(rows.lengths)
    at = jnp.arange(rows.values.shape[1], dtype=lengths.dtype)[None] == lengths[:, None] - 1
    return at.reshape(*at.shape, *(1,) * (rows.values.ndim - 2))
