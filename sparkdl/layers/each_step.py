"""Any layers, applied to every step of a sequence by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sparkdl.layers import steps
from sparkdl.layers.base import Array, Context, Layer, Weights, jitted
from sparkdl.layers.chain import Chain
from sparkdl.layers.ragged import is_ragged, values_of


@dataclass(frozen=True)
class EachStep(Chain):
    """Layers in a row that take every step of a sequence as a row of its own, all steps with the same weights.

    x  Ragged of (batch, steps, ...) and (batch,), or (batch, steps, ...)     dx  (batch, steps, ...)   dL/dx
    y  likewise, with what the layers make of a step in place of ...          dy  (batch, steps, ...)   dL/dy

    Dense, activations and others whose class says `each_step` do so with rows of any length by themselves; this is for
    all others, such as a Conv over each picture of a film, and for sequences of one length. Batch statistics are those
    of all steps of all rows, without padding.

    Parameters
    ----------
    layers : sequence of Layer, or Layer
        In order from input to output.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Conv, EachStep, GlobalAvgPool, TimeMean
    >>> film = EachStep([Conv(8, (3, 3)), GlobalAvgPool()])
    >>> Network([film, TimeMean()], input_shape=(None, 16, 16, 3)).output_shape()
    (8,)
    """

    def __post_init__(self) -> None:
        if isinstance(self.layers, Layer):
            object.__setattr__(self, "layers", (self.layers,))
        super().__post_init__()

    def shapes(self, input_shape: Any) -> list[Any]:
        """Of a step; see `Composite.shapes`."""
        if len(input_shape) < 1 or isinstance(input_shape[0], tuple):
            raise ValueError(f"EachStep expects rows of shape (steps, ...), received {input_shape}.")
        return super().shapes(tuple(input_shape[1:]))

    def output_shape(self, input_shape: Any) -> Any:
        after = super().output_shape(input_shape)
        if is_ragged(after):
            raise ValueError(
                "EachStep expects layers that make one array of each step, but some of the steps within it are left "
                "out at their end; put LastStep, TimeMean or TimeMax behind them."
            )
        return input_shape[0], *after

    @property
    def gives_lengths(self) -> bool:
        return False

    def multiply_adds(self, input_shape: Any) -> int:
        return (input_shape[0] or 1) * super().multiply_adds(input_shape)

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        return steps.rejoined(Chain.forward(self, weights, steps.steps_of(x)), x)

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {}  # to the layers a step is a whole row

    forward_from = Layer.forward_from

    def activations(self, weights: Weights, x: Any, paths: Collection[str]) -> tuple[Any, dict[str, Array]]:
        y, found = super().activations(weights, steps.steps_of(x), paths)
        return steps.rejoined(y, x), {path: steps.rejoined(values_of(value), x) for path, value in found.items()}

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, tuple[Any, Any]]:
        y, kept = super().train_forward(weights, steps.steps_of(x), steps.of_steps(context, x))
        return steps.rejoined(y, x), (x, kept)

    def train_outputs(self, kept: tuple[Any, Any]) -> Iterator[tuple[str, Any]]:
        for path, y in super().train_outputs(kept[1]):
            yield path, steps.rejoined(values_of(y), kept[0])

    def new_statistics(self, weights: Weights, kept: tuple[Any, Any]) -> Weights:
        return super().new_statistics(weights, kept[1])

    train_delta, train_gradient = Chain.train_delta, Chain.train_gradient  # which ask train_backward
    new_state = Layer.new_state  # which none asks for

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        x_steps, y_steps, dy_steps = map(steps.steps_of, (x, y, dy))
        own_context = steps.of_steps(context, x)
        dx, gradient = super().train_backward(weights, x_steps, y_steps, dy_steps, kept[1], own_context, wants_delta)
        return None if dx is None else steps.cut(dx, x), gradient
