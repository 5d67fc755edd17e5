"""The CIFAR-10 benchmark as plain numbers and arrays, the same for every contestant, whatever framework it uses.

Model and hyperparameters are those of TensorFlow's CIFAR-10 tutorial. The rows, initial weights and order of batches
lie as NumPy files in a folder that the benchmark makes and every contestant reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SIDE, CROP = 32, 24  # pixels of an image, and of the part of it that the network sees
MAX_DELTA, CONTRAST = 63.0, (0.2, 1.8)
RADIUS, BIAS, ALPHA, BETA = 4, 1.0, 0.001 / 9, 0.75  # of local response normalization
DECAY = 0.004  # the objective gains DECAY / 2 * sum(w * w) over the kernels of the two hidden dense layers
DECAYED = ("dense_1/kernel", "dense_2/kernel")
BATCH = 128
STEP_SIZE, PERIOD, FACTOR = 0.1, 350, 0.1  # the step size falls by FACTOR every PERIOD epochs
SEED = 0


def step_size(epoch: int) -> float:
    """The step size in an epoch (0, 1, ...)."""
    return STEP_SIZE * FACTOR ** (epoch // PERIOD)


def centred(images: Array) -> Array:
    """The centres of uint8 images (n, SIDE, SIDE, 3), standardised each: float32 (n, CROP, CROP, 3)."""
    first = (SIDE - CROP) // 2
    x = images[:, first : first + CROP, first : first + CROP].astype(np.float32)
    x -= x.mean(axis=(1, 2, 3), keepdims=True)
    return x / np.maximum(x.std(axis=(1, 2, 3), keepdims=True), x[0].size ** -0.5)


def shuffled(images: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
    """Batches of BATCH rows without end, every epoch in another order; the rows that fill no batch are left out."""
    for epoch in range(2**31):
        order = np.random.default_rng((SEED, epoch)).permutation(len(labels))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            yield images[chosen], labels[chosen]


def write_rows(folder: Path, split: str, images: Array, labels: Array) -> None:
    """Write uint8 images (n, SIDE, SIDE, 3) and their classes (n,) as the split "train" or "test"."""
    np.save(folder / f"{split}_images.npy", images)
    np.save(folder / f"{split}_labels.npy", labels.astype(np.int32))


def read_rows(folder: Path, split: str, rows: int | None = None) -> tuple[Array, Array]:
    """The images and classes of a split, or only the first `rows` of them."""
    parts = (np.load(folder / f"{split}_{kind}.npy", mmap_mode="r")[:rows] for kind in ("images", "labels"))
    images, labels = (np.array(part) for part in parts)
    return images, labels


def read_lesson(folder: Path, split: str, steps: int) -> tuple[Array, Array]:
    """What there is to learn from, or to test on, in so many steps: at most the rows that make two epochs of them."""
    return read_rows(folder, split, max(BATCH, steps * BATCH // 2))


def read_weights(folder: Path) -> dict[str, Array]:
    """The initial weights by name, as in "conv_1/kernel"; kernels are (height, width, inputs, outputs) or matrices."""
    with np.load(folder / "weights.npz") as arrays:
        return dict(arrays)


def write_order(folder: Path, epochs: Sequence[Sequence[Array]]) -> None:
    """Write which training rows every batch of every epoch holds; each epoch has as many batches."""
    flat = [batch for epoch in epochs for batch in epoch]
    np.savez(
        folder / "order.npz",
        rows=np.concatenate(flat),
        lengths=np.reshape([len(batch) for batch in flat], (len(epochs), -1)),
    )


def read_order(folder: Path, steps: int) -> list[list[Array]]:
    """What `write_order` wrote, or only the first epochs of it: as many as hold so many steps."""
    with np.load(folder / "order.npz") as arrays:
        rows, lengths = arrays["rows"], arrays["lengths"]
    batches = np.split(rows, np.cumsum(lengths)[:-1])
    per_epoch = lengths.shape[1]
    return [batches[first : first + per_epoch] for first in range(0, min(steps, len(batches)), per_epoch)]


def lesson(seconds: float, steps: int, history: list[float], accuracy: float) -> dict[str, Any]:
    """The answer of a contestant that has learned: mean objective of every epoch, and test accuracy."""
    return {"seconds": seconds, "steps": steps, "loss": history[-1], "history": history, "accuracy": accuracy}
