"""Nested weights, {layer name: {weight name: array}}: counted, named by path, changed in part, and as bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from sparkdl.layers.base import Weights
from sparkdl.tensor_file import decoded, encoded, read_tensors, write_tensors


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


def write_weights(path: str | os.PathLike[str], weights: Weights) -> None:
    """Write a safetensors file, by the arrays' paths; for one that does not outlive its fit."""
    write_tensors(path, dict(named_arrays(weights)))


def read_weights(path: str | os.PathLike[str]) -> Weights:
    """The weights that `write_weights` wrote, mapped to memory."""
    return nested_weights(read_tensors(path).arrays)


def weights_to_bytes(weights: Weights) -> bytes:
    """What `write_weights` writes."""
    return b"".join(weights_in_parts(weights))


def weights_in_parts(weights: Weights) -> Iterator[bytes | memoryview]:
    """What `weights_to_bytes` gives, one after the other and without a copy of the arrays."""
    return encoded(dict(named_arrays(weights)), {})


def weights_from_bytes(data: bytes | bytearray) -> Weights:
    """The weights of `weights_to_bytes`, as views of the bytes."""
    return nested_weights(decoded(data, "What should be weights").arrays)
