"""Images of which a rectangle is hidden at random in training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sparkdl.layers.augmentation import ImageVariation
from sparkdl.layers.base import Array, Shape
from sparkdl.specs import are_bounds, check_range, is_number


@dataclass(frozen=True)
class RandomErasing(ImageVariation):
    """Hides a rectangle of each image, or of some, in training (Zhong et al. 2017); does nothing at inference.

    x, y, dx, dy  (batch, height, width, channels); dx is 0 where x was hidden

    So that a network learns not to rely on one place. The defaults are those of the paper and of torchvision's
    `RandomErasing`; where a rectangle is higher or wider than the image, it ends at its edges.

    Parameters
    ----------
    rate : float, default 0.5
        Probability of hiding anything of an image.
    area : (float, float), default (0.02, 0.33)
        Least and largest part of the image that is hidden; drawn uniformly.
    ratio : (float, float), default (0.3, 3.3)
        Least and largest height over width of the rectangle; their logarithm is drawn uniformly.
    value : float, default 0
        What is there instead, in the units of x.
    """

    rate: float = 0.5
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1]", "rate")
        for name, most in (("area", 1.0), ("ratio", math.inf)):
            given = getattr(self, name)
            if not (are_bounds(given) and given[0] > 0 and given[1] <= most):
                raise ValueError(
                    f"{name} of RandomErasing must be two positive numbers in a tuple, the smaller one first"
                    f"{', of at most 1' if most == 1 else ''}, received {given!r}."
                )
        if not is_number(self.value):
            raise ValueError(f"value of RandomErasing must be a finite number, received {self.value!r}.")

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Array:
        """Row and column of the first number that is hidden and of the first after it, (batch, 4)."""
        keys, (rows, height, width, _) = jax.random.split(key, 5), shape

        def uniform(key: Array, low: float, high: float) -> Array:
            return jax.random.uniform(key, (rows,), jnp.float32, low, high)

        hidden = jnp.where(uniform(keys[1], 0, 1) < self.rate, uniform(keys[0], *self.area) * (height * width), 0)
        ratio = jnp.exp(uniform(keys[2], math.log(self.ratio[0]), math.log(self.ratio[1])))
        sizes = [
            jnp.clip(jnp.round(jnp.sqrt(area)), 0, size)
            for area, size in ((hidden * ratio, height), (hidden / ratio, width))
        ]
        starts = [
            jnp.floor(uniform(own, 0, 1) * (size - part + 1))
            for own, part, size in zip(keys[3:], sizes, (height, width), strict=True)
        ]
        ends = [start + part for start, part in zip(starts, sizes, strict=True)]
        return jnp.stack([*starts, *ends], axis=1).astype(jnp.int32)

    def change(self, x: Array, drawn: Array) -> Array:
        top, left, bottom, right = (drawn[:, at, None] for at in range(4))
        rows, columns = (jnp.arange(size, dtype=drawn.dtype)[None] for size in x.shape[1:3])
        across = (columns >= left) & (columns < right)
        down = (rows >= top) & (rows < bottom)
        return jnp.where(down[:, :, None, None] & across[:, None, :, None], jnp.asarray(self.value, x.dtype), x)
