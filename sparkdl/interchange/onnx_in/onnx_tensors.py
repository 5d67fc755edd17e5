"""Arrays of ONNX files, within the file or in one beside it; their sizes are checked first."""

from __future__ import annotations

import math
import os
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_in.refusal import Refused

FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
FLOATS = ("float16", "float32", "float64", "bfloat16")


def array_of(tensor: Any, folder: str) -> Array:
    """The array of a TensorProto; of half precision as float32.

    Raises
    ------
    OSError
        The file beside, which has its numbers, is not there or cannot be read.
    Refused
        Its sizes and its bytes disagree, or it is of a type, or in a place, that is not read.
    """
    onnx = require_onnx()
    shape = tuple(int(size) for size in tensor.dims)
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError):
        raise Refused(f"its array {tensor.name!r} is of no type that is known") from None
    if dtype.name not in WHOLE + FLOATS:
        raise Refused(f"its array {tensor.name!r} is of {dtype}; export it with numbers of float32")
    if any(size < 0 for size in shape):
        raise Refused(f"its array {tensor.name!r} has the shape {shape}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        array = np.frombuffer(_beside(tensor, folder, math.prod(shape) * dtype.itemsize), dtype.newbyteorder("<"))
    elif tensor.HasField("raw_data"):
        _check(tensor, len(tensor.raw_data), math.prod(shape) * dtype.itemsize, "bytes")
        array = np.frombuffer(tensor.raw_data, dtype.newbyteorder("<"))
    else:
        _check(tensor, max(len(getattr(tensor, name)) for name in FIELDS), math.prod(shape), "numbers")
        try:
            array = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError):
            raise Refused(f"its array {tensor.name!r} has numbers that are not of {dtype}") from None
    array = array.reshape(shape).astype(dtype, copy=False)
    return array.astype(np.float32) if dtype.name in ("float16", "bfloat16") else array


def _check(tensor: Any, given: int, wanted: int, what: str) -> None:
    if given != wanted:
        raise Refused(f"its array {tensor.name!r} of shape {tuple(tensor.dims)} has {given} {what}, not {wanted}")


def _beside(tensor: Any, folder: str, wanted: int) -> bytes:
    """The bytes of an array in another file, which must lie in the folder of this one, or in one below."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    place = told.get("location", "")
    paths = PurePosixPath(place), PureWindowsPath(place)
    if not place or "\0" in place or any(path.is_absolute() or path.drive or ".." in path.parts for path in paths):
        raise Refused(f"its array {tensor.name!r} is said to lie in {place!r}, which is not beside it; leave it unread")
    path = os.path.realpath(os.path.join(folder, place))
    if os.path.commonpath([path, folder]) != folder or (os.path.exists(path) and not os.path.isfile(path)):
        raise Refused(f"its array {tensor.name!r} is said to lie in {place!r}, which is no file beside it")
    try:
        offset, length = int(told.get("offset", "0")), int(told.get("length", str(wanted)))
    except ValueError:
        raise Refused(f"its array {tensor.name!r} has no number for the bytes in {place!r}") from None
    _check(tensor, length, wanted, "bytes")
    if offset < 0 or offset + length > os.path.getsize(path):
        raise Refused(f"its array {tensor.name!r} is said to go beyond the end of {place!r}")
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)
