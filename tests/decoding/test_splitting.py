"""Strings as rows of integers: split as a plain loop splits them, hashed or looked up, cut, and which are bad."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pandas.util import hash_array

from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.counting import count_strings
from sparkdl.decoding.layout import KINDS, Decoded, Layout, check_rows
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.decoding.splitting import SPLITS, split_strings
from sparkdl.strings import Hashing, Strings, Vocabulary

TEXTS = [
    "To be, or not to be: that's  the question.",
    "",
    None,
    " \t\n",
    "Łódź—東京 naïve 3.5% a\u00a0b_c",
    "e\u0301te\u0301 \u0939\u093f\u0928\u094d\u0926\u0940 👍🏽",
    "x",
]


def by_hand(text: str, split: str) -> list[str]:
    """A string's parts, one code point after another."""
    if split == "character":
        return list(text)
    parts: list[str] = []
    within = False
    for character in unicodedata.normalize("NFC", text):
        whole = unicodedata.category(character)[0] in "LMN"
        if whole and within:
            parts[-1] += character.lower()
        elif not character.isspace():
            parts.append(character.lower())
        within = whole
    return parts


PARTS = {split: [None if text is None else by_hand(text, split) for text in TEXTS] for split in SPLITS}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("first", "last"), [(0, 7), (3, 6), (1, 4), (2, 3), (4, 4)])
def test_strings_are_split_as_a_plain_loop_does(split: str, kind: pa.DataType, first: int, last: int) -> None:
    column = pa.array(TEXTS, kind)[first:last]
    assert split_strings(column, split).to_pylist() == PARTS[split][first:last]


def test_what_is_no_string_or_not_to_be_split_is_as_it_is() -> None:
    for column, split in ((pa.array(TEXTS), None), (pa.array([["A b"]]), "word"), (pa.array([1]), "character")):
        assert split_strings(column, split) is column


def lists(decoded: Decoded) -> list[Any]:
    rows = decoded.values
    assert isinstance(rows, RaggedRows)
    return [row.tolist() for row in np.split(rows.values, np.cumsum(rows.lengths)[:-1])]


def statuses(decoded: Decoded) -> list[str]:
    return [KINDS[code] for code in decoded.status]


def hashes(parts: list[str]) -> list[int]:
    return hash_array(np.array(parts, object), categorize=False).astype(np.uint32).view(np.int32).tolist()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("first", [0, 2, 4])
def test_parts_are_numbered_alike_whether_strings_are_split_here_or_before(split: str, first: int) -> None:
    entries = sorted({part for parts in PARTS[split] if parts for part in parts})[::2]
    ways: list[Strings] = [Hashing(split=split), Vocabulary(entries, split=split)]
    chosen = PARTS[split][first:]
    for strings in ways:
        layout = Layout(("x",), (None,), "int32", strings=strings)
        found = decode_features([pa.array(TEXTS)[first:]], layout)
        before = decode_features([pa.array(PARTS[split])[first:]], layout)
        if isinstance(strings, Vocabulary):
            expected = [
                [entries.index(part) if part in entries else len(entries) for part in row or ()] for row in chosen
            ]
        else:
            expected = [hashes(row) if row else [] for row in chosen]
        for decoded in (found, before):
            assert lists(decoded) == expected and decoded.values.dtype == "int32"
            assert statuses(decoded) == ["null" if row is None else "valid" for row in chosen]


@pytest.mark.parametrize("side", ["right", "left"])
def test_split_strings_are_cut_to_the_most_parts_before_they_are_looked_up(side: str) -> None:
    layout = Layout(
        ("x",), (None,), "int32", limit=2, strings=Vocabulary(["a", "b"], split="character"), max_length=2,
        truncation_side=side,
    )  # fmt: skip
    decoded = decode_features([pa.array(["abz", "zab", "b", ""])], layout)
    right = side == "right"
    assert lists(decoded) == ([[0, 1], [], [1], []] if right else [[], [0, 1], [1], []])
    assert statuses(decoded)[:2] == (["valid", "no category"] if right else ["no category", "valid"])
    assert decoded.cut is not None and (decoded.cut.lengths > decoded.cut.most).tolist() == [True, True, False, False]


# Null and empty sequences, strings and items, by how the column holds them: what is bad about each, and the rows made.
FORMS: list[tuple[Any, Strings, list[str], list[list[int]]]] = [
    (pa.array([["b", "a"], [], None, ["a", None], [""]]), Vocabulary(["a", "b", ""]),
     ["valid", "valid", "null", "null", "valid"], [[1, 0], [], [], [], [2]]),
    (pa.array([["b", "c"], ["a"], ["c", None]]), Vocabulary(["a", "b"]),
     ["no category", "valid", "no category"], [[], [0], []]),
    (pa.array(["b A", "", None, "  ", "c"]), Vocabulary(["a", "b"], split="word"),
     ["valid", "valid", "null", "valid", "no category"], [[1, 0], [], [], [], []]),
    (pa.array(["ba", "", None, "A"]), Vocabulary(["a", "b"], split="character"),
     ["valid", "valid", "null", "no category"], [[1, 0], [], [], []]),
    (pa.array([[1, 0], [], None, [0, None], [2]]), Vocabulary(["a", "b"]),
     ["valid", "valid", "null", "null", "no category"], [[1, 0], [], [], [], []]),
    (pa.array([["a", None], [], None, [""]]), Hashing(),
     ["null", "valid", "null", "valid"], [[], [], [], hashes([""])]),
    (pa.array(["a", "", None]), Hashing(split="character"), ["valid", "valid", "null"], [hashes(["a"]), [], []]),
    (pa.nulls(2), Vocabulary(["a"], split="word"), ["null", "null"], [[], []]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMS)))
@pytest.mark.parametrize("first", [0, 1])
def test_null_and_empty_ones_and_strings_without_a_row_are_told_apart(number: int, first: int) -> None:
    column, strings, expected, rows = FORMS[number]
    limit = len(strings) if isinstance(strings, Vocabulary) else None
    layout = Layout(("x",), (None,), "int32", strings=strings, limit=limit, table="words")
    decoded = decode_features([column[first:]], layout)
    assert (statuses(decoded), lists(decoded)) == (expected[first:], rows[first:])


def test_a_string_that_the_vocabulary_lacks_is_named() -> None:
    layout = Layout(("x",), (None,), "int32", strings=Vocabulary(["a"], split="word"), limit=1, table="body/words")
    column = pa.array(["a", "a, b", None])
    decoded = decode_features([column], layout)
    with pytest.raises(ValueError) as refused:
        check_rows([decoded], {"x": column}, "mend it")
    assert str(refused.value) == (
        "featuresCol 'x' must hold strings that the vocabulary of the network's layer 'body/words' has, received ','; "
        "learn it from all rows, or give the layer unknown=True, as in the row (x: 'a, b'); mend it."
    )
    assert decoded.problem(2) == "featuresCol 'x' holds null"
    numbers = decode_features([pa.array([[0, 7]])], layout)
    assert numbers.problem(0).startswith("featuresCol 'x' must hold categories from 0 to 0")


def test_rows_of_one_length_hold_as_many_strings_or_parts() -> None:
    layout = Layout(("x",), (2,), "int32", strings=Vocabulary(["a", "b"], split="character"), limit=2)
    decoded = decode_features([pa.array(["ab", "a", "bb", "ac", None])], layout)
    assert decoded.values.tolist() == [[0, 1], [0, 0], [1, 1], [0, 0], [0, 0]]
    assert statuses(decoded) == ["valid", "wrong width", "valid", "no category", "null"]
    several = Layout(("x", "y"), (2,), "int32", "featuresCols", strings=Vocabulary(["a", "b"]), limit=2, table="t")
    decoded = decode_features([pa.array(["a", "b", None]), pa.array(["b", "c", "a"])], several)
    assert decoded.values.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert statuses(decoded) == ["valid", "no category", "null"] and "received 'c'" in decoded.problem(1)
    one = decode_features([pa.array(["b", "a"])], Layout(("x",), (), "int32", strings=Vocabulary(["a", "b"]), limit=2))
    assert one.values.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("shape", "strings", "message"),
    [
        (
            (None,),
            Hashing(),
            r"must be one column of arrays to fill .* received string; give the layer .* a split of 'word'",
        ),
        (
            (),
            Hashing(split="word"),
            r"holds strings in parts, words, to fill the network's input_shape \(\), which must",
        ),
        ((None,), None, "must be one column of arrays"),
    ],
)
def test_strings_that_make_no_such_rows_are_refused(shape: Any, strings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"featuresCol 'x' {message}"):
        decode_features([pa.array(["a b"])], Layout(("x",), shape, "int32", strings=strings))


def test_numbers_that_make_no_such_rows_are_refused_as_numbers() -> None:
    layout = Layout(("x",), (), "int32", strings=Hashing(split="word"))
    with pytest.raises(ValueError, match="must hold one value a row"):
        decode_features([pa.array([[1, 2]])], layout)
    assert decode_features([pa.array([1, 2])], layout).values.tolist() == [1, 2]


def test_a_vocabulary_looks_strings_up_as_workers_do() -> None:
    words = Vocabulary(["be", "to"], split="word")
    found = words.look_up(["To be", "", "not to"])
    assert [row.tolist() for row in found] == [[1, 0], [], [2, 1]]
    assert [row.tolist() for row in words.look_up([["be"], [], ("To",)])] == [[0], [], [2]]
    whole = Vocabulary(["be", "to"]).look_up(["to", "be", "not"])
    assert whole.tolist() == [1, 0, 2] and whole.dtype == "int32"
    with pytest.raises(ValueError, match="look_up takes strings, or lists of strings, received others"):
        words.look_up([3])
    for other in (None, ["to"]):  # Arrow would take each string beside it for a list of its letters
        with pytest.raises(ValueError, match="look_up takes strings, or lists of strings, received strings and"):
            words.look_up(["to", other])
    for nulls in ([None], [["to"], None], [["to", None]]):  # of which it would make empty rows, or NaN
        with pytest.raises(ValueError, match="look_up takes strings, or lists of strings, received None among them"):
            words.look_up(nulls)
    with pytest.raises(ValueError, match=r"received 'to be', one string; give it in a list, \['to be'\]"):
        words.look_up("to be")
    assert words.look_up([]) == [] and words.look_up([[]])[0].tolist() == []


def test_strings_are_counted_batch_by_batch() -> None:
    batches = [pa.record_batch([pa.array(each)], ["text"]) for each in (["a b a", None, ""], ["B"], [])]
    batches[2] = pa.record_batch([pa.array([], pa.string())], ["text"])
    found = [dict(zip(*each.to_pydict().values(), strict=True)) for each in count_strings(iter(batches), "word")]
    assert found == [{"a": 2, "b": 1}, {"b": 1}, {}]
    tags = pa.record_batch([pa.array([["x", None], None, ["y", "x"]])], ["text"])
    assert next(count_strings(iter([tags]), None)).to_pydict() == {"entry": ["x", "y"], "count": [2, 1]}
