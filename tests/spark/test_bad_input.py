"""What cannot be worked with says what to do, in a sentence and in time: before training where that can be known."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_input import CALLS, EVALUATED, FITS, FITTED, ONE, PICTURE, Act, Change, having, once
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from spark_cases import LAYERS, NETWORK, Remains, a_model, arrays

from sparkdl import DeepClassifier, DeepEstimator, Network
from sparkdl.layers import Dense
from sparkdl.spark.driver import cluster
from sparkdl.spark.driver.attempts import errors_before
from sparkdl.spark.driver.remote import registered_slots
from sparkdl.spark.driver.shortage import exhaustion_in, shortage_in
from sparkdl.spark.tasks.task import failure_in

# Bounds for machines that others keep busy; on quiet ones it is a tenth.
DRIVER_SECONDS = 10.0
ROWS_SECONDS = 60.0
WHOLE_SECONDS = 240.0


@contextmanager
def refused(kind: type[Exception], sentence: str, seconds: float = DRIVER_SECONDS) -> Iterator[None]:
    """That what runs in this context raises `kind`, with one sentence that holds this, within so many seconds."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        yield
    assert time.monotonic() - began < seconds
    text = str(caught.value)
    assert sentence in text
    assert "\n" not in text
    assert "Traceback" not in text


# What the driver finds.


@contextmanager
def no_jobs(spark: SparkSession, group: str) -> Iterator[None]:
    """That Spark runs no job in this context."""
    spark.sparkContext.setJobGroup(group, "")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []


@pytest.mark.parametrize("params, change, sentence", FITS)
def test_what_can_be_known_before_is_refused_without_a_spark_job(
    spark: SparkSession, rows: DataFrame, params: dict[str, Any], change: Change, sentence: str
) -> None:
    with no_jobs(spark, f"fit {sentence}"), refused(ValueError, sentence):
        DeepClassifier(**({"network": NETWORK} | params)).fit(change(rows))


@pytest.mark.parametrize("kind, act, sentence", CALLS)
def test_so_is_what_setters_models_and_other_estimators_are_given(
    spark: SparkSession, rows: DataFrame, kind: type[Exception], act: Act, sentence: str
) -> None:
    with no_jobs(spark, f"call {sentence}"), refused(kind, sentence):
        act(rows)


# What the cluster cannot do.


def test_a_cluster_without_enough_slots_is_given_time_to_have_them_and_then_refused(
    spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registered_slots(spark) == 3
    monkeypatch.setattr(cluster, "local_slots", lambda master, cpus: None)  # as of a real cluster
    monkeypatch.setattr(cluster, "runs_in_driver", lambda master: False)
    monkeypatch.setattr(cluster, "SLOT_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "WAKE_SECONDS", 0.05)
    with refused(
        ValueError,
        "numWorkers is 4 but local[3] can run 3 tasks at once after 0.2 seconds of waiting for executors to register; ",
    ):
        DeepClassifier(network=NETWORK, numWorkers=4).fit(rows)
    found = iter([0, 1, 4])
    monkeypatch.setattr(cluster, "registered_slots", lambda session: next(found))
    cluster.check_cluster(spark, 4)
    monkeypatch.setattr(cluster, "registered_slots", lambda session: None)  # as of Spark Connect
    cluster.check_cluster(spark, 4)


def test_slots_are_those_that_java_counts_where_python_counts_more(
    spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, where `os.cpu_count` is of the machine."""
    monkeypatch.setattr(cluster, "local_slots", lambda master, cpus: 64)
    with no_jobs(spark, "slots"), refused(ValueError, "numWorkers is 4 but local[3] can run 3 tasks at once; lower"):
        DeepClassifier(network=NETWORK, numWorkers=4).fit(rows)


def test_executors_that_come_and_go_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"spark.dynamicAllocation.enabled": "true"}
    monkeypatch.setattr(cluster, "setting", lambda session, key, default: told.get(key, default))
    for master in ("spark://host:7077", "yarn", "local-cluster[2,1,1024]"):
        told["spark.master"] = master
        with refused(ValueError, "spark.dynamicAllocation.enabled is true, but workers that train together need exec"):
            cluster.check_cluster(spark, 1)
    for master in ("local", "local[2]", "local[*, 3]"):  # whose one executor stays
        told["spark.master"] = master
        cluster.check_cluster(spark, 1)


# What only rows can tell.

Error = tuple[BaseException | None, float]  # with the seconds that it took


def fit(rows: DataFrame, params: dict[str, Any], change: Change) -> None:
    DeepClassifier(**{"network": NETWORK, **params}).fit(change(rows))


def evaluate(rows: DataFrame, params: dict[str, Any], change: Change) -> None:
    a_model(**params).evaluate(change(rows))


def error_of(act: Callable[[], Any]) -> Error:
    began = time.monotonic()
    try:
        act()
    except BaseException as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


@pytest.fixture(scope="module")
def errors(spark: SparkSession, rows: DataFrame) -> dict[str, Error]:
    """What comes of `FITTED` and `EVALUATED`, three at a time; what takes too long is ended, and fails then."""
    acts = {name: partial(fit, rows, *kind[:2]) for name, kind in FITTED.items()}
    acts |= {name: partial(evaluate, rows, *kind[:2]) for name, kind in EVALUATED.items()}
    fit(rows, {}, lambda rows: rows)  # Spark's Python starts, which no act is to be charged with
    late = threading.Timer(WHOLE_SECONDS, spark.sparkContext.cancelAllJobs)
    late.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            return dict(zip(acts, pool.map(error_of, acts.values()), strict=True))
    finally:
        late.cancel()


@pytest.mark.parametrize("name", [*FITTED, *EVALUATED])
def test_what_only_the_rows_can_tell_is_said_in_the_same_way(errors: dict[str, Error], name: str) -> None:
    error, seconds = errors[name]
    assert error and seconds < ROWS_SECONDS
    with refused(ValueError, (FITTED | EVALUATED)[name][2]):
        raise error


def test_an_image_that_cannot_be_read_is_named(rows: DataFrame) -> None:
    pytest.importorskip("PIL")
    with refused(ValueError, "an undecodable image (its header is damaged), as", ROWS_SECONDS):
        a_model(network=PICTURE).evaluate(having(features="X'89504E470D0A1A0A00'")(rows))


@pytest.mark.parametrize(
    "act, sentence",
    [
        (
            lambda rows: a_model().transform(once("features", "null")(rows)),
            "featuresCol 'features' holds null, as in the row (features: None); mend or drop such rows, or set "
            "handleInvalid to skip or keep.",
        ),
        (
            lambda rows: a_model().score_rows(having(label="7")(rows)),
            "Labels must be whole numbers from 0 to 1, since the",
        ),
    ],
)
def test_the_job_of_a_transform_fails_with_a_sentence_of_its_own_line(
    rows: DataFrame, act: Callable[[DataFrame], DataFrame], sentence: str
) -> None:
    scored = act(rows)
    with pytest.raises(PythonException) as failed:
        scored.collect()
    assert any(line.startswith(f"ValueError: {sentence}") for line in str(failed.value).splitlines())


# What works, though it may look as if it did not.


def test_a_loss_that_leaves_the_numbers_ends_the_fit_with_the_last_good_weights(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, loss="squared_hinge", stepSize=1e38, maxIter=5)
    with pytest.warns(
        UserWarning, match="Training stopped: the loss was (inf|nan) at step 1 of epoch 2; .* after epoch 1"
    ):
        fitted = estimator.fit(rows)
    assert fitted.summary.stopReason.startswith("the loss was ")
    assert all(np.isfinite(array).all() for array in arrays(fitted).values())


def test_few_rows_of_one_class_in_few_partitions_train_many_workers_with_a_warning(rows: DataFrame) -> None:
    few = rows.where("label = 1").limit(2).repartition(5).coalesce(2)
    network = Network([*LAYERS[:-1], Dense(3)], input_shape=(4,))  # more outputs than classes
    estimator = DeepClassifier(network=network, numWorkers=3, batchSize=10**6, maxIter=1)
    with pytest.warns(UserWarning, match="labelCol 'label' holds class 1 in all rows to train on, so that"):
        fitted = estimator.fit(few)
    assert sum(worker["rows"] for worker in fitted.summary.workers) == 2
    assert fitted.summary.history[0].steps == 1


def test_labels_that_lose_digits_are_named(rows: DataFrame) -> None:
    estimator = DeepEstimator(network=ONE, loss="absolute_error", maxIter=1, numWorkers=2)
    expected = (
        "labelCol 'label' holds 1700000001, which float32 keeps as 1700000000; subtract a start from it and scale it, "
        "or set computeDtype to float64."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(expected)}$"):
        estimator.fit(having(label="1700000001L")(rows))


def test_names_may_hold_what_sql_reads_otherwise(rows: DataFrame) -> None:
    strange = rows.selectExpr("slice(features, 1, 2) `a.b`", "slice(features, 3, 2) `c``d`", "label `l.l`", "1 `w w`")
    names = {
        "predictionCol": "p.p",
        "probabilityCol": "q`q",
        "rawPredictionCol": "r r",
        "activationCols": {"tanh_2": "h.`"},
    }
    scoring = a_model(featuresCols=["a.b", "c`d"], labelCol="l.l", weightCol="w w", **names)
    scored = scoring.transform(strange)
    assert scored.columns[4:] == ["r r", "q`q", "p.p", "h.`"]
    expected = [row.prediction for row in a_model().transform(rows).select("prediction").collect()]
    assert [row["p.p"] for row in scored.collect()] == expected
    assert scoring.evaluate(strange).to_json() == a_model().evaluate(rows).to_json()


def test_nothing_is_left_of_what_failed(remains: Remains, errors: dict[str, Any]) -> None:
    assert remains(10) == []


def test_spark_s_own_refusal_of_a_barrier_stage_becomes_a_sentence() -> None:
    text = "Barrier execution mode does not allow run a barrier stage that requires more slots than the total number"
    assert str(shortage_in(text, 3)).startswith("numWorkers is 3 but Spark found fewer slots")
    assert shortage_in("another", 3) is None


def test_a_stage_that_spark_gave_up_is_asked_for_what_failed_before(spark: SparkSession, tmp_path: Path) -> None:
    """Its error has the last failure alone, which may be a consequence of those before."""

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        number = len(list(tmp_path.iterdir()))
        (tmp_path / str(number)).touch()
        told = "the last" if number == 3 else f"[sparkdl] failure {number} [end]"
        raise OSError(told)  # the line is in the error, too
        yield from batches

    rows = spark.range(1).repartition(1).mapInArrow(failing, "id long", barrier=True)
    with pytest.raises(Exception, match="maximum allowable number of times: 4") as raised:
        rows.repartition(1).collect()
    text = str(raised.value)
    assert "the last" in text
    assert failure_in(text) is None
    found = errors_before(spark, text)
    assert [failure_in(error) for error in found] == [None, "failure 2", "failure 1", "failure 0"]
    assert all(re.match(r"\(\S+ executor driver\): ", error) for error in found)
    assert errors_before(spark, "another") == []
    assert errors_before(spark, "Stage 987654 (f) has failed the maximum allowable number of times: 4") == []


def test_spark_s_giving_up_a_stage_becomes_a_sentence() -> None:
    text = """Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: ShuffleMapStage 91 (fit at jobs.py:58) \
has failed the maximum allowable number of times: 4. Most recent failure reason: Stage failed because barrier task \
ShuffleMapTask(91, 1) finished unsuccessfully.
ExecutorLostFailure (executor 12 exited unrelated to the running tasks) Reason: worker lost: Not receiving heartbeat
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4568)"""
    sentence = str(exhaustion_in(text))
    assert sentence.startswith("Spark ended the fit after 4 attempts, of which the last failed by: Stage failed")
    assert "Reason: worker lost: Not receiving heartbeat. See whether" in sentence
    assert exhaustion_in("another") is None


def test_there_are_sixty_kinds() -> None:
    assert len(FITS) + len(CALLS) + len(FITTED) + len(EVALUATED) >= 60
    assert FITTED.keys().isdisjoint(EVALUATED)
