"""Files of rows are scored from the command line, a few rows at a time, and what goes wrong is said in a sentence."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import sparkdl
from sparkdl import Graph, predict
from sparkdl.layers import Concatenate, Dense, Embedding, HashedEmbedding, HashedEmbeddingBag
from sparkdl.objective import Objective
from sparkdl.scoring.predictor import Predictor
from sparkdl.scoring.saved_model import read_model
from sparkdl.specs import Named

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
    "a column that is there and is added": (
        [SAVED, "scored.parquet", "-o", "out.parquet", "-c", "label"],
        "the columns are id, features, prediction, rawPrediction, chances.",
    ),
    "a folder": ([SAVED, "rows.parquet", "-o", "some.csv"], "output must name a file, received 'some.csv', which is a"),
    "damaged rows": ([SAVED, "rows.parquet", "torn.parquet", "-o", "out.parquet"], "torn.parquet cannot be read: "),
    "columns of one name": (
        [SAVED, "rows.parquet", "twice.parquet", "-o", "out.parquet"],
        "twice.parquet cannot be read",
    ),
    "a type that Parquet lacks": ([SAVED, "spans.arrow", "-o", "out.parquet"], "month_day_nano_interval"),
    "there": ([SAVED, "scored.parquet", "-o", "out.parquet"], "Output column 'prediction' exists already"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_goes_wrong_is_a_sentence_and_leaves_no_file(
    name: str, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"features": [[1.0] * 4, [1.0]]}), "bad.parquet")
    parquet.write_table(ROWS.append_column("prediction", ROWS["id"]), "scored.parquet")
    spans = ROWS.append_column("span", pa.nulls(len(ROWS), pa.month_day_nano_interval()))
    with pa.ipc.new_file("spans.arrow", spans.schema) as file:
        file.write_table(spans)
    torn = bytearray(Path("rows.parquet").read_bytes())
    torn[4:400] = bytes(396)  # behind them, the columns are told as they were
    Path("torn.parquet").write_bytes(torn)
    parquet.write_table(pa.table([ROWS["id"], *ROWS.columns], ["id", *ROWS.column_names]), "twice.parquet")
    Path("some.csv").mkdir()
    before = set(tmp_path.iterdir())
    arguments, message = REFUSED[name]
    assert predict.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("python -m sparkdl.predict: ")
    assert message in told
    assert told.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_it_is_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkdl.predict", SAVED, "nowhere.parquet", "-o", str(tmp_path / "out.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.parquet is not there" in done.stderr


def test_what_is_ended_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    rows = pa.array(np.zeros((4_000_000, 4)).ravel())
    table = pa.table({"features": pa.FixedSizeListArray.from_arrays(rows, 4)})  # which takes seconds to score
    parquet.write_table(table, tmp_path / "rows.parquet")
    names = [str(tmp_path / name) for name in ("rows.parquet", "out.parquet")]
    process = subprocess.Popen([sys.executable, "-m", "sparkdl.predict", SAVED, names[0], "-o", names[1]])
    deadline = time.monotonic() + 120
    while not (tmp_path / "out.parquet.part").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    assert process.wait(120) == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_what_is_ended_while_objects_are_collected_ends_before_the_next_batch(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops the exception by which a signal ends a program where it comes up there."""

    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def predict_batch(predictor: Predictor, rows: Any) -> Any:
        asked.append(rows)
        Collected()
        return predict_one(predictor, rows)

    asked: list[Any] = []
    dropped: list[Any] = []
    predict_one = Predictor.predict
    monkeypatch.setattr(Predictor, "predict", predict_batch)
    monkeypatch.setattr(predict, "BATCH_ROWS", 10)
    monkeypatch.setattr(predict, "_ended", threading.Event())
    monkeypatch.setattr(sys, "unraisablehook", lambda found: dropped.append(found.exc_type))
    before = signal.signal(signal.SIGTERM, predict.end)
    try:
        with pytest.raises(SystemExit) as ended:
            predict.main([SAVED, stored, "-o", str(tmp_path / "out.parquet")])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    assert (len(asked), dropped) == (1, [SystemExit])
    assert not list(tmp_path.glob("out.parquet*"))


def test_a_terminal_is_shown_a_bar(stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert predict.main([SAVED, stored, "-o", str(tmp_path / "out.parquet")]) == 0
    assert "50.0/50.0" in terminal.getvalue()


HASHED = HashedEmbedding(500, 3)
LISTED = Embedding(2, 3, vocabulary=["01", "1"], unknown=True)
ZIPS = 'id,zip,age,note\n001,01,20,\n002,1,30.5,NA\n003,,NA,""\n'  # what CSV that R, Spark and others write holds


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts where a saved one is read a model of a column of categories, zip, and of numbers, age; its predictor."""

    def put(categories: Any = HASHED, shape: Any = ()) -> sparkdl.Predictor:
        nodes = {"place": (categories, "zip"), "all": (Concatenate(), "place", "age"), "kind": (Dense(1), "all")}
        graph = Graph(inputs={"zip": shape, "age": (1,)}, nodes=nodes, outputs="kind")
        chance = np.random.default_rng(5)
        weights = jax.tree.map(lambda a: chance.normal(size=a.shape).astype(np.float32), graph.abstract_weights())
        own = {"featuresCols": {"zip": ["zip"], "age": ["age"]}, "loss": None, "handleInvalid": "keep"}
        saved = read_model(SAVED)
        made = replace(saved, kind="DeepModel", params=saved.params | own, network=graph, weights=weights)
        made = replace(made, objective=Objective(Named({}), Named({})))
        monkeypatch.setattr(predict, "read_model", lambda _: made)
        return sparkdl.Predictor(made)

    return put


def written(folder: Path, files: dict[str, str]) -> list[str]:
    """Files of text, in folders of their own; their paths."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [str(folder / name) for name in files]


def told(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says that cannot be done."""
    before = set(tmp_path.iterdir())
    assert predict.main(["model", *arguments]) == 2
    assert set(tmp_path.iterdir()) == before
    return capsys.readouterr().err


def exact(path: Path) -> dict[str, Any]:
    """The columns of a file of CSV as strings, those of null as None."""
    found = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=["id", "zip", "note"], **EXACT))
    return found.to_pydict()


EXACT: Any = {
    "column_types": dict.fromkeys(("id", "zip", "note"), pa.string()),
    "null_values": [""],
    "strings_can_be_null": True,
    "quoted_strings_can_be_null": False,
}


@pytest.mark.parametrize("layer", [HASHED, LISTED])
@pytest.mark.parametrize("said", [["--strings", "zip"], ["--numbers", "zip"]])
def test_text_that_looks_like_numbers_is_read_as_the_user_says(
    layer: Any, said: list[str], model: Any, tmp_path: Path
) -> None:
    predictor = model(layer)
    (rows,), out = written(tmp_path, {"rows.csv": ZIPS}), tmp_path / "out.csv"
    zips = ["01", "1", None] if said[0] == "--strings" else [1, 1, None]
    assert predict.main(["model", rows, "-o", str(out), *said]) == 0
    expected = predictor.predict(pa.table({"zip": zips, "age": [20, 30.5, None]}))["prediction"].to_pylist()
    assert csv.read_csv(out)["prediction"].to_pylist() == pytest.approx(expected, nan_ok=True)
    assert expected[2] is None
    assert exact(out)["id"] == ["001", "002", "003"]
    assert exact(out)["note"] == [None, "NA", ""]


@pytest.mark.parametrize("layer", [HASHED, LISTED])
def test_text_that_may_be_numbers_or_not_is_asked_about(
    layer: Any, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(layer)
    (rows,) = written(tmp_path, {"rows.csv": ZIPS})
    message = (
        f"column 'zip' of {rows} looks like numbers, but the model reads strings, too, which give other predictions; "
        "say which it holds, by strings or numbers: --strings zip or --numbers zip."
    )
    assert message in told([rows, "-o", str(tmp_path / "out.csv")], tmp_path, capsys)


def test_rows_of_csv_may_be_as_long_as_documents(
    model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, out = model(), tmp_path / "out.parquet"
    texts = ["x" * 3_000_000, "y" * 5]
    (rows,) = written(tmp_path, {"rows.csv": "zip,age\n" + "".join(f"{text},1\n" for text in texts)})
    assert predict.main(["model", rows, "-o", str(out)]) == 0
    expected = predictor.predict(pa.table({"zip": texts, "age": [1, 1]}))["prediction"].to_pylist()
    assert parquet.read_table(out)["prediction"].to_pylist() == expected
    (rows,) = written(tmp_path, {"long.csv": "zip,age\n" + "x" * (40 << 20) + ",1\n"})
    message = (
        f"{rows} cannot be read: a row of it is longer than 16 MiB, or a quotation mark is not closed; write such rows"
    )
    assert message in told([rows, "-o", str(tmp_path / "other.parquet")], tmp_path, capsys)


def test_text_that_is_no_number_is_read_without_being_asked_about(model: Any, tmp_path: Path) -> None:
    predictor, out = model(), tmp_path / "out.parquet"
    files = {"1.csv": "zip,age\n,1\n", "2.csv": "zip,age\nA1,true\n7,3\n", "3.csv": "zip,age\n01,-2e1\n"}
    assert predict.predict_files("model", written(tmp_path, files), str(out)) == 4
    expected = predictor.predict(pa.table({"zip": [None, "A1", "7", "01"], "age": [1.0, 1.0, 3.0, -20.0]}))
    assert parquet.read_table(out).equals(expected)


def test_text_that_is_cut_into_parts_is_never_of_numbers(model: Any, tmp_path: Path) -> None:
    predictor, out = model(HashedEmbeddingBag(500, 3, split="word"), (None,)), tmp_path / "out.parquet"
    assert predict.predict_files("model", written(tmp_path, {"1.csv": "zip,age\n01,1\n1,1\n"}), str(out)) == 2
    expected = predictor.predict(pa.table({"zip": ["01", "1"], "age": [1.0, 1.0]}))
    assert parquet.read_table(out).equals(expected)


def test_texts_of_several_lines_stay_whole_in_files_of_any_size(model: Any, tmp_path: Path) -> None:
    model()
    out = tmp_path / "out.parquet"
    notes = ["\n".join([f"a line of {row:04d}"] * 100) for row in range(900)]  # more than the 1 MiB that Arrow reads
    rows = "zip,age,note\n" + "".join(f'a,1,"{note}"\n' for note in notes)
    assert predict.predict_files("model", written(tmp_path, {"rows.csv": rows}), str(out)) == 900
    assert parquet.read_table(out)["note"].to_pylist() == notes


def test_parquet_tells_types_itself(model: Any, tmp_path: Path) -> None:
    predictor, out = model(), tmp_path / "out.parquet"
    for zips in (["01", "1"], [1, 1]):
        rows = pa.table({"zip": zips, "age": [1.0, 2.0]})
        parquet.write_table(rows, tmp_path / "rows.parquet")
        predict.predict_files("model", [str(tmp_path / "rows.parquet")], str(out))
        assert parquet.read_table(out).equals(predictor.predict(rows))


@pytest.mark.parametrize(
    "said, message",
    [
        (["--strings", "zip", "--numbers", "zip"], "strings and numbers both name column 'zip'; leave it out of one"),
        (["--strings", "zap"], "which are id, zip, age, note, received 'zap'; leave it out."),
        (
            ["--strings", "age", "zip"],
            "'age' must be a column of numbers, arrays or Vectors, received string; cast it.",
        ),
        (
            ["--numbers", "note", "zip"],
            "column 'note' of {} must hold values of type double, received others (Failed to",
        ),
    ],
)
def test_what_is_said_of_columns_must_fit(
    said: list[str], message: str, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model()
    (rows,) = written(tmp_path, {"rows.csv": ZIPS.replace('""', "none")})
    assert message.format(rows) in told([rows, "-o", str(tmp_path / "out.csv"), *said], tmp_path, capsys)


def test_strings_are_not_of_parquet(stored: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="columns of CSV files, which are none here, received 'id'; leave it out"):
        predict.predict_files(SAVED, [stored], str(tmp_path / "out.parquet"), strings=["id"])


def test_no_columns_to_write_are_refused(stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        predict.main([SAVED, stored, "-o", str(tmp_path / "out.csv"), "--columns"])
    assert "expected at least one argument" in capsys.readouterr().err


A, B = "zip,age\na,1\n", "zip,age\nb,1.5\n"  # whole numbers alone in the first


@pytest.mark.parametrize("as_folder", [False, True])
def test_files_of_other_columns_are_refused(
    as_folder: bool, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model()
    out = str(tmp_path / "out.csv")
    one, other, *_ = written(tmp_path, {"fa/1.csv": A, "fa/2.csv": "zip,note\nb,x\n", "fa/_SUCCESS": ""})
    rows = [str(tmp_path / "fa")] if as_folder else [one, other]
    message = f"{other} must have the columns of {one}, but lacks 'age' and has 'note' besides; name files of the same"
    assert message in told([*rows, "-o", out], tmp_path, capsys)
    message = f"{other} must have the columns of {one}, but lacks 'age'; name files of the same columns, or in columns"
    assert message in told([*rows, "-o", out, "--columns", "prediction"], tmp_path, capsys)


def test_further_columns_do_not_matter_where_they_are_not_asked_for(model: Any, tmp_path: Path) -> None:
    model()
    written(tmp_path, {"fa/1.csv": A, "fa/2.csv": "note,age,zip\nx,2,b\n"})
    out = tmp_path / "out.parquet"
    assert predict.predict_files("model", [str(tmp_path / "fa")], str(out), columns=["zip", "prediction"]) == 2
    assert parquet.read_table(out)["zip"].to_pylist() == ["a", "b"]


def test_types_that_go_together_become_one(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictor, out = model(), tmp_path / "out.parquet"
    names = [str(tmp_path / "rows" / f"{kind}.parquet") for kind in ("int32", "int64", "float32", "float64")]
    (tmp_path / "rows").mkdir()
    for at, name in enumerate(names):
        kind = pa.type_for_alias(Path(name).stem)
        parquet.write_table(pa.table({"zip": ["a"], "age": pa.array([at], kind)}), name)
    rows = written(tmp_path, {"1.csv": A, "2.csv": B})
    assert predict.predict_files("model", [*rows, *names], str(out)) == 6
    expected = predictor.predict(pa.table({"zip": [*"abaaaa"], "age": [1, 1.5, 0, 1, 2, 3]}))
    assert parquet.read_table(out).equals(expected)
    written(tmp_path, {"rows/c.csv": A})
    assert predict.predict_files("model", [str(tmp_path / "rows")], str(out)) == 5
    parquet.write_table(pa.table({"zip": [1], "age": [1.0]}), names[2])
    message = (
        f"column 'zip' of {names[2]} must go with that of {names[0]}, which holds string, received int64; write both"
    )
    assert message in told([*names, "-o", str(out)], tmp_path, capsys)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_folders_that_name_columns_add_these(kind: str, scheme: str, model: Any, tmp_path: Path) -> None:
    if scheme == "memory://":
        fsspec = pytest.importorskip("fsspec")
    predictor, out = model(), tmp_path / "out.parquet"
    ages = {
        "day=tu/the%20hour=__HIVE_DEFAULT_PARTITION__": 1,
        "day=mo/the%20hour=01": 2,
        "_temporary/day=we/the%20hour=01": 3,
    }
    for name, age in ages.items():
        path = tmp_path / "in=out" / name / f"part-0.{kind}"
        path.parent.mkdir(parents=True)
        rows = pa.table({"zip": ["a"], "age": [age]})
        csv.write_csv(rows, path) if kind == "csv" else parquet.write_table(rows, path)
        if scheme == "memory://":
            fsspec.filesystem("memory").pipe(str(path), path.read_bytes())
    assert predict.predict_files("model", [f"{scheme}{tmp_path / 'in=out'}/"], str(out)) == 2
    expected = {"zip": ["a", "a"], "age": [2.0, 1.0], "day": ["mo", "tu"], "the hour": ["01", None]}
    found = parquet.read_table(out).to_pydict()
    assert list(found) == [*expected, "prediction"]
    assert {name: found[name] for name in expected} == expected
    assert found["prediction"] == predictor.predict(pa.table(expected))["prediction"].to_pylist()


def test_no_rows_of_csv_give_a_file_of_none(model: Any, tmp_path: Path) -> None:
    model()
    out = tmp_path / "out.parquet"
    assert predict.predict_files("model", written(tmp_path, {"rows.csv": "zip,age\n"}), str(out)) == 0
    assert parquet.read_schema(out).names == ["zip", "age", "prediction"]


def test_rows_without_files_are_refused(model: Any) -> None:
    model()
    with pytest.raises(ValueError, match="rows must name at least one file or folder, received none"):
        predict.predict_files("model", [], "out.csv")
