"""The output by which a network tells usual rows from others after having seen usual ones alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkdl.initializers import GlorotUniform, Initializer, Zeros
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.specs import check_range


@dataclass(frozen=True)
class OneClass(Layer):
    """How far a row is on the usual side of a threshold that is learned with it, for the loss `OneClassHinge`.

    x        (batch, inputs)        dx  (batch, inputs)   dL/dx
    y        (batch, 1)             dy  (batch, 1)        dL/dy
    weights  kernel w (inputs, 1), threshold r (1,); gradients are sums over the batch

    y = x @ w - r. The objective gains l2 / 2 * sum(w * w) - r, so that w seeks the side on which the rows lie, and the
    threshold rises until the share `nu` of them lies below it. Behind nothing but its input that is the linear
    one-class support vector machine (Schölkopf et al. 2001), behind hidden layers the one-class neural network of
    Chalapathy et al. 2018, "Anomaly detection using one-class neural networks", and Deeplearning4j's OCNNOutputLayer.

    Hidden layers that learn with it come to put out the same for all rows, which are then far above the threshold: hold
    them fixed (`trainable=False`), as those of a pretrained network or an encoder, or of random weights.

    Parameters
    ----------
    l2 : float, default 1
        Above 0.
    kernel_initializer : Initializer or str
        An initializer or its name.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, OneClass, Sigmoid
    >>> Network([Dense(64, trainable=False), Sigmoid(), OneClass()], input_shape=(4,)).output_shape()
    (1,)
    """

    each_step = True

    l2: float = field(default=1.0, kw_only=True)
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        check_range(self, "(0, inf)", "l2")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                f"OneClass expects rows of shape (inputs,), received {input_shape}; put Flatten() before it."
            )
        return (1,)

    def multiply_adds(self, input_shape: Shape) -> int:
        return input_shape[0]

    def init(self, key: Array, input_shape: Shape) -> Weights:
        kernel = Initializer.of(self.kernel_initializer).sample(key, (input_shape[0], 1))
        return {"kernel": kernel, "threshold": Zeros().sample(key, (1,))}

    def penalties(self) -> dict[str, tuple[float, float]]:
        return {"kernel": (0.0, self.l2)}

    def penalty(self, weights: Weights) -> Array | float:
        return super().penalty(weights) - weights["threshold"].sum()

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return matmul(x, weights["kernel"]) - weights["threshold"][None]

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return matmul(dy, weights["kernel"].T)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"kernel": transposed_product(x, dy), "threshold": -dy.sum(axis=0)}
