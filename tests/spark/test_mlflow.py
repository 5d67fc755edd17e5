"""Models and Pipelines go into MLflow and come back, with Spark and without, and fits log their epochs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.ml import PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, NETWORK, a_model, table

from sparkdl import DeepClassifier, Network, mlflow_flavor
from sparkdl.layers import Dense, Flatten
from sparkdl.spark.driver.epoch_metrics import log_epochs
from sparkdl.training.results import Epoch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of MLflow's own modules
    mlflow = pytest.importorskip("mlflow")
    import_module("mlflow.pyfunc"), import_module("mlflow.spark")

pytestmark = [pytest.mark.usefixtures("unoptimized"), pytest.mark.filterwarnings("ignore::UserWarning:mlflow")]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store of files, which later releases of MLflow have to be asked for."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield str(tmp_path / "runs")
    mlflow.set_tracking_uri(before)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(table()).coalesce(1)


def predictions(model: Any, rows: DataFrame) -> list[float]:
    return [row.prediction for row in model.transform(rows).select("prediction").collect()]


def test_a_model_and_a_pipeline_come_back_as_sparks(rows: DataFrame, tmp_path: Path) -> None:
    model = a_model()
    assembler = VectorAssembler(inputCols=["id"], outputCol="one")
    expected = predictions(model, rows)
    for stage in (model, PipelineModel(stages=[assembler, model])):
        with mlflow.start_run():
            own = {"pip_requirements": ["sparkdl-jax"], "dfs_tmpdir": str(tmp_path / "written")}
            logged = mlflow.spark.log_model(stage, "model", **own)
        loaded = mlflow.spark.load_model(logged.model_uri, dfs_tmpdir=str(tmp_path / "read"))
        assert predictions(loaded, rows) == expected


SCORING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refusing())
import mlflow.pyfunc
import pandas as pd
model = mlflow.pyfunc.load_model(sys.argv[1])
print(model.predict(pd.DataFrame({"features": [[1.0, 2.0, 3.0, 4.0]]}))["prediction"].tolist())
"""


def test_the_flavor_scores_frames_without_spark(
    rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = a_model()
    monkeypatch.setattr(logging.getLogger("mlflow"), "propagate", True)
    with mlflow.start_run(), caplog.at_level("WARNING"):
        logged = mlflow_flavor.log_model(PipelineModel(stages=[model]), "model")
    assert [record.message for record in caplog.records if "deprecated" in record.message] == []
    frame = pd.DataFrame({"features": list(FEATURES.astype(float))}, index=range(7, 31))
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(frame)
    assert list(found.columns) == ["rawPrediction", "probability", "prediction"]
    assert found.index.equals(frame.index)
    assert found["prediction"].tolist() == predictions(model, rows)
    again = mlflow_flavor.load_model(logged.model_uri).predict(frame)
    np.testing.assert_array_equal(np.stack(list(again["probability"])), np.stack(list(found["probability"])))
    model.save(str(tmp_path / "saved"))
    mlflow_flavor.save_model(tmp_path / "saved", tmp_path / "copied", pip_requirements=["sparkdl-jax"])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCORING, str(tmp_path / "copied")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    expected = mlflow_flavor.load_model(logged.model_uri).predict({"features": [[1.0, 2.0, 3.0, 4.0]]})
    assert done.stdout.strip() == str(expected["prediction"].tolist()), done.stderr


def test_the_flavor_saves_models_of_spark_into_folders_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a model é", "a%20model"):
        mlflow_flavor.save_model(a_model(), tmp_path / name)
        scorer = mlflow_flavor._load_pyfunc(str(tmp_path / name / "model"))  # MLflow itself takes %20 for a blank
        assert scorer.predictor.inputs == ("features",)
    assert {path.name for path in tmp_path.iterdir()} == {"a model é", "a%20model"}


def test_what_cannot_be_logged_or_scored_is_said_so(spark: SparkSession, tmp_path: Path) -> None:
    a_model().save(str(tmp_path / "saved"))
    with pytest.raises(FileExistsError, match="holds files already; save to another folder"):
        mlflow_flavor.save_model(tmp_path / "saved", tmp_path / "saved")
    with pytest.raises(ValueError, match="VectorAssembler, but without Spark only fitted models of sparkdl score rows"):
        mlflow_flavor.save_model(VectorAssembler(inputCols=["a"], outputCol="b"), tmp_path / "other")
    mlflow_flavor.save_model(tmp_path / "saved", tmp_path / "copied")
    scorer = mlflow_flavor._load_pyfunc(str(tmp_path / "copied" / "model"))
    with pytest.raises(ValueError, match="params must be empty, as the model has none, received {'k': 1}"):
        scorer.predict(pd.DataFrame({"features": [[1.0] * 4]}), params={"k": 1})


def test_a_signature_of_tensors_is_served(tmp_path: Path) -> None:
    """MLflow hands rows of such over as a dict of arrays, and writes what comes back as JSON."""
    network = Network([Flatten(), Dense(2)], input_shape=(2, 2, 1))
    pixels = FEATURES.reshape(24, 2, 2, 1).astype("float32")
    signature = mlflow.models.infer_signature({"features": pixels})
    a_model(network=network).save(str(tmp_path / "saved"))
    mlflow_flavor.save_model(tmp_path / "saved", tmp_path / "served", signature=signature)
    served = mlflow.pyfunc.load_model(str(tmp_path / "served"))
    found = served.predict({"features": pixels})
    wanted = mlflow_flavor.load_model(str(tmp_path / "served")).predict({"features": pixels})
    assert list(found) == ["rawPrediction", "probability", "prediction"]
    for name, column in found.items():
        np.testing.assert_array_equal(column, wanted[name])
    written = StringIO()
    import_module("mlflow.pyfunc.scoring_server").predictions_to_json(found, written)
    assert json.loads(written.getvalue())["predictions"]["prediction"] == found["prediction"].tolist()


def test_what_is_refused_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    assembler = VectorAssembler(inputCols=["a"], outputCol="b")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(ValueError, match="VectorAssembler, but without Spark"):
            mlflow_flavor.save_model(assembler, folder)
    with pytest.raises(ValueError, match="model must be a model of sparkdl, .* or the path of a saved one, received 5"):
        mlflow_flavor.save_model(5, tmp_path / "new")
    with pytest.raises(FileNotFoundError):
        mlflow_flavor.save_model(tmp_path / "nowhere", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"] and not any((tmp_path / "empty").iterdir())


def test_a_fit_logs_its_epochs_where_a_run_is_under_way(rows: DataFrame) -> None:
    classifier = DeepClassifier(network=NETWORK, maxIter=2, batchSize=8)
    with mlflow.start_run() as run:
        model = classifier.fit(rows)
    client = mlflow.MlflowClient()
    told = {
        name: [metric.value for metric in client.get_metric_history(run.info.run_id, name)]
        for name in client.get_run(run.info.run_id).data.metrics
    }
    assert told == {"loss": model.summary.objectiveHistory, "accuracy": model.summary.metricHistory}


def test_epochs_of_several_outputs_are_logged_by_their_names_and_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    log_epochs([Epoch(1.0, None, None, None, 1, 0.1, 0.0)], "metric", {})  # without a run, nothing
    outputs = {"kind": {"loss": 0.5, "metric": 0.75, "validation_loss": 0.625, "validation_metric": None}}
    with mlflow.start_run() as run:
        log_epochs([Epoch(1.0, None, 2.0, None, 1, 0.1, 0.0, outputs=outputs)], "metric", {"kind": "accuracy"})
    expected = {"loss": 1.0, "validation_loss": 2.0, "kind_loss": 0.5, "kind_accuracy": 0.75}
    assert mlflow.get_run(run.info.run_id).data.metrics == expected | {"kind_validation_loss": 0.625}

    def gone(*arguments: Any, **named: Any) -> None:
        raise OSError("the server\nis gone")

    monkeypatch.setattr(mlflow, "log_metrics", gone)
    with mlflow.start_run(), pytest.warns(UserWarning, match="MLflow did not log the epochs: the server is gone"):
        log_epochs([Epoch(1.0, 0.5, None, None, 1, 0.1, 0.0)], "accuracy", {})
