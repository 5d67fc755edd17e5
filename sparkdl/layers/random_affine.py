"""Images that are turned, moved and zoomed at random in training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from sparkdl.layers.augmentation import ImageVariation
from sparkdl.layers.base import Array, Shape
from sparkdl.moves import FILLS, Move
from sparkdl.specs import are_bounds, is_number

Bounds = float | tuple[float, float]


@dataclass(frozen=True)
class RandomAffine(ImageVariation):
    """Turns, moves and zooms each image as a whole in training, by draws of its own; does nothing at inference.

    x, y, dx, dy  (batch, height, width, channels)

    Of every bound, a number b stands for (-b, b); draws are uniform between the two. y at place i is x at place
    c + R ((1 + zoom) (i - c - shift)), with c the centre and R a rotation, and linear between pixels. Keras's
    `RandomRotation`, `RandomTranslation` and `RandomZoom` are each a part of this one.

    Parameters
    ----------
    rotation : float or (float, float), default 0
        Degrees, counterclockwise.
    shift : float or (float, float), default 0
        Downwards, as a fraction of the height.
    width_shift : float or (float, float), optional
        To the right, as a fraction of the width; by default within the bounds of `shift`, by a draw of its own.
    zoom : float or (float, float), default 0
        By which fraction more of the image is seen, above -1: 0.25 shows all of it at 1 / 1.25 of its size, -0.2 its
        middle, enlarged.
    width_zoom : float or (float, float), optional
        The same of the width; by default both are zoomed by one draw, so that shapes stay as they are.
    fill : {"reflect", "nearest", "wrap", "constant"}, default "reflect"
        What lies beyond the edges: the image mirrored, its outermost pixels, the image again, or `value`.
    value : float, default 0
        With "constant".

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Conv, RandomAffine, RandomFlip
    >>> varied = [RandomFlip(), RandomAffine(rotation=15, shift=0.1, zoom=0.1)]
    >>> Network([*varied, Conv(8, (3, 3))], input_shape=(32, 32, 3)).output_shape()
    (30, 30, 8)
    """

    moves = True

    rotation: Bounds = 0.0
    shift: Bounds = 0.0
    width_shift: Bounds | None = None
    zoom: Bounds = 0.0
    width_zoom: Bounds | None = None
    fill: str = field(default="reflect", kw_only=True)
    value: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rotation", "shift", "width_shift", "zoom", "width_zoom"):
            given = getattr(self, name)
            numbers = is_number(given) or are_bounds(given)
            if not numbers and not (given is None and name.startswith("width")):
                raise ValueError(
                    f"{name} of RandomAffine must be a finite number, or two in a tuple, the smaller one first, "
                    f"received {given!r}; a number b stands for (-b, b)."
                )
            if "zoom" in name and numbers and _bounds(given)[0] <= -1:
                raise ValueError(f"{name} of RandomAffine must be above -1, where nothing is seen, received {given!r}.")
        if self.fill not in FILLS:
            raise ValueError(f"fill of RandomAffine must be one of {', '.join(FILLS)}, received {self.fill!r}.")
        if not is_number(self.value):
            raise ValueError(f"value of RandomAffine must be a finite number, received {self.value!r}.")

    @property
    def beyond(self) -> str:
        return self.fill

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Angle in radians, shifts in pixels and zooms, (batch, 5); not in bfloat16, which tells no places apart."""
        turn, down, right, tall, wide = jax.random.split(key, 5)
        rows, exact = shape[0], np.promote_types(dtype, np.float32)

        def within(key: Array, bounds: Bounds) -> Array:
            low, high = _bounds(bounds)
            return jax.random.uniform(key, (rows,), exact, low, high)

        across = self.shift if self.width_shift is None else self.width_shift
        heights = 1 + within(tall, self.zoom)
        return jnp.stack(
            [
                jnp.radians(within(turn, self.rotation)),
                within(down, self.shift) * shape[1],
                within(right, across) * shape[2],
                heights,
                heights if self.width_zoom is None else 1 + within(wide, self.width_zoom),
            ],
            axis=1,
        )

    def change(self, x: Array, drawn: Array) -> Array:
        def seen(image: Array, numbers: Array) -> Array:
            angle, down, right, *zooms = numbers
            centres = [(size - 1) / 2 for size in image.shape[:2]]
            moved = [
                (jnp.arange(size, dtype=x.dtype) - centre - shift) * zoom
                for size, centre, shift, zoom in zip(image.shape, centres, (down, right), zooms, strict=False)
            ]
            below, beside = jnp.meshgrid(*moved, indexing="ij")
            cosine, sine = jnp.cos(angle), jnp.sin(angle)
            places = [below * cosine + beside * sine + centres[0], beside * cosine - below * sine + centres[1]]

            def of_channel(channel: Array) -> Array:
                return map_coordinates(channel, places, order=1, mode=self.fill, cval=self.value)

            return jax.vmap(of_channel, -1, -1)(image)

        dtype, x = x.dtype, x.astype(drawn.dtype)
        return jax.vmap(seen)(x, drawn).astype(dtype)

    def move(self, drawn: Array, size: tuple[int, int]) -> Move:
        angle, shifts, zooms = drawn[:, 0], drawn[:, 1:3], drawn[:, 3:]
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        turned = jnp.stack([jnp.stack([cosine, sine], -1), jnp.stack([-sine, cosine], -1)], 1) * zooms[:, None]
        height_and_width = jnp.array(size, drawn.dtype)
        matrix = turned * height_and_width[None, None] / height_and_width[None, :, None]
        return Move(matrix, -(matrix * (shifts / height_and_width[None])[:, None]).sum(axis=-1), self.beyond)


def _bounds(given: Bounds) -> tuple[float, float]:
    return given if isinstance(given, tuple) else (-abs(given), abs(given))
