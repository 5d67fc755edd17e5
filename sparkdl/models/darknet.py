"""Darknet-19 and the detectors on it (Redmon and Farhadi 2017): objects of images by one pass, for the loss `Yolo`."""

from __future__ import annotations

from sparkdl.boxes import LABEL
from sparkdl.graph import Graph
from sparkdl.layers import (
    BatchNorm,
    Concatenate,
    Conv,
    GlobalAvgPool,
    Layer,
    LeakyRelu,
    MaxPool,
    SpaceToDepth,
)
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

# Filters and kernel sizes of the convolutions of every stage; a pool goes before each but the first. Table 6.
STAGES = (
    ((32, 3),),
    ((64, 3),),
    ((128, 3), (64, 1), (128, 3)),
    ((256, 3), (128, 1), (256, 3)),
    ((512, 3), (256, 1), (512, 3), (256, 1), (512, 3)),
    ((1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3)),
)
TINY = (16, 32, 64, 128, 256, 512)


@pretrainable
def darknet19(input_shape: Shape = (224, 224, 3), classes: int = 1000, width: float = 1.0) -> Network:
    """Darknet-19: 20,842,376 weights for 1000 classes; it has no dense layer.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image.
    classes : int
    width : float, default 1
        Factor on the filters of every layer but the last.
    """
    layers = [layer for number in range(len(STAGES)) for layer in _stage(number, width)]
    return Network([*layers, Conv(classes, (1, 1)), GlobalAvgPool()], input_shape=input_shape)


@pretrainable
def tiny_yolo(input_shape: Shape = (416, 416, 3), classes: int = 20, anchors: int = 5, width: float = 1.0) -> Network:
    """Tiny YOLO: 15,861,773 weights for 20 classes, and a cell of its output for every 32 positions of the image.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image; multiples of 32.
    classes, anchors : int
        It ends in (height / 32, width / 32, anchors * (5 + classes)), as the loss `Yolo` of so many anchors takes them.
    width : float, default 1
        Factor on the filters of every layer but the last.
    """
    _check(input_shape)
    layers: list[Layer] = []
    for number, filters in enumerate(TINY):
        layers += [*_convolution(filters, 3, width), MaxPool(2, 2 if number < len(TINY) - 1 else 1, "same")]
    layers += [*_convolution(1024, 3, width), *_convolution(1024, 3, width), Conv(anchors * (LABEL + classes), (1, 1))]
    return Network(layers, input_shape=input_shape)


@pretrainable
def yolo2(input_shape: Shape = (416, 416, 3), classes: int = 80, anchors: int = 5, width: float = 1.0) -> Graph:
    """YOLOv2: 50,962,889 weights for 80 classes: Darknet-19, three convolutions, and what its last but one stage saw.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image; multiples of 32.
    classes, anchors : int
        It ends in (height / 32, width / 32, anchors * (5 + classes)), as the loss `Yolo` of so many anchors takes them.
    width : float, default 1
        Factor on the filters of every layer but the last.
    """
    _check(input_shape)
    fine = [layer for number in range(len(STAGES) - 1) for layer in _stage(number, width)]
    coarse = [*_stage(len(STAGES) - 1, width), *_convolution(1024, 3, width), *_convolution(1024, 3, width)]
    return Graph(
        inputs={"image": input_shape},
        nodes={
            "fine": (Network(fine), "image"),
            "coarse": (Network(coarse), "fine"),
            "passed": (Network([*_convolution(64, 1, width), SpaceToDepth(2)]), "fine"),
            "both": (Concatenate(), "passed", "coarse"),
            "boxes": (Network([*_convolution(1024, 3, width), Conv(anchors * (LABEL + classes), (1, 1))]), "both"),
        },
        outputs=("boxes",),
    )


def _check(input_shape: Shape) -> None:
    if len(input_shape) != 3 or any(not side or side % 32 for side in input_shape[:2]):
        raise ValueError(
            f"input_shape must be (height, width, channels), the first two multiples of 32, received {input_shape}; "
            "resize images."
        )


def _stage(number: int, width: float) -> list[Layer]:
    pool: list[Layer] = [MaxPool(2)] if number else []
    return pool + [layer for filters, size in STAGES[number] for layer in _convolution(filters, size, width)]


def _convolution(filters: int, size: int, width: float) -> list[Layer]:
    filters = max(1, round(filters * width))
    return [Conv(filters, (size, size), padding="same", bias=False), BatchNorm(), LeakyRelu(0.1)]
