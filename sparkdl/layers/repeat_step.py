"""A vector repeated as often as another sequence has steps, as a decoder reads what an encoder has come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Shape, Weights, jitted
from sparkdl.layers.merge import Merge
from sparkdl.layers.ragged import Ragged, is_ragged, values_of


@dataclass(frozen=True)
class RepeatStep(Merge):
    """A row, such as a vector, at every step of a sequence: what Deeplearning4j's DuplicateToTimeSeriesVertex does.

    x  (row, like): row (batch, ...), like Ragged (batch, steps, ...) or such an array; of `like` only the lengths count
    y  (batch, steps, ...) as `like` is, with its lengths: at each step the row, zeros beyond the end

    dx  (dL/drow, zeros), of the shapes of x      dy  array (batch, steps, ...)   dL/dy

    See `RepeatVector` for a number of times that is known beforehand.

    Examples
    --------
    >>> from sparkdl import Graph, Network
    >>> from sparkdl.layers import Concatenate, Dense, LastStep, Lstm, RepeatStep
    >>> graph = Graph(
    ...     inputs={"past": (None, 3), "plan": (None, 2)},  # each of lengths of its own
    ...     nodes={
    ...         "code": (Network([Lstm(8), LastStep()]), "past"),
    ...         "known": (RepeatStep(), "code", "plan"),
    ...         "both": (Concatenate(), "known", "plan"),
    ...         "y": (Network([Lstm(8), Dense(1)]), "both"),
    ...     },
    ...     outputs="y",
    ... )
    >>> graph.output_shape()
    (None, 1)
    """

    each_step = False

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(input_shape) != 2 or not input_shape[1]:
            raise ValueError(
                "RepeatStep expects a row and a sequence that has as many steps as there are to be, of shapes (...) "
                f"and (steps, ...), received {' and '.join(map(str, input_shape))}."
            )
        row, like = input_shape
        if is_ragged(row):
            raise ValueError(
                f"RepeatStep expects a row of one length to repeat, received rows of any, {row}; put LastStep, "
                "TimeMean or TimeMax before it."
            )
        return (like[0], *row)

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {}

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, Any]) -> Any:  # type: ignore[override]
        row, like = x
        steps = jnp.broadcast_to(row[:, None], (*values_of(like).shape[:2], *row.shape[1:]))
        return replace(like, values=steps).cleared() if isinstance(like, Ragged) else steps

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, Any], y: Any, dy: Array) -> tuple[Array, Array]:  # type: ignore[override]
        _, like = x
        own = replace(like, values=dy).cleared().values if isinstance(like, Ragged) else dy
        return own.sum(axis=1), jnp.zeros_like(values_of(like))
