"""Nested weights, {layer name: {weight name: array}}: counted, named by path, changed in part, and as bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import jax
import numpy as np

from sparkdl.layers.base import Weights


def count_weights(weights: Weights) -> int:
    """Number of scalars in a tree of arrays."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(weights))


def named_arrays(weights: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """("conv_0/kernel", array) for every array of nested weights, in their order."""
    for name, value in weights.items():
        if isinstance(value, Mapping):
            yield from named_arrays(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def nested_weights(arrays: Mapping[str, Any]) -> Weights:
    """The inverse of `named_arrays`."""
    weights: Weights = {}
    for path, value in arrays.items():
        *layers, name = path.split("/")
        place = weights
        for layer in layers:
            place = place.setdefault(layer, {})
        place[name] = value
    return weights


def updated(weights: Weights, part: Weights) -> Weights:
    """`weights` with the arrays of `part` in place of its own."""
    changed = {key: updated(weights.get(key, {}), new) if isinstance(new, dict) else new for key, new in part.items()}
    return {**weights, **changed}


def write_weights(file: BinaryIO, weights: Weights) -> None:
    """Write an npz archive, by the arrays' paths; for files that do not outlive their fit, or bytes on their way."""
    np.savez(file, **dict(named_arrays(weights)))


def read_weights(file: BinaryIO) -> Weights:
    """The weights that `write_weights` wrote; nothing is unpickled."""
    with np.load(file, allow_pickle=False) as arrays:
        return nested_weights(dict(arrays))


def weights_to_bytes(weights: Weights) -> bytes:
    """What `write_weights` writes."""
    buffer = io.BytesIO()
    write_weights(buffer, weights)
    return buffer.getvalue()


def weights_from_bytes(data: bytes) -> Weights:
    """The weights of `weights_to_bytes`."""
    return read_weights(io.BytesIO(data))
