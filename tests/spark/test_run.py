"""How a fit on the cluster stops, saves, goes on and tells of itself: one run of two workers with all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from spark_cases import FEATURES, LABELS, NETWORK, arrays, outputs, same_bits, softmax

from sparkdl import DeepClassifier
from sparkdl.training import EarlyStopping, ParameterAveraging

PHASES = ["read", "write", "start", "meet", "compile", "batch", "step", "wait", "exchange", "validation", "checkpoint"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


def estimator(folder: Path, **params: Any) -> DeepClassifier:
    settings: dict[str, Any] = {
        "network": NETWORK,
        "optimizer": "adam",
        "batchSize": 4,
        "maxIter": 9,
        "stepSize": 0.02,
        "numWorkers": 2,
        "exchange": ParameterAveraging(2),
        "validationIndicatorCol": "held_out",
        "earlyStopping": EarlyStopping(patience=2, min_delta=1e9),
        "checkpointDir": str(folder / "checkpoints"),
        "collectTrainingStats": True,
        "logDir": str(folder / "logs"),
    }
    return DeepClassifier(**settings | params)


@pytest.fixture(scope="module")
def held_out(rows: DataFrame) -> DataFrame:
    return rows.withColumn("held_out", F.col("id") % 4 == 0)


@pytest.fixture(scope="module")
def model(held_out: DataFrame, folder: Path) -> Any:
    return estimator(folder).fit(held_out)


def test_it_stops_early_and_returns_its_best_weights(model: Any) -> None:
    summary = model.summary
    assert summary.stopReason.startswith("validation_loss has not improved by more than 1e+09 in 2 checks")
    assert summary.totalIterations == 3
    assert summary.bestCheck == [1, 0, summary.validationHistory[0]]
    kept = np.arange(24) % 4 == 0
    chances = softmax(outputs(arrays(model), FEATURES[kept]))
    loss = -np.log(chances[np.arange(6), LABELS[kept]]).mean()
    assert loss == pytest.approx(summary.validationHistory[0], rel=1e-5)
    assert loss != pytest.approx(summary.validationHistory[-1], rel=1e-5)
    pytest.importorskip("matplotlib")
    drawn = {line.get_label(): list(line.get_ydata()) for line in summary.plot().axes[0].lines}
    assert drawn["validation"] == summary.validationHistory
    assert f"best check ({summary.validationHistory[0]:.4g})" in drawn


def test_the_timeline_holds_every_phase_of_every_worker(model: Any, tmp_path: Path) -> None:
    timeline = model.summary.timeline
    assert timeline[timeline["rank"] == 0]["phase"].drop_duplicates().tolist()[-1] == "return"
    trained_on = [worker["rows"] for worker in model.summary.workers]
    assert timeline[timeline["phase"] == "read"]["rows"].sum() >= sum(trained_on)
    assert max(trained_on) - min(trained_on) <= 1  # whatever each of them read
    for rank in (0, 1):
        own = timeline[timeline["rank"] == rank]
        assert set(own["phase"]) - {"return"} == set(PHASES)
        trained = own[own["phase"] == "step"]
        assert trained[trained["rows"].notna()]["steps"].sum() == sum(epoch.steps for epoch in model.summary.history)
    assert (timeline["seconds"] >= 0).all()
    timeline.save_html(tmp_path / "timeline.html")
    assert model.summary.workers[1]["host"] in (tmp_path / "timeline.html").read_text()
    report = model.summary.scaling_report()
    assert report.startswith("2 workers took ")
    assert "With a worker more, a step would take" in report


def test_tensorboard_has_been_told(model: Any, folder: Path) -> None:
    (events,) = (folder / "logs").iterdir()
    written = events.read_bytes()
    for tag in (b"epoch/loss", b"epoch/validation_loss", b"weights/dense_1/kernel", b"gradients/dense_3/bias"):
        assert tag in written


def test_the_same_fit_again_is_not_trained_again_and_another_one_says_so(
    model: Any, held_out: DataFrame, folder: Path
) -> None:
    again = estimator(folder).fit(held_out.repartition(3))
    assert again.summary.resumedFrom == [3, 0]
    assert again.summary.stopReason == model.summary.stopReason
    assert same_bits(arrays(again), arrays(model))
    assert [epoch.loss for epoch in again.summary.history] == model.summary.objectiveHistory
    with pytest.warns(UserWarning, match="holds checkpoints of other runs only .*; this one started anew"):
        other = estimator(folder, seed=1, maxIter=1).fit(held_out)
    assert other.summary.resumedFrom is None


@pytest.mark.parametrize(
    "params, sentence",
    [
        ({"checkpointInterval": 0}, "checkpointInterval must be at least 1, received 0."),
        ({"checkpointKeep": 0}, "checkpointKeep must be at least 1, received 0."),
        ({"logInterval": 0}, "logInterval must be at least 1, received 0."),
        (
            {"validationIndicatorCol": ""},
            "earlyStopping monitors validation_loss, but validationIndicatorCol is not set",
        ),
        (
            {"earlyStopping": EarlyStopping(unit="step")},
            "checks when workers hold different weights under ParameterAveraging(frequency=2); choose a multiple",
        ),
    ],
)
def test_what_cannot_be_is_refused_before(
    held_out: DataFrame, folder: Path, params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:
        estimator(folder, **params).fit(held_out)
    assert sentence in str(refused.value)
