"""The decoders from Arrow to NumPy, on arrays as Spark hands them over: sliced, empty, with nulls, of any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkdl.spark.columns import decode_features, decode_flags, decode_labels, decode_weights

VALUES = np.arange(24, dtype=np.uint8).reshape(6, 4)
BYTES = [row.tobytes() for row in VALUES]
KINDS = [
    (pa.binary(), BYTES, np.uint8),
    (pa.large_binary(), BYTES, np.uint8),
    (pa.list_(pa.float32()), VALUES.tolist(), np.float32),
    (pa.large_list(pa.float64()), VALUES.tolist(), np.float64),
    (pa.list_(pa.float32(), 4), VALUES.tolist(), np.float32),
]


@pytest.mark.parametrize("kind, values, dtype", KINDS, ids=[str(row[0]) for row in KINDS])
@pytest.mark.parametrize("first, last", [(0, 6), (2, 5), (3, 6), (4, 4), (0, 0)])
def test_features_are_the_rows_of_the_slice(kind: Any, values: list[Any], dtype: Any, first: int, last: int) -> None:
    decoded = decode_features(pa.array(values, kind)[first:last], "x", (2, 2))
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded, VALUES[first:last].reshape(-1, 2, 2))


def test_nulls_outside_of_a_slice_do_not_matter() -> None:
    column = pa.array([None, [1.0, None], [3.0, 4.0], [5.0]], pa.list_(pa.float32()))
    assert decode_features(column[2:3], "x", (2,)).tolist() == [[3.0, 4.0]]


def test_an_array_without_any_buffer_holds_no_rows() -> None:
    assert decode_features(pa.array([], pa.binary()), "x", (3,)).shape == (0, 3)
    assert decode_labels(pa.array([], pa.float64()), "y").shape == (0,)


def test_labels_are_numbers_or_lists_of_one_length() -> None:
    assert decode_labels(pa.array([7.0, 1.0, 2.5])[1:], "y").tolist() == [1.0, 2.5]
    lists = pa.array([[9.0], [1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64()))
    assert decode_labels(lists[1:], "y").tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert decode_labels(lists[:1], "y").shape == (1, 1)


def test_weights_and_flags_are_those_of_the_slice() -> None:
    assert decode_weights(pa.array([9.0, 0.0, 2.5])[1:], "w").tolist() == [0.0, 2.5]
    assert decode_flags(pa.array([True, False, True])[1:], "v").tolist() == [False, True]


@pytest.mark.parametrize(
    "decode, column, sentence",
    [
        (decode_features, pa.array([b"ab", None]), "Column 'c' holds 1 null rows or more; drop or fill them."),
        (decode_features, pa.array([[1.0, None]]), "Column 'c' holds rows with null values inside; drop or fill them."),
        (decode_features, pa.array([b"ab", b"abc"]), "must hold 2 values a row to fill .* received a row of 3"),
        (decode_features, pa.array([[1.0, 2.0], []]), "must hold 2 values a row to fill .* received a row of 0"),
        (decode_features, pa.array([[1.0, np.inf]]), "featuresCol 'c' holds NaN or infinity"),
        (decode_labels, pa.array([1.0, None]), "Column 'c' holds 1 null rows"),
        (decode_labels, pa.array([[1.0], [1.0, 2.0]]), r"labelCol 'c' must hold rows of one length, received \[1, 2\]"),
        (decode_labels, pa.array([np.nan]), "labelCol 'c' holds NaN or infinity"),
        (decode_weights, pa.array([1.0, None]), "Column 'c' holds 1 null rows"),
        (decode_weights, pa.array([1.0, np.nan]), "weightCol 'c' must be finite and at least 0, received nan"),
        (decode_weights, pa.array([-0.5]), "weightCol 'c' must be finite and at least 0, received -0.5"),
        (decode_flags, pa.array([True, None]), "Column 'c' holds 1 null rows"),
    ],
)
def test_what_cannot_be_used_is_named(decode: Callable[..., Any], column: pa.Array, sentence: str) -> None:
    shape = ((2,),) if decode is decode_features else ()
    with pytest.raises(ValueError, match=sentence):
        decode(column, "c", *shape)
