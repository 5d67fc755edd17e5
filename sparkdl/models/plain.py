"""Convolutional networks without branches, from LeNet to VGG."""

from __future__ import annotations

from collections.abc import Sequence

from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import (
    AvgPool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    LocalResponseNorm,
    MaxPool,
    Relu,
    Tanh,
)
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network


@pretrainable
def lenet(input_shape: Shape = (32, 32, 1), classes: int = 10) -> Network:
    """LeNet-5 as it is taught: 61,706 weights for images of 32 x 32 (LeCun et al. 1998, with all maps connected).

    Images of 28 x 28 keep their edges in the first convolution, which comes to the same shapes.
    """
    padding = "same" if max(input_shape[:2]) < 32 else "valid"
    layers: list[Layer] = [Conv(6, (5, 5), padding=padding), Tanh(), AvgPool(2)]
    layers += [Conv(16, (5, 5)), Tanh(), AvgPool(2), Flatten()]
    return Network([*layers, Dense(120), Tanh(), Dense(84), Tanh(), Dense(classes)], input_shape=input_shape)


@pretrainable
def cifar10_tutorial(input_shape: Shape = (24, 24, 3), classes: int = 10) -> Network:
    """The network of TensorFlow's CIFAR-10 tutorial of 2015, on which the paper behind sparkdl measured.

    Two convolutions by 5 with 64 filters, each pooled and normalized over neighbouring channels, and two dense layers:
    1,068,298 weights for images of 24 x 24. Dense kernels decay by 0.004.
    """

    def norm() -> Layer:
        return LocalResponseNorm(4, bias=1.0, alpha=0.001 / 9, beta=0.75)

    def conv(deviation: float) -> Layer:
        return Conv(64, (5, 5), padding="same", kernel_initializer=TruncatedNormal(deviation))

    def dense(units: int) -> Layer:
        return Dense(units, kernel_initializer=TruncatedNormal(0.04), l2=0.004)

    layers = [conv(0.05), Relu(), MaxPool(3, 2, "same"), norm(), conv(0.05), Relu(), norm(), MaxPool(3, 2, "same")]
    layers += [Flatten(), dense(384), Relu(), dense(192), Relu()]
    last = Dense(classes, kernel_initializer=TruncatedNormal(1 / 192))
    return Network([*layers, last], input_shape=input_shape)


@pretrainable
def alexnet(input_shape: Shape = (224, 224, 3), classes: int = 1000, dropout: float = 0.5) -> Network:
    """AlexNet with one group, as torchvision has it: 61,100,840 weights for 1000 classes (Krizhevsky 2014)."""
    layers: list[Layer] = [_conv(64, 11, 2, strides=4), Relu(), MaxPool(3, 2), _conv(192, 5, 2), Relu(), MaxPool(3, 2)]
    for filters in (384, 256, 256):
        layers += [_conv(filters, 3, 1), Relu()]
    layers += [MaxPool(3, 2), Flatten()]
    for _ in range(2):
        layers += [Dropout(dropout), Dense(4096), Relu()]
    return Network([*layers, Dense(classes)], input_shape=input_shape)


@pretrainable
def vgg16(input_shape: Shape = (224, 224, 3), classes: int = 1000, dropout: float = 0.5) -> Network:
    """VGG-16: 138,357,544 weights for 1000 classes (Simonyan and Zisserman 2015, configuration D)."""
    return _vgg((2, 2, 3, 3, 3), input_shape, classes, dropout)


@pretrainable
def vgg19(input_shape: Shape = (224, 224, 3), classes: int = 1000, dropout: float = 0.5) -> Network:
    """VGG-19: 143,667,240 weights for 1000 classes (Simonyan and Zisserman 2015, configuration E)."""
    return _vgg((2, 2, 4, 4, 4), input_shape, classes, dropout)


def _vgg(convolutions: Sequence[int], input_shape: Shape, classes: int, dropout: float) -> Network:
    """Of so many convolutions before each pool."""
    layers: list[Layer] = []
    for filters, count in zip((64, 128, 256, 512, 512), convolutions, strict=True):
        for _ in range(count):
            layers += [_conv(filters, 3, 1), Relu()]
        layers.append(MaxPool(2))
    layers.append(Flatten())
    for _ in range(2):
        layers += [Dense(4096), Relu(), Dropout(dropout)]
    return Network([*layers, Dense(classes)], input_shape=input_shape)


def _conv(filters: int, size: int, edge: int, strides: int = 1) -> Layer:
    return Conv(filters, (size, size), strides, ((edge, edge), (edge, edge)))
