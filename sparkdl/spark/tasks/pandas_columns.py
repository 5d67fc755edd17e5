"""Columns of Arrow from those of pandas, which is all that the UDFs of older Sparks are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

# Of the fields of Vectors and of images, which pandas has as floats if one of the integers is null.
FIELDS = {
    "type": pa.int8(),
    "indices": pa.list_(pa.int32()),
    "values": pa.list_(pa.float64()),
    "origin": pa.string(),
    "data": pa.binary(),
}


def from_pandas(column: Any) -> pa.Array:
    """A column of pandas as Arrow had it; a frame was a struct, all of whose fields are null where it was."""
    if column.ndim == 1:
        return pa.Array.from_pandas(column)
    fields = [pa.Array.from_pandas(column[name], type=FIELDS.get(name, pa.int32())) for name in column]
    null = np.all([field.is_null().to_numpy(zero_copy_only=False) for field in fields], axis=0)
    return pa.StructArray.from_arrays(fields, list(column), mask=pa.array(null))
