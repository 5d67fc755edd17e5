"""Networks of dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparkdl.layers import BatchNorm, Dense, Dropout, Flatten, Layer, Relu, Reshape, Residual
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network


@pretrainable
def mlp(
    input_shape: Shape, outputs: int, units: Sequence[int] = (256, 128), dropout: float = 0.0, batch_norm: bool = False
) -> Network:
    """A multilayer perceptron: dense layers with ReLU between them, and a last one of `outputs`.

    Parameters
    ----------
    input_shape : tuple of int
        Of a row; one of several axes is made flat.
    outputs : int
        Classes, or numbers to predict.
    units : sequence of int, default (256, 128)
        Of the layers before the last.
    dropout : float, default 0
        Rate behind each of them.
    batch_norm : bool, default False
        Whether each is normalized before its ReLU.
    """
    layers: list[Layer] = _flat(input_shape)
    for count in units:
        layers += [Dense(count, bias=not batch_norm), *([BatchNorm()] if batch_norm else []), Relu()]
        layers += [Dropout(dropout)] if dropout else []
    return Network([*layers, Dense(outputs)], input_shape=input_shape)


@pretrainable
def tabular_resnet(
    input_shape: Shape, outputs: int, width: int = 192, hidden: int = 384, blocks: int = 4, dropout: float = 0.2
) -> Network:
    """A residual network for tables (Gorishniy et al. 2021, "Revisiting deep learning models for tabular data").

    A dense layer to `width`; blocks that add Dropout(Dense(Dropout(ReLU(Dense(BatchNorm(x)))))) to x; and a last layer
    behind normalization and ReLU.

    Parameters
    ----------
    input_shape : tuple of int
        Of a row; one of several axes is made flat.
    outputs : int
        Classes, or numbers to predict.
    width, hidden : int
        Numbers between blocks, and within one.
    blocks : int
    dropout : float, default 0.2
        Rate within a block.
    """
    layers: list[Layer] = [*_flat(input_shape), Dense(width)]
    for _ in range(blocks):
        layers.append(Residual([BatchNorm(), Dense(hidden), Relu(), Dropout(dropout), Dense(width)]))
    return Network([*layers, BatchNorm(), Relu(), Dense(outputs)], input_shape=input_shape)


@pretrainable
def autoencoder(input_shape: Shape, units: Sequence[int] = (128, 32)) -> Network:
    """Dense layers that squeeze a row and spread it again: trained with SquaredError on rows as their own labels.

    The layer "code" puts out what is left of a row between the two; rows that are told badly are unlike those it was
    trained on.

    Parameters
    ----------
    input_shape : tuple of int
        Of a row; the network puts out as many numbers, flat.
    units : sequence of int, default (128, 32)
        Of the layers down to the code, the last of which has no activation; they are passed backwards on the way up.
    """
    *sides, code = units
    layers: list[Layer] = _flat(input_shape)
    for count in sides:
        layers += [Dense(count), Relu()]
    layers.append(Dense(code, name="code"))
    for count in reversed(sides):
        layers += [Dense(count), Relu()]
    return Network([*layers, Dense(math.prod(input_shape))], input_shape=input_shape)


def _flat(input_shape: Shape) -> list[Layer]:
    if not input_shape:
        return [Reshape((1,))]
    return [Flatten()] if len(input_shape) > 1 else []
