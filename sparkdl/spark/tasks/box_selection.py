"""What a task does to a detector's predictions: select boxes, and make a column of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.boxes import KEPT, LABEL, select_boxes
from sparkdl.decoding.numbers import row_widths
from sparkdl.scoring.inference import Batch

FIELDS = {name: pa.int32() if KEPT[name].kind == "i" else pa.float64() for name in KEPT.names or ()}


def selected(batches: Iterator[Batch], column: str, classes: int, options: Mapping[str, Any]) -> Iterator[pa.Array]:
    """Lists of structs of the boxes of each row, null for null; for the options see `select_boxes`.

    Raises
    ------
    ValueError
        A row is no list of boxes; the message names the `column`.
    """
    size = LABEL + classes
    for (rows,) in batches:
        widths = row_widths(rows, f"inputCol {column!r}")
        wrong = widths[(widths >= 0) & ((widths % size != 0) | (widths == 0))]
        if len(wrong):
            raise ValueError(
                f"inputCol {column!r} must hold boxes of 5 + classes = {size} numbers each, received a row of "
                f"{wrong[0]}; give the predictions of a detector, and the number of its classes."
            )
        found = [np.zeros(0, KEPT)] * len(rows)
        values = rows.flatten().to_numpy(zero_copy_only=False)
        starts = np.cumsum(np.maximum(widths, 0)) - np.maximum(widths, 0)
        for row in np.flatnonzero(widths >= 0):
            each = values[starts[row] : starts[row] + widths[row]][None]
            [found[row]] = select_boxes(each, classes, **options)
        yield _column(found, widths < 0)


def _column(found: list[Array], missing: Array) -> pa.Array:
    counts = [len(each) for each in found]
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32(), mask=np.append(missing, False))
    boxes = np.concatenate([np.zeros(0, KEPT), *found])
    values = pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(boxes[name])).cast(kind) for name, kind in FIELDS.items()], list(FIELDS)
    )
    return pa.ListArray.from_arrays(offsets, values)
