"""How a layer that varies images at random moved what is in them, so that labels which name places can follow.

Places are (down, right), as fractions of an image's height and width from its middle: -1/2 is its upper or left edge.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.ndimage import map_coordinates

FILLS = ("reflect", "nearest", "wrap", "constant")  # of what lies beyond the edges; see `RandomAffine`


class Move(NamedTuple):
    """Of every image: at place p it now shows what was at matrix @ p + offset.

    Attributes
    ----------
    matrix : Array (batch, 2, 2)
    offset : Array (batch, 2)
    fill : str
        Of FILLS, what is where that place lies beyond the edges.
    """

    matrix: Array
    offset: Array
    fill: str


def moved_boxes(boxes: Array, move: Move) -> tuple[Array, Array]:
    """(boxes around what was in these, cut off at the edges; whether their middles are still in the image).

    Parameters
    ----------
    boxes : Array (batch, boxes, 4)
        Left, top, right and bottom, as fractions from the upper left corner.
    move : Move

    Returns
    -------
    Array (batch, boxes, 4), Array (batch, boxes)
        A box around one that is turned has it within, and is so larger.
    """
    left, top, right, bottom = (boxes[..., at] - 0.5 for at in range(4))
    corners = jnp.stack(
        [jnp.stack(corner, axis=-1) for corner in ((top, left), (top, right), (bottom, left), (bottom, right))], axis=2
    )
    a, b, c, d = move.matrix.reshape(-1, 4).T[:, :, None, None]
    down, across = (corners[..., axis] - move.offset[:, axis, None, None] for axis in range(2))
    determinant = a * d - b * c
    downs, acrosses = (d * down - b * across) / determinant + 0.5, (a * across - c * down) / determinant + 0.5
    whole = jnp.stack([acrosses.min(2), downs.min(2), acrosses.max(2), downs.max(2)], axis=-1)
    middles = (whole[..., :2] + whole[..., 2:]) / 2
    return jnp.clip(whole, 0, 1), ((middles >= 0) & (middles < 1)).all(axis=-1)


def moved_map(labels: Array, move: Move, missing: float) -> Array:
    """Labels (batch, rows, columns, labels) of the positions of an image, each that of the nearest place before.

    `missing` is what stands for none, beyond the edges if the move fills these with a constant.
    """
    sizes, exact = labels.shape[1:3], move.matrix.dtype
    grid = jnp.meshgrid(*((jnp.arange(size, dtype=exact) + 0.5) / size - 0.5 for size in sizes), indexing="ij")
    numbers = jnp.arange(math.prod(sizes), dtype=exact).reshape(sizes)

    def of_image(own: Array, matrix: Array, offset: Array) -> Array:
        sources = [
            (matrix[axis, 0] * grid[0] + matrix[axis, 1] * grid[1] + offset[axis] + 0.5) * sizes[axis] - 0.5
            for axis in range(2)
        ]
        nearest = map_coordinates(numbers, sources, order=0, mode=move.fill, cval=-1).astype(jnp.int32)
        return jnp.where(nearest[..., None] < 0, jnp.array(missing, own.dtype), own.reshape(-1, own.shape[-1])[nearest])

    return jax.vmap(of_image)(labels, move.matrix, move.offset)
