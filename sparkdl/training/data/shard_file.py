"""A shard on disk: an Arrow file of fixed-size lists, of image files, or of the bytes of rows of any length.

Its arrays are views of the mapped pages, never copies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.image_files import ImageFiles
from sparkdl.decoding.layout import Layout
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.training.data.batches import Rows, Shard

KEY = "key"  # a column of the file, beside those of `Rows.each`


class ShardWriter:
    """Writes rows to an Arrow file as they come, so that a share larger than memory needs none of it.

    Parameters
    ----------
    path : Path
        The file; a shard without any rows is a file too.
    row : Rows
        Empty arrays (0, ...) with the dtypes and row shapes to come; or empty ImageFiles or RaggedRows.
    """

    def __init__(self, path: Path, row: Rows) -> None:
        self.rows = 0
        self.bytes = 0
        self.longest = {name: 0 for name, part in row.features.items() if isinstance(part, RaggedRows)}
        fields = [_field(name, part) for name, part in row.each().items()]
        schema = pa.schema([*fields, pa.field(KEY, pa.int64(), nullable=False)])
        self._schema = schema
        self._writer = pa.ipc.new_file(str(path), schema)

    def append(self, rows: Rows, keys: Array) -> None:
        """Write some rows with their int64 keys, which put the shard in order whatever order the rows arrive in."""
        if not len(rows.weights):
            return
        columns: list[pa.Array] = []
        for name, part in rows.each().items():
            if isinstance(part, (ImageFiles, RaggedRows)):
                columns.append(part.column)
                continue
            values = pa.array(np.ascontiguousarray(part).reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(values, type=self._schema.field(name).type))
        batch = pa.record_batch([*columns, pa.array(keys)], schema=self._schema)
        self._writer.write_batch(batch)
        for name, most in self.longest.items():
            self.longest[name] = max(most, rows.features[name].longest)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def open_shard(paths: Sequence[Path], rows: int | None = None) -> Shard:
    """The shard that ShardWriters wrote, memory-mapped; or only so many of its rows, those of the smallest keys."""
    stored = [batch for path in paths for batch in stored_batches(path)]
    schema = stored[0].schema
    fields = [field for field in schema if field.name != KEY]
    chunks = [Rows.of({field.name: _array(batch[field.name], field) for field in fields}) for batch in stored]
    return Shard(chunks, np.concatenate([batch[KEY].to_numpy() for batch in stored]), rows)


def stored_batches(path: Path) -> list[pa.RecordBatch]:
    """What a ShardWriter wrote, memory-mapped: one batch at least, which may be empty."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    stored = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return stored or [pa.RecordBatch.from_pylist([], schema=reader.schema)]


def _field(name: str, part: Any) -> pa.Field:
    if isinstance(part, ImageFiles):
        return pa.field(name, pa.binary(), nullable=False, metadata={"layout": json.dumps(asdict(part.layout))})
    if isinstance(part, RaggedRows):
        return pa.field(name, pa.binary(), nullable=False, metadata=part.metadata)
    kind = pa.list_(pa.from_numpy_dtype(part.dtype), math.prod(part.shape[1:]))
    return pa.field(name, kind, nullable=False, metadata={"shape": ",".join(map(str, part.shape[1:]))})


def _array(column: Any, field: pa.Field) -> Any:
    if b"layout" in field.metadata:
        return ImageFiles(column, Layout.from_json(json.loads(field.metadata[b"layout"])))
    if b"ragged" in field.metadata:
        dtype, *step = json.loads(field.metadata[b"ragged"])
        return RaggedRows.from_column(column, dtype, step)
    text = field.metadata[b"shape"].decode()
    shape = tuple(int(size) for size in text.split(",")) if text else ()
    return column.flatten().to_numpy().reshape(len(column), *shape)
