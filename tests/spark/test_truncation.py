"""maxLength: rows of any length are cut alike in a fit and in all that its model does, and counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType
from spark_cases import arrays, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Graph, Network, register_function
from sparkdl.layers import (
    Concatenate,
    Dense,
    EmbeddingBag,
    HashedEmbeddingBag,
    LastStep,
    LearnedPositions,
    SimpleRnn,
    TimeMean,
)

MOST, COUNT = 3, 40
NETWORK = Network([SimpleRnn(3), LastStep(), Dense(2)], input_shape=(None, 2))
LENGTHS = [at % 7 for at in range(COUNT)]
SERIES = [[[float(at * step % 5), 0.0 if step % 2 else 1.5] for step in range(LENGTHS[at])] for at in range(COUNT)]
LONGER = sum(length > MOST for length in LENGTHS)
GRAPH = Graph(
    inputs={"seen": (None,), "said": (None,), "age": ()},
    nodes={
        "a": (EmbeddingBag(9, 2), "seen"),
        "b": (HashedEmbeddingBag(20, 2), "said"),
        "all": (Concatenate(), "a", "b", "age"),
        "kind": (Dense(2), "all"),
    },
    outputs="kind",
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Series as arrays and as Vectors, from Parquet, with the ends and the starts that stay of them."""
    fields = [StructField(name, IntegerType()) for name in ("id", "label")]
    nested = spark.createDataFrame([], "series array<array<double>>").schema.fields
    schema = StructType([*fields, *nested, StructField("vectors", ArrayType(VectorUDT()))])
    vectors = [[Vectors.dense(step) if step[1] else Vectors.sparse(2, {0: step[0]}) for step in row] for row in SERIES]
    values = [(at, at % 2, *each) for at, each in enumerate(zip(SERIES, vectors, strict=True))]
    path = str(tmp_path_factory.mktemp("series") / "rows")
    spark.createDataFrame(values, schema).repartition(2).write.parquet(path)
    first, last = f"slice(series, 1, {MOST})", f"if(size(series) > {MOST}, slice(series, -{MOST}, {MOST}), series)"
    return spark.read.parquet(path).selectExpr("*", f"{first} as right", f"{last} as left")


def classifier(**params: Any) -> DeepClassifier:
    return DeepClassifier(**{"network": NETWORK, "featuresCol": "series", "maxIter": 2, "batchSize": 20, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier(featuresCol="vectors", maxLength=MOST, truncationSide="left").fit(rows)


def test_a_fit_is_that_of_the_rows_cut_before_and_counts_them(
    rows: DataFrame, model: DeepClassificationModel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sparkdl.fit"):
        of_first = classifier(maxLength=MOST, validationIndicatorCol="held").fit(rows.selectExpr("*", "id = 5 as held"))
    assert caplog.messages == [f"{LONGER} rows of the input 'features' were longer than maxLength and cut."]
    for fitted, side in ((of_first, "right"), (model, "left")):
        held = {"validationIndicatorCol": "held"} if side == "right" else {}
        expected = classifier(featuresCol=side, **held).fit(rows.selectExpr("*", "id = 5 as held"))
        assert same_bits(arrays(fitted), arrays(expected))
        assert fitted.summary.truncated == {"features": LONGER} and expected.summary.truncated == {}
        assert f"rows cut: {LONGER} of 'features'" in str(fitted.summary) and "rows cut" not in str(expected.summary)
    assert not same_bits(arrays(of_first), arrays(model))


def test_a_model_cuts_wherever_it_scores(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert (loaded.getMaxLength(), loaded.getTruncationSide()) == (MOST, "left")
    whole = model.copy().setFeaturesCol("left").setMaxLength(None)
    names = ("id", "rawPrediction", "prediction")
    expected = whole.transform(rows).select(*names).orderBy("id").collect()
    assert whole.setFeaturesCol("series").transform(rows).select(*names).orderBy("id").collect() != expected
    for column in ("vectors", "series"):
        found = loaded.setFeaturesCol(column).transform(rows).select(*names).orderBy("id").collect()
        assert found == expected
    whole.setFeaturesCol("left")
    losses = [each.score_rows(rows).select("id", "loss").orderBy("id").collect() for each in (loaded, whole)]
    assert losses[0] == losses[1]
    assert loaded.evaluate(rows).to_json() == whole.evaluate(rows).to_json()
    register_function(spark, "is_odd", loaded)
    called = rows.selectExpr("id", "is_odd(series) as found").orderBy("id").collect()
    assert [row.found for row in called] == [row.prediction for row in expected]


def test_a_stream_is_cut_too(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    rows.select("id", "series").write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("id int, series array<array<double>>").parquet(str(tmp_path / "rows"))
    scoring = model.copy().setFeaturesCol("series")
    sink = scoring.transform(stream).writeStream.format("memory").queryName("cut").trigger(availableNow=True)
    assert sink.option("checkpointLocation", str(tmp_path / "at")).start().awaitTermination(60)
    expected = scoring.setMaxLength({}).setFeaturesCol("left").transform(rows)
    found = [frame.select("id", "rawPrediction").orderBy("id").collect() for frame in (spark.table("cut"), expected)]
    assert found[0] == found[1]


def test_rows_of_more_steps_than_positions_tell_apart_cannot_be_used(rows: DataFrame) -> None:
    network = Network([LearnedPositions(MOST), TimeMean(), Dense(2)], input_shape=(None, 2))
    message = f"featuresCol 'series' must hold at most {MOST} steps a row, .* cut rows by maxLength={MOST}"
    with pytest.raises(Exception, match=message):
        classifier(network=network).fit(rows)
    model = classifier(network=network, handleInvalid="skip").fit(rows)
    assert model.summary.skipped == {"too many steps": LONGER}
    kept = model.setHandleInvalid("keep").transform(rows)
    assert {row.id for row in kept.where("prediction is null").collect()} == {
        at for at, length in enumerate(LENGTHS) if length > MOST
    }
    assert model.setMaxLength(MOST).transform(rows).where("prediction is null").count() == 0


def test_inputs_of_a_graph_are_cut_each_to_its_own_length(spark: SparkSession) -> None:
    random = np.random.default_rng(6)
    values = [
        (random.integers(0, 9, at % 6).tolist(), [f"w{word}" for word in range(at % 4)], float(at % 3), at % 2)
        for at in range(30)
    ]
    frame = spark.createDataFrame(values, "seen array<int>, said array<string>, age double, label int")
    given = {"network": GRAPH, "featuresCols": {name: name for name in GRAPH.inputs}, "maxIter": 0}
    one = classifier(**given, featuresCol=None, maxLength={"said": 2}).fit(frame)
    both = classifier(**given, featuresCol=None, maxLength=1).fit(frame)
    assert one.summary.truncated == {"said": sum(len(row[1]) > 2 for row in values)}
    assert both.summary.truncated == {"seen": sum(len(row[0]) > 1 for row in values), "said": 14}
    cut = frame.selectExpr("seen", "slice(said, 1, 2) as said", "age", "label")
    plain = one.copy().setMaxLength(None)
    assert [row.rawPrediction for row in one.transform(frame).collect()] == [
        row.rawPrediction for row in plain.transform(cut).collect()
    ]
    assert one.up_to("b").getMaxLength() == {"said": 2} and one.up_to("a").getMaxLength() == {}
    assert both.up_to("a").getMaxLength() == {"seen": 1}
    assert both.up_to("a").transform(frame).count() == 30


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"network": Network([Dense(2)], input_shape=(4,)), "maxLength": 3}, "maxLength is 3, but the network reads"),
        ({"maxLength": 0}, "maxLength must be at least 1, received 0"),
        ({"maxLength": {"history": 3}}, "maxLength names 'history', .* rows of any length are 'features'; name these"),
    ],
)
def test_lengths_that_fit_nothing_are_refused(rows: DataFrame, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**params).fit(rows)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"maxLength": 2.5}, "Could not convert 2.5 to int"),
        ({"maxLength": {1: 3}}, "maxLength must be a whole number, or a dict of them by input, received"),
        ({"truncationSide": "pre"}, "truncationSide must be one of right, left, received 'pre'"),
        ({"truncation": "left"}, "did you mean truncationSide"),
        ({"maxlen": 5}, "did you mean maxLength"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_values_of_other_kinds_are_refused(params: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DeepClassifier(**params)
