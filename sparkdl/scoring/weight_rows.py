"""Weights as rows of an Arrow table and back, cut so that no row, file or message to Spark grows with the network."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from sparkdl.layers.base import Weights
from sparkdl.tensor_file import bytes_of
from sparkdl.weights import named_arrays, nested_weights

PART_BYTES = 4 << 20  # of one row
FILE_BYTES = 32 << 20  # of the rows of one list, which becomes one file
CODECS = {"UNCOMPRESSED", "SNAPPY"}  # of files; format 1 had the latter, of whose bytes at most 21 come
INFLATION = 64  # times its size that a file may hold, beyond FILE_BYTES
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("dtype", pa.string()),
        ("shape", pa.list_(pa.int32())),
        ("part", pa.int32()),
        ("data", pa.binary()),
    ]
)


def cut(weights: Weights) -> Iterator[list[dict[str, Any]]]:
    """The weights as rows of `SCHEMA`, in lists with at most FILE_BYTES of data or a single row."""
    kept: list[dict[str, Any]] = []
    size = 0
    for row in _rows(weights):
        if kept and size + len(row["data"]) > FILE_BYTES:
            yield kept
            kept, size = [], 0
        kept.append(row)
        size += len(row["data"])
    yield kept


def assembled(files: Iterable[bytes], most: float = math.inf) -> Weights:
    """The weights that were `cut`, from Parquet files of its rows.

    Parameters
    ----------
    files : iterable of bytes
    most : float
        Bytes that the weights have at most.

    Raises
    ------
    Exception
        The rows are not those of weights; what is wrong with them decides of which kind, ValueError in most cases.
    """
    pieces: dict[str, list[dict[str, Any]]] = {}
    for row in itertools.chain.from_iterable(map(_read, files)):
        pieces.setdefault(row["name"], []).append(row)
        most -= len(row["data"])
        if most < 0:
            raise ValueError("the rows of weights hold more than the network's.")
    arrays = {}
    for name in sorted(pieces):
        rows = sorted(pieces.pop(name), key=lambda row: row["part"])  # so that all is there about once
        if [row["part"] for row in rows] != list(range(len(rows))):
            raise ValueError(f"weight {name!r} has parts {[row['part'] for row in rows]} instead of each one once.")
        shape, kind = rows[0]["shape"], np.dtype(rows[0]["dtype"])
        data = b"".join(row["data"] for row in rows)
        if kind.kind not in "fiu" or min(shape, default=0) < 0 or len(data) != kind.itemsize * math.prod(shape):
            raise ValueError(f"the {len(data)} bytes of weight {name!r} do not fill shape {shape} of {kind}.")
        arrays[name] = np.frombuffer(data, kind.newbyteorder("<")).astype(kind, copy=False).reshape(shape)
    return nested_weights(arrays)


def _read(content: bytes) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, one at a time, since a small file can hold more than there is memory.

    Raises
    ------
    ValueError
        There is more in it than `cut` puts into one, or it is of a compression of which too much can come.
    """
    file = parquet.ParquetFile(pa.BufferReader(content))
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    found = {group.column(at).compression for group in groups for at in range(group.num_columns)}
    if not found <= CODECS:
        raise ValueError(f"a file of weights is compressed by {min(found - CODECS)}, as none is saved.")
    most = FILE_BYTES + INFLATION * len(content)
    if file.metadata.num_rows > len(content):  # each has a name
        raise ValueError(f"a file of weights of {len(content)} bytes claims {file.metadata.num_rows} rows.")
    for batch in file.iter_batches(batch_size=1):
        for row in pa.Table.from_batches([batch]).select(SCHEMA.names).cast(SCHEMA).to_pylist():
            most -= len(row["data"])
            if most < 0:
                raise ValueError(f"a file of weights of {len(content)} bytes holds more than a save puts there.")
            yield row


def digest(weights: Weights) -> str:
    """SHA-256 over names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, array in sorted(named_arrays(weights), key=lambda item: item[0]):
        total.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        total.update(bytes_of(array))
    return total.hexdigest()


def _rows(weights: Weights) -> Iterator[dict[str, Any]]:
    for name, array in named_arrays(weights):
        data = bytes_of(array)
        for part in range(max(1, math.ceil(len(data) / PART_BYTES))):
            piece = bytes(data[part * PART_BYTES : (part + 1) * PART_BYTES])
            yield {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "part": part, "data": piece}


def read_only(weights: Weights) -> Weights:
    """The same arrays, which cannot be changed by these names."""
    arrays = {path: np.asarray(value).view() for path, value in named_arrays(weights)}
    for array in arrays.values():
        array.flags.writeable = False
    return nested_weights(arrays)
