"""safetensors files, read and written: a header of JSON, then the bytes of the arrays, and nothing that could be run.

The format is that of https://github.com/huggingface/safetensors: 8 bytes with the length of the header; the header,
{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [first, last]}, ...} and perhaps "__metadata__", a mapping of
text to text; the arrays one after the other, in C order. All is little-endian.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sparkdl.arrays import Array

HEADER_BYTES = 100_000_000  # of the longest header that readers of the format take
ALIGNED = 8  # bytes, of the first array
METADATA = "__metadata__"
DTYPES = {
    "F64": np.dtype("float64"), "F32": np.dtype("float32"), "F16": np.dtype("float16"),
    "BF16": np.dtype(jnp.bfloat16), "BOOL": np.dtype("bool"),
    "I64": np.dtype("int64"), "I32": np.dtype("int32"), "I16": np.dtype("int16"), "I8": np.dtype("int8"),
    "U64": np.dtype("uint64"), "U32": np.dtype("uint32"), "U16": np.dtype("uint16"), "U8": np.dtype("uint8"),
}  # fmt: skip
OTHERS = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "C64")  # of the format, which we do not read
CODES = {dtype: code for code, dtype in DTYPES.items()}
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")  # as PyTorch writes them by itself
PICKLED = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
REMEDY = (  # of the shell, to be followed by the names of both files
    'python -c "import sys, torch, safetensors.torch as s; a, b = sys.argv[1:]; '
    's.save_file({k: v.clone().contiguous() for k, v in torch.load(a, weights_only=True).items()}, b)"'
)


class TensorFile(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    arrays : dict of arrays
        By name, in the order of the file; views of its mapped pages, which cannot be written to.
    metadata : dict of str
    """

    arrays: dict[str, Array]
    metadata: dict[str, str]


def write_tensors(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to a file, which appears whole or not at all.

    Parameters
    ----------
    path : str or path
    arrays : mapping of arrays
        Of numbers or truth values, by any names.
    metadata : mapping of str, optional

    Raises
    ------
    ValueError
        An array is of a dtype that the format does not know, or has the name of the metadata.
    """
    path = os.fspath(path)
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            for part in encoded(arrays, metadata or {}):
                file.write(part)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def encoded(arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The bytes of a file, in parts: the length, the header, and each array."""
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    parts, offset = [], 0
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") not in CODES or name == METADATA:
            raise ValueError(
                f"Arrays of a safetensors file must be of {', '.join(map(str, CODES))}, by other names than "
                f"{METADATA}, received {name!r} of {array.dtype}; convert it first."
            )
        part = bytes_of(array)
        end = offset + part.nbytes
        code = CODES[array.dtype.newbyteorder("=")]
        table[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, end]}
        parts.append(part)
        offset = end
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNED)
    yield len(header).to_bytes(8, "little")
    yield header
    yield from parts


def bytes_of(array: Array) -> memoryview:
    """Those of an array, little-endian and in C order; a view where they lie so in memory."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def read_tensors(path: str | os.PathLike[str]) -> TensorFile:
    """The arrays of a file, mapped to memory.

    Raises
    ------
    OSError
        The file is not there or cannot be read.
    ValueError
        It is no safetensors file, or is damaged: arrays overlap, leave holes, or are longer or shorter than they say.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        if os.path.splitext(path)[1].lower() in PICKLES:
            raise ValueError(_of_a_pickle(path))
        size = os.fstat(file.fileno()).st_size
        if size < 10:
            raise ValueError(f"{path!r} is no safetensors file: it has {size} bytes.")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return decoded(mapped, repr(path))
    except ValueError:
        if mapped[:4] == b"PK\x03\x04" or mapped[:2] in PICKLED:
            raise ValueError(_of_a_pickle(path)) from None
        raise


def decoded(data: Any, subject: str) -> TensorFile:
    """The arrays in the bytes of a file, as views of them; ValueError, whose sentence begins with the subject."""
    whole = memoryview(data)
    length = int.from_bytes(whole[:8], "little")
    if length > HEADER_BYTES or 8 + length > len(whole):
        raise ValueError(f"{subject} is no safetensors file, or a part of one: its header would have {length} bytes.")
    try:
        table = _parsed(bytes(whole[8 : 8 + length]))
        metadata = table.pop(METADATA, {})
        if not all(isinstance(text, str) for text in metadata.values()):
            raise _Wrong("its metadata are not text")
        body = whole[8 + length :]
        return TensorFile(_cut(table, body), metadata)
    except _Unread as unread:
        raise ValueError(f"{subject} cannot be read here: {unread}.") from None
    except _Wrong as wrong:
        raise ValueError(f"{subject} is damaged: {wrong}; take it anew from where it comes from.") from None


class _Wrong(Exception):
    """What is wrong with a file."""


class _Unread(Exception):
    """What of a file is not for us, and what to do about it."""


def _of_a_pickle(path: str) -> str:
    written = f"{os.path.splitext(path)[0]}.safetensors"
    return (
        f"{path!r} is, or seems to be, a pickle, which could run any code as it is read; write it as safetensors "
        f"where you trust it: {REMEDY} {shlex.quote(path)} {shlex.quote(written)}"
    )


def _parsed(header: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _Wrong("its header has a name twice")
        return found

    try:
        table = json.loads(header.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise _Wrong("its header is no JSON") from None
    if header[:1] != b"{" or not all(isinstance(entry, dict) for entry in table.values()):
        raise _Wrong("its header is no table of arrays")
    return table


def _cut(table: Mapping[str, Any], body: memoryview) -> dict[str, Array]:
    """The arrays, which fill the body without holes."""
    entries = {name: _entry(name, entry) for name, entry in table.items()}
    at = 0
    for name, (_, _, first, last) in sorted(entries.items(), key=lambda entry: entry[1][2:]):
        if first != at:
            raise _Wrong(f"{name!r} begins at byte {first}, where the array before it ends at {at}")
        at = last
    if at != len(body):
        raise _Wrong(f"its arrays have {at} bytes, but {len(body)} are there")
    return {
        name: _shaped(name, np.frombuffer(body[first:last], dtype), shape)
        for name, (dtype, shape, first, last) in entries.items()
    }


def _shaped(name: str, numbers: Array, shape: list[int]) -> Array:
    try:
        return numbers.reshape(shape)
    except (ValueError, OverflowError):  # of more axes, or longer ones beside one of 0, than NumPy has
        raise _Wrong(f"{name!r} has a shape {shape!r:.60}, which no array can have") from None


def _entry(name: str, entry: Mapping[str, Any]) -> tuple[np.dtype[Any], list[int], int, int]:
    """dtype, shape, first and last byte (exclusive) of an array."""

    def counts(value: Any) -> bool:
        return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)

    if entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _Wrong(f"{name!r} is told by {', '.join(map(str, entry)) or 'nothing'}")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if code in OTHERS:
        raise _Unread(f"{name!r} is of {code}, which is none of {', '.join(DTYPES)}; convert it")
    if not isinstance(code, str) or code not in DTYPES:
        raise _Wrong(f"{name!r} is of {code!r}, which is none of {', '.join(DTYPES)}")
    if not counts(shape) or not counts(offsets) or len(offsets) != 2:
        raise _Wrong(f"{name!r} has a shape {shape!r} and offsets {offsets!r}")
    first, last = offsets
    dtype = DTYPES[code].newbyteorder("<")
    if last - first != dtype.itemsize * math.prod(shape):
        raise _Wrong(f"{name!r} of shape {tuple(shape)} and {DTYPES[code]} has {last - first} bytes")
    return dtype, shape, first, last
