"""A temporal convolutional network: residual blocks of causal convolutions that look twice as far back, block by block.

Each block is a Residual, so that all passes are those of the layers within. Its shortcut depends on the width of what
comes in, which only the shape of the rows tells, and so is a layer of its own (`WidthMatch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sparkdl.initializers import HeNormal, Initializer
from sparkdl.layers.activation import Relu
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.branches import Residual
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.convolution import Conv
from sparkdl.layers.dropout import SpatialDropout
from sparkdl.layers.ragged import Ragged, check_vectors
from sparkdl.specs import check_integers, check_range, is_integer


@dataclass(frozen=True)
class TemporalConvNet(Composite):
    """Residual blocks of two causal convolutions each, with the dilations 1, 2, 4, ... (Bai, Kolter and Koltun 2018).

    From "An empirical evaluation of generic convolutional and recurrent networks for sequence modeling". Block i, with
    conv of dilation 2 ** i, gives::

        activation(h + shortcut(x))   with   h = dropout(activation(conv2(dropout(activation(conv1(x))))))

    The shortcut is x itself, or a convolution of size 1 where x has another number of channels than h. The paper's
    weight normalization is left out: it is a parametrization of the same functions.

    x        Ragged (batch, steps, channels), or such an array     dx  array (batch, steps, channels)     dL/dx
    y        Ragged (batch, steps, filters), or such an array      dy  array (batch, steps, filters)      dL/dy
    weights  {"block_0": {"body": {"conv1": ..., "conv2": ...}, "shortcut": {"match": ...}}, "block_1": ...}

    No step of y depends on a later one of x; see `steps_seen` for how far back it looks.

    Parameters
    ----------
    filters : sequence of int
        Of the convolutions of every block, as many as there are blocks.
    size : int, default 3
        Window of the convolutions.
    dropout : float, default 0
        Rate of the SpatialDropout behind each convolution, which drops channels at all steps of a row alike.
    activation : Layer, default Relu()
        One that keeps the shape of its rows.
    kernel_initializer : Initializer or str
        Of all convolutions.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, LastStep, TemporalConvNet
    >>> blocks = TemporalConvNet([32] * 5, dropout=0.1)
    >>> blocks.steps_seen
    125
    >>> Network([blocks, LastStep(), Dense(6)], input_shape=(None, 9)).output_shape()
    (6,)
    """

    filters: Sequence[int]
    size: int = 3
    dropout: float = 0.0
    activation: Layer = Relu()
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)

    def __post_init__(self) -> None:
        counts = self.filters if isinstance(self.filters, (list, tuple)) else ()
        if not counts or not all(is_integer(count, 1) for count in counts):
            raise ValueError(
                "filters of TemporalConvNet must be a list of positive integers, one for each block, received "
                f"{self.filters!r}."
            )
        check_integers(self, 1, "size")
        if not isinstance(self.activation, Layer):
            raise ValueError(
                f"activation of TemporalConvNet must be a Layer, received {self.activation!r}; write Relu()."
            )
        check_range(self, "[0, 1)", "dropout")
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        super().__post_init__()

    @property
    def steps_seen(self) -> int:
        """Steps of x that a step of y depends on, itself and those before it: 1 + 2 (size - 1) (2 ** blocks - 1)."""
        return 1 + 2 * (self.size - 1) * (2 ** len(self.filters) - 1)

    def shapes(self, input_shape: Any) -> list[Any]:
        """Of a row of x and of what each of the children puts out; see `Composite.shapes`."""
        check_vectors("TemporalConvNet", input_shape)
        return super().shapes(input_shape)

    @cached_property
    def children(self) -> tuple[Child, ...]:
        found: list[Child] = []
        for index, filters in enumerate(self.filters):
            block = Residual(self._body(index), [self._match(filters)], trainable=self.trainable)
            found.append(Child(f"block_{index}", block, (len(found),)))
            found.append(Child(f"activation_{index}", self._activation(), (len(found),)))
        return tuple(found)

    def _body(self, index: int) -> list[Layer]:
        layers: list[Layer] = []
        for number in (1, 2):
            given: dict[str, Any] = {"padding": "causal", "dilation": 2**index, "name": f"conv{number}"}
            layers.append(Conv(self.filters[index], self.size, kernel_initializer=self.kernel_initializer, **given))
            layers.append(self._activation(f"activation{number}"))
            layers += [SpatialDropout(self.dropout)] if self.dropout else []
        return layers

    def _match(self, filters: int) -> Layer:
        return WidthMatch(filters, kernel_initializer=self.kernel_initializer, name="match")

    def _activation(self, name: str | None = None) -> Layer:
        return replace(self.activation, name=name, trainable=self.trainable and self.activation.trainable)

    def _subject(self, index: int) -> str:
        return self.names[index]


@dataclass(frozen=True)
class WidthMatch(Layer):
    """x itself if its steps have as many channels as is asked for, else what a Conv of size 1 makes of it.

    x        Ragged (batch, steps, channels), or such an array     dx  array (batch, steps, channels)     dL/dx
    y        Ragged (batch, steps, filters), or such an array      dy  array (batch, steps, filters)      dL/dy
    weights  none, or kernel (1, channels, filters) and bias (filters,)

    Parameters
    ----------
    filters : int
        Channels of y.
    kernel_initializer : Initializer or str
        Of the convolution.
    """

    filters: int
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        return self._conv.output_shape(input_shape)

    def multiply_adds(self, input_shape: Shape) -> int:
        return 0 if input_shape[-1] == self.filters else self._conv.multiply_adds(input_shape)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {} if input_shape[-1] == self.filters else self._conv.init(key, input_shape)

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {}

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        if weights:
            return self._conv.forward(weights, x)
        return x.cleared() if isinstance(x, Ragged) else x

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        if weights:
            return self._conv.delta(weights, x, y, dy)
        return replace(x, values=dy).cleared().values if isinstance(x, Ragged) else dy

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        return self._conv.gradient(weights, x, y, dy) if weights else {}

    @property
    def _conv(self) -> Conv:
        return Conv(self.filters, 1, kernel_initializer=self.kernel_initializer)
