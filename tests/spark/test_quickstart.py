"""The main job as a stranger runs it, on a data set small enough for a test, and its parts on their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyspark.ml import PipelineModel
from pyspark.sql import SparkSession

from sparkdl import datasets, quickstart, report

CLASSES = len(datasets.FASHION_CLASSES)
TRAINED, TESTED = 60, 20  # images


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Idx files in which an image's class shows in the row of pixels that is lit."""
    folder = tmp_path_factory.mktemp("data")
    for prefix, rows in (("train", TRAINED), ("t10k", TESTED)):
        labels = np.arange(rows, dtype=np.uint8) % CLASSES
        images = np.random.default_rng(rows).integers(0, 30, (rows, 28, 28), np.uint8)
        images[np.arange(rows), 2 * labels + 4] = 255
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (folder / f"{prefix}-{kind}-ubyte").write_bytes(header + array.tobytes())
    return folder


def test_the_main_job_trains_saves_and_draws(data: Path, tmp_path: Path, spark: SparkSession) -> None:
    command = [sys.executable, "-m", "sparkdl.quickstart", "--data", str(data), "--epochs", "15", "--batch-size", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("Test accuracy: ")[1].split()[0])
    assert accuracy > 0.8
    assert f"on {TESTED} images" in done.stdout
    assert "multiply-adds" in done.stdout
    told = [line for line in done.stderr.splitlines() if line and "incubator modules" not in line]  # Java's own line
    assert [line for line in told if "rows/s" not in line] == []
    bar = re.search(r"^epoch 15/15: 100%.*\[(\d+):(\d+)<00:00,.* rows/s, loss=", told[-1])
    assert bar is not None, told[-1]
    timings = dict(re.findall(r"(\w+) ([\d.]+)", done.stdout.split("seconds: ")[1].splitlines()[0]))
    known = float(timings["training"]) + float(timings["return"])
    assert 60 * int(bar[1]) + int(bar[2]) <= known + 2, "the time before training is not that of its rows"

    output = tmp_path / "quickstart-output"
    assert {path.name for path in tmp_path.iterdir()} == {output.name}
    assert (output / "report.png").read_bytes().startswith(b"\x89PNG")
    _, test = quickstart.images(spark, data)
    again = PipelineModel.load(str(output / "model")).transform(test)
    assert again.where(again["class"] == again.prediction).count() / TESTED == pytest.approx(accuracy, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "99"], "numWorkers is 99"),
        (["--data", "nowhere"], "received 'nowhere'"),
        (["--epochs", "-1"], "maxIter must be at least 0"),
    ],
)
def test_a_wrong_argument_ends_with_one_sentence(
    arguments: list[str], message: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quickstart.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_sample_is_split_as_it_says(spark: SparkSession) -> None:
    for frame, rows in zip(quickstart.images(spark, None), (500, 100), strict=True):
        assert frame.dtypes == [("image", "binary"), ("label", "string")]
        counts = {row.label: row["count"] for row in frame.groupBy("label").count().collect()}
        assert counts == dict.fromkeys(datasets.FASHION_CLASSES, rows)


def test_other_predictions_do_not_pass(spark: SparkSession) -> None:
    frames = [
        spark.createDataFrame([(0.0, [1 - share, share])], "prediction double, probability array<double>")
        for share in (0.25, 0.25 + 2**-54)
    ]
    quickstart.check_equal(frames[0], frames[0])
    with pytest.raises(RuntimeError, match="predicts otherwise"):
        quickstart.check_equal(*frames)


def test_without_matplotlib_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    monkeypatch.delitem(sys.modules, "sparkdl.report")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    quickstart.draw(tmp_path / "report.png", [1.0], ["a"], spark.range(1))
    assert "pip install 'sparkdl-jax[plot]'" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_confusion_counts_what_was_taken_for_what() -> None:
    truth, predicted = np.random.default_rng(0).integers(0, 4, (2, 50))
    expected = np.zeros((5, 5), int)  # the fifth class never occurs
    for row, column in zip(truth, predicted, strict=True):
        expected[row, column] += 1
    np.testing.assert_array_equal(report.confusion(truth, predicted, 5), expected)


@pytest.mark.parametrize("rows", [1, 30])
def test_a_report_is_drawn_of_few_images_and_of_many(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.png"
    classes = np.arange(rows) % 3
    images = np.zeros((rows, 28, 28), np.uint8)
    report.classifier_report(path, [1.0, 0.5], images, classes, classes[::-1], ["a", "b", "c"])
    assert path.read_bytes().startswith(b"\x89PNG")
