"""A network: layers in a row that know the shape of a row, with a summary, and weights by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkdl.arrays import FEATURES, LABEL
from sparkdl.base_network import BaseNetwork as BaseNetwork
from sparkdl.graph import Graph as Graph  # so that JSON finds all networks wherever one kind is known
from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.chain import Chain, described
from sparkdl.layers.ragged import is_row_shape
from sparkdl.weights import count_weights as count_weights  # where 0.1 had them
from sparkdl.weights import named_arrays as named_arrays
from sparkdl.weights import nested_weights as nested_weights
from sparkdl.weights import updated as updated


@dataclass(frozen=True)
class Network(Chain, BaseNetwork):
    """A feed-forward network: the output of each layer is the input of the next.

    x        (batch, *input_shape)
    y        (batch, *output) with the last layer's shape; raw scores, since softmax and the like belong to the loss
    weights  {layer name: {weight name: array}} for the layers that have weights

    Parameters
    ----------
    layers : sequence of Layer
        In order from input to output; networks may be among them.
    input_shape : tuple of int
        Shape of one row, (height, width, channels) for images, (None,) for rows of any length. A network inside another
        leaves it out.

    Raises
    ------
    ValueError
        The layers do not fit each other; the message names the layer by position and type.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, Relu
    >>> network = Network([Dense(16), Relu(), Dense(3)], input_shape=(4,))
    >>> network.output_shape()
    (3,)
    """

    input_shape: tuple[Any, ...] | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_shape is not None:
            if not isinstance(self.input_shape, tuple):
                object.__setattr__(self, "input_shape", (self.input_shape,))
            if not is_row_shape(self.input_shape):
                raise ValueError(
                    f"input_shape must hold positive integers, received {self.input_shape}; only the first may be "
                    "None, which is any length."
                )
            self.shapes(self.input_shape)

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Shape of a row of the only part of the features."""
        if self.input_shape is None:
            raise ValueError("input_shape of Network is not set; write Network(layers, input_shape=...).")
        return {FEATURES: self.input_shape}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the only output."""
        return (LABEL,)

    def up_to(self, name: str) -> Network:
        """The layers through `name`, as a network of their own that makes features of the same rows.

        Raises
        ------
        ValueError
            There is no such layer.
        """
        return replace(self, layers=self.layers[: self._position(name) + 1])

    def with_head(self, layers: Sequence[Layer], after: str) -> Network:
        """The layers through `after`, which keep their names and so their weights, then new ones.

        Parameters
        ----------
        layers : sequence of Layer
            The new ones. One with weights needs a `name` where its position would give it that of a layer it replaces.
        after : str
            The last layer to keep.

        Raises
        ------
        ValueError
            There is no such layer, the new ones do not fit it, or one would take the weights of a layer it replaces.
        """
        if not isinstance(layers, (list, tuple)):
            raise ValueError(
                f"layers of with_head must be a list of layers, received {layers!r}; write [...] around it."
            )
        kept = self._position(after) + 1
        changed = replace(self, layers=[*self.layers[:kept], *layers], trainable=True)
        replaced = self.abstract_weights().keys() & changed.abstract_weights().keys() - set(self.names[:kept])
        for name, layer in zip(changed.names[kept:], layers, strict=True):
            if layer.name is None and name in replaced:
                kind = type(layer).__name__
                raise ValueError(
                    f"The new {kind} would be called {name!r}, as a layer that it replaces is, and so take its "
                    f"weights; give it a name of its own, as in {kind}(..., name='head')."
                )
        return changed

    def summary(self) -> str:
        labels = [f"{layer.name}: {described(layer)}" if layer.name else described(layer) for layer in self.layers]
        before = ("", "input", str(self.row_shape(None)), "", "")
        return self._summary(("layer",), [before], [(label,) for label in labels])

    def _position(self, name: str) -> int:
        self._needed([name])
        return self.names.index(name)
