"""Residual networks for images (He et al. 2016, "Deep residual learning for image recognition")."""

from __future__ import annotations

from collections.abc import Sequence

from sparkdl.layers import BatchNorm, Conv, Dense, GlobalAvgPool, Layer, MaxPool, Relu, Residual
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

SMALL = 64  # height or width up to which images get the stem that does not shrink them


@pretrainable
def resnet18(input_shape: Shape = (224, 224, 3), classes: int = 1000, small: bool | None = None) -> Network:
    """ResNet-18: 11,689,512 weights for 1000 classes, as torchvision's; see `resnet`."""
    return resnet(input_shape, classes, (2, 2, 2, 2), small=small)


@pretrainable
def resnet34(input_shape: Shape = (224, 224, 3), classes: int = 1000, small: bool | None = None) -> Network:
    """ResNet-34: 21,797,672 weights for 1000 classes, as torchvision's; see `resnet`."""
    return resnet(input_shape, classes, (3, 4, 6, 3), small=small)


@pretrainable
def resnet50(input_shape: Shape = (224, 224, 3), classes: int = 1000, small: bool | None = None) -> Network:
    """ResNet-50: 25,557,032 weights for 1000 classes, as torchvision's; see `resnet`."""
    return resnet(input_shape, classes, (3, 4, 6, 3), bottleneck=True, small=small)


@pretrainable
def resnet(
    input_shape: Shape,
    classes: int,
    blocks: Sequence[int],
    filters: int = 64,
    bottleneck: bool = False,
    small: bool | None = None,
) -> Network:
    """A residual network, which ends in unnormalised log-probabilities of classes.

    Its layers are named as torchvision's, with "_" for ".". A block of two convolutions strides in its first; one of
    three, a bottleneck, in its second, as torchvision has it.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image.
    classes : int
    blocks : sequence of int
        Blocks of every stage; a stage after the first halves height and width, and doubles the filters.
    filters : int, default 64
        Of the first stage.
    bottleneck : bool, default False
        Whether a block convolves by 1, 3 and 1 instead of by 3 and 3, and puts out four times the filters.
    small : bool, optional
        Whether the stem is one convolution by 3, as for CIFAR, in place of one by 7 and a pool that leave a sixteenth
        of the positions; by default for images of up to 64 x 64.
    """
    small = max(input_shape[:2]) <= SMALL if small is None else small
    layers: list[Layer]
    if small:
        layers = [_conv(filters, 3, name="conv1"), BatchNorm(name="bn1"), Relu(name="relu")]
    else:
        layers = [_conv(filters, 7, 2, name="conv1"), BatchNorm(name="bn1"), Relu(name="relu")]
        layers += [MaxPool((3, 3), 2, ((1, 1), (1, 1)), name="maxpool")]
    channels = filters
    for stage, count in enumerate(blocks, start=1):
        width = filters * 2 ** (stage - 1)
        for index in range(count):
            strides = 2 if stage > 1 and index == 0 else 1
            wide = 4 * width if bottleneck else width
            body = _bottleneck(width, strides) if bottleneck else _basic(width, strides)
            shortcut: list[Layer] = []
            if strides > 1 or channels != wide:
                shortcut = [_conv(wide, 1, strides, name="downsample_0"), BatchNorm(name="downsample_1")]
            layers += [Residual(body, shortcut, name=f"layer{stage}_{index}"), Relu()]
            channels = wide
    return Network([*layers, GlobalAvgPool(name="avgpool"), Dense(classes, name="fc")], input_shape=input_shape)


def _basic(width: int, strides: int) -> list[Layer]:
    first = [_conv(width, 3, strides, name="conv1"), BatchNorm(name="bn1"), Relu()]
    return [*first, _conv(width, 3, name="conv2"), BatchNorm(name="bn2")]


def _bottleneck(width: int, strides: int) -> list[Layer]:
    first = [_conv(width, 1, name="conv1"), BatchNorm(name="bn1"), Relu()]
    second = [_conv(width, 3, strides, name="conv2"), BatchNorm(name="bn2"), Relu()]
    return [*first, *second, _conv(4 * width, 1, name="conv3"), BatchNorm(name="bn3")]


def _conv(filters: int, size: int, strides: int = 1, name: str | None = None) -> Conv:
    """Without a bias, which the normalization behind it has; padded alike on both sides, as in PyTorch."""
    edge = (size // 2, size // 2)
    return Conv(filters, (size, size), strides, (edge, edge), bias=False, name=name)
