"""A Predictor of a saved model gives, without Spark, what the model's transform gives, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.ml import PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.ml.tuning import TrainValidationSplitModel
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, LABELS, NETWORK, a_model

import sparkdl
from sparkdl import (
    DeepClassificationModel,
    DeepEstimator,
    DeepModel,
    DeepRegressionModel,
    Featurizer,
    Graph,
    Network,
)
from sparkdl.layers import Add, Dense, Embedding, Flatten, HashedEmbedding, Rescale, Tanh, TimeMean
from sparkdl.scoring.model_params import NOT_READ, READ

pytestmark = pytest.mark.usefixtures("unoptimized")  # as the session's workers compile

SCHEMA = (
    "id int, features array<double>, numbers array<decimal(5,1)>, nested array<array<array<float>>>, raw binary, "
    "image struct<origin:string,height:int,width:int,nChannels:int,mode:int,data:binary>, a int, rest array<float>, "
    "word string, words array<string>, history array<int>, points array<array<float>>, gaps array<double>"
)
PICTURE = Network([Flatten(), Rescale(1 / 255), Dense(3), Tanh(), Dense(2)], input_shape=(2, 2, 1))
STEPS = Network([Embedding(10, 3), Dense(2)], input_shape=(None,))
POINTS = Network([Dense(3), TimeMean(), Dense(2)], input_shape=(None, 2))
WORD = Network([HashedEmbedding(20, 3), Dense(2)], input_shape=())
WORDS = Network([HashedEmbedding(20, 3), TimeMean(), Dense(2)], input_shape=(None,))
TWO = Graph(
    inputs={"photo": (2, 2, 1), "history": (None,)},
    nodes={
        "seen": (Network([Flatten(), Rescale(1 / 255), Dense(3)]), "photo"),
        "past": (Network([Embedding(10, 3), TimeMean()]), "history"),
        "both": (Add(), "seen", "past"),
        "kind": (Dense(3), "both"),
        "price": (Dense(1), "both"),
    },
    outputs=("kind", "price"),
)


class Case(NamedTuple):
    """A model, of random weights."""

    kind: Any
    network: Any
    params: dict[str, Any]


CASES = {
    "classes": Case(DeepClassificationModel, NETWORK, {"thresholds": [0.7, 0.3], "batchSize": 5}),
    "no raw": Case(DeepClassificationModel, NETWORK, {"rawPredictionCol": "", "activationCols": {"tanh_2": "hidden"}}),
    "one score": Case(
        DeepClassificationModel, Network([Rescale(0.01), Dense(1)], (4,)), {"loss": "sigmoid_cross_entropy"}
    ),
    "rates": Case(DeepRegressionModel, Network([Rescale(0.01), Dense(1)], (4,)), {"loss": "poisson"}),
    "several": Case(DeepRegressionModel, NETWORK, {"loss": "squared_error", "predictionCol": "guess"}),
    "float64": Case(DeepModel, NETWORK, {"computeDtype": "float64"}),
    "bfloat16": Case(DeepModel, NETWORK, {"computeDtype": "bfloat16"}),
    "decimals": Case(DeepModel, NETWORK, {"featuresCol": "numbers"}),
    "dense": Case(DeepModel, NETWORK, {"featuresCol": "dense"}),
    "sparse": Case(DeepModel, NETWORK, {"featuresCol": "sparse"}),
    "nested": Case(DeepModel, PICTURE, {"featuresCol": "nested"}),
    "bytes": Case(DeepModel, PICTURE, {"featuresCol": "raw"}),
    "images": Case(DeepModel, PICTURE, {"featuresCol": "image"}),
    "columns": Case(DeepModel, NETWORK, {"featuresCols": ["a", "rest"]}),
    "a string": Case(DeepModel, WORD, {"featuresCol": "word"}),
    "strings": Case(DeepModel, WORDS, {"featuresCol": "words", "maxLength": 2, "truncationSide": "left"}),
    "steps": Case(DeepClassificationModel, STEPS, {"featuresCol": "history"}),
    "points": Case(DeepModel, POINTS, {"featuresCol": "points", "batchSize": 5}),
    "inputs": Case(
        DeepModel,
        TWO,
        {"featuresCols": {"photo": ["image"], "history": ["history"]}, "predictionCols": {"price": "offer"}}
        | {"loss": {"kind": "softmax_cross_entropy", "price": "squared_error"}},
    ),
    "kept": Case(DeepClassificationModel, NETWORK, {"featuresCol": "gaps", "handleInvalid": "keep"}),
    "skipped": Case(DeepClassificationModel, NETWORK, {"featuresCol": "gaps", "handleInvalid": "skip"}),
    "kept number": Case(
        DeepRegressionModel,
        Network([Dense(1)], (4,)),
        {"featuresCol": "gaps", "handleInvalid": "keep", "loss": "squared_error"},
    ),
}


def rows_of_types() -> list[tuple[Any, ...]]:
    from decimal import Decimal

    rows: list[tuple[Any, ...]] = []
    for at, values in enumerate(FEATURES.tolist()):
        raw, history = bytes(values), [at % 10, (at * 7) % 10, 3][: at % 4]
        words = [f"word {number}" for number in history]
        gaps = None if at % 7 == 3 else [float("nan") if at % 5 == 4 else 1.0, *map(float, values[1:])]
        rows.append(
            (at, [float(x) for x in values], [Decimal(x) / 10 for x in values])
            + (np.reshape(values, (2, 2, 1)).astype(float).tolist(), raw, ("here", 2, 2, 1, 0, raw))
            + (values[0], [float(x) for x in values[1:]], f"word {at % 6}", words, history)
            + ([[float(number), at / 3] for number in history], gaps)
            + (DenseVector(values), SparseVector(4, {0: values[0], 3: values[3]}))
        )
    return rows


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Parquet folder of rows in columns of many types."""
    schema = spark.createDataFrame([], SCHEMA).schema.add("dense", VectorUDT()).add("sparse", VectorUDT())
    path = str(tmp_path_factory.mktemp("typed") / "rows")
    spark.createDataFrame(rows_of_types(), schema).coalesce(1).write.parquet(path)
    return path


@pytest.fixture(scope="module")
def frame(spark: SparkSession, stored: str) -> DataFrame:
    """Those rows, for Spark."""
    return spark.read.parquet(stored)


@pytest.fixture(scope="module")
def table(stored: str) -> pa.Table:
    """Those rows, without Spark."""
    return parquet.read_table(stored)


def model_of(case: Case) -> Any:
    params = {"loss": "squared_error"} if case.kind is DeepModel else {}
    return a_model(case.kind, case.network, **(params | case.params))


def plain(value: Any) -> Any:
    """A value of a row: numbers, and lists of them."""
    return value.toArray().tolist() if isinstance(value, DenseVector) else value


def compare(case: Case, frame: DataFrame, table: pa.Table, path: Path) -> None:
    """A saved model's Predictor with its transform."""
    model = model_of(case)
    model.save(str(path))
    predictor = sparkdl.load(path)
    expected = model.transform(frame)
    added = [column for column in expected.columns if column not in frame.columns]
    assert list(predictor.columns) == added
    found = predictor.predict(table)
    assert found.schema.names == expected.columns
    rows = expected.select("id", *added).collect()
    assert found["id"].to_pylist() == [row.id for row in rows]
    for column in added:
        assert found.schema.field(column).type == predictor.schema.field(column).type
        assert repr(found[column].to_pylist()) == repr([plain(row[column]) for row in rows])


QUICK = ("classes", "skipped")


@pytest.mark.parametrize("name", QUICK)
def test_it_gives_what_transform_gives_bit_for_bit(
    name: str, frame: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    compare(CASES[name], frame, table, tmp_path / "saved")


@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_so_it_does_for_models_and_columns_of_every_kind(
    name: str, frame: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    compare(CASES[name], frame, table, tmp_path / "saved")


def test_a_featurizer_gives_its_vectors(frame: DataFrame, table: pa.Table, tmp_path: Path) -> None:
    stage = Featurizer(network=NETWORK, weights=NETWORK.init(0), outputLayer="tanh_2", outputCol="found")
    stage.save(str(tmp_path / "saved"))
    found = sparkdl.load(tmp_path / "saved").predict(table)["found"].to_pylist()
    assert found == [row.found.toArray().tolist() for row in stage.transform(frame).collect()]


def test_of_a_pipeline_the_last_stage_is_taken(
    spark: SparkSession, frame: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    model = a_model(featuresCol="dense", featuresCols=[])
    assembler = VectorAssembler(inputCols=["a"], outputCol="one")
    inner = PipelineModel(stages=[assembler, model])
    PipelineModel(stages=[VectorAssembler(inputCols=["a"], outputCol="other"), inner]).save(str(tmp_path / "saved"))
    tuned = TrainValidationSplitModel(inner, [0.5])
    tuned.set(tuned.estimator, DeepEstimator(network=NETWORK, loss="squared_error"))
    tuned.set(tuned.estimatorParamMaps, [{}])
    tuned.set(tuned.evaluator, RegressionEvaluator())
    tuned.save(str(tmp_path / "tuned"))
    expected = [row.prediction for row in model.transform(frame).collect()]
    for name in ("saved", "tuned"):
        predictor = sparkdl.load(str(tmp_path / name))
        assert predictor.uid == model.uid
        assert predictor.predict(table)["prediction"].to_pylist() == expected


def test_what_is_no_model_of_ours_is_named(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    assembler = VectorAssembler(inputCols=["a"], outputCol="one")
    PipelineModel(stages=[a_model(), assembler]).save(str(tmp_path / "other"))
    DeepEstimator(network=NETWORK, loss="squared_error").save(str(tmp_path / "estimator"))
    LogisticRegression().save(str(tmp_path / "spark"))
    PipelineModel(stages=[]).save(str(tmp_path / "empty"))
    for name, message in {
        "other": "other/stages/1_VectorAssembler_.* holds a .*VectorAssembler, but without Spark only fitted models",
        "estimator": "holds a sparkdl.spark.estimator.DeepEstimator, but without Spark only fitted models",
        "spark": "holds a org.apache.spark.ml.classification.LogisticRegression, but",
        "empty": "empty cannot be loaded: it is a pipeline without stages",
    }.items():
        with pytest.raises(ValueError, match=message):
            sparkdl.load(tmp_path / name)


@pytest.mark.parametrize("kind", [DeepModel, DeepClassificationModel, DeepRegressionModel, Featurizer])
def test_it_knows_every_param_of_a_model_and_its_default(spark: SparkSession, kind: Any) -> None:
    stage = kind()
    assert {param.name for param in stage.params} <= READ.keys() | NOT_READ
    defaults = {param.name: value for param, value in stage._defaultParamMap.items() if param.name in READ}
    if kind is Featurizer:
        assert defaults.pop("predictionCol") == "vector"  # which it always saves
    assert defaults == {name: READ[name].default for name in defaults}
    assert not READ.keys() & NOT_READ


REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refusing())
import sparkdl
print(sparkdl.load(sys.argv[1]).predict({"features": [[float(x) for x in range(4)]]})["probability"].tolist())
"""


def test_it_needs_neither_pyspark_nor_a_jvm(spark: SparkSession, tmp_path: Path) -> None:
    model = a_model()
    PipelineModel(stages=[model]).save(str(tmp_path / "saved"))
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/nowhere", "JAX_PLATFORMS": "cpu", "PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    rows = spark.createDataFrame([([float(x) for x in range(4)],)], ["features"])
    expected = model.transform(rows).first().probability.toArray().astype("float32")  # type: ignore[union-attr]
    assert done.stdout.strip() == str([expected.tolist()])


def test_labels_are_not_needed(table: pa.Table, spark: SparkSession, tmp_path: Path) -> None:
    a_model(labelCol="nowhere").save(str(tmp_path / "saved"))
    assert len(sparkdl.load(tmp_path / "saved").predict(table)) == len(LABELS)
