"""Arrays and Vectors that come as Spark's own bytes are decoded as those that come value by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from catalyst_bytes import CODES, as_bytes

from sparkdl.decoding.catalyst import matrix, unpack_column
from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.labels import LabelPart, decode_labels
from sparkdl.decoding.layout import Layout, check_rows

NAN, INFINITY = float("nan"), float("inf")
VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
)
WIDTH = 70  # of which bits take two words
RNG = np.random.default_rng(5)
ROWS = RNG.integers(-9, 9, (7, WIDTH)) * (RNG.random((7, WIDTH)) < 0.4)
HELD: dict[str, Callable[[int], bool]] = {
    "all": lambda row: True,
    "some": lambda row: row % 3 != 1,
    "one": lambda row: row == 4,
    "none": lambda row: False,
}


def dense(values: Any) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": [], "values": [float(x) for x in values]}


def sparse(values: Any) -> dict[str, Any]:
    places = np.flatnonzero(values)
    return {"type": 0, "size": len(values), "indices": places.tolist(), "values": [float(values[at]) for at in places]}


def a_list(kind: str) -> pa.Array:
    element = pa.bool_() if kind == "bool" else pa.type_for_alias(kind)
    return pa.array([[bool(x) if kind == "bool" else x for x in row] for row in ROWS.tolist()], pa.list_(element))


GOOD = {kind: a_list(kind) for kind in CODES} | {
    "dense": pa.array([dense(row) for row in ROWS], VECTOR),
    "sparse": pa.array([sparse(row) for row in ROWS], VECTOR),
    "both": pa.array([(sparse, dense)[at in (0, 3, 4)](row) for at, row in enumerate(ROWS)], VECTOR),
    "empty sparse": pa.array([sparse(row * (at % 2)) for at, row in enumerate(ROWS)], VECTOR),
}
BAD = {
    "null rows": pa.array([None, [1.0] * WIDTH, None, [2.0] * WIDTH]),
    "null elements": pa.array([[1.0] * WIDTH, [1.0] * 66 + [None] * 4, [None] + [2.0] * 69], pa.list_(pa.float32())),
    "null integers": pa.array([[1] * WIDTH, [5] * 3 + [None] + [5] * 66], pa.list_(pa.int16())),
    "other widths": pa.array([[1.0] * WIDTH, [], [1.0] * 3, [2.0] * WIDTH, [1.0] * 200]),
    "one width": pa.array([[1.0] * 3, [2.0] * 3]),
    "no numbers": pa.array([[1.0] * 69 + [NAN], [INFINITY] * WIDTH, [3.0] * WIDTH, [1e300] * WIDTH]),
    "no dense numbers": pa.array([dense([1.0] * 69 + [NAN]), None, dense([2] * WIDTH), dense([3])], VECTOR),
    "no sparse numbers": pa.array([sparse([0, NAN] * 35), sparse([0] * 69 + [1e300]), sparse(ROWS[0])], VECTOR),
    "sparse of another size": pa.array([sparse(ROWS[0]), sparse([1, 0]), None, dense([4]), dense(ROWS[1])], VECTOR),
    "places beyond": pa.array(
        [{"type": 0, "size": WIDTH, "indices": [at], "values": [1.0]} for at in (-1, 0, 69, 70)], VECTOR
    ),
    "more places than values": pa.array([{"type": 0, "size": WIDTH, "indices": [1, 2], "values": [1.0]}], VECTOR),
    "null in a Vector": pa.array([dense([1.0] * WIDTH) | {"values": [1.0] * 69 + [None]}, dense(ROWS[0])], VECTOR),
    "null in a sparse one": pa.array([sparse(ROWS[0]), sparse([1.0] * WIDTH) | {"values": [None] * WIDTH}], VECTOR),
    "no values": pa.array([dense(ROWS[0]), dense([]) | {"values": None}, sparse(ROWS[1])], VECTOR),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", [*GOOD, *BAD])
@pytest.mark.parametrize("dtype, kind", [("float32", pa.binary()), ("float64", pa.large_binary())])
def test_rows_are_decoded_alike_whether_they_come_as_bytes_or_not(name: str, held: str, dtype: str, kind: Any) -> None:
    column = (GOOD | BAD)[name]
    packed, layout = as_bytes(column, HELD[held], kind), Layout(("x",), (WIDTH,), dtype)
    for first in range(len(column)):
        for last in (first, first + 1, len(column)):
            expected, found = (decode_features([each[first:last]], layout) for each in (column, packed))
            assert found.values.dtype == dtype
            np.testing.assert_array_equal(found.values, expected.values)
            assert found.status.tolist() == expected.status.tolist()
            for row in np.flatnonzero(expected.status).tolist():
                assert found.problem(row) == expected.problem(row)


@pytest.mark.parametrize("name", GOOD)
def test_rows_of_numbers_alone_are_taken_without_lists(name: str) -> None:
    found = matrix(as_bytes(GOOD[name]), WIDTH, "float32")
    assert found is not None
    expected = decode_features([GOOD[name]], Layout(("x",), (WIDTH,), "float32")).values
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", BAD)
def test_other_rows_are_unpacked_as_they_were(name: str) -> None:
    column, packed = BAD[name], as_bytes(BAD[name])
    if name not in ("no numbers", "no sparse numbers", "one width"):
        assert matrix(packed, WIDTH, "float32") is None
    for held in HELD.values():
        found = unpack_column(as_bytes(column, held))
        assert found.type == column.type
        for value, expected in zip(found.to_pylist(), column.to_pylist(), strict=True):
            if isinstance(expected, dict) and expected["type"] == 1:  # a dense one's indices are nothing or null
                value["indices"] = []
            assert repr(value) == repr(expected)


def test_a_vector_s_own_bits_are_not_taken_for_the_length_of_values_that_it_lacks() -> None:
    column = pa.array([dense([]) | {"values": None}], VECTOR)
    assert decode_features([as_bytes(column)], Layout(("x",), (0b1110,), "float32")).status.tolist() == [1]


def test_labels_and_one_of_several_columns_may_come_as_bytes() -> None:
    layout = Layout(("a", "b", "c"), (2 * WIDTH + 1,), "float32", "featuresCols")
    columns = [as_bytes(GOOD["double"]), pa.array([float(at) for at in range(7)]), as_bytes(GOOD["both"], HELD["some"])]
    decoded = decode_features(columns, layout)
    np.testing.assert_array_equal(decoded.values, np.hstack([ROWS, np.arange(7)[:, None], ROWS]))
    assert decoded.widths is not None and decoded.widths.tolist() == [[WIDTH, 1, WIDTH]] * 7
    np.testing.assert_array_equal(decode_labels(as_bytes(GOOD["sparse"]), LabelPart("y", WIDTH)).values, ROWS)


def test_a_refusal_shows_the_row_that_the_bytes_hold() -> None:
    column, layout = pa.array([[1.0, 2.0], [3.0, NAN]]), Layout(("x",), (2,), "float32")
    for each in (column, as_bytes(column)):
        with pytest.raises(
            ValueError, match=r"^featuresCol 'x' holds NaN, as in the row \(x: \[3.0, nan\]\); mend it.$"
        ):
            check_rows([decode_features([each], layout)], {"x": each}, "mend it")


def test_columns_without_rows_and_without_buffers_hold_none() -> None:
    for column in (as_bytes(GOOD["double"])[:0], pa.array([], as_bytes(GOOD["sparse"]).type)):
        assert decode_features([column], Layout(("x",), (WIDTH,), "float32")).values.shape == (0, WIDTH)


@pytest.mark.parametrize("name", ["double", "both"])
def test_rows_of_neither_bytes_nor_values_are_no_bad_rows_but_a_fault_of_ours(name: str) -> None:
    """As a row held off the heap once was."""
    packed = as_bytes(GOOD[name])
    data = pa.array([None if at == 2 else each for at, each in enumerate(packed.field("bytes").to_pylist())])
    packed = pa.StructArray.from_arrays([data, packed.field("plain")], ["bytes", "plain"])
    with pytest.raises(AssertionError, match="neither bytes nor values of 1 of 7 rows, .* set sparkdl.catalystBytes"):
        decode_features([packed], Layout(("x",), (WIDTH,), "float32"))


def test_an_empty_row_that_spark_has_just_computed_is_a_bad_row() -> None:
    packed = as_bytes(pa.array([[], [1.0] * WIDTH]), lambda row: row == 1)
    assert decode_features([packed], Layout(("x",), (WIDTH,), "float32")).status.tolist() == [4, 0]
