"""A recurrent layer that goes over every row both ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sparkdl.layers.base import CannotCarry, Layer
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.merge import Concatenate, Merge
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
        return Child("forward", one, (0,)), Child("backward", other, (0,)), Child("merge", self.merge, (1, 2))

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        raise CannotCarry(
            "Bidirectional goes over every row from its end, too, and so cannot go from one segment of it to the next; "
            f"use its layer alone, {type(self.layer).__name__}(...)."
        )

    def _subject(self, index: int) -> str:
        return ("layer", "layer", "merge")[index]
