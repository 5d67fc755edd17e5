"""Texts and series arrive as their files hold them, and damaged files say so in a sentence."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparkdl.datasets import (
    CHART_CLASSES,
    data_directory,
    ett,
    japanese_vowels,
    sms_spam,
    synthetic_control,
    tiny_shakespeare,
)


def write(path: Path, text: str, zipped: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.with_name(path.name + ".gz" * zipped).write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", [".", "sms-spam"])
def test_messages_keep_their_tabs_and_signs(tmp_path: Path, folder: str, zipped: bool) -> None:
    text = "ham\tOk \u00a35\u2028 a\tb \nspam\t\nham\tlast"
    write(tmp_path / folder / "SMSSpamCollection", text + "\n", zipped)
    assert sms_spam(tmp_path).to_pylist() == [
        {"text": "Ok \u00a35\u2028 a\tb ", "label": "ham"},
        {"text": "", "label": "spam"},
        {"text": "last", "label": "ham"},
    ]


@pytest.mark.parametrize("line", ["", "eggs\ttext", "spam without a tab"])
def test_a_line_that_is_no_message_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path / "SMSSpamCollection", f"ham\tone\n{line}\nham\tthree\n")
    with pytest.raises(ValueError, match="Line 2 of SMSSpamCollection should be ham or spam, a tab and a text"):
        sms_spam(tmp_path)
    (tmp_path / "SMSSpamCollection").write_bytes(b"ham\t\xff\n")
    with pytest.raises(ValueError, match="SMSSpamCollection should be text in UTF-8, received"):
        sms_spam(tmp_path)


def test_speeches_are_the_file_again(tmp_path: Path) -> None:
    speeches = [f"Speaker {number}:\n{'word ' * number}\nand a line" for number in range(1, 30)]
    whole = "\n\n".join(speeches) + "\n"
    write(tmp_path / "tinyshakespeare" / "input.txt", whole)
    table = tiny_shakespeare(tmp_path)
    assert table["text"].to_pylist() == speeches
    for speech, split in zip(speeches, table["split"].to_pylist(), strict=True):
        assert split == ("train" if whole.index(speech + "\n") < 0.9 * len(whole) else "test")
    assert set(table["split"].to_pylist()) == {"train", "test"}


def test_lines_may_end_as_those_of_windows_do(tmp_path: Path) -> None:
    write(tmp_path / "SMSSpamCollection", "\ufeffham\tGo on\r\nspam\tFree\r\n")
    assert sms_spam(tmp_path)["text"].to_pylist() == ["Go on", "Free"]
    write(tmp_path / "input.txt", "A:\r\nYes.\r\n\r\nB:\r\nNo.\r\n")
    assert tiny_shakespeare(tmp_path)["text"].to_pylist() == ["A:\nYes.", "B:\nNo."]


def write_vowels(folder: Path, sizes: str = "1 2") -> dict[str, list[np.ndarray]]:
    generator, written = np.random.default_rng(3), {}
    for split in ("train", "test"):
        series = [generator.integers(-99, 99, (length, 12)) / 8 for length in (7, 2, 1)]
        blocks = ["".join(" ".join(map(str, step)) + " \n" for step in each) for each in series]
        write(folder / f"ae.{split}", "\n".join(blocks) + "\n", zipped=split == "test")
        write(folder / f"size_ae.{split}", f"{sizes} \n")
        written[split] = series
    return written


def test_vowels_keep_their_steps_and_speakers(tmp_path: Path) -> None:
    written = write_vowels(tmp_path / "japanese-vowels")
    table = japanese_vowels(tmp_path)
    assert table.schema.field("series").type == pa.list_(pa.list_(pa.float64()))
    assert table.to_pylist() == [
        {"series": each.tolist(), "label": label, "split": split}
        for split, series in written.items()
        for each, label in zip(series, "122", strict=True)
    ]


def test_vowels_that_do_not_fit_their_counts_are_named(tmp_path: Path) -> None:
    write_vowels(tmp_path, sizes="1 1")
    with pytest.raises(ValueError, match="ae.train should hold the 2 utterances that size_ae.train counts, received 3"):
        japanese_vowels(tmp_path)
    write(tmp_path / "ae.train", "1 2 3\n")
    with pytest.raises(ValueError, match="Lines of ae.train should hold 12 numbers each"):
        japanese_vowels(tmp_path)


def test_charts_come_kind_by_kind(tmp_path: Path) -> None:
    charts = np.random.default_rng(5).integers(0, 999, (600, 60)) / 16
    write(tmp_path / "synthetic_control.data", "\n".join("  ".join(map(str, chart)) + " " for chart in charts) + "\n")
    table = synthetic_control(tmp_path)
    np.testing.assert_array_equal(np.array(table["series"].to_pylist()), charts)
    assert table["label"].to_pylist() == list(np.repeat(CHART_CLASSES, 100))
    write(tmp_path / "synthetic_control.data", "1 " * 60)
    with pytest.raises(ValueError, match="should hold 100 lines of each of 6 kinds, received 1 lines"):
        synthetic_control(tmp_path)
    write(tmp_path / "synthetic_control.data", "x " * 60)
    with pytest.raises(ValueError, match=r"Lines of synthetic_control.data should hold 60 numbers each"):
        synthetic_control(tmp_path)


@pytest.mark.parametrize(("name", "day", "days"), [("ETTh1", 24, 601), ("ETTm2", 96, 361)])
def test_temperatures_are_in_the_order_of_time(tmp_path: Path, name: str, day: int, days: int) -> None:
    start, step = datetime.datetime(2016, 7, 1), datetime.timedelta(days=1) / day
    rows = days * day
    lines = (f"{start + step * row},{row / 4},2,3,4,5,6,{-row}" for row in range(rows))
    write(tmp_path / "ett" / f"{name}.csv", "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n" + "\n".join(lines), zipped=True)
    table = ett(tmp_path, name)
    assert table.column_names == ["time", "HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT", "split"]
    assert table.schema.field("time").type == pa.timestamp("us")
    last = table.slice(rows - 1).to_pylist()[0]
    assert (last["time"], last["HUFL"], last["OT"]) == (start + step * (rows - 1), (rows - 1) / 4, 1.0 - rows)
    months = ["train"] * 360 + ["validation"] * 120 + ["test"] * 120 + [None]
    assert table["split"].to_pylist() == [split for split in months[:days] for _ in range(day)]


def test_what_is_no_such_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name must be one of ETTh1, ETTh2, ETTm1, ETTm2, received 'ETTh3'"):
        ett(tmp_path, "ETTh3")
    with pytest.raises(FileNotFoundError, match="directory should hold ETTh1.csv or ETTh1.csv.gz, itself or in ett"):
        ett(tmp_path)
    for text in ("date,OT\n2016-07-01 00:00:00,1\n", "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\nx,1,2,3,4,5,6,7\n", ""):
        write(tmp_path / "ETTh1.csv", text)
        with pytest.raises(ValueError, match="ETTh1.csv should have the columns date, HUFL, .*, received: "):
            ett(tmp_path)


def test_the_published_files_hold_what_is_said_of_them() -> None:
    directory = data_directory()
    folders = ("sms-spam", "tinyshakespeare", "japanese-vowels", "synthetic-control", "ett")
    if directory is None or not all((directory / name).is_dir() for name in folders):
        pytest.skip(f"SPARKDL_DATA names no folder with {', '.join(folders)}")
    messages = sms_spam(directory)
    assert (len(messages), messages["label"].to_pylist().count("spam")) == (5574, 747)
    speeches = tiny_shakespeare(directory)["text"].to_pylist()
    assert len("\n\n".join(speeches)) + 1 == 1_115_394
    assert len(speeches) == 7222
    assert len(set("".join(speeches))) == 65
    vowels = japanese_vowels(directory)
    assert vowels["split"].to_pylist() == ["train"] * 270 + ["test"] * 370
    assert {len(series) for series in vowels["series"].to_pylist()} <= set(range(7, 30))
    assert len(synthetic_control(directory)) == 600
    assert len(ett(directory)) == 17_420
