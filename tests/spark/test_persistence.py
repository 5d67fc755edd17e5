"""What is saved comes back the same, bit for bit, and what is damaged or foreign is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import OneVsRestModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer
from pyspark.ml.tuning import CrossValidatorModel, TrainValidationSplitModel
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
from sparkdl.scoring import weight_rows
from sparkdl.scoring.saved_stage import params_digest
from sparkdl.spark.saving import persistence


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


def test_models_come_back_from_within_others(spark: SparkSession, tmp_path: Path) -> None:
    models = [a_model(), a_model()]
    estimator, evaluator = DeepClassifier(network=NETWORK), MulticlassClassificationEvaluator()
    chosen = TrainValidationSplitModel(models[0], [0.5])
    chosen._set(estimator=estimator, evaluator=evaluator, estimatorParamMaps=[{estimator.stepSize: 0.1}])
    rest = OneVsRestModel(models)
    rest._set(classifier=estimator)
    PipelineModel([PipelineModel([chosen]), rest]).save(str(tmp_path / "saved"))
    outer = PipelineModel.load(str(tmp_path / "saved"))
    loaded = [outer.stages[0].stages[0].bestModel, *outer.stages[1].models]
    for found, known in zip(loaded, [models[0], *models], strict=True):
        assert same_bits(arrays(found), arrays(known))
        assert (found.uid, params(found)) == (known.uid, params(known))


def test_what_is_there_is_overwritten_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    a_model().save(path)
    other = a_model(DeepRegressionModel)
    with pytest.raises(FileExistsError, match=r"saved already exists; save elsewhere, or with write\(\).overwrite\(\)"):
        other.save(path)
    other.write().overwrite().save(path)
    assert DeepRegressionModel.load(path).uid == other.uid


def test_nothing_of_what_was_there_survives_overwriting(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    PipelineModel(stages=[a_model()]).save(str(path))
    (path / "notes.txt").write_text("mine")
    DeepClassifier(network=NETWORK).write().overwrite().save(path.as_uri())
    assert [found.name for found in path.iterdir()] == ["metadata"]


def test_an_empty_folder_may_be_saved_to(spark: SparkSession, tmp_path: Path) -> None:
    model = a_model()
    model.save(str(tmp_path))
    assert same_bits(arrays(DeepClassificationModel.load(str(tmp_path))), arrays(model))


def test_a_path_may_be_an_object_and_is_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    model = a_model()
    model.save(tmp_path / "a saved, model")
    assert same_bits(arrays(DeepClassificationModel.load(tmp_path / "a saved, model")), arrays(model))
    for name in ("of[1]", "of{1}", "of\\1", "of*"):
        for attempt in (model.save, model.write().overwrite().save, DeepClassificationModel.load):
            with pytest.raises(ValueError, match="path must not hold .*, which Spark reads as a pattern, received '/"):
                attempt(tmp_path / name)
    assert [found.name for found in tmp_path.iterdir()] == ["a saved, model"]
    with pytest.raises(TypeError, match="NoneType"):
        model.save(None)


def test_any_hadoop_file_system_will_do(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    context.set("fs.viewfs.mounttable.sparkdl.link./models", tmp_path.as_uri())
    model = a_model()
    path = "viewfs://sparkdl/models/saved"
    for _ in range(2):
        PipelineModel(stages=[model]).write().overwrite().save(path)
    assert same_bits(arrays(PipelineModel.load(path).stages[0]), arrays(model))


def test_weights_of_any_size_are_saved_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_rows, "PART_BYTES", 24)
    monkeypatch.setattr(weight_rows, "FILE_BYTES", 60)
    model = a_model()
    model.save(str(tmp_path / "saved"))
    parts = [parquet.read_table(file).to_pylist() for file in (tmp_path / "saved" / "weights").glob("*.parquet")]
    sizes = [[len(row["data"]) for row in rows] for rows in parts]
    assert max(size for file in sizes for size in file) == 24
    assert max(sum(file) for file in sizes) <= 60
    assert sum(sum(file) for file in sizes) == sum(array.nbytes for array in arrays(model).values())
    assert same_bits(arrays(DeepClassificationModel.load(str(tmp_path / "saved"))), arrays(model))


def test_a_save_that_failed_cannot_be_loaded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "saved")
    a_model().save(path)

    def full(weights: Any) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(persistence, "digest", full)
    with pytest.raises(OSError, match="No space left"):
        a_model().write().overwrite().save(path)
    assert (tmp_path / "saved" / "weights").exists()
    with pytest.raises(FileNotFoundError, match="holds no saved stage"):
        DeepClassificationModel.load(path)


def test_nothing_there_is_said_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        with pytest.raises(FileNotFoundError, match=f"{name} holds no saved stage, as there is no .*check the path."):
            DeepClassifier.load(str(tmp_path / name))
    with pytest.raises(
        ValueError, match='cannot be loaded: .*No FileSystem for scheme "nonesuch"; give Spark the jars'
    ):
        DeepClassifier.load("nonesuch://saved")


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


def rewritten(stage: Path, **changes: Any) -> None:
    """Change fields of the metadata; `paramsDigest` is made to fit."""
    (file,) = (stage / "metadata").glob("part-*")
    metadata = json.loads(file.read_text()) | changes
    if metadata.get("paramsDigest"):
        metadata["paramsDigest"] = params_digest(metadata)
    file.write_text(json.dumps({name: value for name, value in metadata.items() if value is not None}))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def saved(spark: SparkSession, tmp_path: Path) -> Path:
    """A saved DeepClassificationModel whose files may be changed without Hadoop's own checksums noticing."""
    a_model().save(str(tmp_path / "saved"))
    for checksum in (tmp_path / "saved").rglob(".*.crc"):
        checksum.unlink()
    return tmp_path / "saved"


def loading(path: Path) -> str:
    """What is said of a damaged directory: one line that names it."""
    with pytest.raises(ValueError) as raised:
        DeepClassificationModel.load(str(path))
    said = str(raised.value)
    assert said.startswith(str(path))
    assert "\n" not in said
    return said


def test_damage_is_found(saved: Path) -> None:
    (weights,) = (saved / "weights").glob("*.parquet")
    content = weights.read_bytes()
    for damaged in (content[:-9], content[:99] + bytes([content[99] ^ 1]) + content[100:]):
        weights.write_bytes(damaged)
        assert f"file weights/{weights.name} is not as it was saved; save the stage again" in loading(saved)
    weights.unlink()
    assert f"file weights/{weights.name} is missing or empty" in loading(saved)
    (metadata,) = (saved / "metadata").glob("part-*")
    text = metadata.read_text()
    metadata.write_text(text.replace('"batchSize": 8', '"batchSize": 9'))
    assert "its metadata are not those that were saved" in loading(saved)
    metadata.write_text(text[:70])
    assert "cannot be loaded: Unterminated string" in loading(saved)
    metadata.write_text("[" * 10**5)
    assert "cannot be loaded: RecursionError" in loading(saved)


def test_weights_that_are_not_those_of_the_digest_are_refused(saved: Path) -> None:
    rewritten(saved, weightsDigest="0" * 64)
    assert "its weights are not those that were saved" in loading(saved)


def test_newer_formats_are_refused(saved: Path) -> None:
    network = json.dumps({**NETWORK.to_json(), "format": 2})
    rewritten(saved, paramMap={"network": network})
    assert "This Network is written in format 2, this sparkdl reads up to 1; upgrade sparkdl" in loading(saved)
    rewritten(saved, paramMap={"dropoutRate": 0.5})
    assert "DeepClassificationModel has no Param 'dropoutRate'; a newer sparkdl may have saved it" in loading(saved)
    rewritten(saved, sparkdlFormat=3)
    assert "is in format 3, this sparkdl reads formats 1 to 2; upgrade sparkdl." in loading(saved)


def test_the_first_format_is_still_read(saved: Path) -> None:
    model = DeepClassificationModel.load(str(saved))
    rewritten(saved, sparkdlFormat=1, paramsDigest=None, weightsFiles=None)
    assert same_bits(arrays(DeepClassificationModel.load(str(saved))), arrays(model))
