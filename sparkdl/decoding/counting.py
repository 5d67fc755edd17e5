"""How often strings, or parts of strings, occur in a column: on the workers, to learn a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.decoding.splitting import split_strings

COUNTS = "entry string, count bigint"


def count_strings(batches: Iterator[pa.RecordBatch], split: str | None) -> Iterator[pa.RecordBatch]:
    """For every batch of rows of a column of strings, or of lists of such, its strings but null, each with a count."""
    for batch in batches:
        column = split_strings(batch.column(0), split)
        strings = column.flatten() if pa.types.is_list(column.type) else column
        found = pc.value_counts(strings.drop_null())
        yield pa.RecordBatch.from_arrays(
            [found.field("values").cast(pa.string()), found.field("counts")], names=["entry", "count"]
        )
