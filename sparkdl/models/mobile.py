"""MobileNetV2 (Sandler et al. 2018): blocks that are narrow at their ends and convolve each channel by itself."""

from __future__ import annotations

from sparkdl.layers import (
    BatchNorm,
    Conv,
    Dense,
    DepthwiseConv,
    Dropout,
    GlobalAvgPool,
    Layer,
    Relu6,
    Residual,
)
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

# Expansion, filters, blocks and strides of the first block of every stage; table 2 of the paper.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@pretrainable
def mobilenet_v2(
    input_shape: Shape = (224, 224, 3), classes: int = 1000, width: float = 1.0, dropout: float = 0.2
) -> Network:
    """MobileNetV2: 3,504,872 weights for 1000 classes, as torchvision's.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image.
    classes : int
    width : float, default 1
        Factor on the filters of every layer, which are rounded to multiples of 8.
    dropout : float, default 0.2
        Rate before the last layer.
    """
    channels = _rounded(32 * width)
    layers: list[Layer] = [*_normalized(Conv(channels, (3, 3), 2, EDGES, bias=False))]
    for expansion, filters, blocks, strides in STAGES:
        filters = _rounded(filters * width)
        for index in range(blocks):
            stride = strides if index == 0 else 1
            body = [] if expansion == 1 else _normalized(Conv(expansion * channels, (1, 1), bias=False))
            body += _normalized(DepthwiseConv((3, 3), stride, EDGES, bias=False))
            body += [Conv(filters, (1, 1), bias=False), BatchNorm()]
            layers += [Residual(body)] if stride == 1 and channels == filters else body
            channels = filters
    layers += _normalized(Conv(_rounded(1280 * max(1.0, width)), (1, 1), bias=False))
    return Network([*layers, GlobalAvgPool(), Dropout(dropout), Dense(classes)], input_shape=input_shape)


EDGES = ((1, 1), (1, 1))


def _normalized(layer: Layer) -> list[Layer]:
    return [layer, BatchNorm(), Relu6()]


def _rounded(filters: float) -> int:
    """The nearest multiple of 8, but no less than 0.9 of it."""
    found = max(8, int(filters + 4) // 8 * 8)
    return found + 8 if found < 0.9 * filters else found
