"""ResNet-18 and ResNet-50 of sparkdl's layers, with the residual connection that sparkdl itself does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from sparkdl.layers import BatchNorm, Context, Conv, Dense, GlobalAvgPool, Layer, MaxPool, Relu, jitted
from sparkdl.layers.base import Array, Shape, Weights
from sparkdl.network import Network


@dataclass(frozen=True)
class Residual(Layer):
    """y = body(x) + shortcut(x) (He et al. 2016, "Deep residual learning for image recognition").

    x        (batch, *input_shape)     dx  (batch, *input_shape)   dL/dx
    y        (batch, *output_shape)    dy  (batch, *output_shape)  dL/dy
    weights  {"body": ..., "shortcut": ...}, each that network's own

    Parameters
    ----------
    body : Network
    shortcut : Network, optional
        What x goes through where the body changes its shape; by default nothing.
    """

    body: Network
    shortcut: Network | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, branch in (("body", self.body), ("shortcut", self.shortcut)):
            if not isinstance(branch, Network) and (name == "body" or branch is not None):
                raise ValueError(f"{name} of Residual must be a Network, received {branch!r}; write Network([...]).")
            if branch is not None and not self.trainable:
                object.__setattr__(self, name, replace(branch, trainable=False))

    def output_shape(self, input_shape: Shape) -> Shape:
        shape = self.body.output_shape(input_shape)
        beside = input_shape if self.shortcut is None else self.shortcut.output_shape(input_shape)
        if shape != beside:
            raise ValueError(
                f"body and shortcut of Residual must give rows of one shape, received {shape} and {beside}; "
                "give it a shortcut that ends in the body's shape."
            )
        return shape

    def multiply_adds(self, input_shape: Shape) -> int:
        return sum(branch.multiply_adds(input_shape) for branch in self._branches.values())

    def init(self, key: Array, input_shape: Shape) -> Weights:
        own = {
            name: branch.init(jax.random.fold_in(key, index), input_shape)
            for index, (name, branch) in enumerate(self._branches.items())
        }
        return {name: weights for name, weights in own.items() if weights}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        y = x if self.shortcut is None else self.shortcut.forward(weights.get("shortcut", {}), x)
        return self.body.forward(weights.get("body", {}), x) + y

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Any]:
        kept = {
            name: branch.train_forward(weights.get(name, {}), x, context.at(index))
            for index, (name, branch) in enumerate(self._branches.items())
        }
        beside = x if self.shortcut is None else kept["shortcut"][0]
        return kept["body"][0] + beside, kept

    def train_backward(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Array | None, Weights]:
        deltas, gradient = [dy] if self.shortcut is None else [], {}
        for index, (name, branch) in enumerate(self._branches.items()):
            own_y, own_kept = kept[name]
            delta, own = branch.train_backward(
                weights.get(name, {}), x, own_y, dy, own_kept, context.at(index), wants_delta
            )
            deltas.append(delta)
            if own:
                gradient[name] = own
        return sum(deltas[1:], deltas[0]) if wants_delta else None, gradient

    def learned(self, weights: Weights) -> Weights:
        own = {name: branch.learned(weights.get(name, {})) for name, branch in self._branches.items()}
        return {name: part for name, part in own.items() if part}

    def penalty(self, weights: Weights) -> Array | float:
        return sum(branch.penalty(weights.get(name, {})) for name, branch in self._branches.items())

    def new_statistics(self, weights: Weights, kept: Any) -> Weights:
        own = {
            name: branch.new_statistics(weights.get(name, {}), kept[name][1]) for name, branch in self._branches.items()
        }
        return {name: values for name, values in own.items() if values}

    @property
    def _branches(self) -> dict[str, Network]:
        return {"body": self.body} | ({} if self.shortcut is None else {"shortcut": self.shortcut})


def _conv(filters: int, size: int, stride: int = 1) -> list[Layer]:
    """A convolution that keeps height and width but for its stride, and its batch normalization."""
    padding = ((size // 2, size // 2),) * 2
    return [Conv(filters, (size, size), stride, padding, bias=False), BatchNorm()]


def basic_block(filters: int, stride: int) -> tuple[Network, int]:
    """Two 3x3 convolutions to `filters`, and the channels they end in."""
    return Network([*_conv(filters, 3, stride), Relu(), *_conv(filters, 3)]), filters


def bottleneck(filters: int, stride: int) -> tuple[Network, int]:
    """1x1, 3x3 and 1x1 convolutions, and the channels they end in; the stride is on the 3x3, which is called v1.5."""
    layers = [*_conv(filters, 1), Relu(), *_conv(filters, 3, stride), Relu(), *_conv(4 * filters, 1)]
    return Network(layers), 4 * filters


def resnet(
    block: Callable[[int, int], tuple[Network, int]], repeats: Sequence[int], image: int, classes: int
) -> Network:
    """A residual network for images.

    Parameters
    ----------
    block : basic_block or bottleneck
    repeats : sequence of int
        Blocks of each stage; stage i has 64 * 2**i filters, and all but the first begin with a stride of 2.
    image, classes : int
        Height and width of the three-channel images; outputs.

    Returns
    -------
    Network
        Of rows (image, image, 3), ending in raw scores (classes,).
    """
    layers: list[Layer] = [*_conv(64, 7, 2), Relu(), MaxPool(3, 2, padding=((1, 1), (1, 1)))]
    channels = 64
    for stage, blocks in enumerate(repeats):
        for index in range(blocks):
            stride = 2 if stage and not index else 1
            body, outputs = block(64 * 2**stage, stride)
            fits = stride == 1 and channels == outputs
            layers += [Residual(body, None if fits else Network(_conv(outputs, 1, stride))), Relu()]
            channels = outputs
    return Network([*layers, GlobalAvgPool(), Dense(classes)], input_shape=(image, image, 3))


def resnet18(image: int = 224, classes: int = 1000) -> Network:
    """ResNet-18: 11.7 million weights, 1.8 billion multiply-adds an image of 224 x 224."""
    return resnet(basic_block, (2, 2, 2, 2), image, classes)


def resnet50(image: int = 224, classes: int = 1000) -> Network:
    """ResNet-50 v1.5: 25.6 million weights, 4.1 billion multiply-adds an image of 224 x 224."""
    return resnet(bottleneck, (3, 4, 6, 3), image, classes)
