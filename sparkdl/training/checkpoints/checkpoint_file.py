"""The bytes of a checkpoint: a safetensors file with a checksum over everything, so that no damage goes unseen."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

FORMAT = 1  # of a file; a reader refuses what was written in a newer one

Arrays = dict[str, np.ndarray[Any, Any]]

# Many programs read safetensors. It has no checksum and only text as metadata, so ours holds, besides `meta` as JSON,
# the SHA-256 of the whole file as it is with zeros in place of the digest. (npz's directory has no checksum either.)
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BOOL": "bool", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_START = b'{"__metadata__":{"sparkdl_checkpoint":"'
_NO_DIGEST = b"0" * 64


def encode(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The bytes of a checkpoint.

    Parameters
    ----------
    meta : mapping
        Any JSON, so lists for tuples; floats may be infinite or NaN.
    arrays : mapping of NumPy arrays
        Of any shape, of numbers or truth values; names may have slashes.

    Raises
    ------
    ValueError
        An array is of another dtype.
    """
    assert "__metadata__" not in arrays, "safetensors keeps that name for itself"
    parts: list[Any] = []
    offset = 0
    table: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.dtype.name not in _CODES:
            raise ValueError(f"Checkpoints hold {', '.join(_CODES)}; {name!r} is {array.dtype}, convert it first.")
        part = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        end = offset + part.nbytes
        table[name] = {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [offset, end]}
        parts.append(part.reshape(-1).view(np.uint8))
        offset = end
    text = {"sparkdl_checkpoint": str(FORMAT), "sha256": _NO_DIGEST.decode(), "size": str(offset)}
    header = json.dumps({"__metadata__": {**text, "meta": json.dumps(meta)}, **table}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # safetensors aligns the arrays
    length = len(header).to_bytes(8, "little")
    digest = _sha256(length, header, *parts)
    return b"".join([length, header.replace(_NO_DIGEST, digest, 1), *parts])


def decode(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The metadata and arrays that `encode` was given, equal to the bit.

    Raises
    ------
    ValueError
        The bytes are truncated, damaged, no checkpoint, or of a newer format.
    """
    if not data[8:].startswith(_START[: max(0, len(data) - 8)]):
        raise ValueError(f"This is no checkpoint of sparkdl: it starts with {data[:16]!r}.")
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < max(start, 8 + len(_START)):
        raise ValueError(f"This checkpoint is truncated: it ends after {len(data)} bytes, within its header.")
    header = data[8:start]
    try:
        table = json.loads(header)
        text = table.pop("__metadata__")
        version, size, digest = int(text["sparkdl_checkpoint"]), int(text["size"]), text["sha256"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("This checkpoint is damaged: its header cannot be read.") from None
    if version > FORMAT:
        raise ValueError(f"This checkpoint is in format {version}, this sparkdl reads up to {FORMAT}; upgrade sparkdl.")
    content = memoryview(data)[start:]
    if len(content) < size:
        raise ValueError(f"This checkpoint is truncated: {len(content)} of {size} bytes of arrays are there.")
    if digest != _sha256(data[:8], header.replace(digest, _NO_DIGEST, 1), content):
        raise ValueError("This checkpoint is damaged: its bytes do not have the checksum that it was written with.")
    return json.loads(text["meta"]), {name: _array(content, **entry) for name, entry in table.items()}


def _array(content: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray[Any, Any]:
    kind = np.dtype(_DTYPES[dtype])
    flat = np.frombuffer(content, kind.newbyteorder("<"), math.prod(shape), data_offsets[0])
    return flat.astype(kind).reshape(shape)


def _sha256(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
