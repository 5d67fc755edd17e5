"""The way out of a language model: scores of categories by the table of vectors that they came in by."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkdl.initializers import Initializer, TruncatedNormal
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import check_channels
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class TiedDense(Layer):
    """y = x @ table.T, of the table of an Embedding before it in the network, which learns from both uses.

    From Press and Wolf 2017, "Using the output embedding to improve language models".

    x        (batch, ..., size)      dx  (batch, ..., size)    dL/dx
    y        (batch, ..., units)     dy  (batch, ..., units)   dL/dy
    weights  table (units, size): in a network that of the other layer, under its name

    Parameters
    ----------
    units : int
        Rows of the table, one more than the Embedding's with `unknown`.
    to : str
        Name of the Embedding: a layer before this one in a Network, or a node above it in a Graph.
    initializer : Initializer or str, default TruncatedNormal(0.05)
        Of a table of its own, which it has outside of a network.

    Notes
    -----
    There is no bias; `Shift(0, per_channel=True)` behind it is one. With `trainable=False` the table does not learn
    from this use.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Embedding, Lstm, TiedDense
    >>> layers = [Embedding(100, 8, name="words"), Lstm(8), TiedDense(100, to="words")]
    >>> network = Network(layers, input_shape=(None,))
    >>> network.output_shape(), sorted(network.abstract_weights())
    ((None, 100), ['lstm_1', 'words'])
    """

    each_step = True

    units: int
    to: str
    initializer: Initializer | str = field(default=TruncatedNormal(0.05), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "initializer", Initializer.of(self.initializer))
        check_integers(self, 1, "units")
        if not isinstance(self.to, str) or not self.to:
            raise ValueError(f"to of TiedDense must be the name of an Embedding, received {self.to!r}.")

    @property
    def shares(self) -> str:
        return self.to

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*check_channels(self, input_shape)[:-1], self.units)

    def multiply_adds(self, input_shape: Shape) -> int:
        numbers = self.units
        for size in input_shape:
            numbers *= size or 1
        return numbers

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"table": Initializer.of(self.initializer).sample(key, (self.units, input_shape[-1]))}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return matmul(x, weights["table"].T)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return matmul(dy, weights["table"])

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"table": transposed_product(dy.reshape(-1, self.units), x.reshape(-1, x.shape[-1]))}
