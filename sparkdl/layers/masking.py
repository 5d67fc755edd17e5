"""Steps that stand for nothing, as padding does, left out of rows, so that what is left has a length for every row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from sparkdl.arrays import INTEGERS
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.embedding import Embedding
from sparkdl.layers.ragged import Ragged, as_ragged, values_of
from sparkdl.specs import is_number


def without_steps(x: Array | Ragged, kept: Array) -> Ragged:
    """Rows of those steps alone that are `kept`, bool of (batch, steps), in their order; zeros stand behind them."""
    first = jnp.argsort(~kept, axis=1, stable=True)
    values = values_of(x)
    places = jnp.expand_dims(first, range(2, values.ndim))
    found = jnp.take_along_axis(values, places, axis=1, mode="clip")
    return Ragged(found, kept.sum(axis=1, dtype=INTEGERS)).cleared()


def back_in_place(values: Array, kept: Array) -> Array:
    """The inverse, of values of such rows: zeros at the steps that were left out."""
    places = jnp.maximum(jnp.cumsum(kept, axis=1, dtype=INTEGERS) - 1, 0)
    places, kept = (jnp.expand_dims(part, range(2, values.ndim)) for part in (places, kept))
    return jnp.where(kept, jnp.take_along_axis(values, places, axis=1, mode="clip"), 0)


@dataclass(frozen=True)
class LeavesSteps(Layer):
    """Base of the layers that leave steps out, and so give rows of other lengths than they read."""

    @property
    def takes_ragged(self) -> bool:
        return True

    @property
    def gives_lengths(self) -> bool:
        return True

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {}


@dataclass(frozen=True)
class Masking(LeavesSteps):
    """Leaves out the steps all of whose numbers are `value`: Keras's Masking, and Deeplearning4j's MaskZeroLayer.

    x  (batch, steps, ...), or Ragged of such               dx  (batch, steps, ...)   dL/dx, zeros at steps left out
    y  Ragged (batch, steps, ...): the other steps, in      dy  (batch, steps, ...)   dL/dy
       their order, before zeros; of each row as many

    Rows that were padded to one length, at the end or the beginning, or that have gaps, thereby become rows of any
    length: layers behind it read each as if it held the other steps alone. A row without any gives what a row of length
    0 does. Of categories, such as words by number, `MaskedEmbedding` does the same.

    As the lengths follow from what rows hold, no label can be given for each step behind it: end the network in one
    vector of a row. Rows of any length need no padding at all, and so no Masking.

    Parameters
    ----------
    value : float, default 0

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, LastStep, Lstm, Masking
    >>> network = Network([Masking(), Lstm(8), LastStep(), Dense(2)], input_shape=(30, 4))  # 30 steps with padding
    >>> network.output_shape()
    (2,)
    """

    value: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.value) or not math.isfinite(self.value):
            raise ValueError(f"value of Masking must be a finite number, received {self.value!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        return _any_length("Masking", input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Ragged:  # type: ignore[override]
        return without_steps(x, self._kept(x))

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Ragged, dy: Array) -> Array:  # type: ignore[override]
        return back_in_place(dy, self._kept(x))

    def _kept(self, x: Array | Ragged) -> Array:
        rows = as_ragged(x)
        differs = rows.values != jnp.asarray(self.value, rows.values.dtype)
        return rows.valid & differs.any(axis=range(2, differs.ndim))


@dataclass(frozen=True)
class MaskedEmbedding(LeavesSteps, Embedding):
    """An Embedding of which category 0 is padding, whose steps are left out: Keras's `Embedding(mask_zero=True)`.

    x  (batch, steps) of int32, or Ragged of such           dx  none
    y  Ragged (batch, steps, size): the vectors of the      dy  (batch, steps, size)  dL/dy
       other steps; `table` (rows, size), whose first row nothing reads

    See `Masking` for what that is to the layers behind it.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, LastStep, Lstm, MaskedEmbedding
    >>> network = Network([MaskedEmbedding(5_000, 16), Lstm(8), LastStep(), Dense(2)], input_shape=(200,))
    >>> network.output_shape()
    (2,)
    """

    each_step = False

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                "MaskedEmbedding expects rows of one category a step, of shape (steps,), or (None,) of any length, "
                f"received {input_shape}; use Embedding for others."
            )
        return (*_any_length("MaskedEmbedding", input_shape), self.size)

    def _read(self, x: Array | Ragged) -> Ragged:
        rows = as_ragged(x)
        return without_steps(rows, rows.valid & (rows.values != 0))

    def _rows_of(self, x: Array | Ragged, dy: Array) -> Any:
        read = self._read(x)
        return super()._rows_of(read.values, replace(read, values=dy).cleared().values)


def _any_length(kind: str, shape: Shape) -> Shape:
    if not shape:
        raise ValueError(
            f"{kind} expects rows of shape (steps, ...), or (None, ...) of any length, received (); give its rows an "
            "axis of steps."
        )
    return (None, *shape[1:])  # type: ignore[arg-type]
