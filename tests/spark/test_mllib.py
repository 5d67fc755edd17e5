"""MLlib's perceptron, taken over: the same scores of every row, and a network that learns on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.classification import MultilayerPerceptronClassificationModel, MultilayerPerceptronClassifier
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from spark_cases import table

from sparkdl import DeepClassifier
from sparkdl.interchange import from_mllib, save_onnx


@pytest.fixture(scope="module")
def vectors(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(table()).withColumn("features", array_to_vector("features")).cache()


@pytest.fixture(scope="module")
def perceptron(vectors: DataFrame) -> MultilayerPerceptronClassificationModel:
    """Of hidden layers of different sizes, so that a matrix that was turned round would be found."""
    return MultilayerPerceptronClassifier(layers=[4, 5, 3, 2], maxIter=5, seed=1).fit(vectors)


def columns(model: Any, rows: DataFrame, *names: str) -> list[np.ndarray]:
    found = model.transform(rows).orderBy("id").select(*names).collect()
    return [np.array([row[name].toArray() for row in found]) for name in names]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_scores_and_probabilities_are_those_of_mllib(
    vectors: DataFrame, perceptron: MultilayerPerceptronClassificationModel, precision: str
) -> None:
    network, weights = from_mllib(perceptron)
    ours = DeepClassifier(network=network, initialModel=weights, maxIter=0, computeDtype=precision).fit(vectors)
    names, tolerance = ("rawPrediction", "probability"), 1e-5 if precision == "float32" else 1e-12
    pairs = zip(names, columns(ours, vectors, *names), columns(perceptron, vectors, *names), strict=True)
    for name, found, expected in pairs:
        if name == "rawPrediction":  # those of two classes add up to 0 here
            expected = expected - expected.mean(axis=1, keepdims=True)
        assert np.ptp(expected, axis=0).min() > 1e-3
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_it_learns_on(vectors: DataFrame, perceptron: MultilayerPerceptronClassificationModel) -> None:
    network, weights = from_mllib(perceptron)
    deep = DeepClassifier(network=network, initialModel=weights, optimizer="lbfgs", stepSize=0.1, maxIter=30)
    losses = [epoch.loss for epoch in deep.fit(vectors).summary.history]
    probabilities = columns(perceptron, vectors, "probability")[0]
    before = -np.log(probabilities[np.arange(24), table()["label"].to_numpy()]).mean()
    assert losses[-1] < losses[0] < before


def test_it_becomes_a_file_of_onnx(
    vectors: DataFrame, perceptron: MultilayerPerceptronClassificationModel, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    save_onnx(tmp_path / "perceptron.onnx", *from_mllib(perceptron))
    session = runtime.InferenceSession(str(tmp_path / "perceptron.onnx"))
    features = np.array([row.features.toArray() for row in vectors.orderBy("id").collect()], np.float32)
    (found,) = session.run(None, {"features": features})
    np.testing.assert_allclose(found, columns(perceptron, vectors, "rawPrediction")[0], rtol=1e-5, atol=1e-5)


def test_other_objects_are_refused(vectors: DataFrame, perceptron: MultilayerPerceptronClassificationModel) -> None:
    estimator = MultilayerPerceptronClassifier(layers=[4, 2])
    for other in (Pipeline(stages=[perceptron]).fit(vectors), estimator, None):
        with pytest.raises(ValueError, match=f"MultilayerPerceptronClassificationModel.*{type(other).__name__}"):
            from_mllib(other)
