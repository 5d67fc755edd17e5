"""Losses whose labels are not one for each output, through Spark: quantiles of a number, and classes of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scipy.stats import norm

from sparkdl import DeepEstimator, DeepRegressor, Graph, Network, models
from sparkdl.layers import Concatenate, Dense, GaussianSample
from sparkdl.losses import EachPosition, EvidenceLowerBound, InBatchSoftmax, MixtureDensity, Quantile

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
