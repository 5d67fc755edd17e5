"""Losses whose labels are not one for each output, through Spark: quantiles of a number, and classes of pixels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scipy.stats import norm

from sparkdl import (
    DeepClassificationModel,
    DeepClassifier,
    DeepEstimator,
    DeepRegressionModel,
    DeepRegressor,
    Graph,
    Network,
    models,
)
from sparkdl.layers import Concatenate, Dense, GaussianSample, OneClass, Prototypes, Tanh
from sparkdl.losses import (
    EachPosition,
    EvidenceLowerBound,
    FMeasure,
    InBatchSoftmax,
    LabelledOutput,
    MixtureDensity,
    OneClassHinge,
    Quantile,
    Wasserstein,
)

RANDOM = np.random.default_rng(8)


def test_quantiles_hold_as_many_labels_as_they_say(spark: SparkSession) -> None:
    labels = RANDOM.exponential(size=600)
    rows = spark.createDataFrame([([1.0], float(label)) for label in labels], "features array<double>, label double")
    estimator = DeepEstimator(
        network=Network([Dense(3)], input_shape=(1,)),
        loss=Quantile((0.1, 0.5, 0.9)),
        optimizer="adam",
        stepSize=0.02,
        maxIter=60,
        batchSize=100,
        numWorkers=2,
    )
    model = estimator.fit(rows)
    (found,) = {tuple(row.prediction) for row in model.transform(rows).select("prediction").collect()}
    np.testing.assert_allclose(found, np.quantile(labels, [0.1, 0.5, 0.9]), atol=0.15)
    scored = model.score_rows(rows).toPandas()
    apart = scored["label"].to_numpy()[:, None] - np.asarray(found)
    quantiles = np.array([0.1, 0.5, 0.9])
    expected = np.maximum(quantiles * apart, (quantiles - 1) * apart).sum(axis=1)
    np.testing.assert_allclose(scored["loss"], expected, rtol=1e-5, atol=1e-6)
    coverage = [each.coverage for each in model.evaluate(rows).average]
    np.testing.assert_allclose(coverage, (apart <= 0).mean(axis=0), rtol=1e-12)


def test_usual_rows_alone_are_enough_to_tell_others_by(spark: SparkSession) -> None:
    x = np.random.default_rng(0).normal((3, 2), 0.5, (200, 2))
    rows = spark.createDataFrame([(row.tolist(), 1) for row in x], "features array<double>, label int")
    classifier = DeepClassifier(
        network=Network([OneClass()], input_shape=(2,)),
        loss=OneClassHinge(0.1),
        optimizer="adam",
        stepSize=0.05,
        maxIter=150,
        batchSize=200,
        numWorkers=2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # that all rows are of one class
        model = classifier.fit(rows)
    assert model.evaluate(rows).accuracy == pytest.approx(0.9, abs=0.04)
    others = spark.createDataFrame([([-3.0, -2.0],), ([0.0, 0.0],)], "features array<double>")
    assert [row.prediction for row in model.transform(others).collect()] == [0, 0]


def test_a_mixture_finds_both_places_of_a_label(spark: SparkSession) -> None:
    labels = RANDOM.choice([-2.0, 2.0], 400, p=[0.3, 0.7]) + RANDOM.normal(scale=0.3, size=400)
    rows = spark.createDataFrame([([1.0], float(label)) for label in labels], "features array<double>, label double")
    estimator = DeepRegressor(
        network=Network([Dense(6)], input_shape=(1,)),
        loss=MixtureDensity(2),
        optimizer="adam",
        stepSize=0.05,
        maxIter=60,
        batchSize=100,
        numWorkers=2,
    )
    model = estimator.fit(rows)
    (found,) = {tuple(row.prediction) for row in model.transform(rows).select("prediction").collect()}
    shares, means, scales = np.split(np.array(found), 3)
    order = means.argsort()
    np.testing.assert_allclose(means[order], [-2, 2], atol=0.15)
    np.testing.assert_allclose(shares[order], [(labels < 0).mean(), (labels > 0).mean()], atol=0.05)
    scored = model.score_rows(rows).toPandas()
    densities = norm.pdf(scored["label"].to_numpy()[:, None], means, scales) @ shares
    np.testing.assert_allclose(scored["loss"], -np.log(densities), rtol=1e-4, atol=1e-5)
    measured = model.evaluate(rows)
    assert measured.average.mse == pytest.approx(((labels - shares @ means) ** 2).mean(), rel=1e-5)
    assert measured.loss == pytest.approx(-np.log(densities).mean(), rel=1e-5)


def test_an_autoencoder_whose_labels_are_its_features_tells_odd_rows(spark: SparkSession) -> None:
    codes = RANDOM.normal(size=(300, 1))
    features = np.concatenate([codes * [[1.0, -1.0, 0.5]], [[1.0, 1.0, 1.0]]])
    rows = spark.createDataFrame([(row.tolist(), n) for n, row in enumerate(features)], "x array<double>, id int")
    nodes: Any = {
        "encoder": (Dense(2), "features"),
        "code": (GaussianSample(), "encoder"),
        "decoder": (Dense(3), "code"),
        "both": (Concatenate(), "decoder", "encoder"),
    }
    estimator = DeepRegressor(
        network=Graph({"features": (3,)}, nodes, "both"),
        loss=EvidenceLowerBound(1),
        featuresCol="x",
        labelCol="x",
        activationCols={"encoder": "drawn"},
        optimizer="adam",
        stepSize=0.05,
        maxIter=40,
        batchSize=50,
        numWorkers=2,
    )
    model = estimator.fit(rows.where("id < 300"))
    found = model.score_rows(model.transform(rows)).toPandas().sort_values("id")
    predictions = np.stack([row.toArray() for row in found["prediction"]])
    reconstructed, means, scales = predictions[:, :3], predictions[:, 3], predictions[:, 4]
    divergence = (means**2 + scales**2 - 1) / 2 - np.log(scales)
    expected = ((features - reconstructed) ** 2).sum(axis=1) + divergence
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-4, atol=1e-5)
    assert found["loss"].idxmax() == 300
    np.testing.assert_allclose(np.stack([row[:1] for row in found["drawn"]])[:, 0], means, rtol=1e-5, atol=1e-6)
    measured = model.evaluate(rows)
    mse = ((features - reconstructed) ** 2).mean()
    assert measured.average.mse == pytest.approx(mse, rel=1e-4)


def test_centers_of_classes_are_their_means_and_the_nearest_tells_the_class(spark: SparkSession) -> None:
    random = np.random.default_rng(4)
    classes = random.integers(0, 3, 300)
    features = np.eye(3)[classes] @ random.normal(size=(3, 4)) * 2 + random.normal(size=(300, 4))
    rows = spark.createDataFrame(
        [(row.tolist(), int(kind), n) for n, (row, kind) in enumerate(zip(features, classes, strict=True))],
        "features array<double>, label int, id int",
    )
    nodes: Any = {
        "seen": (Network([Dense(8), Tanh(), Dense(2)]), "features"),
        "kind": (Dense(3), "seen"),
        "near": (Prototypes(3), "seen"),
    }
    network = Graph({"features": (4,)}, nodes, ("kind", "near"))

    estimator = DeepEstimator(
        network=network,
        labelCols={"kind": "label", "near": "label"},
        loss={"kind": "softmax_cross_entropy", "near": LabelledOutput()},
        lossWeights={"near": 0.1},
        activationCols={"seen": "seen"},
        optimizer="adam",
        stepSize=0.02,
        maxIter=50,
        batchSize=100,
        numWorkers=2,
    )
    model = estimator.fit(rows)
    found = model.transform(rows).orderBy("id").toPandas()
    seen, centers = np.stack(found["seen"].to_numpy()), model.weights["near"]["centers"]
    means = np.stack([seen[classes == kind].mean(axis=0) for kind in range(3)])
    np.testing.assert_allclose(centers, means, atol=0.15 * seen.std())
    apart = seen[:, None] - centers
    nearest = (apart**2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(found["prediction_near"], nearest)
    measured = model.evaluate(rows)["near"]
    assert measured.accuracy == pytest.approx((nearest == classes).mean(), rel=1e-12)
    assert measured.accuracy > 0.85
    assert model.summary.history[-1].outputs["near"]["metric"] > 0.85
    assert measured.loss == pytest.approx((apart**2).sum(axis=2)[range(300), classes].mean(), rel=1e-4)


def test_a_classifier_by_centers_has_scores_that_grow_towards_them(spark: SparkSession) -> None:
    centers = np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 0.0]], "float32")
    places = np.array([[0.1, 0.2], [1.5, 0.9], [2.5, 0.1], [0.9, 1.0]])
    rows = spark.createDataFrame(
        [(place.tolist(), kind, np.eye(3)[kind].tolist()) for place, kind in zip(places, [0, 1, 2, 0], strict=True)],
        "features array<double>, label int, hot array<double>",
    )
    model = DeepClassificationModel({"near": {"centers": centers}}).setParams(
        network=Network([Prototypes(3, name="near")], input_shape=(2,)), loss=LabelledOutput()
    )
    scored = model.transform(rows).toPandas()
    distances = ((places[:, None] - centers) ** 2).sum(axis=2)
    np.testing.assert_allclose(np.stack([row.toArray() for row in scored["rawPrediction"]]), -distances, rtol=1e-5)
    np.testing.assert_array_equal(scored["prediction"], [0, 1, 2, 1])
    for label in ("label", "hot"):
        measured = model.setParams(labelCol=label).evaluate(rows)
        assert measured.accuracy == 0.75
        assert measured.loss == pytest.approx(distances[range(4), [0, 1, 2, 0]].mean(), rel=1e-5)


def test_a_classifier_by_the_f_measure_is_evaluated_by_another_loss_of_its_outputs(spark: SparkSession) -> None:
    features, labels = np.random.default_rng(2).normal(size=(240, 2)), np.arange(240) % 8 == 0
    features[labels] += 2
    rows = spark.createDataFrame(
        [(row.tolist(), int(label)) for row, label in zip(features, labels, strict=True)],
        "features array<double>, label int",
    )
    classifier = DeepClassifier(
        network=Network([Dense(1)], input_shape=(2,)),
        loss=FMeasure(),
        optimizer="adam",
        stepSize=0.1,
        maxIter=30,
        batchSize=120,
        numWorkers=2,
    )
    model = classifier.fit(rows)
    with pytest.raises(ValueError, match="score_rows takes rows by themselves, but FMeasure compares the rows"):
        model.score_rows(rows)
    found = model.transform(rows).toPandas()
    probabilities = np.stack([row.toArray() for row in found["probability"]])[:, 1]
    hits = (probabilities * found["label"]).sum()
    assert model.summary.history[-1].loss == pytest.approx(1 - 2 * hits / (probabilities.sum() + 30), abs=0.05)
    measured = model.setLoss("sigmoid_cross_entropy").evaluate(rows)
    assert measured.accuracy == pytest.approx((found["prediction"] == found["label"]).mean(), rel=1e-12)


def test_rows_are_scored_by_a_critic(spark: SparkSession) -> None:
    rows = spark.createDataFrame([([1.0], 1.0), ([-2.0], -1.0), ([3.0], -1.0)], "features array<double>, label double")
    model = DeepRegressionModel({"dense_0": {"kernel": np.full((1, 1), 2.0, "float32")}}).setParams(
        network=Network([Dense(1, bias=False)], input_shape=(1,)), loss=Wasserstein()
    )
    assert sorted(row.loss for row in model.score_rows(rows).collect()) == [-6.0, 2.0, 4.0]
    assert model.evaluate(rows).loss == 0.0


def test_every_pixel_has_a_class(spark: SparkSession) -> None:
    images = RANDOM.normal(size=(96, 4, 4, 1))
    labels = (images[..., 0] > 0).astype(int)
    rows = spark.createDataFrame(
        [(image.ravel().tolist(), label.ravel().tolist()) for image, label in zip(images, labels, strict=True)],
        "pixels array<double>, classes array<int>",
    )
    estimator = DeepEstimator(
        network=models.unet((4, 4, 1), 2, filters=4, depth=1),
        featuresCols={"image": "pixels"},
        labelCol="classes",
        loss=EachPosition(),
        optimizer="adam",
        stepSize=0.02,
        maxIter=25,
        batchSize=16,
    )
    model = estimator.fit(rows)
    assert model.summary.metric == "accuracy" and (model.summary.history[-1].metric or 0) > 0.9
    scored = model.transform(rows).toPandas()
    outputs = np.stack(scored["prediction"].map(np.asarray).to_numpy()).reshape(-1, 16, 2)
    truth = np.stack(scored["classes"].map(np.asarray).to_numpy())
    assert (outputs.argmax(axis=2) == truth).mean() > 0.9
    shifted = outputs - outputs.max(axis=2, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    expected = -np.take_along_axis(logarithms, truth[..., None], axis=2)[..., 0].mean(axis=1)
    losses = model.score_rows(rows).toPandas()["loss"]
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)
    measured = model.evaluate(rows)
    assert (measured.rows, measured.loss) == (96 * 16, pytest.approx(expected.mean(), rel=1e-4))
    assert measured.accuracy == pytest.approx((outputs.argmax(axis=2) == truth).mean(), rel=1e-12)


def test_two_towers_choose_among_the_rows_of_all_workers(spark: SparkSession) -> None:
    users = RANDOM.integers(0, 20, 400)
    films = (users * 2 + RANDOM.integers(0, 2, 400)) % 16
    pairs = zip(users.tolist(), films.tolist(), strict=True)
    rows = spark.createDataFrame(list(pairs), "user int, film int")
    network = models.two_tower({"user": 20}, {"film": 16}, size=6, units=(8,), pairs=True)
    estimator = DeepEstimator(
        network=network,
        featuresCols={"user": "user", "film": "film"},
        labelCol="film",
        loss=InBatchSoftmax(0.1),
        optimizer="adam",
        stepSize=0.02,
        maxIter=15,
        batchSize=50,
        numWorkers=2,
    )
    model = estimator.fit(rows)
    assert model.summary.history[-1].loss < 0.7 * model.summary.history[0].loss
    with pytest.raises(ValueError, match="evaluate takes rows by themselves, but InBatchSoftmax compares the rows"):
        model.evaluate(rows)
    with pytest.raises(ValueError, match="score_rows takes rows by themselves"):
        model.score_rows(rows)
