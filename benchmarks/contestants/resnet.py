"""ResNet-18 and ResNet-50 of sparkdl's layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdl.layers import BatchNorm, Conv, Dense, GlobalAvgPool, Layer, MaxPool, Relu, Residual
from sparkdl.network import Network


def _conv(filters: int, size: int, stride: int = 1) -> list[Layer]:
    """A convolution that keeps height and width but for its stride, and its batch normalization."""
    padding = ((size // 2, size // 2),) * 2
    return [Conv(filters, (size, size), stride, padding, bias=False), BatchNorm()]


def basic_block(filters: int, stride: int) -> tuple[list[Layer], int]:
    """Two 3x3 convolutions to `filters`, and the channels they end in."""
    return [*_conv(filters, 3, stride), Relu(), *_conv(filters, 3)], filters


def bottleneck(filters: int, stride: int) -> tuple[list[Layer], int]:
    """1x1, 3x3 and 1x1 convolutions, and the channels they end in; the stride is on the 3x3, which is called v1.5."""
    layers = [*_conv(filters, 1), Relu(), *_conv(filters, 3, stride), Relu(), *_conv(4 * filters, 1)]
    return layers, 4 * filters


def resnet(
    block: Callable[[int, int], tuple[list[Layer], int]], repeats: Sequence[int], image: int, classes: int
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
            layers += [Residual(body, () if fits else _conv(outputs, 1, stride)), Relu()]
            channels = outputs
    return Network([*layers, GlobalAvgPool(), Dense(classes)], input_shape=(image, image, 3))


def resnet18(image: int = 224, classes: int = 1000) -> Network:
    """ResNet-18: 11.7 million weights, 1.8 billion multiply-adds an image of 224 x 224."""
    return resnet(basic_block, (2, 2, 2, 2), image, classes)


def resnet50(image: int = 224, classes: int = 1000) -> Network:
    """ResNet-50 v1.5: 25.6 million weights, 4.1 billion multiply-adds an image of 224 x 224."""
    return resnet(bottleneck, (3, 4, 6, 3), image, classes)
