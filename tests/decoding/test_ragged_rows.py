"""Columns of arrays of any length: which rows are bad and why, their keys, and the bytes in which they travel."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from catalyst_bytes import as_bytes
from vectors import VECTOR, dense, sparse

from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.hashing import hash_strings
from sparkdl.decoding.labels import LabelPart, decode_labels
from sparkdl.decoding.layout import KINDS, SIDES, Decoded, Layout
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.spark.tasks.row_bytes import FeaturesPart, Intake, cut_rows, merged_notes, prepared, row_keys
from sparkdl.strings import Hashing

NAN = float("nan")
ROWS = [[3, 0], [], [7], [1, 1, 2, 5, 0]]
KINDS_OF_LISTS = {
    "int": pa.list_(pa.int32()),
    "bigint": pa.list_(pa.int64()),
    "tinyint": pa.list_(pa.int8()),
    "whole doubles": pa.list_(pa.float64()),
    "large": pa.large_list(pa.int32()),
}
FORMS = {name: pa.array(ROWS, kind) for name, kind in KINDS_OF_LISTS.items()}
FORMS |= {f"bytes of {name}": as_bytes(FORMS[name]) for name in ("int", "bigint", "whole doubles")}
FORMS["bytes of some"] = as_bytes(FORMS["int"], lambda row: row % 2 == 0)
IDS = Layout(("x",), (None,), "int32", limit=8, table="bag")


def lists(decoded: Decoded) -> list[Any]:
    rows = decoded.values
    assert isinstance(rows, RaggedRows)
    return [row.tolist() for row in np.split(rows.values, np.cumsum(rows.lengths)[:-1])]


def statuses(decoded: Decoded) -> list[str]:
    return [KINDS[code] for code in decoded.status]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first, last", [(0, 4), (1, 3), (1, 2)])
def test_rows_keep_their_lengths_in_every_form(form: str, first: int, last: int) -> None:
    decoded = decode_features([FORMS[form][first:last]], IDS)
    assert lists(decoded) == ROWS[first:last]
    assert decoded.values.dtype == "int32" and not decoded.status.any()


@pytest.mark.parametrize("form", ["int", "bytes of int"])
def test_no_rows_are_none(form: str) -> None:
    assert len(decode_features([FORMS[form][2:2]], IDS).values) == 0


@pytest.mark.parametrize(
    ("column", "expected", "sentence"),
    [
        ([[1], None, [2, None, 9]], ["valid", "null", "null"], "featuresCol 'x' holds null"),
        ([[1.0], [0.5, NAN], [NAN, 0.5]], ["valid", "no integer", "NaN"],
         "featuresCol 'x' must hold whole numbers that int32 holds, received 0.5"),
        ([[7], [1, 8, -1], [-1, None]], ["valid", "no category", "no category"],
         "featuresCol 'x' must hold categories from 0 to 7, the rows of the network's table 'bag', received 8; "),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bytes_too", [False, True])
def test_a_bad_step_spoils_its_row_alone(
    column: list[Any], expected: list[str], sentence: str, bytes_too: bool
) -> None:
    given = pa.array(column)
    decoded = decode_features([as_bytes(given) if bytes_too else given], IDS)
    assert statuses(decoded) == expected
    assert lists(decoded) == [column[0], [], []]
    assert decoded.problem(1).startswith(sentence)


def test_a_row_of_more_steps_than_the_network_tells_apart_is_marked() -> None:
    layout = replace(IDS, most_steps=2)
    given = pa.array([[1, 2], [1, 2, 3], [], [1, None, 3]])
    decoded = decode_features([given], layout)
    assert statuses(decoded) == ["valid", "too many steps", "valid", "null"]
    assert lists(decoded) == [[1, 2], [], [], []]
    assert decoded.problem(1).startswith("featuresCol 'x' must hold at most 2 steps a row, ")
    assert decoded.problem(1).endswith("received 3; cut rows by maxLength=2")
    decoded = decode_features([given], replace(layout, max_length=2))
    assert statuses(decoded) == ["valid", "valid", "valid", "null"]


def test_strings_are_hashed() -> None:
    words = pa.array([["a", "b"], [], ["a"]])
    decoded = decode_features([words], Layout(("x",), (None,), "int32", strings=Hashing()))
    assert lists(decoded) == hash_strings(words).to_pylist()


def test_numbers_and_steps_of_several_numbers_may_be_of_any_length_too() -> None:
    decoded = decode_features([pa.array([[0.5, 1.5], [NAN], [2.0]])], Layout(("x",), (None,), "float32"))
    assert lists(decoded) == [[0.5, 1.5], [], [2.0]] and statuses(decoded)[1] == "NaN"
    pairs = pa.array([[[1.0, 2.0], [3.0, 4.0]], [], [[1.0]], [[5.0, None]], [None]])
    decoded = decode_features([pairs], Layout(("x",), (None, 2), "float64"))
    assert lists(decoded) == [[[1, 2], [3, 4]], [], [], [], []]
    assert statuses(decoded) == ["valid", "valid", "wrong width", "null", "null"]


def cut_by_hand(rows: list[Any], most: int, side: str) -> list[Any]:
    return [None if row is None else row[:most] if side == "right" else row[max(0, len(row) - most) :] for row in rows]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("first", "most"), [(0, 1), (1, 2), (0, 5)])
def test_rows_that_are_too_long_lose_steps_at_one_side(side: str, form: str, first: int, most: int) -> None:
    decoded = decode_features([FORMS[form][first:]], replace(IDS, max_length=most, truncation_side=side))
    assert lists(decoded) == cut_by_hand(ROWS[first:], most, side)
    assert decoded.cut is not None and decoded.cut.lengths.tolist() == [len(row) for row in ROWS[first:]]


@pytest.mark.parametrize("side", SIDES)
def test_steps_of_any_form_are_cut_and_what_is_cut_off_spoils_no_row(side: str) -> None:
    layout = Layout(("x",), (None, 2), "float64", max_length=2, truncation_side=side)
    rows = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], None, [], [[7.0, 8.0]], [[NAN, 1.0], [1.0, 1.0], [2.0, 2.0]]]
    found = decode_features([pa.array(rows)], layout)
    vectors = [None if row is None else [dense(step) for step in row] for row in rows]
    again = decode_features([pa.array(vectors, pa.list_(VECTOR))], layout)
    for decoded in (found, again):
        expected = cut_by_hand(rows[:4], 2, side) + [[] if side == "right" else [[1, 1], [2, 2]]]
        assert lists(decoded) == [row or [] for row in expected]
        assert statuses(decoded) == ["valid", "null", "valid", "valid", "NaN" if side == "right" else "valid"]
        assert decoded.cut is not None and decoded.cut.lengths.tolist() == [3, -1, 0, 1, 3]
    words = pa.array([["a", "b", "c"], ["d"]])
    hashed = decode_features(
        [words], Layout(("x",), (None,), "int32", strings=Hashing(), max_length=1, truncation_side=side)
    )
    kept = pa.array(cut_by_hand(words.to_pylist(), 1, side))
    assert lists(hashed) == hash_strings(kept).to_pylist()


def test_vectors_may_be_steps() -> None:
    steps = [[dense([1, 2]), sparse([0, 4])], [], [dense([1])], [None], [sparse([5, NAN])], None]
    decoded = decode_features([pa.array(steps, pa.list_(VECTOR))], Layout(("x",), (None, 2), "float32"))
    assert lists(decoded) == [[[1, 2], [0, 4]], [], [], [], [], []]
    assert statuses(decoded) == ["valid", "valid", "wrong width", "null", "NaN", "null"]
    assert decoded.problem(2).endswith("input_shape (None, 2), received a row of 1")


@pytest.mark.parametrize(
    ("columns", "received"),
    [
        ([pa.array([1, 2])], "received int64"),
        ([pa.array([b"ab"])], "received binary"),
        ([pa.array([[1]]), pa.array([[2]])], "received 2 columns"),
    ],
)
def test_other_columns_are_refused(columns: list[pa.Array], received: str) -> None:
    layout = Layout(("x", "y")[: len(columns)], (None,), "int32", "featuresCols")
    with pytest.raises(ValueError, match=rf"must be one column of arrays to fill .* \(None,\), {received}"):
        decode_features(columns, layout)
    with pytest.raises(ValueError, match="nested at most 1 deep"):
        decode_features([pa.array([[[1]]])], IDS)


# Preparation

INTAKE = Intake({"history": FeaturesPart(IDS, "int32")}, {"label": LabelPart("y", 1)})


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"features/history/0": column, "labels/label": pa.array(np.zeros(len(column)))})


@pytest.mark.parametrize("form", FORMS)
def test_equal_rows_become_equal_bytes_and_keys_whatever_their_form_and_company(form: str) -> None:
    (made,) = prepared(iter([batch(FORMS[form])]), INTAKE)
    expected = [np.array(row, "int32").tobytes() for row in ROWS]
    assert made["features/history"].to_pylist() == expected
    back = RaggedRows.from_column(made["features/history"][1:], "int32", ())
    assert back.lengths.tolist() == [0, 1, 5] and back.values.tolist() == sum(ROWS[1:], [])
    alone = [next(prepared(iter([batch(FORMS[form][at : at + 1])]), INTAKE))["key"][0] for at in range(4)]
    assert made["key"].to_pylist() == [key.as_py() for key in alone]


def test_every_step_its_place_and_the_length_count_for_a_key() -> None:
    rows = [[], [0], [0, 0], [0, 0, 0], [1], [1, 0], [0, 1], [2, 1], [1, 2], [1, 1, 2], [1, 2, 1]]
    keys = row_keys([(RaggedRows.of([np.array(row, "int32") for row in rows]), "int32")], np.zeros((len(rows), 1)))
    assert len(set(keys.tolist())) == len(rows)
    random = np.random.default_rng(1)
    many = [random.integers(0, 3, random.integers(0, 6)).astype("int32") for _ in range(20_000)]
    keys = row_keys([(RaggedRows.of(many), "int32")], np.zeros((len(many), 1)))
    assert len(set(keys.tolist())) == len({tuple(row.tolist()) for row in many})


def test_minus_zero_is_zero() -> None:
    intake = Intake({"history": FeaturesPart(Layout(("x",), (None,), "float32"), "float32")}, INTAKE.labels)
    one, other = (next(prepared(iter([batch(pa.array([[1.0, zero]]))]), intake)) for zero in (0.0, -0.0))
    assert one == other


def test_bad_rows_are_noted_or_refused() -> None:
    strange = batch(pa.array([[1], [9], None, [2, None], []]))
    skipping = Intake(INTAKE.features, INTAKE.labels, skip=True)
    made, note = prepared(iter([strange]), skipping)
    assert made["features/history"].to_pylist() == [np.array([1], "int32").tobytes(), b""]
    assert merged_notes(note["note"].to_pylist(), skipping) == {"no category": 1, "null": 2}
    (note,) = prepared(iter([strange]), INTAKE)
    with pytest.raises(ValueError, match=re.escape("received 9; index them so") + r".*in the row \(x: \[9\], y: 0.0\)"):
        merged_notes(note["note"].to_pylist(), INTAKE)


def test_labels_of_steps_are_as_long_as_the_features() -> None:
    features = {"history": decode_features([pa.array([[1, 2, 3], [4], None, [1, 2], [], [3, 2], [1]])], IDS)}
    column = pa.array([[0.5, None, 2.0], None, [1.0], [3.0], [], [4.0, float("nan")], [6.0]])
    part = LabelPart("y", 1, follows="history")
    decoded = decode_labels(column, part, features)
    assert [KINDS[code] for code in decoded.status] == [
        "valid",
        "null",
        "valid",
        "wrong width",
        "valid",
        "NaN",
        "valid",
    ]
    assert decoded.values.lengths.tolist() == features["history"].values.lengths.tolist() == [3, 1, 0, 2, 0, 2, 1]
    np.testing.assert_array_equal(decoded.values.values, [0.5, np.nan, 2, *[np.nan] * 5, 6])
    assert decoded.problem(3) == "labelCol 'y' must hold one label for each step of the row, received 1 for 2 steps"
    assert "holds NaN" in decoded.problem(5) and "holds null" in decoded.problem(1)
    several = decode_labels(column, LabelPart("y", 1, follows="history", optional=True), features)
    assert KINDS[several.status[1]] == "valid" and np.isnan(several.values[np.array([1])].values).all()


def test_several_labels_of_a_step() -> None:
    features = {"history": decode_features([pa.array([[1, 2], [3]])], IDS)}
    column = pa.array([[[1.0, 2.0], None], [[3.0]]])
    decoded = decode_labels(column, LabelPart("y", 2, True, follows="history"), features)
    np.testing.assert_array_equal(decoded.values.values, [[1, 2], [np.nan] * 2, [np.nan] * 2])
    assert [KINDS[code] for code in decoded.status] == ["valid", "wrong width"]
    assert "must hold 2 labels" in decoded.problem(1)
    decoded = decode_labels(
        pa.array([[[1.0, None], None], [None]]), LabelPart("y", 2, True, follows="history"), features
    )
    assert [KINDS[code] for code in decoded.status] == ["null", "valid"]
    assert decoded.problem(0) == "labelCol 'y' holds null"


def test_rows_that_are_cut_are_counted_but_for_those_left_out() -> None:
    layout = replace(IDS, max_length=2)
    intake = Intake({"history": FeaturesPart(layout, "int32")}, INTAKE.labels, skip=True)
    made, note = prepared(iter([batch(pa.array([[1, 2, 3], [9, 2, 3], [1], [4, 5, 6, 7]]))]), intake)
    assert made["features/history"].to_pylist() == [np.array(row, "int32").tobytes() for row in ([1, 2], [1], [4, 5])]
    assert cut_rows(note["note"].to_pylist()) == {"history": 2}
    assert cut_rows([*note["note"].to_pylist()] * 2) == {"history": 4} and cut_rows([]) == {}


@pytest.mark.parametrize("side, kept", [("right", [1.0, 2.0]), ("left", [2.0, 3.0])])
def test_labels_are_cut_as_the_features_are(side: str, kept: list[float]) -> None:
    layout = replace(IDS, max_length=2, truncation_side=side)
    features = {"history": decode_features([pa.array([[1, 2, 3], [4], [1, 2, 3]])], layout)}
    column = pa.array([[1.0, 2.0, 3.0], [5.0], [7.0, 8.0]])
    decoded = decode_labels(column, LabelPart("y", 1, follows="history"), features)
    np.testing.assert_array_equal(decoded.values.values, [*kept, 5, np.nan, np.nan])
    assert [KINDS[code] for code in decoded.status] == ["valid", "valid", "wrong width"]
    assert decoded.problem(2).endswith("received 2 for 3 steps")
