"""A recurrent layer that goes over every row both ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.merge import Concatenate, Merge
from sparkdl.layers.ragged import Ragged
from sparkdl.layers.recurrent import Recurrent


@dataclass(frozen=True)
class Bidirectional(Composite):
    """A recurrent layer from the first step of every row to its last, and another of its kind the other way.

    From Schuster and Paliwal 1997, "Bidirectional recurrent neural networks".

    x        Ragged (batch, steps, inputs), or such an array      dx  array (batch, steps, inputs)    dL/dx
    y        Ragged (batch, steps, outputs), or such an array     dy  array (batch, steps, outputs)   dL/dy
    weights  {"forward": ..., "backward": ...}: those of the layer, each way its own

    Each row is reversed by its own length; y is 0 beyond its end. `outputs` is twice the layer's units, or what `merge`
    makes of them.

    Parameters
    ----------
    layer : Recurrent
        As `Lstm(64)`.
    merge : Layer, default Concatenate()
        Given both outputs of every step, as a tuple; such as `Add()`, `Average()`, `Multiply()` or `Maximum()`.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Bidirectional, Lstm
    >>> Network([Bidirectional(Lstm(8))], input_shape=(None, 3)).output_shape()
    (None, 16)
    """

    layer: Layer
    merge: Layer = Concatenate()

    def __post_init__(self) -> None:
        if not isinstance(self.layer, Recurrent):
            raise ValueError(
                f"layer of Bidirectional must be a recurrent layer, received {self.layer!r}; write Lstm(64)."
            )
        if not isinstance(self.merge, Merge):
            raise ValueError(
                f"merge of Bidirectional must be a layer that merges, received {self.merge!r}; write Add()."
            )
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        assert isinstance(self.layer, Recurrent)
        learns = self.trainable and self.layer.trainable
        one, other = (replace(self.layer, backwards=back, trainable=learns) for back in (False, True))
        merge = EveryStep(self.merge)
        return Child("forward", one, (0,)), Child("backward", other, (0,)), Child("merge", merge, (1, 2))

    @property
    def takes_ragged(self) -> bool:
        return True

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        one, other = self._ways(weights, x, y, dy, "delta")
        return one + other

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        return dict(zip(("forward", "backward"), self._ways(weights, x, y, dy, "gradient"), strict=True))

    def _ways(self, weights: Weights, x: Any, y: Any, dy: Array, kernel: str) -> list[Any]:
        """What a kernel of the layer gives for each of the two ways."""
        *ways, merge = self.children
        values = tuple(way.layer.forward(weights[way.name], x) for way in ways)
        slopes = merge.layer.delta({}, values, y, dy)  # type: ignore[arg-type]
        return [
            getattr(way.layer, kernel)(weights[way.name], x, value, slope)
            for way, value, slope in zip(ways, values, slopes, strict=True)
        ]

    def _subject(self, index: int) -> str:
        return ("layer", "layer", "merge")[index]


@dataclass(frozen=True)
class EveryStep(Layer):
    """A merge of sequences with the same lengths, step by step, as if every step were a row.

    x  tuple of Ragged (batch, steps, n), or of such arrays     dx  tuple of arrays of their values' shapes   dL/dx
    y  Ragged (batch, steps, m), or such an array               dy  array (batch, steps, m)                   dL/dy

    Parameters
    ----------
    merge : Merge
        Without weights.
    """

    merge: Layer

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Shape:
        return (input_shape[0][0], *self.merge.output_shape(tuple(shape[1:] for shape in input_shape)))

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        y = self._merged(x)
        if not isinstance(x[0], Ragged):
            return y
        return Ragged(jnp.where(x[0].valid[..., None], y, 0), x[0].lengths)

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Any:
        values = _values(x)
        rows = [_rows(value) for value in (*values, dy)]
        dx = self.merge.delta({}, tuple(rows[:-1]), _rows(self._merged(x)), rows[-1])  # type: ignore[arg-type]
        return tuple(part.reshape(value.shape) for part, value in zip(dx, values, strict=True))

    def _merged(self, x: Any) -> Array:
        values = _values(x)
        y = self.merge.forward({}, tuple(map(_rows, values)))  # type: ignore[arg-type]
        return y.reshape(*values[0].shape[:2], *y.shape[1:])


def _values(x: Any) -> tuple[Array, ...]:
    return tuple(part.values if isinstance(part, Ragged) else part for part in x)


def _rows(steps: Array) -> Array:
    """Every step as a row."""
    return steps.reshape(-1, *steps.shape[2:])
