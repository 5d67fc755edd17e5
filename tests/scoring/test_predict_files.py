"""Files of rows are scored from the command line, a few rows at a time, and what goes wrong is said in a sentence."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import sparkdl
from sparkdl import predict

pytestmark = pytest.mark.usefixtures("unoptimized")
SAVED = str(Path(__file__).parents[1] / "saved_by_0.1" / "model")  # of four features and two classes
FEATURES = np.random.default_rng(3).integers(0, 256, (50, 4)).astype(np.float64)
ROWS = pa.table({"id": np.arange(50), "features": FEATURES.tolist()})


@pytest.fixture
def stored(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(ROWS, path, row_group_size=7)
    return path


def test_rows_go_by_a_few_at_a_time_and_come_out_as_of_a_predictor(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = []

    def seen(predictor: sparkdl.Predictor, rows: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(len(rows))
        return predicted(predictor, rows)

    predicted = sparkdl.Predictor.predict
    monkeypatch.setattr(sparkdl.Predictor, "predict", seen)
    monkeypatch.setattr(predict, "BATCH_ROWS", 5)
    assert predict.main([SAVED, stored, "-o", str(tmp_path / "out.parquet")]) == 0
    assert max(sizes) <= 5
    assert parquet.read_table(tmp_path / "out.parquet").equals(predicted(sparkdl.load(SAVED), ROWS).combine_chunks())
    assert capsys.readouterr().err == ""  # no bar where there is no terminal
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "rows.parquet"]


def test_several_files_and_folders_go_into_one_file_of_chosen_columns(stored: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    parquet.write_table(ROWS.slice(3, 4), folder / "part-0.parquet")
    out = tmp_path / "out.csv"
    chosen = ["--columns", "prediction", "id"]
    assert predict.main([SAVED, stored, str(folder), "-o", str(out), *chosen]) == 0
    expected = sparkdl.load(SAVED).predict(ROWS)["prediction"].to_pylist()
    found = csv.read_csv(out)
    assert found.column_names == ["prediction", "id"]
    assert found["prediction"].to_pylist() == expected + expected[3:7]


def test_no_rows_give_a_file_of_none(tmp_path: Path) -> None:
    parquet.write_table(ROWS.slice(0, 0), tmp_path / "rows.parquet")
    assert predict.predict_files(SAVED, [str(tmp_path / "rows.parquet")], str(tmp_path / "out.parquet")) == 0
    assert "prediction" in parquet.read_schema(tmp_path / "out.parquet").names


REFUSED = {
    "no model": (["nowhere", "rows.parquet", "-o", "out.parquet"], "nowhere holds no saved stage"),
    "no rows": ([SAVED, "nowhere.parquet", "-o", "out.parquet"], "nowhere.parquet is not there; check the path."),
    "format": ([SAVED, "rows.parquet", "-o", "out.xlsx"], "'out.xlsx' must end in .parquet or .csv; name a file of"),
    "column": (
        [SAVED, "rows.parquet", "-o", "out.parquet", "-c", "label"],
        "column 'label' is not there; the columns are id, features, rawPrediction, chances, prediction.",
    ),
    "lists": ([SAVED, "rows.parquet", "-o", "out.csv"], "column 'features' holds lists or structs, which CSV cannot"),
    "a bad row": ([SAVED, "bad.parquet", "-o", "out.parquet"], "featuresCol 'features' must hold 4 values a row"),
    "there": ([SAVED, "scored.parquet", "-o", "out.parquet"], "Output column 'prediction' exists already"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_goes_wrong_is_a_sentence_and_leaves_no_file(
    name: str, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"features": [[1.0] * 4, [1.0]]}), "bad.parquet")
    parquet.write_table(ROWS.append_column("prediction", ROWS["id"]), "scored.parquet")
    arguments, message = REFUSED[name]
    assert predict.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("python -m sparkdl.predict: ")
    assert message in told
    assert told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"rows.parquet", "bad.parquet", "scored.parquet"}


def test_it_is_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkdl.predict", SAVED, "nowhere.parquet", "-o", str(tmp_path / "out.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.parquet is not there" in done.stderr


def test_a_terminal_is_shown_a_bar(stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert predict.main([SAVED, stored, "-o", str(tmp_path / "out.parquet")]) == 0
    assert "50.0/50.0" in terminal.getvalue()


def test_no_columns_to_write_are_refused(stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        predict.main([SAVED, stored, "-o", str(tmp_path / "out.csv"), "--columns"])
    assert "expected at least one argument" in capsys.readouterr().err
