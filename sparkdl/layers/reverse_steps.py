"""The steps of sequences turned round, each by its own length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.ragged import Ragged, values_of, with_values


@dataclass(frozen=True)
class ReverseSteps(Layer):
    """The steps of every sequence from its last to its first: what Deeplearning4j's ReverseTimeSeriesVertex does.

    x  Ragged (batch, steps, ...), or such an array      dx  array (batch, steps, ...)   dL/dx
    y  as x is, with its lengths, zeros beyond the end   dy  array (batch, steps, ...)   dL/dy

    Rows of any length are each reversed by their own, so that what was padding stays behind the end.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl.layers import Ragged, ReverseSteps
    >>> x = Ragged(np.array([[[3.0], [7.0], [1.0]], [[5.0], [4.0], [0.0]]]), np.array([3, 2], "int32"))
    >>> ReverseSteps().forward({}, x).values[..., 0].tolist()
    [[1.0, 7.0, 3.0], [4.0, 5.0, 0.0]]
    """

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape:
            raise ValueError(
                "ReverseSteps expects rows of shape (steps, ...), or (None, ...) of any length, received (); give its "
                "rows an axis of steps."
            )
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array | Ragged:  # type: ignore[override]
        return with_values(x, _reversed(x, values_of(x)))

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array | Ragged, dy: Array) -> Array:  # type: ignore[override]
        return _reversed(x, dy)


def _reversed(x: Array | Ragged, values: Array) -> Array:
    """Values like those of x with their steps turned round, and zeros for padding."""
    if not isinstance(x, Ragged):
        return lax.rev(values, (1,))
    lengths = jnp.asarray(x.lengths)
    places = lengths[:, None] - 1 - jnp.arange(values.shape[1], dtype=lengths.dtype)[None]
    places = jnp.expand_dims(jnp.maximum(places, 0), range(2, values.ndim))
    return replace(x, values=jnp.take_along_axis(values, places, axis=1, mode="clip")).cleared().values
