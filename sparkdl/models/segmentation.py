"""Networks that give every position of an image a class."""

from __future__ import annotations

from typing import Any

from sparkdl.graph import Graph
from sparkdl.layers import Concatenate, Conv, ConvTranspose, Crop, Layer, MaxPool, Relu
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network


@pretrainable
def unet(
    input_shape: Shape = (256, 256, 1), classes: int = 2, filters: int = 64, depth: int = 4, padding: str = "same"
) -> Graph:
    """U-Net (Ronneberger et al. 2015): 31,030,658 weights for one channel and two classes.

    Each level down halves the positions and doubles the filters; each level up has a transposed convolution, whose
    output is joined to what came down there. Rows come out as (height, width, classes), for a loss `EachPosition`.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image; with "same", height and width are multiples of 2 ** depth.
    classes : int
        A position's outputs.
    filters : int, default 64
        Of the first level.
    depth : int, default 4
        Levels below it.
    padding : {"same", "valid"}, default "same"
        "valid" is the paper's: less comes out than went in, 388 x 388 of 572 x 572.
    """
    nodes: dict[str, Any] = {"down_0": (_twice(filters, padding), "image")}
    for level in range(1, depth + 1):
        pooled = Network([MaxPool(2), *_twice(filters * 2**level, padding).layers])
        nodes[f"down_{level}"] = (pooled, f"down_{level - 1}")
    shapes = Graph({"image": input_shape}, nodes, f"down_{depth}").shapes(input_shape)[1:]
    below = f"down_{depth}"
    height, width, _ = shapes[-1]
    for level in reversed(range(depth)):
        height, width = 2 * height, 2 * width
        beside = f"down_{level}"
        spare = shapes[level][0] - height, shapes[level][1] - width
        if any(spare) and padding == "valid":
            nodes[f"cut_{level}"] = (Crop(tuple((left // 2, left - left // 2) for left in spare)), beside)
            beside = f"cut_{level}"
        nodes[f"larger_{level}"] = (ConvTranspose(filters * 2**level, (2, 2), 2), below)
        nodes[f"both_{level}"] = (Concatenate(), beside, f"larger_{level}")
        below = f"up_{level}"
        nodes[below] = (_twice(filters * 2**level, padding), f"both_{level}")
        if padding == "valid":
            height, width = height - 4, width - 4
    nodes["classes"] = (Conv(classes, (1, 1)), below)
    return Graph({"image": input_shape}, nodes, "classes")


def _twice(filters: int, padding: str) -> Network:
    layers: list[Layer] = []
    for _ in range(2):
        layers += [Conv(filters, (3, 3), padding=padding), Relu()]
    return Network(layers)
