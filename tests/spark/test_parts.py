"""A part of a trained network as a model of its own: what it reads, what it puts out, and that it can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, a_model, table

from sparkdl import DeepEstimator, DeepModel, Graph, Network, models, register_function
from sparkdl.layers import Dense, Embedding, Relu, Stack
from sparkdl.losses import InBatchSoftmax

TOWERS = models.two_tower({"user": 6}, {"film": 9, "genre": 4}, size=3, units=(5,), pairs=True)
COLUMNS = {"user": "user_id", "film": "film_id", "genre": "genre_id"}


@pytest.fixture(scope="module")
def films(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(film, film % 4) for film in range(9)], "film_id int, genre_id int")


@pytest.fixture(scope="module")
def model(spark: SparkSession) -> DeepModel:
    """Of two towers trained on users who like the films of their own third."""
    liked = [(user, film, film % 4) for user in range(6) for film in range(9) if film % 3 == user % 3]
    rows = spark.createDataFrame(liked * 4, "user_id int, film_id int, genre_id int")
    return DeepEstimator(
        network=TOWERS,
        featuresCols=COLUMNS,
        labelCol="film_id",
        loss=InBatchSoftmax(0.2),
        optimizer="adam",
        stepSize=0.05,
        batchSize=24,
        maxIter=40,
        numWorkers=2,
        activationCols={"query": "vector"},
    ).fit(rows)


def item_vectors(model: DeepModel) -> np.ndarray[Any, Any]:
    """Of all films by NumPy in float64, from the weights."""
    weights: Any = model.weights
    tables = [weights[f"vector_{name}"]["table"].astype(float) for name in ("film", "genre")]
    joined = np.concatenate([tables[0][:9], tables[1][np.arange(9) % 4]], axis=1)
    tower = weights["item"]
    hidden = np.maximum(joined @ tower["dense_0"]["kernel"] + tower["dense_0"]["bias"], 0)
    vectors = hidden @ tower["dense_2"]["kernel"] + tower["dense_2"]["bias"]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_tower_reads_its_own_columns_and_puts_out_its_vectors(films: DataFrame, model: DeepModel) -> None:
    tower = model.up_to("item")
    assert tower.getFeaturesCols() == {"film": ["film_id"], "genre": ["genre_id"]}
    assert set(tower.weights or {}) == {"vector_film", "vector_genre", "item"}
    assert tower.getActivationCols() == {} and not tower.isDefined(tower.loss)
    assert tower.uid != model.uid and tower.summary is model.summary
    scored = tower.setPredictionCol("vector").transform(films).orderBy("film_id").collect()
    assert scored[0].asDict().keys() == {"film_id", "genre_id", "vector"}
    np.testing.assert_allclose([row.vector.toArray() for row in scored], item_vectors(model), atol=1e-5)


def test_the_towers_vectors_are_near_where_query_and_item_go_together(
    spark: SparkSession, films: DataFrame, model: DeepModel
) -> None:
    users = spark.createDataFrame([(user,) for user in range(6)], "user_id int")
    found = [
        np.array([row.prediction.toArray() for row in model.up_to(tower).transform(rows).orderBy(key).collect()])
        for tower, rows, key in (("query", users, "user_id"), ("item", films, "film_id"))
    ]
    scores = found[0] @ found[1].T
    for user, own in enumerate(scores):
        assert set(np.argsort(-own)[:3] % 3) == {user % 3}


def test_a_part_is_saved_and_stands_in_pipelines_and_sql(
    spark: SparkSession, films: DataFrame, model: DeepModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    tower = DeepModel.load(str(tmp_path / "model")).up_to("item").setPredictionCol("vector")
    tower.save(str(tmp_path / "tower"))
    loaded = DeepModel.load(str(tmp_path / "tower"))
    assert loaded.getNetwork() == TOWERS.up_to("item") and not loaded.hasSummary
    expected = model.up_to("item").transform(films).orderBy("film_id").collect()
    assert loaded.transform(films).orderBy("film_id").select("vector").collect() == [(row[2],) for row in expected]
    genres = model.up_to("vector_genre").setPredictionCol("genre")
    both = Pipeline(stages=[loaded, genres]).fit(films)
    both.save(str(tmp_path / "pipeline"))
    row = PipelineModel.load(str(tmp_path / "pipeline")).transform(films).orderBy("film_id").first()
    assert (
        row is not None
        and row.vector == expected[0].prediction
        and row.genre.size == genres.weights["vector_genre"]["table"].shape[1]
    )
    embed = register_function(spark, "embed_film", loaded)
    called = films.select(embed("film_id", "genre_id").alias("vector")).first()
    assert called is not None and called.vector == pytest.approx(expected[0].prediction.toArray().tolist())


def test_several_nodes_have_a_column_each(films: DataFrame, model: DeepModel) -> None:
    row = model.up_to("vector_film", "item").transform(films).orderBy("film_id").first()
    assert row is not None
    np.testing.assert_allclose(row.prediction_item.toArray(), item_vectors(model)[0], atol=1e-5)
    np.testing.assert_allclose(row.prediction_vector_film.toArray(), model.weights["vector_film"]["table"][0])


def test_layers_of_a_row_of_layers_make_features_as_activations_do(spark: SparkSession) -> None:
    rows, classifier = spark.createDataFrame(table()), a_model()
    part = classifier.up_to("tanh_2").setPredictionCol("hidden")
    assert type(part) is DeepModel and part.getBatchSize() == classifier.getBatchSize()
    by_column = classifier.copy().setActivationCols({"tanh_2": "hidden"}).transform(rows)
    assert (
        part.transform(rows).orderBy("id").select("hidden").collect()
        == by_column.orderBy("id").select("hidden").collect()
    )
    assert len(FEATURES) == rows.count()


def test_a_part_that_is_given_a_loss_is_measured(spark: SparkSession) -> None:
    rows = spark.createDataFrame(table()).selectExpr("features", "id", "array(0, 0, 0, 0, label) AS label")
    part = a_model().up_to("tanh_2").setLoss("squared_error")
    hidden = np.array([row.prediction.toArray() for row in part.transform(rows).orderBy("id").collect()])
    truth = np.array([row.label for row in rows.orderBy("id").collect()])
    expected = ((hidden - truth) ** 2).sum(axis=1)
    assert part.evaluate(rows).loss == pytest.approx(expected.mean(), rel=1e-5)
    losses = [row.loss for row in part.score_rows(rows).orderBy("id").collect()]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_a_node_of_one_number_gives_a_double(spark: SparkSession) -> None:
    graph = Graph(
        {"kind": ()},
        {"one": (Embedding(3, 1), "kind"), "two": (Network([Dense(2), Relu()]), "one"), "out": (Stack(), "two", "two")},
        "out",
    )
    made = a_model(DeepModel, graph, featuresCols={"kind": "kind"}, loss="squared_error")
    row = made.up_to("one").transform(spark.createDataFrame([(2,)], "kind int")).first()
    assert row is not None and row.prediction == made.weights["one"]["table"][2, 0]


def test_what_needs_a_loss_or_is_no_layer_is_refused(films: DataFrame, model: DeepModel) -> None:
    tower = model.up_to("item")
    for method in ("evaluate", "score_rows"):
        sentence = (
            f"^{method} needs a loss, .* up_to gives it, ends in 'item', before the .*; call {method} of the whole"
        )
        with pytest.raises(ValueError, match=sentence):
            getattr(tower, method)(films)
    with pytest.raises(ValueError, match="The network has no layer 'items'; its layers are vector_user, "):
        model.up_to("items")
    with pytest.raises(ValueError, match="up_to takes one node or several of the network, received none"):
        model.up_to()
    with pytest.raises(ValueError, match="up_to takes one layer of the network, received dense_1, tanh_2"):
        a_model().up_to("dense_1", "tanh_2")
    with pytest.raises(ValueError, match="This DeepModel has no weights"):
        DeepModel().setParams(network=TOWERS, loss=InBatchSoftmax()).up_to("item")
