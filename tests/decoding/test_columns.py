"""The decoders from Arrow to NumPy, on arrays as Spark hands them over: sliced, empty, with bad rows, of any layout."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from vectors import VECTOR, dense, sparse

from sparkdl.decoding.columns import decode_features, decode_flags, decode_weights
from sparkdl.decoding.labels import LabelPart, decode_labels
from sparkdl.decoding.layout import KINDS, Decoded, Layout, check_rows
from sparkdl.spark.tasks.pandas_columns import from_pandas
from sparkdl.spark.tasks.row_bytes import FeaturesPart, Intake, merged_notes, prepared, row_keys
from sparkdl.strings import Hashing, Strings, Vocabulary

NAN, INFINITY = float("nan"), float("inf")
VALUES = np.random.default_rng(2).integers(0, 256, (6, 4))
VALUES[::2, 1:3] = 0
NESTED = VALUES.reshape(6, 2, 2).tolist()
BYTES = [row.astype(np.uint8).tobytes() for row in VALUES]


FORMS = {
    "bytes": (pa.binary(), BYTES),
    "large bytes": (pa.large_binary(), BYTES),
    "floats": (pa.list_(pa.float32()), VALUES.tolist()),
    "large doubles": (pa.large_list(pa.float64()), VALUES.tolist()),
    "fixed size": (pa.list_(pa.float32(), 4), VALUES.tolist()),
    "integers": (pa.list_(pa.int64()), VALUES.tolist()),
    "nested": (pa.list_(pa.list_(pa.float32())), NESTED),
    "nested fixed size": (pa.list_(pa.list_(pa.int16(), 2)), NESTED),
    "dense Vectors": (VECTOR, [dense(row) for row in VALUES]),
    "sparse Vectors": (VECTOR, [sparse(row) for row in VALUES]),
    "lists of Vectors": (pa.list_(VECTOR), [[dense(row[:2]), sparse(row[2:])] for row in VALUES]),
    "Vectors of both kinds": (VECTOR, [(sparse, dense)[at % 2](row) for at, row in enumerate(VALUES)]),
}
SQUARE = Layout(("x",), (2, 2), "float32")
PAIR = Layout(("a", "b"), (2,), "float32", "featuresCols")


def statuses(decoded: Decoded) -> list[str]:
    return [KINDS[code] for code in decoded.status]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first, last", [(0, 6), (2, 5), (3, 6), (4, 4), (0, 0)])
def test_features_are_the_rows_of_the_slice_in_every_form(form: str, first: int, last: int) -> None:
    kind, values = FORMS[form]
    decoded = decode_features([pa.array(values, kind)[first:last]], SQUARE)
    assert decoded.values.dtype == ("uint8" if "bytes" in form else "float32")
    np.testing.assert_array_equal(decoded.values, VALUES[first:last].reshape(-1, 2, 2))
    assert not decoded.status.any()


def test_values_of_several_columns_follow_one_another() -> None:
    layout = Layout(("a", "b", "c"), (4,), "float64", "featuresCols")
    columns = [
        pa.array([1, 2, 3]),
        pa.array([[0.5], [1.5], [2.5]]),
        pa.array([dense([7, 8]), sparse([0, 9]), dense([1])], VECTOR),
    ]
    decoded = decode_features(columns, layout)
    assert decoded.values.tolist() == [[1, 0.5, 7, 8], [2, 1.5, 0, 9], [0, 0, 0, 0]]
    assert decoded.widths is not None and decoded.widths.tolist() == [[1, 1, 2], [1, 1, 2], [1, 1, 1]]
    assert "featuresCols a, b, c must hold 4 values a row" in decoded.problem(2)
    assert decoded.problem(2).endswith("received a row of 1 + 1 + 1")


@pytest.mark.parametrize(
    "empty", [pa.array([[], []], pa.list_(pa.float64())), pa.array([dense([]), sparse([])], VECTOR)]
)
def test_a_column_of_empty_rows_adds_nothing_to_the_others(empty: pa.Array) -> None:
    decoded = decode_features([pa.array([[1.0, 2.0], [3.0, 4.0]]), empty], PAIR)
    assert (decoded.values.tolist(), statuses(decoded)) == ([[1, 2], [3, 4]], ["valid"] * 2)


def test_several_columns_may_share_out_a_row_s_values_otherwise_in_the_next_whatever_the_batches() -> None:
    layout = Layout(("a", "b"), (3,), "float32", "featuresCols")
    columns = [pa.array([[1.0], [1.0, 2.0], [1.0], [4.0, NAN]]), pa.array([[2.0, 3.0], [3.0], [2.0], [6.0]])]
    decoded = decode_features(columns, layout)
    assert decoded.values.tolist() == [[1, 2, 3], [1, 2, 3], [0, 0, 0], [0, 0, 0]]
    assert statuses(decoded) == ["valid", "valid", "wrong width", "NaN"]
    assert decoded.problem(3) == "featuresCols 'a' holds NaN"
    for row in range(4):
        alone = decode_features([column[row : row + 1] for column in columns], layout)
        assert (alone.values[0].tolist(), alone.status[0]) == (decoded.values[row].tolist(), decoded.status[row])


def test_a_null_in_one_of_several_columns_is_null_whatever_the_other_rows_are() -> None:
    layout = Layout(("a", "b"), (3,), "float32", "featuresCols")
    columns = [pa.array([[1.0], [NAN, 2.0], None, [5.0]]), pa.array([[2.0, 3.0], None, [1.0], [4.0]])]
    expected = ["valid", "null", "null", "wrong width"]
    assert statuses(decode_features(columns, layout)) == expected
    alone = [decode_features([column[row : row + 1] for column in columns], layout) for row in range(4)]
    assert [statuses(each)[0] for each in alone] == expected
    assert [each.problem(0) for each in alone[1:3]] == ["featuresCols 'b' holds null", "featuresCols 'a' holds null"]


@pytest.mark.parametrize(
    "column, expected",
    [
        (pa.array([[1.0, 2.0, 3.0, 4.0], None, [1.0, None, 3.0, 4.0]]), ["valid", "null", "null"]),
        (pa.array([[1, 2, 3, 4], [], [5] * 5, [1, 2, 3, None]]), ["valid", "wrong width", "wrong width", "null"]),
        (pa.array([[NAN, 2, 3, 4], [1, INFINITY, 3, 4], [NAN, INFINITY, 3, 4]]), ["NaN", "infinity", "NaN"]),
        (pa.array([[1e300, 2, 3, 4], [3e38, 3e38, 3e38, 3e38]]), ["infinity", "valid"]),  # as float32
        (pa.array([[[1, 2], [3, 4]], [[1], [2, 3, 4]], [[1, 2], None]]), ["valid", "wrong width", "null"]),
        (pa.array([[[1, 2], [3, 4]], [[1, 2], [None, 4]], [[1, 2, 3, 4]]]), ["valid", "null", "wrong width"]),
        (pa.array([dense([0] * 4), None, dense([1]), dense([NAN] * 4)], VECTOR),
         ["valid", "null", "wrong width", "NaN"]),
        (pa.array([sparse([0, 5, 0, 6]), None, sparse([1]), sparse([0, 0, 0, INFINITY]), dense([1])], VECTOR),
         ["valid", "null", "wrong width", "infinity", "wrong width"]),
        (pa.array([{"type": 0, "size": 4, "indices": [4], "values": [1.0]}], VECTOR), ["wrong width"]),
        (pa.array([[dense([1, 2]), sparse([0, 4])], None, [dense([1, 2])], [dense([1]), dense([2, NAN])],
                   [None, dense([1, 2])], [dense([1, 2]), sparse([INFINITY, 0])]], pa.list_(VECTOR)),
         ["valid", "null", "wrong width", "wrong width", "null", "infinity"]),
        (pa.array([1.0, None, NAN]), ["wrong width", "null", "wrong width"]),
        (pa.array([b"abcd", None, b"abc", b""]), ["valid", "null", "wrong width", "wrong width"]),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_told_apart_and_hold_zeros(column: pa.Array, expected: list[str]) -> None:
    decoded = decode_features([column], SQUARE)
    assert statuses(decoded) == expected
    whole = [kind == "valid" for kind in expected]
    assert not decoded.values[~np.array(whole)].any()
    alone = decode_features([column.filter(pa.array(whole))], SQUARE)
    np.testing.assert_array_equal(decoded.values[whole], alone.values)


@pytest.mark.parametrize(
    "column, sentence",
    [
        (pa.array([5.0]), "must hold 4 values a row to fill the network's input_shape (2, 2), received a row of 1"),
        (pa.array([sparse([0, 5])], VECTOR), "must hold 4 values a row .* received a row of 2"),
        (pa.array([dense([1]), sparse([0])], VECTOR), "must hold 4 values a row .* received a row of 1"),
        (pa.array([[1.0, -INFINITY, 3.0, 4.0]]), "holds infinity"),
        (pa.array([[1.0, 1e300, 3.0, 4.0]]), "holds a number too large for float32"),
        (pa.array([sparse([1.0, 0.0, 0.0, -1e39])], VECTOR), "holds a number too large for float32"),
    ],
)
def test_what_is_wrong_with_a_row_begins_a_sentence(column: pa.Array, sentence: str) -> None:
    text = decode_features([column], SQUARE).problem(0)
    assert re.fullmatch("featuresCol 'x' " + sentence.replace("(2, 2)", r"\(2, 2\)"), text)


def test_nulls_outside_of_a_slice_do_not_matter() -> None:
    column = pa.array([None, [1.0, None], [3.0, 4.0], [5.0]], pa.list_(pa.float32()))
    decoded = decode_features([column[2:3]], Layout(("x",), (2,), "float32"))
    assert (decoded.values.tolist(), statuses(decoded)) == ([[3.0, 4.0]], ["valid"])


@pytest.mark.parametrize("column", [pa.nulls(2), from_pandas(pd.Series([None, None], dtype=object))])
def test_rows_that_are_all_null_are_so_without_a_type_too(column: pa.Array) -> None:
    together = Layout(("a", "b"), (4,), "float32", param="featuresCols")
    features = decode_features([column], SQUARE), decode_features([column, column], together)
    for decoded in (*features, decode_labels(column, LabelPart("y", 1))):
        assert statuses(decoded) == ["null", "null"]


def test_lists_of_nulls_without_a_type_hold_nulls_or_are_empty() -> None:
    column = pa.array([[None] * 4, [], None], pa.list_(pa.null()))
    assert statuses(decode_features([column], SQUARE)) == ["null", "wrong width", "null"]


STEPS = Layout(("x",), (None,), "int32", strings=Hashing(), max_length=2)
POINTS = Layout(("x",), (None, 2), "float32", max_length=2)


@pytest.mark.parametrize("lists", [pa.list_, pa.large_list])
@pytest.mark.parametrize("layout", [STEPS, POINTS])
def test_steps_are_so_without_a_type_too(layout: Layout, lists: Any) -> None:
    column = pa.array([[None], [], None, [None] * 3], lists(pa.null()))
    decoded = decode_features([column], layout)
    assert statuses(decoded) == ["null", "valid", "null", "null"]
    assert (decoded.values.lengths.tolist(), decoded.values.shape) == ([0] * 4, (4, 0, *layout.shape[1:]))
    assert decoded.problem(3) == "featuresCol 'x' holds null"
    assert statuses(decode_features([column[1:3]], layout)) == ["valid", "null"]


def test_lists_in_steps_are_so_without_a_type_too() -> None:
    column = pa.array([[[None] * 2], [[]], [], [None], None], pa.list_(pa.list_(pa.null())))
    assert statuses(decode_features([column], POINTS)) == ["null", "wrong width", "valid", "null", "null"]


@pytest.mark.parametrize("strings", [Hashing(), Vocabulary(["a"]), None])
def test_a_row_of_one_number_or_string_is_so_without_a_type_too(strings: Strings | None) -> None:
    decoded = decode_features([pa.nulls(2)], Layout(("x",), (), "int32", limit=3, strings=strings))
    assert (statuses(decoded), decoded.values.tolist()) == (["null", "null"], [0, 0])


def test_sparse_vectors_of_zeros_only_need_no_types_of_what_they_hold() -> None:
    zeros = {"type": 0, "size": 4, "indices": [], "values": []}
    decoded = decode_features([pa.array([zeros, zeros])], SQUARE)
    assert (statuses(decoded), decoded.values.tolist()) == (["valid"] * 2, np.zeros((2, 2, 2)).tolist())


IMAGES = pa.array([{"height": 1, "width": 2, "nChannels": 1, "mode": 0, "data": b"ab"}])
NUMBERS = "must be a column of numbers, arrays or Vectors, received"


@pytest.mark.parametrize(
    "columns, params, sentence",
    [
        ([pa.array(["1"])], {}, f"featuresCol 'a' {NUMBERS} string; cast it."),
        ([pa.array([["1", "2"]])], {}, f"featuresCol 'a' {NUMBERS} list<item: string>; cast it."),
        ([pa.array([{"x": 1.0}])], {}, f"featuresCol 'a' {NUMBERS} struct<x: double>; cast it."),
        ([pa.array([[[1], [2]]])], {}, "featuresCol 'a' must hold arrays nested at most 1 deep to fill the network's "
         "input_shape (2,), received list<item: list<item: int64>>; flatten it."),
        ([pa.array([[[[1]], [[2]]]])], {}, "must hold arrays nested at most 1 deep to fill"),
        ([IMAGES], {}, "featuresCol 'a' holds images, for which input_shape must be (height, width) or (height, width, "
         "channels) with 1, 3 or 4 channels, received (2,); begin the network with such rows and Flatten()."),
        ([pa.array([b"ab"])], {"binary": "image"}, "featuresCol 'a' holds images, for which input_shape must be"),
        ([pa.array([1.0]), pa.array(["1"])], {}, f"featuresCols 'b' {NUMBERS} string; cast it."),
        ([pa.array([b"a"]), pa.array([1.0])], {}, f"featuresCols 'a' {NUMBERS} binary; cast it."),
        ([IMAGES, pa.array([1.0])], {"shape": (1, 2)}, f"featuresCols 'a' {NUMBERS} struct<height: int64, "),
        ([pa.array([[[1]]]), pa.array([[1]])], {"shape": (1, 2)}, "featuresCols a, b must hold arrays nested at most"),
    ],
)  # fmt: skip
def test_columns_of_other_types_are_refused(columns: list[pa.Array], params: dict[str, Any], sentence: str) -> None:
    param = "featuresCols" if len(columns) > 1 else "featuresCol"
    layout = Layout(("a", "b")[: len(columns)], **({"shape": (2,), "dtype": "float32", "param": param} | params))
    with pytest.raises(ValueError) as refused:
        decode_features(columns, layout)
    assert sentence in str(refused.value)


def test_an_array_without_any_buffer_holds_no_rows() -> None:
    assert decode_features([pa.array([], pa.binary())], SQUARE).values.shape == (0, 2, 2)
    assert decode_labels(pa.array([], pa.float64()), LabelPart("y", 1)).values.shape == (0,)
    assert decode_labels(pa.array([], pa.list_(pa.float64())), LabelPart("y", 3)).values.shape == (0, 3)


@pytest.mark.parametrize(
    "column, outputs, expected",
    [
        (pa.array([7.0, 1.0, 2.5])[1:], 9, [1.0, 2.5]),
        (pa.array([True, False]), 9, [1.0, 0.0]),
        (pa.array([3, None], pa.int8()), 9, [3.0, 0.0]),
        (pa.array([[9.0], [1.0, 2.0], [3.0, 4.0]])[1:], 2, [[1.0, 2.0], [3.0, 4.0]]),
        (pa.array([[9.0], [1.0, 2.0]]), 2, [[0.0, 0.0], [1.0, 2.0]]),
        (pa.array([sparse([0, 3]), dense([1, 2])], VECTOR), 2, [[0.0, 3.0], [1.0, 2.0]]),
    ],
)
def test_labels_are_numbers_or_as_many_as_the_outputs(column: pa.Array, outputs: int, expected: Any) -> None:
    assert decode_labels(column, LabelPart("y", outputs)).values.tolist() == expected


def test_a_label_may_be_missing_whole_but_not_in_part() -> None:
    vectors = pa.array([dense([1, 2]), dense([None, 2]), None], VECTOR)
    for column in (pa.array([[1.0, 2.0], [None, 2.0], None]), vectors):
        decoded = decode_labels(column, LabelPart("y", 2, is_list=True, optional=True))
        assert statuses(decoded) == ["valid", "null", "valid"]
        assert decoded.problem(1) == "labelCol 'y' holds null"
        np.testing.assert_array_equal(decoded.values[[0, 2]], [[1, 2], [np.nan, np.nan]])
    nothing = decode_labels(pa.nulls(2), LabelPart("y", 1, optional=True))
    assert statuses(nothing) == ["valid", "valid"]


GROUPED = LabelPart("y", 6, group=2, is_list=True)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[9.0], [1.0, 2.0, 3.0, 4.0], [], [5.0, 6.0, 7.0, 8.0, 9.0, 0.0]])[1:],
        pa.array([[[1, 2], [3, 4]], [], [[5, 6], [7, 8], [9, 0]]], pa.large_list(pa.list_(pa.int32()))),
        pa.array([[[1, 2], [3, 4]], [], [[5, 6], [7, 8], [9, 0]]], pa.list_(pa.list_(pa.float32(), 2))),
        pa.array(
            [[dense([1, 2]), dense([3, 4])], [], [dense([5, 6]), dense([7, 8]), sparse([9, 0])]], pa.list_(VECTOR)
        ),
    ],
    ids=["numbers", "lists", "fixed lists", "vectors"],
)
def test_groups_of_labels_may_be_fewer(column: pa.Array) -> None:
    decoded = decode_labels(column, GROUPED)
    assert decoded.values.tolist() == [[1, 2, 3, 4, -1, -1], [-1] * 6, [5, 6, 7, 8, 9, 0]]
    assert statuses(decoded) == ["valid"] * 3


def test_groups_of_labels_that_cannot_be_used_are_told() -> None:
    wanted = "labelCol 'y' must hold up to 3 times 2 labels a row, received a row of"
    for column, expected, sentences in (
        (
            pa.array([[1.0, 2.0], None, [1.0], [1.0] * 8, [1.0, None, NAN, 2.0]]),
            ["valid", "null", "wrong width", "wrong width", "null"],
            {1: "labelCol 'y' holds null", 2: f"{wanted} 1", 3: f"{wanted} 8", 4: "labelCol 'y' holds null"},
        ),
        (
            pa.array([[[1.0, 2.0]], None, [[1.0]], [[1.0, 2.0]] * 4, [[1.0, 2.0], [NAN, 2.0]], [None]]),
            ["valid", "null", "wrong width", "wrong width", "NaN", "null"],
            {2: f"{wanted} 1", 3: f"{wanted} 8", 4: "labelCol 'y' holds NaN"},
        ),
        (pa.nulls(2), ["null", "null"], {}),
    ):
        decoded = decode_labels(column, GROUPED)
        assert statuses(decoded) == expected
        for row, sentence in sentences.items():
            assert decoded.problem(row).startswith(sentence), decoded.problem(row)
        optional = decode_labels(column, LabelPart("y", 6, group=2, is_list=True, optional=True))
        assert statuses(optional)[1] == "valid" and np.isnan(optional.values[1]).all()


def test_weights_and_flags_are_those_of_the_slice() -> None:
    assert decode_weights(pa.array([9.0, 0.0, 2.5])[1:], "w").values.tolist() == [0.0, 2.5]
    assert decode_flags(pa.array([True, False, True])[1:], "v").values.tolist() == [False, True]
    assert decode_flags(pa.array([0, 1, None]), "v").values.tolist() == [False, True, False]


@pytest.mark.parametrize(
    "decode, column, sentence",
    [
        (decode_weights, pa.array([-0.5]), "weightCol 'c' must be finite and at least 0, received -0.5"),
        (decode_flags, pa.array([0.0, 2.0]), "validationIndicatorCol 'c' must be true or false, or 1 or 0, received 2"),
    ],
)
def test_what_no_row_may_hold_is_refused(decode: Callable[..., Any], column: pa.Array, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decode(column, "c")


def refused(parts: list[Decoded], columns: dict[str, pa.Array]) -> str:
    with pytest.raises(ValueError) as error:
        check_rows(parts, columns, "mend it")
    return str(error.value)


def test_a_refusal_names_column_problem_and_row() -> None:
    columns = {"x": pa.array([[1.0, 2.0], [3.0, NAN]]), "y": pa.array([None, 5.0]), "z": pa.array([b"0123456789"] * 2)}
    layout = Layout(("x",), (2,), "float32")
    parts = [decode_features([columns["x"]], layout), decode_labels(columns["y"], LabelPart("y", 1))]
    assert check_rows(parts, columns, None).tolist() == [1, 2]
    sentence = (
        "labelCol 'y' holds null, as in the row (x: [1.0, 2.0], y: None, z: b'01234567'... of 10 bytes); mend it."
    )
    assert refused(parts, columns) == sentence
    vectors = {"x": pa.array([dense([NAN, 2.0]), sparse([0.0, NAN])], VECTOR)}
    for row, shown in enumerate(("[nan, 2.0]", "(2, [1], [nan])")):
        part = decode_features([vectors["x"][row:]], layout)
        assert f"holds NaN, as in the row (x: {shown});" in refused([part], {"x": vectors["x"][row:]})
    later = {name: column[1:] for name, column in columns.items()}
    parts = [decode_features([later["x"]], layout), decode_labels(later["y"], LabelPart("y", 1))]
    assert refused(parts, later).startswith("featuresCol 'x' holds NaN, as in the row (x: [3.0, nan]")


# Preparation


def intake_of(layout: Layout, dtype: str, **others: Any) -> Intake:
    """Of features in columns that this layout names, and labels in y."""
    return Intake({"features": FeaturesPart(layout, dtype)}, {"label": LabelPart("y", 1)}, **others)


INTAKE = intake_of(Layout(("x",), (4,), "float32"), "float32", weight="w", validation="v")


def batch(column: pa.Array, labels: Any = None) -> pa.RecordBatch:
    count = len(column)
    rows = {"features/features/0": column, "labels/label": pa.array(labels or list(range(count)), pa.float64())}
    rows |= {"weight": pa.array([1.5] * count), "validation": pa.array([0] * count)}
    return pa.RecordBatch.from_pydict(rows)


def keys_of(form: str, rows: slice = slice(None), dtype: str = "float32") -> list[int]:
    kind, values = FORMS[form]
    layout = Layout(("x",), (2, 2), dtype)
    intake = intake_of(layout, "uint8" if "bytes" in form else dtype, weight="w", validation="v")
    (made,) = prepared(iter([batch(pa.array(values, kind))]), intake)
    return made["key"].to_pylist()[rows]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_rows_have_equal_keys_whatever_their_form(dtype: str) -> None:
    found = {tuple(keys_of(form, dtype=dtype)) for form in FORMS}
    assert len(found) == 1
    assert len(set(found.pop())) == 6


def test_every_value_counts_for_a_key_and_keys_spread() -> None:
    numbers = np.zeros((256, 3))
    pixels = np.zeros((256, 4), np.uint8)
    pixels[:, 2] = np.arange(256)
    keys = row_keys([(pixels, "float32")], numbers)
    others = row_keys([(pixels[:, ::-1].copy(), "float32")], numbers)
    assert len({*keys, *others}) == 511  # the rows of zeros are equal
    for bit in range(64):
        share = ((keys >> bit) & 1).mean()
        assert 0.3 < share < 0.7
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64"):
        whole = rng.integers(0, 4, (50_000, 12)).astype(dtype)
        assert len(set(row_keys([(whole, dtype)], np.zeros((len(whole), 1))).tolist())) == len(np.unique(whole, axis=0))


def test_every_part_of_a_row_is_prepared_and_counts_for_its_key() -> None:
    """Features of two parts, pixels and integers, and labels of two."""
    layouts = Layout(("x",), (2,), "float32", binary="raw"), Layout(("a", "b"), (2,), "int32", "featuresCols")
    parts = {"photo": FeaturesPart(layouts[0], "uint8"), "places": FeaturesPart(layouts[1], "int32")}
    labels = {"kind": LabelPart("k", 3), "price": LabelPart("p", 2, is_list=True)}
    columns: dict[str, Any] = {
        "features/photo/0": pa.array([b"\1\2", b"\1\2", b"\1\3", b"\1\2", b"\1\2"]),
        "features/places/0": pa.array([7, 8, 7, 7, 7], pa.int64()),
        "features/places/1": pa.array([-1.0] * 5),
        "labels/kind": pa.array([0, 0, 0, 1, 0]),
        "labels/price": pa.array([[0.5, 2.0]] * 4 + [[0.5, 3.0]]),
    }
    intake = Intake(parts, labels)
    made, _ = prepared(iter([pa.RecordBatch.from_pydict(columns)]), intake)
    assert made.schema.names == ["key", *intake.parts, "weight", "validation", "note"]
    assert len(set(made["key"].to_pylist())) == 5
    assert made["features/photo"].to_pylist() == columns["features/photo/0"].to_pylist()
    places = [np.frombuffer(row, "int32").tolist() for row in made["features/places"].to_pylist()]
    assert places == [[7, -1], [8, -1], [7, -1], [7, -1], [7, -1]]
    assert [np.frombuffer(row).tolist() for row in made["labels/price"].to_pylist()][-1] == [0.5, 3.0]
    strange = columns | {"features/places/1": pa.array([-1.0, -1.0, 0.5, None, 1e10])}
    *_, note = prepared(iter([pa.RecordBatch.from_pydict(strange)]), Intake(parts, labels, skip=True))
    assert merged_notes(note["note"].to_pylist()[-1:], intake) == {"no integer": 2, "null": 1}


def test_bad_rows_leave_the_preparation_as_notes() -> None:
    good, bad = batch(pa.array([[1.0, 2.0, 3.0, 4.0]])), batch(pa.array([[1.0, 2.0, 3.0, NAN], [5.0, 6.0, 7.0, 8.0]]))
    whole, note = prepared(iter([good, bad, good]), INTAKE)
    assert whole.num_rows == 1
    with pytest.raises(ValueError, match="featuresCol 'x' holds NaN, as in the row .* set handleInvalid to skip"):
        merged_notes(note["note"].to_pylist(), INTAKE)
    skipping = Intake(**(vars(INTAKE) | {"skip": True}))
    *parts, note = prepared(iter([good, bad, bad]), skipping)
    assert [part.num_rows for part in parts] == [1, 1, 1]
    assert merged_notes(note["note"].to_pylist() * 2, INTAKE) == {"NaN": 4}
    assert list(prepared(iter([]), skipping)) == []


def test_the_preparation_takes_the_threads_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_NPROC", "")  # to be put back
    monkeypatch.delenv("PJRT_NPROC")
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(cpus=lambda: 7))
    assert list(prepared(iter([]), INTAKE)) == []
    assert os.environ["PJRT_NPROC"] == "7"


def test_minus_zero_is_the_zero_that_a_sparse_vector_leaves_out() -> None:
    rows = [
        batch(pa.array([values], kind)) for kind, values in ((VECTOR, sparse([1, 0, 0, 2])), (None, [1, -0.0, 0, 2]))
    ]
    one, other = ([*prepared(iter([row]), INTAKE)][0] for row in rows)
    assert one == other


@pytest.mark.parametrize("batches", [[[0, 1, 2]], [[0], [1], [2]], [[0, 2], [1]]])
def test_columns_whose_widths_differ_between_a_fit_s_good_rows_are_refused(batches: list[list[int]]) -> None:
    layout = Layout(("a", "b"), (3,), "float32", "featuresCols")
    intake = intake_of(layout, "float32", skip=True)
    table = {
        "features/features/0": pa.array([[1.0], [1.0, 2.0], [1.0]]),
        "features/features/1": pa.array([[2.0, 3.0], [3.0], [2.0, 3.0]]),
    }

    def notes(labels: list[Any]) -> list[str]:
        whole = pa.RecordBatch.from_pydict(table | {"labels/label": pa.array(labels, pa.float64())})
        made = [[*prepared(iter([whole.take(pa.array(rows))]), intake)][-1] for rows in batches]
        return [text for note in made for text in note["note"].to_pylist()]

    assert merged_notes(notes([0, None, 1]), intake) == {"null": 1}
    with pytest.raises(
        ValueError, match="must each hold as many values in every row, received rows of 1 \\+ 2 and of 2"
    ):
        merged_notes(notes([0, 0, 1]), intake)
