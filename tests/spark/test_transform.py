"""What models add to a DataFrame, against the same forward pass in NumPy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField
from spark_cases import FEATURES, LABELS, LAYERS, NETWORK, Array, a_model, arrays, centred, outputs, softmax, table

from sparkdl import DeepClassifier, DeepModel, DeepRegressionModel, Network
from sparkdl.decoding.layout import Layout
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.layers import Dense, Flatten, Rescale
from sparkdl.scoring import forward, inference
from sparkdl.scoring.forward import Forward, Scores, in_batches
from sparkdl.spark.driver import remote
from sparkdl.spark.tasks.row_scores import results
from sparkdl.weights import weights_to_bytes

ONE, THREE = (Network([Rescale(1 / 255), Dense(units)], input_shape=(4,)) for units in (1, 3))


def linear(model: Any) -> Array:
    """The outputs of ONE and THREE by NumPy."""
    weights = arrays(model)
    return FEATURES / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"]


def collected(scored: DataFrame, *columns: str) -> list[Array]:
    """The columns' values in the order of ids."""
    found = scored.orderBy("id").select(*columns).collect()
    return [np.array([row[column] for row in found]) for column in columns]


def assert_near(actual: Array, expected: Array, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_scores_are_those_of_numpy_in_partitions_of_any_size(spark: SparkSession, dtype: str, tolerance: float) -> None:
    model = a_model(computeDtype=dtype)
    expected = outputs(arrays(model), FEATURES)
    for first, last in [(0, 0), (0, 1), (1, 9), (9, 18)]:  # of 0, 1, batchSize and batchSize + 1 rows
        part = spark.createDataFrame(table().slice(first, last - first)).coalesce(1)
        raw, probability, prediction = collected(model.transform(part), "rawPrediction", "probability", "prediction")
        assert len(raw) == last - first
        assert_near(raw.reshape(-1, 2), centred(expected)[first:last], tolerance)
        assert_near(probability.reshape(-1, 2), softmax(expected)[first:last], tolerance)
        assert prediction.tolist() == expected.argmax(axis=1)[first:last].tolist()


def test_columns_are_kept_in_their_order_and_results_follow(rows: DataFrame) -> None:
    moved = rows.select("id", "label", "features")
    scored = a_model().transform(moved)
    assert scored.schema[:3] == moved.schema[:3]
    assert [(field.name, field.dataType.simpleString()) for field in scored.schema[3:]] == [
        ("rawPrediction", "vector"),
        ("probability", "vector"),
        ("prediction", "double"),
    ]
    assert sorted(scored.select(moved.columns).collect()) == sorted(moved.collect())


def test_an_output_column_without_a_name_is_left_out(rows: DataFrame) -> None:
    model = a_model(rawPredictionCol="", probabilityCol="chances", activationCols={"tanh_2": ""})
    assert model.transform(rows).columns == [*rows.columns, "chances", "prediction"]
    nothing = model.setParams(probabilityCol="", predictionCol="")
    assert nothing.transform(rows).columns == rows.columns


def test_an_output_column_that_exists_is_refused(rows: DataFrame) -> None:
    with pytest.raises(ValueError, match="Output column 'label' exists already; drop it or name another."):
        a_model(predictionCol="label").transform(rows)


def test_names_that_differ_in_case_only_are_others_where_spark_is_told_so(spark: SparkSession, rows: DataFrame) -> None:
    model = a_model(rawPredictionCol="P", probabilityCol="p", predictionCol="ID")
    spark.conf.set("spark.sql.caseSensitive", "TRUE")
    try:
        assert model.transform(rows).columns == [*rows.columns, "P", "p", "ID"]
        first = model.transform(rows).orderBy("id").first()
        assert first is not None
        assert_near(np.array(first["p"]), softmax(outputs(arrays(model), FEATURES[:1]))[0])
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(ValueError, match="Output column 'p' is asked for twice"):
        model.transform(rows)


def test_rows_that_do_not_fit_are_named(spark: SparkSession) -> None:
    rows = spark.createDataFrame([([1.0, 2.0],)], ["features"])
    sentence = r"featuresCol 'features' must hold 4 values a row to fill the network's input_shape \(4,\)"
    with pytest.raises(PythonException, match=sentence):
        a_model().transform(rows).collect()


@pytest.mark.parametrize("thresholds", [[0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
def test_thresholds_divide_the_probabilities(rows: DataFrame, thresholds: list[float]) -> None:
    model = a_model(thresholds=thresholds)
    (prediction,) = collected(model.transform(rows), "prediction")
    with np.errstate(divide="ignore"):
        scaled = softmax(outputs(arrays(model), FEATURES)) / thresholds
    assert prediction.tolist() == scaled.argmax(axis=1).tolist()


def test_one_output_tells_two_classes(rows: DataFrame) -> None:
    model = a_model(network=ONE, loss="sigmoid_cross_entropy")
    raw, probability, prediction = collected(model.transform(rows), "rawPrediction", "probability", "prediction")
    (score,) = linear(model).T
    chance = 1 / (1 + np.exp(-score))
    assert_near(raw, np.stack([-score, score], axis=1))
    assert_near(probability, np.stack([1 - chance, chance], axis=1))
    assert prediction.tolist() == (score > 0).tolist()
    assert model.numClasses == 2


def test_a_loss_of_margins_gives_no_probabilities(rows: DataFrame) -> None:
    model = a_model(network=THREE, loss="hinge")
    scored = model.transform(rows)
    assert scored.columns == [*rows.columns, "rawPrediction", "prediction"]
    raw, prediction = collected(scored, "rawPrediction", "prediction")
    assert_near(raw, linear(model))
    assert prediction.tolist() == linear(model).argmax(axis=1).tolist()
    assert model.numClasses == 3


@pytest.mark.parametrize(
    "kind, network, loss, meant",
    [
        (DeepRegressionModel, ONE, "squared_error", lambda outputs: outputs[:, 0]),
        (DeepRegressionModel, THREE, "huber", lambda outputs: outputs),
        (DeepRegressionModel, ONE, "poisson", lambda outputs: np.exp(outputs[:, 0])),
        (DeepModel, ONE, "squared_error", lambda outputs: outputs[:, 0]),
        (DeepModel, THREE, "softmax_cross_entropy", lambda outputs: outputs),
    ],
)
def test_predictions_are_on_the_scale_of_the_label_and_a_deep_model_gives_the_outputs(
    rows: DataFrame, kind: Any, network: Network, loss: str, meant: Any
) -> None:
    model = a_model(kind, network, loss=loss)
    scored = model.transform(rows)
    assert scored.columns == [*rows.columns, "prediction"]
    assert dict(scored.dtypes)["prediction"] == ("double" if network is ONE else "vector")
    assert_near(*collected(scored, "prediction"), meant(linear(model)))


def test_every_column_comes_from_one_pass(rows: DataFrame) -> None:
    scored = a_model().transform(rows)
    for frame in (scored, scored.where("prediction = 1").select("id", "probability", "rawPrediction")):
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert plan.count("ArrowEvalPython") == 1
        assert "BatchEvalPython" not in plan


def test_vectors_from_parquet_are_fitted_and_scored_again_and_again(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "rows")
    rows.withColumn("features", array_to_vector("features")).coalesce(1).write.parquet(path)
    stored = spark.read.parquet(path)
    estimator = DeepClassifier(network=NETWORK, maxIter=1)
    model = estimator.fit(stored)
    (raw,) = collected(model.transform(stored), "rawPrediction")
    assert_near(raw, centred(outputs(arrays(model), FEATURES)))
    again = estimator.setMaxIter(2).fit(model.transform(stored).drop("rawPrediction", "probability", "prediction"))
    (raw,) = collected(again.transform(stored), "rawPrediction")
    assert_near(raw, centred(outputs(arrays(again), FEATURES)))
    (raw,) = collected(model.transform(stored), "rawPrediction")
    assert_near(raw, centred(outputs(arrays(model), FEATURES)))


def test_one_row_is_predicted_without_a_data_frame(spark: SparkSession) -> None:
    model = a_model(featuresCol="pixels")
    row = Vectors.dense(FEATURES[0].tolist())
    expected = outputs(arrays(model), FEATURES[:1])
    assert_near(model.predictRaw(row), centred(expected)[0])
    assert_near(model.predictProbability(row), softmax(expected)[0])
    assert model.predict(row) == expected.argmax()
    assert model.numFeatures == 4


def test_a_model_sends_its_weights_once_with_all_of_its_copies(
    spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sent = a_model(), []
    monkeypatch.setattr(remote, "shared", lambda session, parts: sent.append(parts) or partial(b"".join, list(parts)))
    for _ in range(3):
        model.transform(rows, {model.predictionCol: "guess"})
        model.copy().predict(Vectors.dense(FEATURES[0].tolist()))
    assert len(sent) == 1
    monkeypatch.setattr(remote, "identity", lambda session: "another")
    model.transform(rows)
    assert len(sent) == 2
    a_model().transform(rows)
    assert len(sent) == 3


@pytest.mark.parametrize("duplicate", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_duplicate_of_a_model_that_has_scored_scores_with_weights_of_its_own(
    rows: DataFrame, duplicate: Callable[[Any], Any]
) -> None:
    model = a_model()
    before = collected(model.transform(rows), "probability")
    other = duplicate(model)
    for layer in other.weights.values():
        for array in layer.values():
            array *= -2
    assert_near(*collected(other.transform(rows), "probability"), softmax(outputs(arrays(other), FEATURES)))
    assert_near(*collected(model.transform(rows), "probability"), *before)


def test_weights_that_workers_may_keep_cannot_be_changed(tmp_path: Path, spark: SparkSession) -> None:
    given = {"dense_1": {"kernel": np.ones((4, 1), "float32"), "bias": np.zeros(1, "float32")}}
    model = DeepRegressionModel(given).setParams(network=ONE)
    model.save(str(tmp_path / "model"))
    for each in (model, DeepRegressionModel.load(str(tmp_path / "model"))):
        with pytest.raises(ValueError, match="read-only"):
            each.weights["dense_1"]["bias"][:] = 7
    given["dense_1"]["bias"][:] = 0  # a caller's own


def test_a_column_name_may_hold_a_dot(rows: DataFrame) -> None:
    renamed = rows.withColumn("pixel.values", F.col("features")).drop("features")
    (prediction,) = collected(a_model(featuresCol="pixel.values").transform(renamed), "prediction")
    assert prediction.shape == LABELS.shape


def test_columns_that_nobody_asks_for_are_not_made_vectors(rows: DataFrame) -> None:
    scored = a_model().transform(rows)
    plans = [
        scored.select(name)._jdf.queryExecution().executedPlan().toString() for name in ("probability", "prediction")
    ]
    assert [plan.count("Project [UDF(") for plan in plans] == [1, 0], plans


def test_vectors_that_nobody_reads_leave_a_parquet_file_s_batches_as_they_are(rows: DataFrame, tmp_path: Path) -> None:
    path, metadata = str(tmp_path / "rows"), {"ml_attr": {"num_attrs": 4}}
    vectors = rows.withColumn("vector", array_to_vector(F.col("features").cast("array<double>")))
    vectors.withMetadata("vector", metadata).write.parquet(path)
    scored = a_model().transform(rows.sparkSession.read.parquet(path))
    assert scored.schema["vector"] == StructField("vector", VectorUDT(), metadata=metadata)
    plans = [
        scored.select(*names)._jdf.queryExecution().optimizedPlan().toString()
        for names in (["prediction"], ["prediction", "vector"])
    ]
    assert ["SPARK_PARTITION_ID" in plan for plan in plans] == [False, True], plans
    assert scored.select("vector", "prediction").count() == rows.count()
    twice = scored.drop("rawPrediction", "probability", "prediction")
    twice = twice.join(twice.select("id", F.col("vector")), "id")
    assert twice.columns.count("vector") == 2
    assert len(a_model().transform(twice).select("prediction").collect()) == rows.count()


@pytest.mark.parametrize("handle, expected", [("keep", [None, 1]), ("skip", [1])])
def test_a_model_of_one_column_treats_bad_rows_as_others_do(
    spark: SparkSession, handle: str, expected: list[int | None]
) -> None:
    model = a_model(handleInvalid=handle, rawPredictionCol="", probabilityCol="")
    rows = spark.createDataFrame([(0, [1.0, np.nan, 1.0, 1.0]), (1, [1.0, 1.0, 1.0, 1.0])], ["id", "features"])
    scored = model.transform(rows)
    assert scored.columns == ["id", "features", "prediction"]
    right = outputs(arrays(model), np.ones((1, 4))).argmax()
    found = [row.prediction for row in scored.orderBy("id").collect()]
    assert found == [None if each is None else right for each in expected]


def pieces(model: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """What a Python worker makes of Arrow batches."""
    scoring = model._scoring({"features": Layout(("features",), (4,), "float32")}, {})
    return results(batches, scoring, partial(weights_to_bytes, model._weights), model._heads())


def test_a_worker_holds_one_batch_at_a_time_and_of_a_large_one_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def batches() -> Iterator[Any]:
        for first in range(0, 24, 12):
            drawn.append(first)
            yield (pa.array(FEATURES[first : first + 12].astype(float).tolist()),)

    monkeypatch.setattr(inference, "PART_BYTES", 1)
    model = a_model()
    found = [(len(part), len(drawn), part.field("prediction").to_pylist()) for part in pieces(model, batches())]
    assert [(size, seen) for size, seen, _ in found] == [(8, 1), (4, 1), (8, 2), (4, 2)]  # batchSize is 8
    expected = outputs(arrays(model), FEATURES).argmax(axis=1)
    assert [value for *_, values in found for value in values] == expected.tolist()


def test_models_of_one_network_are_compiled_once_in_a_worker() -> None:
    network = Network([*LAYERS[:1], Dense(7), Dense(2)], input_shape=(4,))
    models = [a_model(network=network), a_model(network=network)]
    batch = (pa.array(FEATURES.astype(float).tolist()),)
    before = len(forward._programs)
    one, other = (next(pieces(model, iter([batch]))).field("rawPrediction") for model in models)
    assert one.equals(other)
    assert len(forward._programs) == before + 1
    assert next(reversed(forward._programs.values()))._cache_size() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "side, most, platform, expected",
    [
        (1, 128, "cpu", (1024, 128)),
        (64, 128, "cpu", (128, 128)),
        (64, 16, "cpu", (240, 16)),
        (1024, 128, "cpu", (8, 8)),
        (1, 128, "gpu", (128, 128)),
        (1024, 128, "gpu", (128, 128)),
    ],
)
def test_on_a_cpu_parts_fit_the_cache_and_calls_hold_several_parts_of_at_most_batch_size(
    side: int, most: int, platform: str, expected: tuple[int, int]
) -> None:
    network = Network([Network([Rescale(1 / 255)]), Flatten(), Dense(1)], input_shape=(side, side))
    layouts = {"features": Layout(("features",), (side, side), "float32")}
    scoring = a_model(network=network, batchSize=most)._scoring(layouts, {})
    assert forward.call_rows(scoring, platform) == expected


def test_calls_that_give_wide_activations_hold_fewer_rows() -> None:
    network = Network([Dense(4096), Dense(1)], input_shape=(4,))
    layouts = {"features": Layout(("features",), (4,), "float32")}
    narrow, wide = (a_model(network=network)._scoring(layouts, found) for found in ({}, {"dense_1": "hidden"}))
    assert [forward.call_rows(each, "cpu") for each in (narrow, wide)] == [(1024, 8), (248, 8)]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17, 24, 40])
def test_rows_in_calls_of_several_parts_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(forward, "CALL_ROWS", 24)  # three parts of 8 rows
    features = np.resize(FEATURES, (count, 4))
    model = a_model()
    (scored,) = pieces(model, iter([(pa.array(features.astype(float).tolist()),)]))
    expected = outputs(arrays(model), features)
    assert_near(np.array(scored.field("rawPrediction").to_pylist()), centred(expected))
    assert scored.field("prediction").to_pylist() == expected.argmax(axis=1).tolist()


def test_longer_rows_go_through_the_network_fewer_at_a_time() -> None:
    lengths = np.array([3, 64, 65, 200, 5, 64, 1000, 1, 2])
    rows = RaggedRows(np.arange(lengths.sum(), dtype="float32"), lengths)
    seen: list[tuple[int, int, int]] = []

    def run(features: Any, labels: Any, parts: int, part: int) -> Scores:
        values = features["features"].values
        seen.append((*values.shape, part))
        return Scores({"y": values.sum(axis=1)}, {}, None, {})

    found = in_batches({"features": rows}, None, Forward(run, 8, 4))
    sums = np.concatenate([scores.outputs["y"] for scores in found])
    np.testing.assert_allclose(sums, [part.sum() for part in np.split(rows.values, np.cumsum(lengths)[:-1])], rtol=1e-6)
    assert all(steps * part <= 1.25 * 64 * 4 or part == 1 for _, steps, part in seen)
    seen.clear()
    list(in_batches({"features": rows[:2]}, None, Forward(run, 8, 4)))
    assert seen == [(8, 64, 4)]
