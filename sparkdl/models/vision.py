"""Vision transformers: an image's patches as the steps of a row (Dosovitskiy et al. 2021, "An image is worth...")."""

from __future__ import annotations

from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import (
    ClassToken,
    Conv,
    Dense,
    Dropout,
    FirstStep,
    Layer,
    LayerNorm,
    LearnedPositions,
    Reshape,
    TransformerEncoder,
)
from sparkdl.layers.base import Shape
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

SMALL = TruncatedNormal(0.02)


@pretrainable
def vit_s16(input_shape: Shape = (224, 224, 3), classes: int = 1000) -> Network:
    """ViT-S/16: 22,050,664 weights for 1000 classes, as timm's; see `vit`."""
    return vit(input_shape, classes, size=384, heads=6)


@pretrainable
def vit_b16(input_shape: Shape = (224, 224, 3), classes: int = 1000) -> Network:
    """ViT-B/16: 86,567,656 weights for 1000 classes, as torchvision's; see `vit`."""
    return vit(input_shape, classes)


@pretrainable
def vit(
    input_shape: Shape,
    classes: int,
    patch: int = 16,
    size: int = 768,
    blocks: int = 12,
    heads: int = 12,
    feed_forward: int | None = None,
    dropout: float = 0.0,
    epsilon: float = 1e-6,
) -> Network:
    """A vision transformer, which ends in unnormalised log-probabilities of classes.

    Parameters
    ----------
    input_shape : tuple of int
        (height, width, channels) of an image; height and width are multiples of `patch`.
    classes : int
    patch : int, default 16
        Height and width of a patch.
    size, blocks, heads : int, default 768, 12 and 12
    feed_forward : int, optional
        Units within a block; by default four times the size.
    dropout : float, default 0
    epsilon : float, default 1e-6
        Of the layer norms; Hugging Face's have 1e-12.

    Raises
    ------
    ValueError
        An image is no whole number of patches.

    Examples
    --------
    >>> from sparkdl import models
    >>> models.vit((32, 32, 3), 10, patch=4, size=64, blocks=4, heads=4).output_shape()
    (10,)
    """
    height, width, _ = input_shape
    if height % patch or width % patch:
        raise ValueError(
            f"input_shape of vit must have a height and a width that are multiples of patch={patch}, received "
            f"{input_shape}; put Resize before it, or choose another patch."
        )
    steps = height // patch * (width // patch)
    body: list[Layer] = [
        TransformerEncoder(
            heads,
            feed_forward or 4 * size,
            dropout,
            norm_first=True,
            epsilon=epsilon,
            kernel_initializer=SMALL,
            name=f"block_{index}",
        )
        for index in range(blocks)
    ]
    before: list[Layer] = [
        Conv(size, (patch, patch), patch, kernel_initializer="lecun_normal", name="patches"),
        Reshape((steps, size)),
        ClassToken(name="class"),
        LearnedPositions(steps + 1, name="positions"),
        *([Dropout(dropout)] if dropout else []),
    ]
    after: list[Layer] = [LayerNorm(epsilon=epsilon, name="norm"), FirstStep()]
    return Network([*before, *body, *after, Dense(classes, kernel_initializer="zeros", name="head")], input_shape)
