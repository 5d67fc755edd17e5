"""Columns of categories: of StringIndexer, of strings that workers hash, and with numbers that are in no table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepClassifier, Graph, Network, register_function
from sparkdl.layers import Bucketize, Concatenate, Dense, Embedding, Flatten, HashedEmbedding, OneHot, Scale
from sparkdl.spark.classification import DeepClassificationModel

CITIES = ("Basel", "Ulm", "Łódź", "København", "東京")
COUNT = 200
GRAPH = Graph(
    inputs={"city": (), "tags": (2,), "age": ()},
    nodes={
        "place": (Embedding(5, 3), "city"),
        "words": (Network([HashedEmbedding(50, 2), Flatten()]), "tags"),
        "decade": (Network([Bucketize([20, 40]), OneHot(3)]), "age"),
        "both": (Concatenate(), "place", "words", "decade"),
        "kind": (Dense(2), "both"),
    },
    outputs="kind",
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = [
        (CITIES[at % 5], [f"a{at % 3}", f"b{at % 2}"], float(at % 61), int(at % 5 in (1, 3))) for at in range(COUNT)
    ]
    frame = spark.createDataFrame(values, "name string, tags array<string>, age double, label int").repartition(3)
    indexer = StringIndexer(inputCol="name", outputCol="city")
    return indexer.fit(frame).transform(frame).cache()


def estimator(**params: Any) -> DeepClassifier:
    given = {"featuresCols": {"city": "city", "tags": "tags", "age": "age"}, "optimizer": "adam", "stepSize": 0.1}
    return DeepClassifier(**{"network": GRAPH, "maxIter": 8, "batchSize": 50, **given, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return estimator(numWorkers=2).fit(rows)


def test_categories_and_strings_are_learned_from(rows: DataFrame, model: DeepClassificationModel) -> None:
    assert rows.schema["city"].dataType.simpleString() == "double"
    assert model.evaluate(rows).accuracy == 1


def test_strings_are_the_same_numbers_everywhere(spark: SparkSession, tmp_path: Path) -> None:
    network = Network([HashedEmbedding(1000, 4), Dense(2)], input_shape=())
    rows = spark.createDataFrame([(city, at % 2) for at, city in enumerate(CITIES)], "name string, label int")
    first = DeepClassifier(network=network, featuresCol="name", maxIter=0).fit(rows)
    first.save(str(tmp_path / "model"))
    again = DeepClassificationModel.load(str(tmp_path / "model"))
    expected = first.transform(rows).select("name", "rawPrediction").collect()
    assert again.transform(rows.repartition(4)).select("name", "rawPrediction").sort("name").collect() == sorted(
        expected
    )
    assert len({row.rawPrediction for row in expected}) == len(CITIES)
    function = register_function(spark, "raw_of", again, output="rawPrediction")
    called = rows.select("name", function("name").alias("raw")).collect()
    assert {row.name: list(row.raw) for row in called} == {row.name: list(row.rawPrediction) for row in expected}


def test_a_pipeline_goes_from_strings_to_predictions(rows: DataFrame, model: DeepClassificationModel) -> None:
    indexer = StringIndexer(inputCol="name", outputCol="index")
    of_index = estimator(numWorkers=2, featuresCols={"city": "index", "tags": "tags", "age": "age"})
    fitted = Pipeline(stages=[indexer, of_index]).fit(rows)
    assert same_bits(arrays(fitted.stages[1]), arrays(model))


@pytest.mark.parametrize("number", [5.0, -1.0])
def test_a_category_that_no_table_has_is_a_row_that_cannot_be_used(
    rows: DataFrame, model: DeepClassificationModel, number: float
) -> None:
    strange = rows.withColumn("city", F.when(F.col("age") == 7, number).otherwise(F.col("city")))
    message = rf"featuresCols 'city' must hold categories from 0 to 4, .* 'place', received {number:.0f}; .*unknown="
    with pytest.raises(Exception, match=message):
        estimator().fit(strange)
    with pytest.raises(Exception, match=message):
        model.transform(strange).collect()
    wrong = strange.where("age = 7").count()
    skipped = estimator(handleInvalid="skip").fit(strange).summary.skipped
    assert skipped == {"no category": wrong} and wrong > 0
    kept = model.copy().setHandleInvalid("keep").transform(strange)
    assert kept.where("prediction is null").count() == kept.where("prediction is null and age = 7").count() == wrong


def test_unknown_categories_have_a_row_where_this_is_wanted(spark: SparkSession) -> None:
    network = Network([Embedding(2, 3, unknown=True), Dense(2)], input_shape=())
    rows = spark.createDataFrame([(float(at % 4), int(at % 4 > 1)) for at in range(80)], "city double, label int")
    given: dict[str, Any] = {"optimizer": "adam", "stepSize": 0.2, "batchSize": 20}
    model = DeepClassifier(network=network, featuresCol="city", **given).fit(rows)
    assert model.evaluate(rows).accuracy == 1
    scored = spark.createDataFrame([(2.0,), (3.0,), (99.0,)], "city double")
    assert len({row.rawPrediction for row in model.transform(scored).collect()}) == 1


def test_a_stream_of_categories_is_scored_as_rows_are(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    sink = model.transform(stream).writeStream.format("memory").queryName("categories")
    query = sink.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    streamed, scored = spark.table("categories"), model.transform(rows)
    assert sorted(streamed.select("age", "name", "rawPrediction").collect()) == sorted(
        scored.select("age", "name", "rawPrediction").collect()
    )


def test_a_cross_validator_chooses_among_graphs(rows: DataFrame, tmp_path: Path) -> None:
    blind = GRAPH.with_head({"nothing": (Scale(0.0), "both"), "guess": (Dense(2), "nothing")})
    tried = estimator(maxIter=20)
    maps = ParamGridBuilder().addGrid(tried.network, [blind, GRAPH]).build()
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy")
    tuned = CrossValidator(estimator=tried, estimatorParamMaps=maps, evaluator=accuracy, numFolds=2, seed=1).fit(rows)
    assert tuned.avgMetrics[0] < 0.8 and tuned.avgMetrics[1] > 0.95
    tuned.save(str(tmp_path / "tuned"))
    best = CrossValidatorModel.load(str(tmp_path / "tuned")).bestModel
    assert isinstance(best, DeepClassificationModel) and best.getNetwork() == GRAPH
    assert best.transform(rows).collect() == tuned.transform(rows).collect()


def test_settings_with_other_tables_are_tried_each_on_the_rows_it_can_use(rows: DataFrame) -> None:
    """Of one shape of row, but rows that one cannot use are fine for another, as are strings."""

    def of(table: Any) -> Network:
        return Network([table, Dense(2)], input_shape=())

    tried = DeepClassifier(featuresCol="city", maxIter=1, handleInvalid="skip")
    tables = [Embedding(3, 2), Embedding(5, 2), Embedding(3, 2, unknown=True)]
    fitted = tried.fit(rows, [{tried.network: of(table)} for table in tables])
    lacking = rows.where("city >= 3").count()
    assert [model.summary.skipped for model in fitted] == [{"no category": lacking}, {}, {}]
    by_name = [{tried.network: of(table), tried.featuresCol: "name"} for table in (HashedEmbedding(9, 2), tables[1])]
    with pytest.raises(ValueError, match="featuresCol 'name' must be numeric or .*, received string"):
        tried.fit(rows, by_name)


def test_a_fit_of_tables_goes_on_from_its_checkpoint_to_the_same_weights(rows: DataFrame, tmp_path: Path) -> None:
    given: dict[str, Any] = {"numWorkers": 2, "optimizer": "ada_grad", "stepSize": 0.3}
    estimator(**given, maxIter=2, checkpointDir=str(tmp_path)).fit(rows)
    resumed = estimator(**given, maxIter=4, checkpointDir=str(tmp_path)).fit(rows)
    assert resumed.summary.resumedFrom == [2, 0]
    whole = estimator(**given, maxIter=4).fit(rows)
    assert same_bits(arrays(resumed), arrays(whole))


def test_strings_are_refused_where_nothing_hashes_them(rows: DataFrame) -> None:
    with pytest.raises(ValueError, match="featuresCols 'name' must be numeric or .*, received string"):
        estimator(featuresCols={"city": "name", "tags": "tags", "age": "age"}).fit(rows)


def test_null_strings_are_rows_that_cannot_be_used(rows: DataFrame, model: DeepClassificationModel) -> None:
    holes = rows.withColumn(
        "tags", F.when(F.col("age") == 3, F.array(F.lit(None), F.lit("b0"))).otherwise(F.col("tags"))
    )
    holes = holes.withColumn("tags", F.when(F.col("age") != 4, F.col("tags")))
    kept = model.copy().setHandleInvalid("keep").transform(holes)
    assert kept.where("prediction is null").count() == rows.where("age in (3, 4)").count()
    assert np.isin([row.age for row in kept.where("prediction is null").collect()], [3, 4]).all()
