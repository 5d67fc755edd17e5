"""What causal convolutions carry from one segment of a row to the next: the steps that their windows reach back to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Array, CannotCarry, Layer, Shape
from sparkdl.layers.ragged import Ragged, as_ragged
from sparkdl.layers.windows import Windows


def first_steps(layer: Layer, windows: Windows, rows: int, input_shape: Shape, dtype: Any) -> Any:
    """The state before the first step: zeros, as stand before a row; {} if no window of the layer reaches back.

    Raises
    ------
    CannotCarry
        Windows read steps after their own.
    """
    ((before, after),) = windows.padding
    if after:
        raise CannotCarry(
            f"{type(layer).__name__} reads steps after those that it stands at, which the next segment of a row has, "
            "and so cannot go from one to the next; give it padding='causal'."
        )
    return {"before": jnp.zeros((rows, before, *input_shape[1:]), dtype)} if before else {}


def from_steps(forward: Callable[[Array], Array], state: Any, x: Any) -> tuple[Any, Any]:
    """(y, the state after it) of a segment, which `forward` is given behind the steps before it."""
    rows, before = as_ragged(x).cleared(), state["before"]
    reach, whole = before.shape[1], jnp.concatenate([before, rows.values], axis=1)
    y = replace(rows, values=forward(whole)[:, reach:]).cleared()
    places = jnp.asarray(rows.lengths)[:, None] + jnp.arange(reach, dtype="int32")[None]
    after = jnp.take_along_axis(whole, places[..., None], axis=1)
    return y if isinstance(x, Ragged) else y.values, {"before": after}
