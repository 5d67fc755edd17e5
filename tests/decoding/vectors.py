"""Spark's Vectors as Arrow has them: structs of which a dense one leaves the size and the indices out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
)


def dense(values: Any) -> dict[str, Any]:
    """A dense one of these numbers."""
    return {"type": 1, "indices": [], "values": list(values)}


def sparse(values: Any) -> dict[str, Any]:
    """A sparse one of these numbers."""
    places = np.flatnonzero(values)
    return {"type": 0, "size": len(values), "indices": places.tolist(), "values": [values[at] for at in places]}
