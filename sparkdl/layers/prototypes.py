"""How near rows are to learned centers, as of classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkdl.initializers import Initializer, Zeros
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class Prototypes(Layer):
    """How near flat rows are to learned centers, -sum((x - center) ** 2): the larger, the nearer.

    Those of classes are raw scores of a classifier, whose softmax is that of prototypical networks (Snell et al. 2017);
    with the loss `LabelledOutput` they make center loss (Wen et al. 2016).

    x        (batch, features)            dx  (batch, features)   dL/dx
    y        (batch, units)               dy  (batch, units)      dL/dy
    weights  centers (units, features); gradients are sums over the batch

    Parameters
    ----------
    units : int
        Number of centers.
    center_initializer : Initializer or str, default Zeros()
        Where centers begin.
    """

    each_step = True

    units: int
    center_initializer: Initializer | str = field(default=Zeros(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "center_initializer", Initializer.of(self.center_initializer))
        check_integers(self, 1, "units")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                f"Prototypes expects rows of shape (features,), received {input_shape}; put Flatten() before it."
            )
        return (self.units,)

    def multiply_adds(self, input_shape: Shape) -> int:
        return input_shape[0] * self.units

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"centers": Initializer.of(self.center_initializer).sample(key, (self.units, input_shape[0]))}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        """By differences: |x|^2 - 2 x.c + |c|^2 would lose the digits of a distance that is small beside |x|."""
        return -((x[:, None] - weights["centers"][None]) ** 2).sum(axis=2)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        """By a product, which is faster and loses no more digits than x and centers were rounded by."""
        return 2 * (matmul(dy, weights["centers"]) - dy.sum(axis=1, keepdims=True) * x)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"centers": 2 * (transposed_product(dy, x) - dy.sum(axis=0)[:, None] * weights["centers"])}
