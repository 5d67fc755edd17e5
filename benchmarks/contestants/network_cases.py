"""The networks, rows, initial weights and turns of the benchmark of residual networks, the same for everybody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from contestants.serve import Taker, Turn

from sparkdl import Network, models
from sparkdl.weights import named_arrays, nested_weights

Array = np.ndarray[Any, Any]

CLASSES, BATCH, BATCHES, SEED, STEP_SIZE = 10, 64, 8, 0, 0.01
SIDE = 32  # of the images in the folder


def network_of(case: str) -> Network:
    """That of a case: its name and the side of its images, as in "resnet18_32"."""
    name, side = case.rsplit("_", 1)
    shape = (int(side), int(side), 3)
    if name == "mobilenet":
        return models.mobilenet_v2(shape, CLASSES, dropout=0.0)  # without what each draws by itself
    return models.resnet18(shape, CLASSES)


def write_case(folder: Path, case: str) -> None:
    """Write the network's initial weights."""
    np.savez(folder / f"{case}.npz", **dict(named_arrays(network_of(case).init(SEED))))


def read_weights(folder: Path, case: str) -> dict[str, Any]:
    """What `write_case` wrote, nested by layer."""
    with np.load(folder / f"{case}.npz") as arrays:
        return nested_weights(dict(arrays))


def read_batches(folder: Path, case: str) -> list[tuple[Array, Array]]:
    """Batches of images, standardized float32 of the case's size, and classes."""
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    times = int(case.rsplit("_", 1)[1]) // SIDE
    rows = images.astype(np.float32) / 127.5 - 1
    rows = rows.repeat(times, axis=1).repeat(times, axis=2)
    return [(rows[at : at + BATCH], labels[at : at + BATCH]) for at in range(0, BATCH * BATCHES, BATCH)]


def taker(advance: Callable[..., Any], batches: Iterator[Any], compile_s: float) -> Taker:
    """What takes turns of steps `advance(images, classes) -> loss` on batches without end."""

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        losses = [float(advance(*next(batches))) for _ in range(steps)]
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "steps": steps, "loss": losses[-1], "losses": losses, "compile": compile_s}

    return take
