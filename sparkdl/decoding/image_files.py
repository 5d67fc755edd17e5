"""Rows that stay image files until they are taken, then become pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.images import decode_bytes
from sparkdl.decoding.layout import Layout


class ImageFiles:
    """Like an array (n, *layout.shape) of uint8, but rows are decoded, several at a time, whenever they are indexed.

    Parameters
    ----------
    column : pa.Array
        Binary without nulls: of every row a JPEG or PNG file, or its raw values.
    layout : Layout
        What it is to become; has `pixels`.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, column: pa.Array, layout: Layout) -> None:
        self.column, self.layout = column, layout

    def __len__(self) -> int:
        return len(self.column)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *layout.shape)."""
        return len(self), *self.layout.shape

    def __getitem__(self, rows: Any) -> Array:
        """(k, *layout.shape) for k indices; ValueError for one that cannot be decoded."""
        layout = self.layout
        decoded = decode_bytes(self.column.take(pa.array(rows)), f"{layout.param} {layout.names[0]!r}", layout)
        if decoded.status.any():  # all could when the fit began
            problem = decoded.problem(int(np.flatnonzero(decoded.status)[0]))
            raise ValueError(f"{problem}; have the same Pillow on every machine.")
        return decoded.values.reshape(-1, *layout.shape)
