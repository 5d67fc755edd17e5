"""Weights that Spark would not let a job bring to the driver are refused before it, and few copies lie there."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkdl import DeepClassifier, Network
from sparkdl.layers import Dense
from sparkdl.spark.driver import cluster, remote, result_bytes
from sparkdl.spark.driver.result_bytes import excess_in, most_bytes, returned_bytes
from sparkdl.spark.driver.tuning import _groups
from sparkdl.weights import weights_to_bytes

LARGE = Network([Dense(50_000), Dense(2)], input_shape=(4,))  # 350,002 weights: 1.3 MiB
MIB = 1 << 20


def limited(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Sessions whose spark.driver.maxResultSize is this."""

    def told(session: SparkSession, key: str, default: str) -> str:
        return limit if key == result_bytes.SETTING else remote.setting(session, key, default)

    monkeypatch.setattr(result_bytes, "setting", told)


@pytest.mark.parametrize(
    "text, size",
    [("1g", 2**30), ("1G", 2**30), ("512mb", 2**29), ("3k", 3072), ("1048576", 2**20), ("7b", 7), ("0", np.inf)],
)
def test_spark_s_ways_to_write_a_size_are_read(monkeypatch: pytest.MonkeyPatch, text: str, size: float) -> None:
    limited(monkeypatch, text)
    assert most_bytes(None) == size  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype, itemsize", [("float32", 4), ("bfloat16", 4), ("float64", 8)])
def test_what_comes_back_is_known_from_the_shapes(dtype: str, itemsize: int) -> None:
    arrays = (
        {"kernel": np.zeros((4, 50_000)), "bias": np.zeros(50_000)},
        {"kernel": np.zeros((50_000, 2)), "bias": [0.0] * 2},
    )
    weights = {
        f"0/dense_{index}": {n: np.asarray(a, f"f{itemsize}") for n, a in each.items()}
        for index, each in enumerate(arrays)
    }
    sent = len(weights_to_bytes(weights))
    assert sent <= returned_bytes(LARGE, dtype) <= sent + 2000


def test_a_model_above_spark_s_limit_is_refused_before_any_job(
    spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, "1m")
    spark.sparkContext.setJobGroup("too large", "")
    with pytest.raises(ValueError) as refused:
        DeepClassifier(network=LARGE).fit(rows)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("too large")
    assert str(refused.value).startswith(
        "The network's weights take 1.35 MiB, but spark.driver.maxResultSize is 1m, so"
    )


def test_a_grid_is_cut_into_jobs_of_half_the_limit(spark: SparkSession) -> None:
    estimator = DeepClassifier(network=LARGE)
    stages = [estimator.copy({estimator.seed: seed}) for seed in range(5)]
    assert _groups(stages, 3 * MIB) == [[0, 1], [2, 3], [4]]
    assert _groups(stages, MIB) == [[0], [1], [2], [3], [4]]


def test_results_that_spark_dropped_all_the_same_are_said_in_a_sentence() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 1 "
        "tasks (1360.2 KiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)\n\tat"
    )
    assert (found := excess_in(text)) and "its results, 1360.2 KiB with histories" in found
    assert excess_in("another") is None


class Results:
    """What a job of one worker gives back, in chunks that come in any order."""

    def __init__(self, weights: Any) -> None:
        data = weights_to_bytes({"0": {"dense_0": weights}})
        run = {"ending": {}, "history": [], "events": [], "compile_seconds": 1.0}
        done = dict.fromkeys(("began", "read", "joined", "ended"), 0.0) | {"host": "h", "device": "cpu", "rows": 3}
        done |= {"runs": [run | {"training_seconds": 1.0}], "skipped": {}, "cut": {}, "classes": None, "rounded": None}
        chunks = list(enumerate(data[at : at + MIB] for at in range(0, len(data), MIB)))[::-1]
        self._columns = {
            "rank": [0] * (len(chunks) + 1),
            "kind": [*["weights"] * len(chunks), "done"],
            "number": [*(number for number, _ in chunks), 0],
        }
        self._payloads = [*(chunk for _, chunk in chunks), json.dumps(done).encode()]

    def toArrow(self) -> pa.Table:
        return pa.table(self._columns | {"payload": pa.array(self._payloads, pa.binary())})

    def _collect_as_arrow(self) -> list[pa.RecordBatch]:  # by which Spark 3.5 does it
        return self.toArrow().to_batches()


def test_one_copy_of_the_weights_lies_on_the_driver_besides_spark_s() -> None:
    kernel = np.random.default_rng(0).normal(size=(8, MIB // 4)).astype(np.float32)  # 8 MiB
    results, before = Results({"kernel": kernel}), pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        records, data = cluster._collected(results)  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 1.2 * kernel.nbytes  # besides Arrow's
        gc.collect()
        assert pa.total_allocated_bytes() - before < MIB
        (fitted,) = cluster._assembled(records, data, 0.0, "label")
        assert tracemalloc.get_traced_memory()[1] < 1.2 * kernel.nbytes
        del data
        assert tracemalloc.get_traced_memory()[0] < 1.2 * kernel.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(fitted.weights["dense_0"]["kernel"], kernel)


def test_runs_that_start_alike_send_their_weights_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(cluster, "shared", lambda session, data: sent.append(data) or len(sent))
    one, other = {"dense_0": {"bias": np.zeros(2)}}, {"dense_0": {"bias": np.ones(2)}}
    given = cluster._sent(spark, [one, None, {"dense_0": dict(one["dense_0"])}, other])
    assert len(sent) == 2
    assert [given.get(cluster._key(weights)) for weights in (one, None, other)] == [1, None, 2]
