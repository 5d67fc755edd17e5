"""Fits that differ in Params of training alone share a Spark job, and come to what each comes to by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_cases import NETWORK, arrays, assert_close, same_bits

from sparkdl import DeepClassifier, Network
from sparkdl.layers import Dense, Relu
from sparkdl.optimizers import SGD, Adam

OTHER = Network([Dense(9), Relu(), Dense(2)], input_shape=(4,))
WIDE = Network([Dense(2)], input_shape=(5,))


@pytest.fixture
def jobs(spark: SparkSession) -> Callable[[Callable[[], Any]], int]:
    """`jobs(act)`: how many Spark jobs an act of this thread takes."""
    context = spark.sparkContext

    def count(act: Callable[[], Any]) -> int:
        group = f"jobs {count!r} {np.random.default_rng().integers(10**9)}"
        context.setJobGroup(group, "counted")
        try:
            act()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        return len(context.statusTracker().getJobIdsForGroup(group))

    return count


def test_maps_of_equal_rows_share_a_job_and_train_as_alone(rows: DataFrame, jobs: Callable[..., int]) -> None:
    estimator = DeepClassifier(network=NETWORK, batchSize=7, maxIter=2, seed=3)
    maps: list[dict[Any, Any]] = [
        {estimator.stepSize: 0.1},
        {estimator.stepSize: 0.5, estimator.seed: 8},
        {estimator.optimizer: Adam(weight_decay=0.01).to_json()},
        {estimator.network: OTHER, estimator.predictionCol: "other"},
        {estimator.network: OTHER, estimator.maxIter: 1},
    ]
    alone = [estimator.fit(rows, map) for map in maps]
    single = jobs(lambda: estimator.fit(rows, maps[0]))
    models: dict[int, Any] = {}
    assert jobs(lambda: models.update(estimator.fitMultiple(rows, maps))) == single
    assert sorted(models) == list(range(len(maps)))
    for index, model in enumerate(alone):
        assert same_bits(arrays(models[index]), arrays(model))
        assert models[index].extractParamMap() == model.extractParamMap()
        assert len(models[index].summary.history) == len(model.summary.history)
    assert estimator.getStepSize() == 0.01


def test_maps_that_read_other_rows_train_in_jobs_of_their_own(rows: DataFrame) -> None:
    reversed_labels = rows.selectExpr("*", "1 - label AS opposite").cache()
    estimator = DeepClassifier(network=NETWORK, batchSize=24, maxIter=1, optimizer=SGD(), stepSize=0.5)
    maps: list[dict[Any, Any]] = [{estimator.labelCol: "label"}, {estimator.labelCol: "opposite"}]
    models = dict(estimator.fitMultiple(reversed_labels, maps))
    for index, map in enumerate(maps):
        assert_close(arrays(models[index]), arrays(estimator.fit(reversed_labels, map)), 1e-6)
    assert abs(arrays(models[0])["dense_3/kernel"] - arrays(models[1])["dense_3/kernel"]).max() > 1e-3


def test_any_number_of_threads_may_draw_the_models(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=1)
    iterator = estimator.fitMultiple(rows, [{estimator.stepSize: size} for size in (0.1, 0.2, 0.3, 0.4)])
    drawn: list[tuple[int, float]] = []

    def draw() -> None:
        index, model = next(iterator)
        drawn.append((index, model.getStepSize()))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(drawn) == [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)]


def test_what_is_wrong_with_one_map_is_said_for_all_that_share_its_job(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=1)
    iterator = estimator.fitMultiple(rows, [{estimator.stepSize: 0.1}, {estimator.stepSize: -1.0}])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"stepSize must be a number in \(0, inf\), received -1.0"):
            next(iterator)


def test_one_map_of_which_no_epoch_stayed_finite_raises_alone(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=2, batchSize=12, loss="squared_hinge")
    iterator = estimator.fitMultiple(rows, [{estimator.stepSize: size} for size in (1e38, 0.1)])
    with pytest.raises(ValueError, match=r"^No epoch of this fit stayed finite with step size 1e\+38: the loss was "):
        next(iterator)
    assert len(next(iterator)[1].summary.history) == 2


def test_a_fit_that_was_interrupted_may_be_asked_for_again(rows: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    estimator = DeepClassifier(network=NETWORK, maxIter=0)
    iterator = estimator.fitMultiple(rows, [{estimator.stepSize: 0.1}, {estimator.stepSize: 0.2}])
    with monkeypatch.context() as patch:
        patch.setattr(DeepClassifier, "_fit_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    assert [index for index, _ in iterator] == [1]


def test_a_network_for_other_rows_is_refused_alone(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=0)
    iterator = estimator.fitMultiple(rows, [{estimator.network: WIDE}, {}])
    with pytest.raises(ValueError, match="5"):
        next(iterator)
    assert next(iterator)[0] == 1
