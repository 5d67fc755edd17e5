"""What is saved comes back the same, bit for bit, and what is damaged or foreign is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import StringIndexer
from pyspark.ml.tuning import CrossValidatorModel
from pyspark.sql import DataFrame, SparkSession
from spark_cases import NETWORK, a_model, arrays, same_bits

from sparkdl import (
    DeepClassificationModel,
    DeepClassifier,
    DeepEstimator,
    DeepModel,
    DeepRegressionModel,
    DeepRegressor,
)
from sparkdl.optimizers import Momentum


def params(stage: Any) -> dict[str, Any]:
    """The Params that were set, by name."""
    return {param.name: value for param, value in stage._paramMap.items()}


@pytest.mark.parametrize("kind", [DeepEstimator, DeepClassifier, DeepRegressor])
def test_an_estimator_keeps_what_was_set_and_only_that(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    estimator = kind(network=NETWORK, optimizer=Momentum(0.8), maxIter=3)
    estimator.save(str(tmp_path / "saved"))
    loaded = kind.load(str(tmp_path / "saved"))
    assert type(loaded) is kind
    assert loaded.uid == estimator.uid
    assert params(loaded) == params(estimator)
    assert loaded.getNetwork() == NETWORK
    assert loaded.getOptimizer() == Momentum(0.8)
    assert not loaded.isDefined("weightCol")
    assert loaded.extractParamMap() == estimator.extractParamMap()


@pytest.mark.parametrize("kind", [DeepModel, DeepClassificationModel, DeepRegressionModel])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_comes_back_bit_for_bit(spark: SparkSession, tmp_path: Path, kind: Any, dtype: str) -> None:
    model = a_model(kind, computeDtype=dtype, predictionCol="guess")
    model.save((tmp_path / "saved").as_uri())
    loaded = kind.load((tmp_path / "saved").as_uri())
    assert same_bits(arrays(loaded), arrays(model))
    assert (loaded.uid, params(loaded)) == (model.uid, params(model))
    assert not loaded.hasSummary
    with pytest.raises(RuntimeError, match=f"No training summary available for this {kind.__name__}: it was loaded"):
        _ = loaded.summary


def test_a_pipeline_comes_back_and_predicts_the_same(rows: DataFrame, tmp_path: Path) -> None:
    indexer = StringIndexer(inputCol="label", outputCol="index")
    pipeline = Pipeline(stages=[indexer, DeepClassifier(network=NETWORK, maxIter=2, labelCol="index")])
    pipeline.save(str(tmp_path / "pipeline"))
    model = Pipeline.load(str(tmp_path / "pipeline")).fit(rows)
    model.save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert type(loaded.stages[1]) is DeepClassificationModel
    assert loaded.stages[1].uid == pipeline.getStages()[1].uid
    assert loaded.transform(rows).orderBy("id").collect() == model.transform(rows).orderBy("id").collect()


def test_a_cross_validator_comes_back(cross_validated: CrossValidatorModel, rows: DataFrame, tmp_path: Path) -> None:
    cross_validated.save(str(tmp_path / "saved"))
    loaded = CrossValidatorModel.load(str(tmp_path / "saved"))
    assert loaded.avgMetrics == cross_validated.avgMetrics
    assert same_bits(arrays(loaded.bestModel), arrays(cross_validated.bestModel))
    known, found = (
        [{param.name: value for param, value in choice.items()} for choice in each.getEstimatorParamMaps()]
        for each in (cross_validated, loaded)
    )
    assert found == known


def test_what_is_there_is_overwritten_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    a_model().save(path)
    other = a_model(DeepRegressionModel)
    with pytest.raises(Exception, match="already exists"):
        other.save(path)
    other.write().overwrite().save(path)
    assert DeepRegressionModel.load(path).uid == other.uid


def test_nothing_saved_is_a_pickle(spark: SparkSession, tmp_path: Path) -> None:
    PipelineModel(stages=[a_model()]).save(str(tmp_path / "saved"))
    found = set()
    for path in (tmp_path / "saved").rglob("*"):
        if path.is_dir() or path.name == "_SUCCESS" or path.suffix == ".crc":
            continue
        content = path.read_bytes()
        if path.suffix == ".parquet":
            assert content[:4] == content[-4:] == b"PAR1"
        else:
            json.loads(content)
        found.add(path.suffix)
    assert ".parquet" in found
    assert len(found) > 1


def test_another_class_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    a_model().save(path)
    sentence = "holds a .*DeepClassificationModel, not a .*DeepRegressionModel; load it with that class."
    with pytest.raises(ValueError, match=sentence):
        DeepRegressionModel.load(path)


def test_one_changed_byte_is_found(spark: SparkSession, tmp_path: Path) -> None:
    a_model().save(str(tmp_path / "saved"))
    weights = str(tmp_path / "saved" / "weights")
    parts = spark.read.parquet(weights)
    table = parts.toArrow().to_pylist()
    table[0]["data"] = bytes([table[0]["data"][0] ^ 1]) + table[0]["data"][1:]
    spark.createDataFrame(table, parts.schema).write.mode("overwrite").parquet(weights)
    with pytest.raises(ValueError, match="The weights in .* are not those that were saved; the directory is damaged."):
        DeepClassificationModel.load(str(tmp_path / "saved"))


def test_a_lost_part_of_the_weights_is_found(spark: SparkSession, tmp_path: Path) -> None:
    a_model().save(str(tmp_path / "saved"))
    weights = str(tmp_path / "saved" / "weights")
    parts = spark.read.parquet(weights)
    kept = parts.toArrow().to_pylist()[1:]
    spark.createDataFrame(kept, parts.schema).write.mode("overwrite").parquet(weights)
    with pytest.raises(ValueError, match="the directory is damaged"):
        DeepClassificationModel.load(str(tmp_path / "saved"))


def test_a_newer_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    a_model().save(str(tmp_path / "saved"))
    (metadata,) = (tmp_path / "saved" / "metadata").glob("part-*")
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"sparkdlFormat": 2}))
    metadata.with_name(f".{metadata.name}.crc").unlink()
    with pytest.raises(ValueError, match="is in format 2, this sparkdl reads format 1; upgrade sparkdl."):
        DeepClassificationModel.load(str(tmp_path / "saved"))
