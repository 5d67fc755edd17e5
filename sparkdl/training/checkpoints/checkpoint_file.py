"""The bytes of a checkpoint: a safetensors file with a checksum over everything, so that no damage goes unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.tensor_file import decoded, encoded

FORMAT = 1  # of a file; a reader refuses what was written in a newer one

Arrays = dict[str, np.ndarray[Any, Any]]

# Many programs read safetensors. It has no checksum and only text as metadata, so ours holds, besides `meta` as JSON,
# the SHA-256 of the whole file as it is with zeros in place of the digest. (npz's directory has no checksum either.)
_START = b'{"__metadata__":{"sparkdl_checkpoint":"'
_NO_DIGEST = b"0" * 64


def encode(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[bytes | memoryview]:
    """The bytes of a checkpoint, in parts: its beginning, and each array, of which it makes no copy.

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
    size = sum(array.nbytes for array in arrays.values())
    text = {"sparkdl_checkpoint": str(FORMAT), "sha256": _NO_DIGEST.decode(), "size": str(size)}
    length, header, *parts = encoded(arrays, {**text, "meta": json.dumps(meta)})
    digest = _sha256(length, header, *parts)
    return [length, bytes(header).replace(_NO_DIGEST, digest, 1), *parts]


def decode(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The metadata and arrays whose bytes `encode` gave, equal to the bit.

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
    arrays = decoded(data, "This checkpoint").arrays
    return json.loads(text["meta"]), {name: np.array(array) for name, array in arrays.items()}


def _sha256(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
