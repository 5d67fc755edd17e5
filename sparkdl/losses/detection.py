"""The loss of networks that find objects in images."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.boxes import BOX, LABEL, NO_OBJECT, overlaps, size_overlaps
from sparkdl.losses.loss import Loss
from sparkdl.moves import Move, moved_boxes
from sparkdl.specs import check_integers, check_range

ROUNDING = 1e-3  # by which a corner may lie beyond its image


@dataclass(frozen=True)
class Yolo(Loss):
    """Where the objects of an image are and of which class, by one pass (Redmon and Farhadi 2017, YOLO9000, section 2).

    The network ends in a grid of cells, (rows, columns, anchors * (5 + classes)). For every anchor, a width and height
    to begin from, a cell puts out x, y, w, h, an objectness and one logit a class. They say a box whose center lies
    sigmoid(x) and sigmoid(y) into the cell, exp(w) times as wide and exp(h) times as high as the anchor, the
    probability sigmoid(objectness) that it is around an object, and, by softmax, of which class that is.

    A true box is for the cell that its center lies in, there for the anchor whose size it overlaps with the most. The
    loss is a sum: of every true box `box_weight` times the squared errors of x, y, w and h (of w and h that is of the
    logarithm of sizes), the cross-entropy of its class, and the cross-entropy of the objectness, which is to be 1; and
    `empty_weight` times the cross-entropy of the objectness of all other boxes, which is to be 0, but for those that
    overlap with a true box by more than `ignore_threshold`. Cross-entropies stand where the paper has squared errors,
    as in Redmon and Farhadi 2018 (YOLOv3).

    outputs  (batch, rows, columns, anchors * (5 + classes))
    labels   (batch, boxes * 5) or (batch, boxes, 5), of up to `max_boxes` boxes: class, left, top, right and bottom,
             the latter as fractions of the image's width and height; a box of class -1 is none. A column may hold
             fewer boxes in a row, or none, as array<array<double>> or one after another as array<double>

    Boxes follow layers that move what is in an image in training, as `RandomFlip` and `RandomAffine` do. They are cut
    off at its edges, and left out where their middle lies beyond, as by Liu et al. 2016 (SSD, section 2.2).

    The predictions are, in the place of each box's numbers, its left, top, right, bottom, objectness, and a probability
    for each class: `sparkdl.boxes.select_boxes`, or the stage `BoxSelector`, keeps those that count. "iou" is the mean,
    over the objects of a row, of intersection over union of a true box with the one that is to find it; 1 of a row
    without objects.

    Parameters
    ----------
    anchors : tuple of (width, height)
        As fractions of the image's; `sparkdl.boxes.find_anchors` finds them.
    max_boxes : int, default 30
        Of a row.
    box_weight, empty_weight : float, default 5, 0.5
        Those of Redmon et al. 2016.
    ignore_threshold : float, default 0.6
        An intersection over union.
    """

    anchors: tuple[tuple[float, float], ...]
    max_boxes: int = field(default=30, kw_only=True)
    box_weight: float = field(default=5.0, kw_only=True)
    empty_weight: float = field(default=0.5, kw_only=True)
    ignore_threshold: float = field(default=0.6, kw_only=True)
    metric = "iou"
    label_group = LABEL

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "max_boxes")
        check_range(self, "[0, inf)", "box_weight", "empty_weight")
        check_range(self, "[0, 1]", "ignore_threshold")
        pairs = isinstance(self.anchors, tuple) and all(isinstance(pair, tuple) for pair in self.anchors)
        sizes = [size for pair in self.anchors for size in pair] if pairs else []
        numbers = all(isinstance(size, (int, float)) and 0 < size < math.inf for size in sizes)
        if not sizes or not numbers or any(len(pair) != 2 for pair in self.anchors):
            raise ValueError(
                "anchors of Yolo must be pairs of a width and a height above 0, as fractions of the image's, received "
                f"{self.anchors!r}; sparkdl.boxes.find_anchors finds them."
            )

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return LABEL * self.max_boxes

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """How many a network of that shape of a row's output tells apart."""
        return output_shape[-1] // len(self.anchors) - LABEL

    def check(self, output_shape: tuple[int, ...]) -> None:
        count = len(self.anchors)
        if len(output_shape) != 3 or output_shape[2] % count or self.classes(output_shape) < 1:
            raise ValueError(
                f"Yolo of {count} anchors needs a network ending in rows of shape (rows, columns, {count} * (5 + "
                f"classes)), this one ends in {tuple(output_shape)}; put Conv({count} * (5 + classes), 1) at its end."
            )

    def names_places(self, output_shape: tuple[int, ...]) -> bool:
        return True

    def moved(self, labels: Array, output_shape: tuple[int, ...], move: Move) -> Array:
        truth = labels.reshape(len(labels), self.max_boxes, LABEL)
        boxes, inside = moved_boxes(truth[..., 1:].astype(move.matrix.dtype), move)
        kinds = jnp.where(inside, truth[..., 0], NO_OBJECT)
        found = jnp.concatenate([kinds[..., None], boxes.astype(truth.dtype)], axis=-1).reshape(labels.shape)
        return jnp.where(jnp.isnan(labels), labels, found)  # of a row without this one of several labels

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        flat = labels.reshape(len(labels), math.prod(labels.shape[1:]))
        if flat.shape[1] % LABEL or labels.ndim == 3 and labels.shape[2] != LABEL:
            raise ValueError(
                f"Yolo takes labels of shape (boxes, {LABEL}), or as many numbers, received {labels.shape[1:]}; give "
                "class, left, top, right and bottom of each box."
            )
        if flat.shape[1] > self.labels_a_row(output_shape):
            raise ValueError(
                f"Yolo takes {self.max_boxes} boxes a row, received {flat.shape[1] // LABEL}; raise max_boxes."
            )
        boxes = flat.reshape(len(flat), flat.shape[1] // LABEL, LABEL).astype(np.float64)
        self._check_boxes(boxes[boxes[..., 0] != NO_OBJECT], self.classes(output_shape))
        boxes[..., 1:] = np.clip(boxes[..., 1:], 0, 1)
        encoded = np.full((len(flat), self.max_boxes, LABEL), NO_OBJECT)
        encoded[:, : boxes.shape[1]] = boxes
        return encoded.reshape(len(flat), self.labels_a_row(output_shape))

    def predict(self, outputs: Array) -> Array:
        each = self._each(outputs)
        corners, objectness = self._corners(each), jax.nn.sigmoid(each[..., BOX : BOX + 1])
        chances = jax.nn.softmax(each[..., LABEL:])
        return jnp.concatenate([corners, objectness, chances], axis=-1).reshape(outputs.shape)

    def losses(self, outputs: Array, targets: Array) -> Array:
        each, truth = self._each(outputs), targets.reshape(len(targets), self.max_boxes, LABEL)
        there, boxes = truth[..., 0] >= 0, truth[..., 1:]
        place, found, wanted = self._assigned(each, boxes)
        x, y, w, h = jnp.split(found[..., :BOX], BOX, axis=-1)
        told = jnp.concatenate([jax.nn.sigmoid(x), jax.nn.sigmoid(y), w, h], axis=-1)
        kinds = jnp.maximum(truth[..., 0], 0).astype(jnp.int32)[..., None]
        chances = jnp.take_along_axis(jax.nn.log_softmax(found[..., LABEL:]), kinds, axis=-1)[..., 0]
        of_box = self.box_weight * ((told - wanted) ** 2).sum(axis=-1) - chances - jax.nn.log_sigmoid(found[..., BOX])
        flat = each.reshape(len(each), -1, each.shape[-1])
        corners = jax.lax.stop_gradient(self._corners(each)).reshape(*flat.shape[:2], BOX)
        beside = jnp.where(there[:, None], overlaps(corners, boxes, jnp), 0)
        empty = beside.max(axis=-1) <= self.ignore_threshold
        rows = jnp.arange(len(each))[:, None]
        empty = empty.at[rows, jnp.where(there, place, flat.shape[1])].set(False, mode="drop")
        of_empty = jnp.where(empty, -jax.nn.log_sigmoid(-flat[..., BOX]), 0).sum(axis=1)
        return jnp.where(there, of_box, 0).sum(axis=1) + self.empty_weight * of_empty

    def metrics(self, outputs: Array, labels: Array) -> Array:
        each, truth = self._each(outputs), self.targets(outputs, labels).reshape(len(labels), self.max_boxes, LABEL)
        there, boxes = truth[..., 0] >= 0, truth[..., 1:]
        place, _, _ = self._assigned(each, boxes)
        corners = self._corners(each).reshape(len(each), -1, BOX)
        found = jnp.take_along_axis(corners, place[..., None], axis=1)
        hits = jnp.where(there, overlaps(found[..., None, :], boxes[..., None, :], jnp)[..., 0, 0], 0).sum(axis=1)
        count = there.sum(axis=1)
        return jnp.where(count > 0, hits / jnp.maximum(count, 1).astype(hits.dtype), 1)

    def _check_boxes(self, boxes: np.ndarray[Any, Any], classes: int) -> None:
        """Of boxes (n, 5) that are objects."""
        kinds, corners = boxes[:, 0], boxes[:, 1:]
        wrong = kinds[~np.isin(kinds, range(classes))]
        if len(wrong):
            raise ValueError(
                f"Classes of boxes must be whole numbers from 0 to {classes - 1}, or -1 for no box, since the network "
                f"tells {classes} classes apart, received {wrong[0]:.15g}; index the classes."
            )
        inside = (corners >= -ROUNDING).all(axis=1) & (corners <= 1 + ROUNDING).all(axis=1)
        wrong = corners[~(inside & (corners[:, 0] < corners[:, 2]) & (corners[:, 1] < corners[:, 3]))]
        if len(wrong):
            raise ValueError(
                "Boxes must be left, top, right and bottom as fractions of the image's width and height, left before "
                f"right and top before bottom, received {wrong[0].tolist()}; divide pixels by the image's size, and "
                "cut what lies beyond it."
            )

    def _each(self, outputs: Array) -> Array:
        """(batch, rows, columns, anchors, 5 + classes)."""
        return outputs.reshape(*outputs.shape[:3], len(self.anchors), -1)

    def _corners(self, each: Array) -> Array:
        """Left, top, right and bottom of every box, as fractions: (batch, rows, columns, anchors, 4)."""
        rows, columns = each.shape[1:3]
        cells = jnp.stack(jnp.meshgrid(jnp.arange(columns), jnp.arange(rows)), axis=-1)[None, :, :, None]
        grid = jnp.asarray([columns, rows], each.dtype).reshape(1, 1, 1, 1, 2)
        centers = (jax.nn.sigmoid(each[..., :2]) + cells.astype(each.dtype)) / grid
        halves = jnp.exp(each[..., 2:BOX]) * self._sizes(each.dtype).reshape(1, 1, 1, -1, 2) / 2
        return jnp.concatenate([centers - halves, centers + halves], axis=-1)

    def _assigned(self, each: Array, boxes: Array) -> tuple[Array, Array, Array]:
        """Of true boxes (batch, boxes, 4): which one of all is to find each; its outputs, and what they are to be."""
        batch, rows, columns, anchors, _ = each.shape
        grid = jnp.asarray([columns, rows], boxes.dtype).reshape(1, 1, 2)
        sizes = jnp.maximum(boxes[..., 2:] - boxes[..., :2], jnp.finfo(boxes.dtype).eps)
        centers = (boxes[..., :2] + boxes[..., 2:]) / 2 * grid
        cells = jnp.clip(jnp.floor(centers), 0, grid - 1)
        own = self._sizes(boxes.dtype)
        anchor = size_overlaps(sizes, own[None], jnp).argmax(axis=-1)
        column, row = cells[..., 0].astype(anchor.dtype), cells[..., 1].astype(anchor.dtype)
        place = (row * columns + column) * anchors + anchor
        found = jnp.take_along_axis(each.reshape(batch, rows * columns * anchors, -1), place[..., None], axis=1)
        return place, found, jnp.concatenate([centers - cells, jnp.log(sizes / own[anchor])], axis=-1)

    def _sizes(self, dtype: Any) -> Array:
        return jnp.asarray(self.anchors, dtype)
