"""A network: layers in a row that know the shape of a row, with a summary, and weights by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from sparkdl.arrays import FEATURES, Parts
from sparkdl.layers.base import Array, Layer, Shape, Weights
from sparkdl.layers.composite import Chain
from sparkdl.specs import FORMAT
from sparkdl.transfer import started_from
from sparkdl.weights import count_weights as count_weights  # where 0.1 had them
from sparkdl.weights import named_arrays as named_arrays
from sparkdl.weights import nested_weights as nested_weights
from sparkdl.weights import updated as updated


@dataclass(frozen=True)
class Network(Chain):
    """A feed-forward network: the output of each layer is the input of the next.

    x        (batch, *input_shape)
    y        (batch, *output) with the last layer's shape; raw scores, since softmax and the like belong to the loss
    weights  {layer name: {weight name: array}} for the layers that have weights

    Parameters
    ----------
    layers : sequence of Layer
        In order from input to output; networks may be among them.
    input_shape : tuple of int
        Shape of one row, (height, width, channels) for images. A network inside another leaves it out.

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

    input_shape: Shape | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_shape is not None:
            if not isinstance(self.input_shape, tuple):
                object.__setattr__(self, "input_shape", (self.input_shape,))
            if not all(isinstance(size, int) and size > 0 for size in self.input_shape or ()):
                raise ValueError(f"input_shape must hold positive integers, received {self.input_shape}.")
            self.shapes(self.input_shape)

    @property
    def inputs(self) -> dict[str, Shape]:
        """Shape of a row of every part of the features that the network reads, by name; here there is one."""
        return {FEATURES: self._input_shape(None)}

    @property
    def integers(self) -> frozenset[str]:
        """Names of the parts that it reads as integers, which no dtype of computation touches."""
        return frozenset(self.inputs if self.takes_integers else ())

    def read(self, features: Parts, dtype: Any) -> Any:
        """x from the named parts of rows: integers as they are, all else in the dtype of computation."""
        (name,) = self.inputs
        return features[name] if name in self.integers else features[name].astype(dtype)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **super().to_json()}

    def output_shape(self, input_shape: Shape | None = None) -> Shape:
        """Shape of one row of y; by default for the network's own `input_shape`."""
        return self.shapes(self._input_shape(input_shape))[-1]

    def multiply_adds(self, input_shape: Shape | None = None) -> int:
        return super().multiply_adds(self._input_shape(input_shape))

    def init(self, key: Array | int, input_shape: Shape | None = None) -> Weights:
        """Fresh weights, each layer's from a key of its own; `key` may be a seed."""
        return super().init(jax.random.key(key) if isinstance(key, int) else key, self._input_shape(input_shape))

    def frozen(self, *names: str, until: str | None = None) -> Network:
        """The same network with some layers' weights held fixed in training; every layer keeps its name.

        Parameters
        ----------
        *names : str
            Layers to freeze, such as "conv_0"; a network within the network is frozen as a whole.
        until : str, optional
            Freeze this layer, too, and all before it.

        Raises
        ------
        ValueError
            There is no such layer, or none is named.
        """
        if not names and until is None:
            raise ValueError('frozen expects names of layers or until=..., received neither; write frozen("conv_0").')
        chosen = {self._position(name) for name in names}
        if until is not None:
            chosen |= set(range(self._position(until) + 1))
        layers = [replace(layer, trainable=False) if i in chosen else layer for i, layer in enumerate(self.layers)]
        return replace(self, layers=layers)

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

    def initialized(self, weights: Weights, seed: int) -> Weights:
        """Fresh weights, but for the layers that `weights` has; see `started_from` of `transfer.py`."""
        return started_from(self.init(seed), weights)

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"The network has no layer {name!r}; its layers are {', '.join(self.names)}.")
        return self.names.index(name)

    def summary(self) -> str:
        """A table of the layers: output shape, number of weights and multiply-adds for one row."""
        shapes = self.shapes(self._input_shape(None))
        counts = {name: count_weights(weights) for name, weights in self.abstract_weights().items()}
        rows = [("", "layer", "output shape", "weights", "multiply-adds")]
        rows.append(("", "input", str(shapes[0]), "", ""))
        for index, (name, layer) in enumerate(zip(self.names, self.layers, strict=True)):
            label = f"{name}: {layer!r}" if layer.name else repr(layer)
            operations = layer.multiply_adds(shapes[index])
            rows.append((str(index), label, str(shapes[index + 1]), f"{counts.get(name, 0):,}", f"{operations:,}"))
        rows.append(("", "total", "", f"{sum(counts.values()):,}", f"{self.multiply_adds():,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            "  ".join(
                cell.rjust(width) if column in (0, 3, 4) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        rule = "-" * max(len(line) for line in lines)
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])

    def check_weights(self, weights: Weights) -> None:
        """ValueError naming the first array that is missing, unknown or of another shape than this network's."""
        expected = dict(named_arrays(self.abstract_weights()))
        received = dict(named_arrays(weights))
        for name in sorted(expected.keys() | received.keys()):
            want, have = (str(part[name].shape) if name in part else "nothing" for part in (expected, received))
            if want != have:
                raise ValueError(f"Weight {name!r}: the network has {want} there, the given weights have {have}.")

    def abstract_weights(self) -> Weights:
        """Shapes and dtypes in the structure of `init`, without computing anything."""
        return jax.eval_shape(lambda key: self.init(key), jax.ShapeDtypeStruct((2,), "uint32"))

    def _input_shape(self, given: Shape | None) -> Shape:
        shape = self.input_shape if given is None else given
        if shape is None:
            raise ValueError("input_shape of Network is not set; write Network(layers, input_shape=...).")
        return shape
