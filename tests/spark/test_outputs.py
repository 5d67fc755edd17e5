"""A graph with several outputs on a DataFrame: labels, losses, columns, evaluations by output, missing labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepClassifier, DeepEstimator, DeepModel, Graph, Network, register_function, training
from sparkdl.layers import Concatenate, Dense, Tanh

COUNT = 60
GRAPH = Graph(
    inputs={"facts": (3,), "age": ()},
    nodes={
        "seen": (Network([Dense(6), Tanh()]), "facts"),
        "both": (Concatenate(), "seen", "age"),
        "kind": (Dense(2), "both"),
        "price": (Dense(1), "both"),
        "place": (Dense(2), "both"),
    },
    outputs=("kind", "price", "place"),
)
RANDOM = np.random.default_rng(2)
FACTS, AGE = RANDOM.normal(size=(COUNT, 3)), RANDOM.normal(size=COUNT)
KIND = np.where(np.arange(COUNT) % 3 == 0, np.nan, FACTS[:, 0] + AGE > 0)
PRICE = np.where(np.arange(COUNT) % 4 == 1, np.nan, FACTS[:, 1] - AGE)
PLACE = np.stack([FACTS[:, 2], AGE], axis=1)
LABELS = {"kind": "k", "price": "p", "place": "l"}
LOSSES = {"kind": "softmax_cross_entropy", "price": "huber", "place": "squared_error"}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    def known(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    values = [
        (FACTS[at].tolist(), float(AGE[at]), known(KIND[at]), known(PRICE[at]), PLACE[at].tolist())
        for at in range(COUNT)
    ]
    frame = spark.createDataFrame(values, "facts array<double>, age double, k double, p double, l array<double>")
    return frame.repartition(3).cache()


def estimator(**params: Any) -> DeepEstimator:
    given = {
        "network": GRAPH,
        "featuresCols": {"facts": "facts", "age": "age"},
        "labelCols": LABELS,
        "loss": LOSSES,
        "lossWeights": {"price": 0.5},
        "batchSize": 20,
        "stepSize": 0.1,
        "maxIter": 3,
    }
    return DeepEstimator(**{**given, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepModel:
    return estimator().fit(rows)


def test_workers_of_uneven_shares_agree_with_one_process(rows: DataFrame) -> None:
    given = {"batchSize": COUNT, "computeDtype": "float64"}
    fitted = estimator(numWorkers=2, **given).fit(rows)
    alone = training.fit(
        GRAPH,
        ({"facts": FACTS, "age": AGE}, {"kind": KIND, "price": PRICE, "place": PLACE}),
        loss=LOSSES,
        loss_weights={"price": 0.5},
        batch_size=COUNT,
        step_size=0.1,
        epochs=3,
        dtype="float64",
    )
    found = arrays(fitted)
    for name, array in arrays(alone).items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-12, err_msg=name)


def test_columns_are_named_by_output(rows: DataFrame, model: DeepModel) -> None:
    added = [name for name in model.transform(rows).columns if name not in rows.columns]
    assert added == ["prediction_kind", "probability_kind", "prediction_price", "prediction_place"]
    first = model.transform(rows).first()
    assert first.prediction_kind == float(np.argmax(first.probability_kind.toArray()))
    assert len(first.prediction_place) == 2 and isinstance(first.prediction_price, float)
    named = model.copy().setPredictionCols({"kind": "species", "place": ""}).setProbabilityCols({"kind": ""})
    added = [name for name in named.transform(rows).columns if name not in rows.columns]
    assert added == ["species", "prediction_price"]
    with pytest.raises(
        ValueError, match="probabilityCols names 'price'; the outputs that have a probability are 'kind'"
    ):
        model.copy().setProbabilityCols({"price": "x"}).transform(rows)


def test_no_output_takes_the_column_of_another(rows: DataFrame, model: DeepModel) -> None:
    for given in (
        {"predictionCols": {"kind": "x", "price": "x"}},
        {"predictionCols": {"kind": "x"}, "probabilityCols": {"kind": "x"}},
        {"predictionCols": {"kind": "prediction_price"}},
    ):
        with pytest.raises(ValueError, match="Output column '(x|prediction_price)' is asked for twice"):
            model.copy().setParams(**given).transform(rows)
        with pytest.raises(ValueError, match="Output column '(x|prediction_price)' is asked for twice"):
            estimator(**given).fit(rows)


def test_every_output_is_evaluated_over_the_rows_that_have_its_label(rows: DataFrame, model: DeepModel) -> None:
    found = model.evaluate(rows)
    scored = model.transform(rows).toPandas()
    kinds, prices = scored.dropna(subset="k"), scored.dropna(subset="p")
    assert found["kind"].accuracy == pytest.approx((kinds.k == kinds.prediction_kind).mean())
    assert found["price"].average.mse == pytest.approx(((prices.p - prices.prediction_price) ** 2).mean(), rel=1e-4)
    losses = model.score_rows(rows).toPandas()
    assert found["price"].loss == pytest.approx(losses.loss_price.mean(), rel=1e-5)
    unknown = model.score_rows(rows).where("loss_kind is null")
    assert unknown.count() == unknown.where("k is null").count() == rows.where("k is null").count() > 0
    total = losses.loss_kind.fillna(0) + 0.5 * losses.loss_price.fillna(0) + losses.loss_place
    np.testing.assert_allclose(losses.loss, total, rtol=1e-5)
    with pytest.raises(ValueError, match="^Output 'price': There are no rows of positive weight to evaluate; check"):
        model.evaluate(rows.where("p is null"))


def test_it_is_saved_called_from_sql_and_gone_on_from(
    spark: SparkSession, rows: DataFrame, model: DeepModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepModel.load(str(tmp_path / "model"))
    assert loaded.getLabelCols() == LABELS and loaded.getLoss() == model.getLoss()
    assert loaded.transform(rows).collect() == model.transform(rows).collect()
    priced = register_function(spark, "priced", loaded, output="prediction_price")
    both = loaded.transform(rows).select("prediction_price", priced("facts", "age").alias("again"))
    assert both.where("prediction_price = again").count() == COUNT
    more = estimator(initialModel=loaded, maxIter=0).fit(rows)
    assert same_bits(arrays(more), arrays(model))
    estimator().save(str(tmp_path / "estimator"))
    assert same_bits(arrays(DeepEstimator.load(str(tmp_path / "estimator")).fit(rows)), arrays(model))


def test_the_summary_tells_of_every_output(rows: DataFrame) -> None:
    held_out = rows.withColumn("held_out", F.col("age") > 0.8)
    summary = estimator(validationIndicatorCol="held_out").fit(held_out).summary
    last = summary.history[-1].outputs
    assert list(last) == ["kind", "price", "place"] and all(None not in own.values() for own in last.values())
    assert summary.metrics == {"kind": "accuracy", "price": "mse", "place": "mse"}
    assert f"kind: loss {last['kind']['loss']:.4f}, accuracy {last['kind']['metric']:.4f}" in str(summary)
    titles = [axes.get_title() for axes in summary.plot().axes]
    assert titles[:3] == ["loss", "kind: loss", "kind: accuracy"] and len(titles) == 7


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"labelCols": {"kind": "k"}}, "labelCols must name a column for each of 'kind', 'price', 'place'"),
        ({"loss": "squared_error"}, "loss must be a dict by output"),
        ({"lossWeights": {"size": 1.0}}, "lossWeights names 'size'"),
        ({"labelCols": {**LABELS, "price": "q"}}, "labelCols names column 'q', which is not there"),
    ],
)
def test_what_does_not_go_by_output_is_refused(rows: DataFrame, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator(**params).fit(rows)
    with pytest.raises(ValueError, match="takes a network of one output"):
        DeepClassifier(network=GRAPH, featuresCols={"facts": "facts", "age": "age"}, labelCols=LABELS, loss=LOSSES).fit(
            rows
        )


def test_a_stream_is_scored_as_rows_are(spark: SparkSession, rows: DataFrame, model: DeepModel, tmp_path: Path) -> None:
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    sink = model.transform(stream).writeStream.format("memory").queryName("several_outputs")
    query = sink.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    priced = spark.table("several_outputs").orderBy("age").select("prediction_price", "prediction_kind").collect()
    assert priced == model.transform(rows).orderBy("age").select("prediction_price", "prediction_kind").collect()


def test_settings_are_tried_together_as_each_alone(rows: DataFrame) -> None:
    tried = estimator()
    maps: list[Any] = [{tried.stepSize: size} for size in (0.05, 0.2)]
    together = tried.fit(rows, maps)
    for found, each in zip(together, maps, strict=True):
        for name, array in arrays(tried.fit(rows, each)).items():
            np.testing.assert_allclose(arrays(found)[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_fit_goes_on_from_its_checkpoint_to_the_same_weights(rows: DataFrame, tmp_path: Path) -> None:
    given = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    estimator(**given, maxIter=2).fit(rows)
    resumed = estimator(**given).fit(rows)
    assert resumed.summary.resumedFrom == [2, 0]
    assert same_bits(arrays(resumed), arrays(estimator().fit(rows)))
