"""Random variation of images in training, drawn anew for every row and step; `forward` says what inference does."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted
from sparkdl.layers.image import check_size, image_shape
from sparkdl.moves import Move
from sparkdl.specs import are_bounds, is_number


@dataclass(frozen=True)
class RandomImageLayer(Layer):
    """A layer that draws something for every image in training, and changes the image by that.

    Attributes
    ----------
    moves : bool
        Of the class: whether it moves what is in the image, so that labels which name places have to follow.
    """

    moves: ClassVar[bool] = False

    @property
    def beyond(self) -> str:
        """What is where y shows places beyond the edges of x: one of `moves.FILLS`, or "" where it shows none."""
        return ""

    @abstractmethod
    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Random numbers for rows x of this shape (with the batch axis) and dtype."""

    @abstractmethod
    def change(self, x: Array, drawn: Array) -> Array:
        """y in training."""

    def move(self, drawn: Array, size: tuple[int, int]) -> Move:
        """How `change` moves what is in images of this height and width.

        Raises
        ------
        NotImplementedError
            It moves nothing, or cannot say how.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot say how it moves what is in an image.")

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Array]:
        drawn = self.draw(context.key, x.shape, x.dtype)
        return self.change(x, drawn), drawn

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Array, context: Context) -> Array:
        return jax.vjp(lambda rows: self.change(rows, kept), x)[1](dy)[0]


@dataclass(frozen=True)
class RandomCrop(RandomImageLayer):
    """Cuts a window out of each image: anywhere, every place equally likely, in training; the centre at inference.

    x  (batch, height, width, channels)        dx  of x's shape   dL/dx
    y  (batch, *size, channels)                dy  of y's shape   dL/dy

    Parameters
    ----------
    size : tuple of int
        Height and width of the window.
    """

    moves = True  # at inference, too, so that it has no `move`: labels of whole images fit neither

    size: tuple[int, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self, self.size)

    def output_shape(self, input_shape: Shape) -> Shape:
        height, width, channels = image_shape(self, input_shape)
        if height < self.size[0] or width < self.size[1]:
            raise ValueError(
                f"RandomCrop of size {self.size} expects images at least as large, received {input_shape}; "
                "choose a smaller size or put Resize before it."
            )
        return (*self.size, channels)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        height, width = self.size
        top, left = (x.shape[1] - height) // 2, (x.shape[2] - width) // 2
        return x[:, top : top + height, left : left + width]

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Top left corners, (batch, 2)."""
        places = jnp.array([[shape[1] - self.size[0] + 1, shape[2] - self.size[1] + 1]])
        return jax.random.randint(key, (shape[0], 2), 0, places)

    def change(self, x: Array, drawn: Array) -> Array:
        def window(image: Array, corner: Array) -> Array:
            return lax.dynamic_slice(image, (corner[0], corner[1], 0), (*self.size, image.shape[2]))

        return jax.vmap(window)(x, drawn)


@dataclass(frozen=True)
class ImageVariation(RandomImageLayer):
    """A random change of an image that keeps its shape and is left out at inference."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return image_shape(self, input_shape)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class RandomFlip(ImageVariation):
    """Mirrors every other image, on average, in training; does nothing at inference.

    Parameters
    ----------
    axis : {"horizontal", "vertical"}, default "horizontal"
        "horizontal" swaps left and right, "vertical" top and bottom.
    """

    moves = True

    axis: str = "horizontal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axis not in ("horizontal", "vertical"):
            raise ValueError(f"axis of RandomFlip must be 'horizontal' or 'vertical', received {self.axis!r}.")

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Whether to mirror, (batch, 1, 1, 1)."""
        return jax.random.bernoulli(key, 0.5, (shape[0], 1, 1, 1))

    def change(self, x: Array, drawn: Array) -> Array:
        return jnp.where(drawn, jnp.flip(x, 2 if self.axis == "horizontal" else 1), x)

    def move(self, drawn: Array, size: tuple[int, int]) -> Move:
        same = jnp.ones(len(drawn))
        turned = jnp.where(drawn.reshape(len(drawn)), -same, same)
        across = self.axis == "horizontal"
        scale = jnp.stack([same, turned] if across else [turned, same], axis=-1)
        return Move(scale[:, None] * jnp.eye(2)[None], jnp.zeros((len(drawn), 2)), "nearest")


@dataclass(frozen=True)
class RandomInvert(ImageVariation):
    """Makes light dark and dark light in every other image, on average, in training; does nothing at inference.

    y = low + high - x, for networks that are to learn shapes whatever is dark or bright in them: torchvision's
    `RandomInvert(0.5)`, and Keras's as it is by default, with a choice for every row.

    Parameters
    ----------
    value_range : tuple of float, default (0, 255)
        Least and largest value of x: (0, 255) for bytes as they come, (0, 1) after `Rescale(1 / 255)`.
    """

    value_range: tuple[float, float] = (0.0, 255.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_value_range(self, self.value_range)

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Whether to invert, (batch, 1, 1, 1)."""
        return jax.random.bernoulli(key, 0.5, (shape[0], 1, 1, 1))

    def change(self, x: Array, drawn: Array) -> Array:
        return jnp.where(drawn, sum(self.value_range) - x, x)


@dataclass(frozen=True)
class RandomBrightness(ImageVariation):
    """Adds one number to each whole image in training, uniform in [-max_delta, max_delta); nothing at inference.

    This is TensorFlow's `tf.image.random_brightness`, with a number for every row.

    Parameters
    ----------
    max_delta : float
        Largest change, in the units of x.
    value_range : tuple of float, optional
        Least and largest value of y, to which what lies beyond is set, as Keras does: (0, 255) for bytes as they come.
    """

    max_delta: float
    value_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_range is not None:
            _check_value_range(self, self.value_range)
        if not is_number(self.max_delta, 0):
            raise ValueError(
                f"max_delta of RandomBrightness must be a finite number of at least 0, received {self.max_delta!r}; "
                "the change is drawn between -max_delta and max_delta."
            )

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """What to add, (batch, 1, 1, 1)."""
        return jax.random.uniform(key, (shape[0], 1, 1, 1), dtype, -self.max_delta, self.max_delta)

    def change(self, x: Array, drawn: Array) -> Array:
        return _within(x + drawn, self.value_range)


@dataclass(frozen=True)
class RandomContrast(ImageVariation):
    """Multiplies the distance to each image's channel means by one number in training; does nothing at inference.

    y = (x - mean) * factor + mean, factor uniform in [lower, upper): TensorFlow's `tf.image.random_contrast`, with a
    number for every row.

    Parameters
    ----------
    lower, upper : float
        Bounds of the factor, 0 <= lower < upper; 1 leaves an image as it is.
    value_range : tuple of float, optional
        As of `RandomBrightness`.
    """

    lower: float
    upper: float
    value_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_range is not None:
            _check_value_range(self, self.value_range)
        if not (is_number(self.lower, 0) and is_number(self.upper) and self.lower < self.upper):
            raise ValueError(
                f"RandomContrast expects 0 <= lower < upper, received lower={self.lower!r}, upper={self.upper!r}; "
                "RandomContrast(0.8, 1.2) changes the contrast by up to a fifth."
            )

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Factors, (batch, 1, 1, 1)."""
        return jax.random.uniform(key, (shape[0], 1, 1, 1), dtype, self.lower, self.upper)

    def change(self, x: Array, drawn: Array) -> Array:
        mean = x.mean(axis=(1, 2), keepdims=True)
        return _within((x - mean) * drawn + mean, self.value_range)


def _check_value_range(layer: Layer, ends: Any) -> None:
    """ValueError unless these are two numbers, the smaller one first."""
    if not (are_bounds(ends) and ends[0] < ends[1]):
        raise ValueError(
            f"value_range of {type(layer).__name__} must be two finite numbers, the smaller one first, received "
            f"{ends!r}; bytes of images lie in (0, 255)."
        )


def _within(y: Array, ends: tuple[float, float] | None) -> Array:
    return y if ends is None else jnp.clip(y, *ends)
