"""Weights as rows of an Arrow table and back, cut so that no row, file or message to Spark grows with the network."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.layers.base import Weights
from sparkdl.network import named_arrays, nested_weights

PART_BYTES = 4 << 20  # of one row
FILE_BYTES = 32 << 20  # of the rows of one table, which becomes one file
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("dtype", pa.string()),
        ("shape", pa.list_(pa.int32())),
        ("part", pa.int32()),
        ("data", pa.binary()),
    ]
)


def tables(weights: Weights) -> Iterator[pa.Table]:
    """The weights as rows of `SCHEMA`, each table of them with at most FILE_BYTES of data or a single row."""
    kept: list[dict[str, Any]] = []
    size = 0
    for row in _rows(weights):
        if kept and size + len(row["data"]) > FILE_BYTES:
            yield pa.Table.from_pylist(kept, SCHEMA)
            kept, size = [], 0
        kept.append(row)
        size += len(row["data"])
    yield pa.Table.from_pylist(kept, SCHEMA)


def assembled(parts: Iterable[pa.Table]) -> Weights:
    """The weights that `tables` cut.

    Raises
    ------
    Exception
        The rows are not those of weights; what is wrong with them decides of which kind, ValueError in most cases.
    """
    pieces: dict[str, list[dict[str, Any]]] = {}
    for table in parts:
        for row in table.select(SCHEMA.names).cast(SCHEMA).to_pylist():
            pieces.setdefault(row["name"], []).append(row)
    arrays = {}
    for name in sorted(pieces):
        rows = sorted(pieces[name], key=lambda row: row["part"])
        if [row["part"] for row in rows] != list(range(len(rows))):
            raise ValueError(f"weight {name!r} has parts {[row['part'] for row in rows]} instead of each one once.")
        shape, kind = rows[0]["shape"], np.dtype(rows[0]["dtype"])
        data = b"".join(row["data"] for row in rows)
        if kind.kind not in "fiu" or min(shape, default=0) < 0 or len(data) != kind.itemsize * math.prod(shape):
            raise ValueError(f"the {len(data)} bytes of weight {name!r} do not fill shape {shape} of {kind}.")
        arrays[name] = np.frombuffer(data, kind.newbyteorder("<")).astype(kind).reshape(shape)
    return nested_weights(arrays)


def digest(weights: Weights) -> str:
    """SHA-256 over names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, array in sorted(named_arrays(weights), key=lambda item: item[0]):
        total.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        total.update(_little_endian(array).tobytes())
    return total.hexdigest()


def _rows(weights: Weights) -> Iterator[dict[str, Any]]:
    for name, array in named_arrays(weights):
        data = _little_endian(array).tobytes()
        for part in range(max(1, math.ceil(len(data) / PART_BYTES))):
            piece = data[part * PART_BYTES : (part + 1) * PART_BYTES]
            yield {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "part": part, "data": piece}


def _little_endian(array: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)


def read_only(weights: Weights) -> Weights:
    """The same arrays, which cannot be changed by these names."""
    arrays = {path: np.asarray(value).view() for path, value in named_arrays(weights)}
    for array in arrays.values():
        array.flags.writeable = False
    return nested_weights(arrays)
