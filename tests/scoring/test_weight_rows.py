"""Files of weights are read row by row, so that a small one of much is refused before there is much of it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sparkdl.scoring import weight_rows
from sparkdl.scoring.weight_rows import SCHEMA, assembled, cut

MB = 1 << 20
WEIGHTS = {"dense": {"kernel": np.arange(60.0, dtype=np.float32).reshape(4, 15), "bias": np.zeros(15, np.float32)}}


def file_of(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **options)
    return buffer.getvalue()


def bomb(rows: int, size: int, **options: Any) -> bytes:
    """One value that is repeated, which Parquet writes once."""
    columns = {"name": ["bomb"] * rows, "dtype": ["uint8"] * rows, "shape": [[rows * size]] * rows}
    columns |= {"part": list(range(rows)) if size else [0] * rows, "data": [bytes(size)] * rows}
    return file_of(pa.Table.from_pydict(columns, SCHEMA), **options)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_weights_come_back_from_a_file_of_either_format(compression: str) -> None:
    found = assembled(
        [file_of(pa.Table.from_pylist(rows, SCHEMA), compression=compression) for rows in cut(WEIGHTS)], most=75 * 4
    )
    assert list(found) == ["dense"]
    for name, array in WEIGHTS["dense"].items():
        assert (found["dense"][name].dtype, found["dense"][name].tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize(
    ("content", "most", "sentence"),
    [
        (
            bomb(64, MB, compression="snappy"),
            1e12,
            "a file of weights of [0-9]+ bytes holds more than a save puts there",
        ),
        (bomb(64, MB, compression="zstd"), 1e12, "a file of weights is compressed by ZSTD, as none is saved"),
        (bomb(64, MB, compression="none"), MB, "the rows of weights hold more than the network's"),
        (bomb(40_000, 0, compression="none"), 0, "a file of weights of [0-9]+ bytes claims 40000 rows"),
    ],
    ids=["repeated", "compressed", "another network's", "of nothing"],
)
def test_a_small_file_of_much_is_refused_before_it_is_read(
    content: bytes, most: float, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_rows, "FILE_BYTES", 4 * MB)
    monkeypatch.setattr(weight_rows, "INFLATION", 1)
    seen = []

    def observed(content: bytes) -> Any:
        for row in read(content):
            seen.append(pa.total_allocated_bytes() - before)
            yield row

    read, before = weight_rows._read, pa.total_allocated_bytes()
    monkeypatch.setattr(weight_rows, "_read", observed)
    with pytest.raises(ValueError, match=sentence):
        assembled([content], most)
    assert len(seen) <= 4
    assert max(seen, default=0) < 8 * MB
