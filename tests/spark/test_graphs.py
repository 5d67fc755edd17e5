"""A graph on several columns: each input's by name, in training, scoring, evaluation, SQL and from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Graph, Network, register_function, training
from sparkdl.layers import Add, Concatenate, Dense, Flatten, Rescale, Tanh

COUNT = 90
GRAPH = Graph(
    inputs={"photo": (2, 3), "facts": (3,), "age": ()},
    nodes={
        "seen": (Network([Rescale(1 / 255), Flatten(), Dense(4), Tanh()]), "photo"),
        "known": (Network([Dense(4), Tanh()]), "facts"),
        "met": (Add(), "seen", "known"),
        "both": (Concatenate(), "met", "age"),
        "kind": (Dense(2), "both"),
    },
    outputs="kind",
)
COLUMNS = {"age": "age", "photo": "bytes", "facts": ["a", "pair"]}


def numbers() -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(8)
    features = {
        "photo": random.integers(0, 256, (COUNT, 2, 3)).astype("uint8"),
        "facts": random.normal(size=(COUNT, 3)).astype("float32"),
        "age": random.normal(size=COUNT).astype("float32"),
    }
    return features, (features["facts"][:, 0] + features["age"] > 0).astype("int64")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    features, labels = numbers()
    values = [
        (bytearray(photo.tobytes()), float(facts[0]), [float(value) for value in facts[1:]], float(age), int(label))
        for photo, facts, age, label in zip(*features.values(), labels, strict=True)
    ]
    frame = spark.createDataFrame(values, "bytes binary, a float, others array<double>, age float, label int")
    return frame.withColumn("pair", array_to_vector("others")).repartition(3).cache()


def classifier(**params: Any) -> DeepClassifier:
    given = {"network": GRAPH, "featuresCols": COLUMNS, "batchSize": 30, "stepSize": 0.5, "maxIter": 20}
    return DeepClassifier(**{**given, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier().fit(rows)


def test_it_learns_from_all_of_its_inputs_what_one_process_learns(rows: DataFrame, model: Any) -> None:
    scored = model.transform(rows).select("label", "prediction").collect()
    assert sum(row.label == row.prediction for row in scored) >= 0.9 * COUNT
    features, labels = numbers()
    alone = training.fit(GRAPH, (features, {"kind": labels}), batch_size=COUNT, step_size=0.5, epochs=3, shuffle=False)
    spread = classifier(numWorkers=2, batchSize=COUNT, maxIter=3).fit(rows)
    found = arrays(spread)
    for name, array in arrays(alone).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_neither_partitions_nor_the_order_of_the_mapping_change_a_bit(rows: DataFrame, model: Any) -> None:
    other = classifier(featuresCols=dict(sorted(COLUMNS.items()))).fit(rows.repartition(2, "age"))
    assert same_bits(arrays(model), arrays(other))


def test_it_is_saved_evaluated_and_called_from_sql(
    spark: SparkSession, rows: DataFrame, model: Any, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert loaded.getFeaturesCols() == {
        name: [each] if isinstance(each, str) else each for name, each in COLUMNS.items()
    }
    assert loaded.getNetwork() == GRAPH
    expected = model.transform(rows).select("probability").collect()
    assert loaded.transform(rows).select("probability").collect() == expected
    assert loaded.evaluate(rows).accuracy >= 0.9
    assert loaded.score_rows(rows).where("loss < 0").count() == 0
    classify = register_function(spark, "classify_rows", loaded)
    in_order = [name for names in (loaded.getFeaturesCols()[each] for each in GRAPH.inputs) for name in names]
    called = rows.select(classify(*in_order).alias("kind"), "label")
    assert called.where("kind = label").count() == loaded.transform(rows).where("prediction = label").count()


def test_activations_and_transfer_go_by_path(rows: DataFrame, model: Any) -> None:
    seen = model.copy().setActivationCols({"seen/dense_2": "deep", "met": "both"}).transform(rows).first()
    assert len(seen.deep) == 4 and len(seen.both) == 4
    frozen = GRAPH.frozen("seen", until="known").with_head({"three": (Dense(3), "both")})
    again = classifier(network=frozen, initialModel=model, maxIter=1).fit(rows)
    before, after = arrays(model), arrays(again)
    kept = {name for name in after if name.startswith(("seen/", "known/"))}
    assert kept and all(np.array_equal(before[name], after[name]) for name in kept)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "reads 'photo', 'facts', 'age', so featuresCols must be a dict"),
        (["a", "age"], "reads 'photo', 'facts', 'age', so featuresCols must be a dict"),
        (
            {"photo": "bytes", "facts": ["a", "pair"]},
            "must name columns for the network's inputs 'photo', 'facts', 'age'",
        ),
        (COLUMNS | {"more": "a"}, "received some for 'age', 'photo', 'facts', 'more'"),
        (COLUMNS | {"age": "ages"}, "featuresCols names column 'ages', which is not there"),
        (COLUMNS | {"age": "others"}, "must hold one value a row to fill the network's input 'age' of shape"),
    ],
)
def test_columns_that_do_not_fit_the_inputs_are_named(rows: DataFrame, columns: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(featuresCols=columns).fit(rows)


def test_rows_that_cannot_be_used_are_named_by_input(rows: DataFrame, model: Any) -> None:
    broken = rows.withColumn("age", F.when(F.col("a") > 0, F.col("age")))
    bad = broken.where("age is null").count()
    fitted = classifier(handleInvalid="skip", maxIter=1).fit(broken)
    assert fitted.summary.skipped == {"null": bad}
    kept = model.copy().setHandleInvalid("keep").transform(broken)
    assert kept.where("prediction is null").count() == bad
    with pytest.raises(ValueError, match="featuresCols 'age' holds null"):
        classifier().fit(broken)
    with pytest.raises(TypeError, match="at least one column for every input"):
        classifier(featuresCols={"photo": []})


def test_a_classifier_of_several_outputs_is_refused_before_anything_runs(rows: DataFrame) -> None:
    with pytest.raises(ValueError, match="loss must be a dict by output, 'kind', 'met', received"):
        classifier(network=GRAPH.up_to("kind", "met")).fit(rows)
