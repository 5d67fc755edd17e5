"""What a task does to score rows: columns of features go in, one column of what the model makes of them comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from sparkdl.scoring.forward import Scoring, loaded
from sparkdl.scoring.heads import Heads
from sparkdl.scoring.inference import Batch, Scored, scored
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.device import prepare_device


def results(
    batches: Iterator[Batch], scoring: Scoring, weights: Callable[[], bytes], heads: Heads
) -> Iterator[pa.Array]:
    """What `scored` of `spark/scoring.py` puts into its column, a part of a batch at a time."""
    prepare_device(scoring.device)
    forward, specs = loaded(scoring, weights), scoring.specs()
    for batch in batches:
        for part in scored(batch, forward, scoring, specs, heads):
            yield _as_one(part)
    spare_modules()


def _as_one(part: Scored) -> pa.Array:
    """A struct of the columns, null for rows that cannot be used; of one column that column."""
    missing = pa.array(part.bad) if part.bad.any() else None
    struct = pa.StructArray.from_arrays(list(part.columns.values()), list(part.columns), mask=missing)
    return struct if len(part.columns) > 1 else struct.flatten()[0]
