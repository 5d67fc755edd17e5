"""Images beside facts, two outputs, a third of one's labels missing: workers learn what one machine does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from spark_cases import arrays

from sparkdl import DeepEstimator, Graph, Network, Same, datasets, training
from sparkdl.layers import (
    Add,
    BatchNorm,
    Concatenate,
    Conv,
    Dense,
    Embedding,
    GlobalAvgPool,
    MaxPool,
    Relu,
    Rescale,
    Residual,
    Tanh,
)
from sparkdl.optimizers import Momentum

COUNT = 97  # a prime, so that no shares are even
SHOPS = 6


def graph() -> Graph:
    """A residual block with normalization over the photo; one layer, and its weights, over two sets of facts."""
    body = [Conv(8, (3, 3), padding="same", bias=False), BatchNorm(), Relu(), Conv(8, (3, 3), padding="same")]
    eye = [Rescale(1 / 255), MaxPool(4), Conv(8, (3, 3), padding="same"), Residual([*body, BatchNorm()]), Relu()]
    return Graph(
        inputs={"photo": (32, 32, 3), "facts": (3,), "before": (3,), "shop": ()},
        nodes={
            "seen": (Network([*eye, GlobalAvgPool()]), "photo"),
            "known": (Network([Dense(5), Tanh()]), "facts"),
            "once_known": (Same("known"), "before"),
            "facts_of_both": (Add(), "known", "once_known"),
            "place": (Embedding(SHOPS, 3), "shop"),
            "both": (Concatenate(), "seen", "facts_of_both", "place"),
            "kind": (Dense(10), "both"),
            "price": (Dense(1), "both"),
        },
        outputs=("kind", "price"),
    )


FIT = {
    "loss": {"kind": "softmax_cross_entropy", "price": "huber"},
    "optimizer": Momentum(weight_decay=1e-3),
    "seed": 3,
}


class Rows(NamedTuple):
    """The same rows as arrays and as a table, where a label that is missing is NaN or null."""

    features: dict[str, Any]
    labels: dict[str, Any]
    table: pa.Table


@pytest.fixture(scope="module")
def rows() -> Rows:
    directory = datasets.data_directory()
    if directory is None or not (directory / "cifar10").is_dir():
        pytest.skip("SPARKDL_DATA names no folder with cifar10")
    images = datasets.cifar10(directory).slice(0, COUNT)
    kinds = np.array([datasets.CIFAR10_CLASSES.index(name) for name in images["label"].to_pylist()])
    photos = np.frombuffer(b"".join(images["image"].to_pylist()), np.uint8).reshape(COUNT, 32, 32, 3)
    random = np.random.default_rng(5)
    facts, before, shop = (
        random.normal(size=(COUNT, 3)),
        random.normal(size=(COUNT, 3)),
        random.integers(SHOPS, size=COUNT),
    )
    price = photos.mean(axis=(1, 2, 3)) / 64 + facts[:, 0] - before[:, 1] + 0.5 * shop
    price[random.permutation(COUNT)[: COUNT // 3]] = np.nan
    table = pa.table(
        {
            "image": images["image"],
            "now": facts.tolist(),
            "then": before.tolist(),
            "shop": shop,
            "class": kinds,
            "price": pa.array(price, from_pandas=True),
        }
    )
    features = {"photo": photos, "facts": facts, "before": before, "shop": shop.astype("int32")}
    return Rows(features, {"kind": kinds, "price": price}, table)


@pytest.fixture(scope="module")
def alone(rows: Rows) -> training.Result:
    """One machine, by `training.fit`."""
    given = {**FIT, "step_size": 0.05, "epochs": 4, "batch_size": COUNT, "dtype": "float64"}
    return training.fit(graph(), (rows.features, rows.labels), **given)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_learn_what_one_machine_does(
    spark: SparkSession, rows: Rows, alone: training.Result, workers: int
) -> None:
    estimator = DeepEstimator(
        network=graph(),
        featuresCols={"photo": "image", "facts": "now", "before": "then", "shop": "shop"},
        labelCols={"kind": "class", "price": "price"},
        stepSize=0.05,
        maxIter=4,
        batchSize=COUNT,
        computeDtype="float64",
        numWorkers=workers,
        **FIT,
    )
    model = estimator.fit(spark.createDataFrame(rows.table))
    shares = [worker["rows"] for worker in model.summary.workers]
    assert len(shares) == workers and sum(shares) == COUNT and len(set(shares)) > 1
    found, expected = arrays(model), arrays(alone)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-12, err_msg=name)
    for name in ("kind", "price"):
        told, known = model.summary.history[-1].outputs[name], alone.history[-1].outputs[name]
        assert told["loss"] == pytest.approx(known["loss"], rel=1e-12), name
    assert alone.history[-1].loss < alone.history[0].loss
