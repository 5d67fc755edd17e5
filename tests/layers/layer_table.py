"""The layers that test_layers.py proves: a new layer is a new row here."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkdl.layers.base import Layer
from sparkdl.layers.convolution import Conv
from sparkdl.layers.dense import Dense
from sparkdl.layers.norm_pooling import GlobalLpPool, LpPool
from sparkdl.layers.one_class import OneClass
from sparkdl.layers.pooling import AvgPool, GlobalAvgPool, GlobalMaxPool, GlobalSumPool, MaxPool, SumPool
from sparkdl.layers.prototypes import Prototypes


class Row(NamedTuple):
    """A layer, the shape of a row it takes, and one it must refuse (None if it takes any)."""

    layer: Layer
    shape: Any  # a tuple of shapes for a layer that reads several arrays
    refused: Any = None


DENSE = [
    Row(Dense(4), (5,), refused=(2, 5)),
    Row(Dense(1, bias=False, l2=0.1, name="logit"), (3,), refused=()),
    Row(OneClass(), (4,), refused=(2, 4)),
    Row(OneClass(l2=0.1, kernel_initializer="ones"), (3,), refused=()),
    Row(Prototypes(3), (4,), refused=(2, 4)),
    Row(Prototypes(2, center_initializer="ones"), (3,), refused=()),
]

CONVOLUTIONS = [
    Row(Conv(3, (3, 2)), (5, 4, 2), refused=(5, 4)),
    Row(Conv(3, (4, 3), padding="same"), (5, 6, 2), refused=(2,)),
    Row(Conv(2, (3, 2), padding="full", bias=False), (4, 3, 3), refused=(2, 4, 3, 3)),
    Row(Conv(2, (2, 3), strides=(3, 2), padding="same"), (8, 7, 2), refused=()),
    Row(Conv(2, (2, 2), strides=3), (9, 8, 2), refused=(1, 9, 2)),  # stride above the kernel, columns left over
    Row(Conv(3, (3, 3), strides=2, padding="full"), (5, 6, 1), refused=(2, 2)),
    Row(Conv(2, (2, 3), padding=((3, 0), (1, 4))), (3, 5, 2), refused=(3, 5)),  # negative padding in delta
    Row(Conv(2, (3, 2), dilation=(2, 3)), (7, 6, 2), refused=(4, 6, 2)),
    Row(Conv(4, (2, 2), strides=2, dilation=2, padding="same", groups=2), (6, 5, 4), refused=(6, 5, 3)),
    Row(Conv(6, (3, 3), groups=3), (4, 5, 3), refused=(4, 5, 4)),  # depthwise, two filters a channel
    Row(Conv(3, (1, 1)), (2, 3, 4), refused=(3, 4)),
    Row(Conv(3, (1, 1), (2, 3), bias=False), (4, 5, 2)),
    Row(Conv(17, (2, 3), padding="same"), (3, 4, 3), refused=(3, 4)),  # channels widened, but not filters
    Row(Conv(3, 3, strides=2), (8, 2), refused=(2, 8, 2)),
    Row(Conv(2, (3,), padding="same", dilation=2, groups=2), (7, 4), refused=(7, 3)),
    Row(Conv(2, (2, 3, 2), strides=(1, 2, 1), padding="same"), (3, 4, 3, 2), refused=(4, 3, 2)),
    Row(Conv(2, (2, 2, 2)), (3, 2, 3, 1), refused=(1, 3, 3, 1)),
]

POOLS = [
    Row(MaxPool(2), (4, 6, 2), refused=(6,)),
    Row(MaxPool((2, 2)), (5, 7, 2), refused=(5, 7)),  # columns left over
    Row(MaxPool(3, 2), (7, 8, 2), refused=(2, 8, 2)),
    Row(MaxPool((3, 3), 2, padding="same"), (6, 5, 2), refused=(6, 2)),
    Row(MaxPool(3, 1, padding="full"), (4, 3, 1), refused=(2, 2, 2, 2, 1)),
    Row(MaxPool(2, 3), (7, 8, 2), refused=(1, 8, 2)),  # stride above the window
    Row(MaxPool((3, 2), (1, 2), padding=((2, 0), (1, 1))), (4, 5, 2), refused=(4, 2)),
    Row(MaxPool(3, 2), (9, 2), refused=(2, 2)),
    Row(MaxPool((2, 3, 2), (2, 2, 1), padding="same"), (3, 4, 3, 2), refused=(4, 3, 2)),
    Row(AvgPool(2), (4, 6, 2), refused=(6,)),
    Row(AvgPool((3, 2), 2, padding="same"), (6, 5, 2), refused=(6, 5)),
    Row(AvgPool(3, (1, 2), padding="full"), (4, 3, 1), refused=(2, 2, 2, 2, 1)),
    Row(AvgPool(3, 2, padding="same", count_padding=True), (6, 4, 2), refused=(2,)),
    Row(AvgPool(2, 3), (7, 8, 2), refused=(1, 8, 2)),
    Row(AvgPool((3,), 2, padding=((0, 2),)), (6, 2), refused=(3, 6, 2)),
    Row(AvgPool((2, 2, 2), 1), (3, 2, 3, 2), refused=(3, 3, 2)),
    Row(SumPool((3, 2), 2, padding="same"), (6, 5, 2), refused=(6, 5)),
    Row(SumPool(3, (1, 2), padding="full"), (4, 3, 1), refused=(2, 2, 2, 2, 1)),
    Row(SumPool(2), (7, 2), refused=(1, 2)),
    Row(LpPool(2), (4, 6, 2), refused=(6,)),
    Row(LpPool((3, 2), 2, "same", 3), (6, 5, 2), refused=(6, 5)),
    Row(LpPool(3, (1, 2), "full", 4), (4, 3, 1), refused=(2, 2, 2, 2, 1)),
    Row(LpPool(2, 3, p=1), (7, 8, 2), refused=(1, 8, 2)),
    Row(LpPool((3,), 2, ((0, 2),)), (6, 2), refused=(3, 6, 2)),
    Row(LpPool((2, 2, 2), 1, p=5), (3, 2, 3, 2), refused=(3, 3, 2)),
    Row(GlobalAvgPool(), (3, 4, 2), refused=(2,)),
    Row(GlobalAvgPool(), (5, 2), refused=()),
    Row(GlobalMaxPool(), (3, 4, 2), refused=(2,)),
    Row(GlobalMaxPool(), (2, 3, 2, 2), refused=(1, 2, 3, 2, 2)),
    Row(GlobalSumPool(), (3, 4, 2), refused=(2,)),
    Row(GlobalSumPool(), (5, 2), refused=()),
    Row(GlobalLpPool(), (3, 4, 2), refused=(2,)),
    Row(GlobalLpPool(3), (5, 2), refused=()),
    Row(GlobalLpPool(1), (2, 3, 2, 2), refused=(1, 2, 3, 2, 2)),
]

# Shapes that a CPU convolves by Winograd's method: 32 channels and more.
WINOGRAD = [
    Row(Conv(32, (3, 3), padding="same"), (6, 5, 32), refused=(6, 5)),
    Row(Conv(33, (5, 5), padding=((1, 3), (2, 0))), (9, 8, 32), refused=(9, 8)),
]
