"""Boxes around objects in images: which of a detector's predictions to keep, and which anchors to give it.

A box is left, top, right and bottom, as fractions of an image's width and height from its upper left corner.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkdl.arrays import Array

BOX = 4  # numbers of one
LABEL = 1 + BOX  # the class before it
NO_OBJECT = -1.0  # the class of a box that is there to fill a row of labels up
KEPT = np.dtype([("class", "int32"), *((name, "float32") for name in ("score", "left", "top", "right", "bottom"))])
ROUNDS = 100  # of k-means, which takes a dozen


def overlaps(boxes: Any, others: Any, xp: Any = np) -> Any:
    """Intersection over union of every box with every other, (..., n, m) from (..., n, 4) and (..., m, 4).

    `xp` is NumPy or jax.numpy. Boxes without an area overlap with nothing.
    """
    boxes, others = boxes[..., :, None, :], others[..., None, :, :]
    corner = xp.minimum(boxes[..., 2:], others[..., 2:])
    sides = xp.maximum(corner - xp.maximum(boxes[..., :2], others[..., :2]), 0)
    both = sides[..., 0] * sides[..., 1]
    either = _area(boxes) + _area(others) - both
    return xp.where(both > 0, both / xp.where(both > 0, either, 1), 0)


def select_boxes(
    predictions: Any,
    classes: int,
    *,
    score_threshold: float = 0.5,
    overlap_threshold: float = 0.45,
    max_boxes: int = 100,
) -> list[Array]:
    """The boxes that a detector is sure of, without those that lie on a better one of their class.

    A box's class is the likeliest, and its score the confidence that there is an object times that class's probability.
    Of boxes of one class that overlap, the one of the largest score stays (non-maximum suppression).

    Parameters
    ----------
    predictions : array (n, ...)
        What the loss `Yolo` predicts: of a row, boxes of 5 + classes numbers each, whatever the shape: left, top,
        right, bottom, confidence, and a probability for each class.
    classes : int
    score_threshold : float, default 0.5
        Boxes of less are left out.
    overlap_threshold : float, default 0.45
        The intersection over union with a better box of the same class above which a box is left out.
    max_boxes : int, default 100
        The best so many of a row are kept.

    Returns
    -------
    list of structured arrays
        One for each row, the best box first, of fields class, score, left, top, right, bottom. Corners are within the
        image.

    Raises
    ------
    ValueError
        A row is not of boxes of so many numbers, or an option is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl.boxes import select_boxes
    >>> twice = [[0.1, 0.1, 0.5, 0.5, 0.9, 0.2, 0.8], [0.1, 0.1, 0.5, 0.6, 0.7, 0.1, 0.9]]
    >>> [found] = select_boxes(np.array([twice]), classes=2)
    >>> print(len(found), found["class"][0], found["score"][0].round(2), found["right"][0])
    1 1 0.72 0.5
    """
    check_selection(classes, score_threshold, overlap_threshold, max_boxes)
    predictions = np.asarray(predictions)
    size = int(np.prod(predictions.shape[1:]))
    if predictions.ndim < 2 or size % (LABEL + classes):
        raise ValueError(
            f"predictions of {classes} classes must be rows of boxes of {LABEL + classes} numbers each, received shape "
            f"{predictions.shape}; give what a model of the loss Yolo predicts, and its number of classes."
        )
    rows = predictions.reshape(len(predictions), size // (LABEL + classes), LABEL + classes)
    return [_selected(row, score_threshold, overlap_threshold, max_boxes) for row in rows]


def check_selection(classes: int, score_threshold: float, overlap_threshold: float, max_boxes: int) -> None:
    """ValueError for options of `select_boxes` out of range."""
    for name, value in (("classes", classes), ("max_boxes", max_boxes)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, received {value!r}.")
    for name, fraction in (("score_threshold", score_threshold), ("overlap_threshold", overlap_threshold)):
        if not 0 <= fraction <= 1:
            raise ValueError(f"{name} must be between 0 and 1, received {fraction!r}.")


def find_anchors(sizes: Any, count: int, seed: int = 0) -> tuple[tuple[float, float], ...]:
    """Widths and heights that boxes of these sizes are near to, for a detector to begin from, by their area.

    k-means by the distance 1 - intersection over union of boxes with one center (Redmon and Farhadi 2017, section 2);
    the first means are drawn by k-means++.

    Parameters
    ----------
    sizes : array (n, 2)
        Width and height of boxes, as fractions of their images'; some thousands are enough.
    count : int
        How many; 5 is usual, more find more and take longer.
    seed : int, default 0

    Raises
    ------
    ValueError
        Sizes are not above 0, or there are fewer different ones than `count`.
    """
    sizes = np.asarray(sizes, np.float64)
    if sizes.ndim != 2 or sizes.shape[1:] != (2,) or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ValueError(f"sizes must be an array (n, 2) of numbers above 0, received {sizes!r:.80}.")
    different = len(np.unique(sizes, axis=0))
    if not 1 <= count <= different:
        raise ValueError(f"count must be from 1 to {different}, the number of different sizes, received {count}.")
    random = np.random.default_rng(seed)
    means = sizes[random.integers(len(sizes), size=1)]
    while len(means) < count:
        apart = 1 - size_overlaps(sizes, means).max(axis=1)
        means = np.concatenate([means, sizes[random.choice(len(sizes), 1, p=apart / apart.sum())]])
    for _ in range(ROUNDS):
        nearest = size_overlaps(sizes, means).argmax(axis=1)
        held = [sizes[nearest == place] for place in range(count)]
        moved = np.array([own.mean(axis=0) if len(own) else mean for own, mean in zip(held, means, strict=True)])
        if (moved == means).all():
            break
        means = moved
    means = means[np.argsort(means.prod(axis=1), kind="stable")]
    return tuple((float(width), float(height)) for width, height in means)


def size_overlaps(sizes: Any, others: Any, xp: Any = np) -> Any:
    """As `overlaps`, of boxes of one center whose widths and heights these are: (..., n, m) from (..., 2) each."""
    sizes, others = sizes[..., :, None, :], others[..., None, :, :]
    both = xp.minimum(sizes, others).prod(axis=-1)
    return both / (sizes.prod(axis=-1) + others.prod(axis=-1) - both)


def _area(boxes: Any) -> Any:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _selected(row: Array, score_threshold: float, overlap_threshold: float, max_boxes: int) -> Array:
    chances = row[:, LABEL:]
    kinds = chances.argmax(axis=1)
    scores = row[:, BOX] * chances.max(axis=1)
    left = np.flatnonzero(scores >= score_threshold)  # NaN is left out
    left = left[np.argsort(-scores[left], kind="stable")]
    corners = np.clip(row[:, :BOX], 0, 1)
    kept: list[int] = []
    while len(left) and len(kept) < max_boxes:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        beside = overlaps(corners[best][None], corners[left])[0]
        left = left[(beside <= overlap_threshold) | (kinds[left] != kinds[best])]
    found = np.zeros(len(kept), KEPT)
    found["class"], found["score"] = kinds[kept], scores[kept]
    for place, name in enumerate(("left", "top", "right", "bottom")):
        found[name] = corners[kept, place]
    return found
