"""SqueezeNet (Iandola et al. 2016): few weights, as each block squeezes channels first."""

from __future__ import annotations

from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import Conv, Dropout, GlobalAvgPool, Layer, MaxPool, Parallel, Relu
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

# Channels that a block squeezes to, and that each of its two convolutions expands to, between the pools; version 1.1.
STAGES = (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256)))


@pretrainable
def squeezenet(input_shape: Shape = (224, 224, 3), classes: int = 1000, dropout: float = 0.5) -> Network:
    """SqueezeNet 1.1: 1,235,496 weights for 1000 classes, as torchvision's; it has no dense layer.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image.
    classes : int
    dropout : float, default 0.5
        Rate before the last convolution.
    """
    network = Network([Conv(64, (3, 3), 2, name="conv1"), Relu()], input_shape=input_shape)
    number = 2
    for stage in STAGES:
        height, width, _ = network.output_shape()
        edges = ((0, _left_over(height)), (0, _left_over(width)))
        layers: list[Layer] = [*network.layers, MaxPool(3, 2, edges)]
        for squeezed, expanded in stage:
            layers.append(_fire(squeezed, expanded, f"fire{number}"))
            number += 1
        network = Network(layers, input_shape=input_shape)
    last = Conv(classes, (1, 1), kernel_initializer=TruncatedNormal(0.01), name="conv10")
    return Network([*network.layers, Dropout(dropout), last, Relu(), GlobalAvgPool()], input_shape=input_shape)


def _left_over(positions: int) -> int:
    """How many positions to add so that pools by 3 at every other one leave none out (PyTorch's ceil_mode)."""
    return max(3 - positions, (positions - 3) % 2)


def _fire(squeezed: int, expanded: int, name: str) -> Layer:
    expand = [
        Network([Conv(expanded, (size, size), padding="same", name="conv"), Relu()], name=f"expand{size}x{size}")
        for size in (1, 3)
    ]
    return Network([Conv(squeezed, (1, 1), name="squeeze"), Relu(), Parallel(expand, name="expand")], name=name)
