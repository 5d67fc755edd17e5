"""Networks of faces: they end in vectors of length 1, near to one another where they are of one person."""

from __future__ import annotations

from collections.abc import Sequence

from sparkdl.layers import (
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    L2Normalize,
    Layer,
    LocalResponseNorm,
    LpPool,
    MaxPool,
    Parallel,
    Relu,
    Residual,
    Scale,
    ZeroPad,
)
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

# Filters and kernel of every convolution of a branch, by branches (Szegedy et al. 2017).
Branches = Sequence[Sequence[tuple[int, Shape]]]
ONE, THREE = (1, 1), (3, 3)
BLOCK_35: Branches = [[(32, ONE)], [(32, ONE), (32, THREE)], [(32, ONE), (32, THREE), (32, THREE)]]
BLOCK_17: Branches = [[(128, ONE)], [(128, ONE), (128, (1, 7)), (128, (7, 1))]]
BLOCK_8: Branches = [[(192, ONE)], [(192, ONE), (192, (1, 3)), (192, (3, 1))]]
MIXED_6A: Branches = [[(384, THREE)], [(192, ONE), (192, THREE), (256, THREE)]]
MIXED_7A: Branches = [
    [(256, ONE), (384, THREE)],
    [(256, ONE), (256, THREE)],
    [(256, ONE), (256, THREE), (256, THREE)],
]
FEWEST, FEWEST_OF_NN4 = 75, 65  # positions of a side that leave one before the last layers, or three


@pretrainable
def inception_resnet_v1(
    input_shape: Shape = (160, 160, 3),
    size: int = 512,
    classes: int | None = None,
    dropout: float = 0.6,
    blocks: Sequence[int] = (5, 10, 5),
    width: float = 1.0,
) -> Network:
    """Inception-ResNet-v1 (Szegedy et al. 2017) as FaceNet's: 23,482,624 weights, as facenet-pytorch's.

    It ends in a vector of length 1, for the loss `Triplet` (Schroff et al. 2015) or to be compared; with classes, in
    their raw scores by the vector before that: 27,910,327 weights for VGGFace2's 8631 persons. Its layers have
    facenet-pytorch's names, with "_" for "."; images are prepared as there by `preprocess="facenet"`.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image, at least 75 x 75.
    size : int, default 512
        Of the vector.
    classes : int, optional
        Persons to tell apart.
    dropout : float, default 0.6
        Rate before the vector.
    blocks : sequence of int, default (5, 10, 5)
        Residual blocks of the three stages; one that is not rectified follows the last.
    width : float, default 1
        Factor on the filters of every layer.

    Raises
    ------
    ValueError
        Images are smaller than that, or there are not three numbers of blocks.
    """
    _check(input_shape, FEWEST)
    if len(blocks) != 3:
        raise ValueError(f"blocks must be three numbers, as (5, 10, 5), received {blocks!r}; give one for every stage.")
    layers: list[Layer] = [
        _unit(32, THREE, width, 2, "conv2d_1a"),
        _unit(32, THREE, width, 1, "conv2d_2a", "valid"),
        _unit(64, THREE, width, 1, "conv2d_2b"),
        MaxPool(3, 2, name="maxpool_3a"),
        _unit(80, ONE, width, 1, "conv2d_3b"),
        _unit(192, THREE, width, 1, "conv2d_4a", "valid"),
        _unit(256, THREE, width, 2, "conv2d_4b"),
    ]
    stages = ((BLOCK_35, 0.17, "mixed_6a", MIXED_6A), (BLOCK_17, 0.1, "mixed_7a", MIXED_7A), (BLOCK_8, 0.2, "", ()))
    channels = _scaled(256, width)
    for number, (block, scale, name, reduction) in enumerate(stages, start=1):
        for index in range(blocks[number - 1]):
            layers += [_residual(block, channels, scale, width, f"repeat_{number}_{index}"), Relu()]
        if reduction:
            pool = MaxPool(3, 2, name=f"branch{len(reduction)}")
            layers.append(Parallel([*_branches(reduction, width, 2), pool], name=name))
            channels += sum(_scaled(branch[-1][0], width) for branch in reduction)
    layers += [_residual(BLOCK_8, channels, 1.0, width, "block8"), GlobalAvgPool(name="avgpool_1a")]
    layers += [Dropout(dropout, name="dropout"), Dense(size, bias=False, name="last_linear"), _norm("last_bn")]
    layers.append(L2Normalize(name="vector") if classes is None else Dense(classes, name="logits"))
    return Network(layers, input_shape=input_shape)


@pretrainable
def nn4_small2(input_shape: Shape = (96, 96, 3), size: int = 128) -> Network:
    """OpenFace's nn4.small2 (Amos et al. 2016): 3,733,968 weights.

    It ends in a vector of length 1, for the loss `Triplet` (Schroff et al. 2015) or to be compared. Pools within its
    blocks step by 2 or 3 and are set into zeros, as OpenFace's; in Deeplearning4j's FaceNetNN4Small2 they step by 1,
    and two kernels by 5 are by 3. Files of weights have our names. OpenFace's images are between 0 and 1:
    `preprocess=((0, 0, 0), (1, 1, 1))`.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image, at least 65 x 65.
    size : int, default 128
        Of the vector.

    Raises
    ------
    ValueError
        Images are smaller than that.
    """
    _check(input_shape, FEWEST_OF_NN4)
    edges = ((1, 1), (1, 1))
    energy = LocalResponseNorm(2, 1.0, 1e-4 / 5, 0.75)  # Torch's divides alpha by the number of channels
    layers: list[Layer] = [
        Conv(64, (7, 7), 2, ((3, 3), (3, 3)), name="conv1"),
        *_normalized("bn1"),
        MaxPool(3, 2, edges),
        energy,
        Conv(64, ONE, name="conv2"),
        *_normalized("bn2"),
        Conv(192, THREE, padding="same", name="conv3"),
        *_normalized("bn3"),
        energy,
        MaxPool(3, 2, edges),
    ]
    largest, norm = MaxPool(3, 2), LpPool(3, 3)
    # Of nn4.small2.def.lua: channels that kernels by 3 and by 5 read and give, those behind the pool, and those by 1.
    for name, three, five, pool, projected, one in (
        ("3a", (96, 128), (16, 32), largest, 32, 64),
        ("3b", (96, 128), (32, 64), norm, 64, 64),
        ("3c", (128, 256), (32, 64), largest, 0, 0),
        ("4a", (96, 192), (32, 64), norm, 128, 256),
        ("4e", (160, 256), (64, 128), largest, 0, 0),
        ("5a", (96, 384), None, norm, 96, 256),
        ("5b", (96, 384), None, largest, 96, 256),
    ):
        strides = 1 if one else 2
        kernels = [(3, three), (5, five)] if five else [(3, three)]
        branches = [_reduced(kernel, *channels, strides) for kernel, channels in kernels]
        before = Network(layers, input_shape=input_shape).output_shape()
        branches.append(_pooled(pool, projected, strides, before[:2]))
        if one:
            branches.append(Network([Conv(one, ONE, name="conv"), *_normalized("bn")], name="by_1"))
        layers.append(Parallel(branches, name=f"inception_{name}"))
    layers += [GlobalAvgPool(name="avgpool"), Dense(size, name="linear"), L2Normalize(name="vector")]
    return Network(layers, input_shape=input_shape)


def _check(input_shape: Shape, fewest: int) -> None:
    if len(input_shape) != 3 or any(not side or side < fewest for side in input_shape[:2]):
        raise ValueError(
            f"input_shape must be (height, width, channels) of at least {fewest} x {fewest}, received {input_shape}; "
            "resize images."
        )


def _scaled(filters: int, width: float) -> int:
    return max(1, round(filters * width))


def _norm(name: str) -> BatchNorm:
    return BatchNorm(epsilon=1e-3, name=name)


def _unit(filters: int, kernel: Shape, width: float, strides: int, name: str, padding: str | None = None) -> Network:
    """A convolution, normalized and rectified; one that strides is not padded."""
    padding = padding or ("same" if strides == 1 else "valid")
    conv = Conv(_scaled(filters, width), kernel, strides, padding, bias=False, name="conv")
    return Network([conv, _norm("bn"), Relu(name="relu")], name=name)


def _branches(branches: Branches, width: float, strides: int = 1) -> list[Layer]:
    """The last convolution of each strides."""
    found: list[Layer] = []
    for number, branch in enumerate(branches):
        name, last = f"branch{number}", len(branch) - 1
        if last == 0:
            found.append(_unit(*branch[0], width, strides, name))
        else:
            units = [_unit(*one, width, strides if at == last else 1, str(at)) for at, one in enumerate(branch)]
            found.append(Network(units, name=name))
    return found


def _residual(branches: Branches, channels: int, scale: float, width: float, name: str) -> Residual:
    body: list[Layer] = [
        Parallel(_branches(branches, width), name="branches"),
        Conv(channels, ONE, name="conv2d"),
        Scale(scale, name="scale"),
    ]
    return Residual(body, name=name)


def _normalized(name: str) -> list[Layer]:
    return [BatchNorm(name=name), Relu()]


def _reduced(kernel: int, inner: int, outer: int, strides: int) -> Network:
    """A convolution by 1 before one by 3 or 5."""
    edge = (kernel // 2, kernel // 2)
    before = [Conv(inner, ONE, name="reduce"), *_normalized("reduce_bn")]
    conv = Conv(outer, (kernel, kernel), strides, (edge, edge), name="conv")
    return Network([*before, conv, *_normalized("bn")], name=f"by_{kernel}")


def _pooled(pool: MaxPool | LpPool, filters: int, strides: int, positions: Shape) -> Network:
    """A pool, and a convolution by 1 if it has filters, amid zeros up to the positions that other branches put out."""
    layers: list[Layer] = [pool]
    if filters:
        layers += [Conv(filters, ONE, name="conv"), *_normalized("bn")]
    there = [-(-side // strides) for side in positions]
    missing = [side - found for side, found in zip(there, pool.output_shape((*positions, 1))[:2], strict=True)]
    return Network([*layers, ZeroPad(tuple((less // 2, less - less // 2) for less in missing))], name="pool")
