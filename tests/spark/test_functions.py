"""Models in SQL and on streams give what `transform` gives for the same rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import pytest
from pyspark import SparkFiles
from pyspark.errors import PythonException
from pyspark.ml import PipelineModel
from pyspark.ml.feature import MaxAbsScalerModel, SQLTransformer, StringIndexerModel, VectorAssembler
from pyspark.ml.functions import array_to_vector
from pyspark.ml.tuning import CrossValidatorModel, TrainValidationSplitModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import FEATURES, Array, a_model, arrays, centred, outputs, softmax

from sparkdl import DeepModel, DeepRegressionModel, Network, register_function
from sparkdl.layers import Dense, Rescale
from sparkdl.spark import session
from sparkdl.spark.driver import remote
from sparkdl.spark.tasks import sent_bytes

SECONDS = 120  # for a stream of 24 rows, on a machine that is busy
ONE, THREE = (Network([Rescale(1 / 255), Dense(units)], input_shape=(4,)) for units in (1, 3))


@pytest.fixture(scope="module")
def typed(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The features as columns of several types in one partition, which one Python worker reads; a view `typed`."""
    raw = F.udf(lambda values: bytes(int(value) for value in values), "binary")
    frame = rows.select(
        "id",
        F.col("features").alias("doubles"),
        F.col("features").cast("array<bigint>").alias("longs"),
        F.col("features").cast("array<decimal(5,1)>").alias("decimals"),
        array_to_vector("features").alias("vector"),
        raw("features").alias("raw"),
        *(F.col("features")[at].alias(f"x{at}") for at in range(4)),
    )
    frame = frame.coalesce(1).cache()
    frame.createOrReplaceTempView("typed")
    return frame


def result(frame: DataFrame) -> Array:
    """The last column in the order of ids."""
    return np.array([row[-1] for row in frame.orderBy("id").collect()])


def test_a_function_takes_the_types_that_transform_takes(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model()
    classify = register_function(spark, "classify", model)
    expected = outputs(arrays(model), FEATURES).argmax(axis=1).tolist()
    for kind in ("doubles", "longs", "decimals", "vector", "raw"):
        assert result(spark.sql(f"SELECT id, classify({kind}) FROM typed")).tolist() == expected
    assert result(typed.selectExpr("id", "classify(longs)")).tolist() == expected
    assert result(typed.select("id", classify("raw"))).tolist() == expected
    counted = spark.sql("SELECT classify(raw) AS class, count(*) AS rows FROM typed GROUP BY class").collect()
    assert {row["class"]: row["rows"] for row in counted} == {each: expected.count(each) for each in set(expected)}
    literal = ", ".join(str(value) for value in FEATURES[0])
    assert spark.sql(f"SELECT classify(array({literal}))").first()[0] == expected[0]


def test_several_columns_are_several_arguments(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model(featuresCols=["x0", "x1", "x2", "x3"])
    register_function(spark, "of_four", model)
    expected = outputs(arrays(model), FEATURES).argmax(axis=1).tolist()
    assert result(typed.selectExpr("id", "of_four(x0, x1, x2, x3)")).tolist() == expected
    with pytest.raises(PythonException, match=r"Call it as of_four\(x0, x1, x2, x3\), received 1 arguments."):
        typed.selectExpr("of_four(x0)").collect()


def test_a_pipeline_is_its_last_stage_that_reads_what_an_assembler_reads(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model(featuresCol="all", labelCol="class")
    stages = [
        VectorAssembler(inputCols=["x2", "x3"], outputCol="rest"),
        StringIndexerModel.from_labels(["0", "1"], inputCol="x0", outputCol="class"),
        VectorAssembler(inputCols=["x0", "x1", "rest"], outputCol="all"),
        model,
    ]
    pipeline = PipelineModel([PipelineModel(stages[:2]), *stages[2:]])
    register_function(spark, "of_pipeline", pipeline)
    expected = outputs(arrays(model), FEATURES).argmax(axis=1).tolist()
    assert result(typed.selectExpr("id", "of_pipeline(x0, x1, x2, x3)")).tolist() == expected
    assert (model.getFeaturesCol(), model.getFeaturesCols()) == ("all", [])
    register_function(spark, "of_one", PipelineModel([a_model()]))
    assert (
        result(typed.selectExpr("id", "of_one(doubles)")).tolist()
        == outputs(arrays(a_model()), FEATURES).argmax(axis=1).tolist()
    )


def test_a_tuned_model_is_its_best_one(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model()
    expected = outputs(arrays(model), FEATURES).argmax(axis=1).tolist()
    for tuned in (
        CrossValidatorModel(PipelineModel([model]), avgMetrics=[0.5]),
        TrainValidationSplitModel(model, validationMetrics=[0.5]),
        PipelineModel([CrossValidatorModel(model, avgMetrics=[0.5])]),
    ):
        register_function(spark, "of_tuned", tuned)
        assert result(typed.selectExpr("id", "of_tuned(doubles)")).tolist() == expected


def _linear(model: Any) -> Array:
    weights = arrays(model)
    return FEATURES / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"]


@pytest.mark.parametrize(
    "kind, params, output, type_name, meant",
    [
        (None, {}, "probability", "array<float>", lambda model: softmax(outputs(arrays(model), FEATURES))),
        (None, {"computeDtype": "float64"}, "rawPrediction", "array<double>",
         lambda model: centred(outputs(arrays(model), FEATURES))),
        (None, {"predictionCol": "", "rawPredictionCol": "", "probabilityCol": ""}, "prediction", "double",
         lambda model: outputs(arrays(model), FEATURES).argmax(axis=1)),
        (DeepRegressionModel, {"network": ONE, "loss": "poisson"}, "prediction", "double",
         lambda model: np.exp(_linear(model)[:, 0])),
        (DeepModel, {"network": THREE}, "prediction", "array<float>", _linear),
    ],
)  # fmt: skip
def test_a_function_gives_the_output_that_is_asked_for(
    spark: SparkSession, typed: DataFrame, kind: Any, params: dict[str, Any], output: str, type_name: str, meant: Any
) -> None:
    model = a_model(**({"kind": kind} if kind else {}), **params)
    register_function(spark, "asked", model, output=output)
    frame = typed.selectExpr("id", "asked(doubles) AS asked")
    assert frame.schema["asked"].dataType.simpleString() == type_name
    np.testing.assert_allclose(result(frame), meant(model), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_a_function_is_refused(spark: SparkSession) -> None:
    scaled = MaxAbsScalerModel()._set(inputCol="features", outputCol="scaled")
    renamed = SQLTransformer(statement="SELECT * FROM __THIS__")
    skipping = VectorAssembler(inputCols=["a"], outputCol="scaled", handleInvalid="skip")
    model = a_model(featuresCol="scaled")
    for given, sentence in (
        (
            scaled,
            "model must be one of sparkdl's.* a PipelineModel that ends in one, .* received MaxAbsScalerModel; ",
        ),
        (
            CrossValidatorModel(PipelineModel([model, scaled])),
            "whose best model is such, received CrossValidatorModel that ends in MaxAbsScalerModel; pass the stage",
        ),
        (PipelineModel([model, scaled]), "received PipelineModel that ends in MaxAbsScalerModel; pass the stage"),
        (PipelineModel([]), "received PipelineModel without stages"),
        (
            PipelineModel([scaled, model]),
            "DeepClassificationModel .* comes a MaxAbsScalerModel, which makes scaled; use",
        ),
        (PipelineModel([PipelineModel([scaled]), model]), "comes a MaxAbsScalerModel, which makes scaled; use"),
        (PipelineModel([renamed, model]), "comes a SQLTransformer, which may change any column; use"),
        (PipelineModel([skipping, model]), "comes a VectorAssembler, which makes scaled; use"),
    ):
        with pytest.raises(ValueError, match=sentence):
            register_function(spark, "refused", given)
    with pytest.raises(ValueError, match="output must be prediction for a DeepRegressionModel.*received 'probability'"):
        register_function(spark, "refused", a_model(DeepRegressionModel, ONE), output="probability")
    with pytest.raises(ValueError, match="output must be rawPrediction or prediction for .* with Hinge"):
        register_function(spark, "refused", a_model(loss="hinge"), output="probability")
    with pytest.raises(ValueError, match="handleInvalid is skip, but a function has a result for every row"):
        register_function(spark, "refused", a_model(handleInvalid="skip"))


def test_rows_that_do_not_fit_fail_the_query_or_are_null(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model()
    register_function(spark, "strict", model)
    short = "if(id = 3, array(1D), doubles)"
    with pytest.raises(PythonException, match="featuresCol 'features' must hold 4 values a row"):
        typed.selectExpr("id", f"strict({short})").collect()
    with pytest.raises(PythonException, match="featuresCol 'features' must be a column of numbers.*received string"):
        typed.selectExpr("strict('cat')").collect()
    register_function(spark, "lenient", model.copy().setHandleInvalid("keep"))
    found = result(typed.selectExpr("id", f"lenient({short})"))
    expected: list[float | None] = outputs(arrays(model), FEATURES).argmax(axis=1).tolist()
    expected[3] = None
    assert found.tolist() == expected
    bare = spark.sql("SELECT lenient(NULL), lenient(array()), lenient(array(NULL, 1, 2, 3)), lenient(5)").first()
    assert bare[:] == (None,) * 4


def test_a_function_refuses_the_types_that_transform_refuses(spark: SparkSession) -> None:
    register_function(spark, "of_rows", a_model(handleInvalid="keep"))
    register_function(spark, "of_two", a_model(featuresCols=["x", "y"]))
    image = "named_struct('height', 2, 'width', 2, 'nChannels', 1, 'mode', 0, 'data', X'01020304')"
    for call, sentence in (
        ("of_rows(array(array(array(1, 2, 3, 4))))", "must hold arrays nested at most 1 deep to fill the network's"),
        (f"of_rows({image})", "featuresCol 'features' holds images, for which input_shape must be"),
        ("of_two('1', 2)", "featuresCols 'x' must be a column of numbers, arrays or Vectors, received string"),
        ("of_two(2, NULL)", "featuresCols 'y' holds null, as in the row"),
    ):
        with pytest.raises(PythonException, match=f"ValueError: .*{sentence}"):
            spark.sql(f"SELECT {call}").collect()


def test_over_connect_a_stream_takes_no_more_than_its_plan_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session lacks the files of the one that a model is in; see `test_everywhere.py` for what works."""
    monkeypatch.setattr(remote, "CARRIED_BYTES", 3 << 20)
    assert remote.carried(bytes(3 << 20))() == bytes(3 << 20)
    with pytest.raises(ValueError, match="in its plan, which holds 3 MiB, received weights of 4 MiB; run the stream"):
        remote.carried(bytes(4 << 20))
    with monkeypatch.context() as patch:
        patch.setattr(SparkFiles, "get", lambda name: "/nowhere")
        with pytest.raises(RuntimeError, match="missing in this session; over Spark Connect, a stream runs in one of"):
            sent_bytes.of_file("sparkdl-0")


def test_over_connect_parts_become_one_file_by_the_name_of_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "OLD", False)
    sent = {}

    def take(self: Any, path: str, file: bool) -> None:
        sent[Path(path).name] = Path(path).read_bytes()

    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "addArtifacts": take})
    client: Any = kind()
    given: Any = remote.shared(client, iter([b"some ", memoryview(b"weights")]))
    name = f"sparkdl-{hashlib.sha256(b'some weights').hexdigest()}"
    assert sent == {name: b"some weights"}
    assert (given.func, given.args) == (sent_bytes.of_file, (name,))


def test_connect_is_refused_with_spark_3_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    for module in (remote, session):
        monkeypatch.setattr(module, "OLD", True)
    client: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for tried in (lambda: remote.shared(client, []), lambda: session.local_session(connect=True)):
        with pytest.raises(ValueError, match=r"from Spark 4.0 on, received 3.5.9; use a classic"):
            tried()


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_stream_gives_the_rows_of_a_batch(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, pipeline: bool
) -> None:
    model: Any = a_model()
    if pipeline:
        doubled = SQLTransformer(statement="SELECT id, transform(features, x -> 255 - x) AS features FROM __THIS__")
        model = PipelineModel([doubled, model])
    folder, name = tmp_path / "rows", f"streamed_{pipeline}"
    parts = rows.repartition(3)
    (parts.write.json if pipeline else parts.write.parquet)(str(folder))
    source = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
    stream = source.json(str(folder)) if pipeline else source.parquet(str(folder)).dropDuplicates(["id"])
    query = (
        model.transform(stream)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(SECONDS)
    finally:
        query.stop()
    batch = model.transform(rows)
    assert spark.table(name).columns == batch.columns
    assert spark.table(name).orderBy("id").collect() == batch.orderBy("id").collect()
