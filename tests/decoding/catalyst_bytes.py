"""Columns as `spark/driver/catalyst.py` sends them, by the description of UnsafeArrayData and UnsafeRow in Spark.

`tests/spark/test_column_types.py` has them from Spark itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

CODES = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float": "f", "double": "d"}
BINARY = pa.binary()


def array_bytes(values: list[Any], code: str) -> bytes:
    """The length, a bit for every null, the elements; each part in whole words of 8 bytes."""
    nulls = sum(1 << at for at, value in enumerate(values) if value is None)
    words = (len(values) + 63) // 64
    elements = struct.pack(f"<{len(values)}{code}", *(0 if value is None else value for value in values))
    return struct.pack("<q", len(values)) + nulls.to_bytes(8 * words, "little") + elements + bytes(-len(elements) % 8)


def vector_bytes(vector: dict[str, Any]) -> bytes:
    """A bit for every null field, the fields type, size, indices and values, and then the arrays of the last two."""
    dense = vector["type"] == 1
    nulls = (0b110 if dense else 0) | (0b1000 if vector["values"] is None else 0)
    fields, arrays = [vector["type"], 0 if dense else vector["size"]], b""
    for values, code in ((None if dense else vector["indices"], "i"), (vector["values"], "d")):
        data = b"" if values is None else array_bytes(values, code)
        fields.append(0 if values is None else 40 + len(arrays) << 32 | len(data))
        arrays += data
    return struct.pack("<qqqqq", nulls, *fields) + arrays


def as_bytes(column: pa.Array, held: Callable[[int], bool] = lambda row: True, kind: Any = BINARY) -> pa.Array:
    """The column with bytes, of this type of Arrow, in the rows that are held, if they are not null."""
    data, plain = [], []
    for row, value in enumerate(column.to_pylist()):
        if value is None or not held(row):
            data.append(b"")
            plain.append(value)
        elif pa.types.is_struct(column.type):
            data.append(vector_bytes(value))
            plain.append(value | {"indices": [], "values": []})
        else:
            data.append(array_bytes(value, CODES[str(column.type.value_type)]))
            plain.append([])
    fields = [pa.array(data, kind), pa.array(plain, column.type)]
    return pa.StructArray.from_arrays(fields, ["bytes", "plain"])
