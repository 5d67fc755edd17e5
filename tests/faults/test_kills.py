"""Processes of a fit die or stand still: it goes on to the same weights, or says who was lost, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_cases import NETWORK, Remains, arrays, same_bits
from strikes import Strike, strike, struck

from sparkdl import DeepClassifier
from sparkdl.spark.driver import progress
from sparkdl.training.worker import PROCESS_NAME

Weights = dict[str, np.ndarray]
ENDLESS = 10**6

pytestmark = pytest.mark.filterwarnings("ignore:.*were left out, as writing was slower than training")


def classifier(checkpoints: Path | None = None) -> DeepClassifier:
    estimator = DeepClassifier(network=NETWORK, numWorkers=2, batchSize=2, maxIter=100, optimizer="adam")
    return estimator.setCheckpointDir(str(checkpoints)).setCheckpointInterval(5) if checkpoints else estimator


@pytest.fixture(scope="module")
def undisturbed(rows: DataFrame) -> Weights:
    return arrays(classifier().fit(rows))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "strikes",
    [
        pytest.param(
            [Strike("joined", "child", rank=1), Strike("checkpoint", "child")],
            id="child: compile, checkpoint",
        ),
        pytest.param(
            [Strike("meet", "task"), Strike("progress", "task", rank=0)],
            id="Python worker: rendezvous, step",
        ),
    ],
)
def test_a_fit_outlives_two_deaths_and_comes_to_the_same_weights(
    strikes: list[Strike],
    rows: DataFrame,
    undisturbed: Weights,
    remains: Remains,
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strike(monkeypatch, *strikes, notes=notes, checkpoints=tmp_path / "kept")
    model = classifier(tmp_path / "kept").fit(rows)
    assert struck(notes) == 2
    if strikes[-1].moment == "checkpoint":  # by the stage run again; of a step nobody knows what was saved before it
        assert model.summary.resumedFrom is not None
    assert len(model.summary.history) == 100
    assert same_bits(arrays(model), undisturbed)
    assert remains(10) == []


def test_a_death_while_weights_are_handed_over_changes_nothing(
    rows: DataFrame,
    undisturbed: Weights,
    remains: Remains,
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other worker is done by then, and Spark may keep its result."""
    strike(monkeypatch, Strike("done", "task"), notes=notes, checkpoints=tmp_path / "kept")
    model = classifier(tmp_path / "kept").fit(rows)
    assert struck(notes) == 1
    assert model.summary.resumedFrom == [100, 0]  # nothing was left to train
    assert same_bits(arrays(model), undisturbed)
    assert remains(10) == []


def test_a_stopped_worker_is_named_and_replaced_within_its_deadline(
    rows: DataFrame,
    undisturbed: Weights,
    remains: Remains,
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = Strike("joined", "child", rank=1, signal=signal.SIGSTOP)
    strike(monkeypatch, stopped, notes=notes, checkpoints=tmp_path / "kept", silence=10.0)
    model = classifier(tmp_path / "kept").fit(rows)
    sentence = (notes / "failure-0-1").read_text()
    assert re.search(r"Worker 1 on \S+: its process \d+ gave no sign of life for 10 s and was ended", sentence)
    assert same_bits(arrays(model), undisturbed)
    assert remains(10) == []


def test_workers_that_die_every_time_end_the_fit_by_name(rows: DataFrame, remains: Remains) -> None:
    ended = threading.Event()

    def kill_all() -> None:
        while not ended.wait(0.2):
            for left in remains(0):
                if left.startswith(PROCESS_NAME):
                    os.kill(int(left.split()[-1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(RuntimeError, match=r"^Worker [01] on .*was killed by signal 9; the machine may be out of"):
            classifier().setMaxIter(ENDLESS).fit(rows)
    finally:
        ended.set()
        killer.join()
    assert remains(10) == []


class Bar:
    """Stands in for the progress bar; calls `strike` in a thread when the first progress arrives."""

    total = n = start_t = last_print_t = 0

    def __init__(self, strike: Callable[[], None]) -> None:
        self._strike: Callable[[], None] | None = strike
        self.struck = 0.0

    def update(self, rows: int) -> None:
        if self._strike:
            self.struck = time.monotonic()
            threading.Thread(target=self._strike, daemon=True).start()
            self._strike = None

    def set_description(self, text: str, refresh: bool) -> None: ...

    def set_postfix(self, values: dict[str, str], refresh: bool) -> None: ...

    def close(self) -> None: ...


def test_a_cancelled_fit_raises_and_leaves_nothing(
    spark: SparkSession, rows: DataFrame, remains: Remains, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = Bar(spark.sparkContext.cancelAllJobs)
    monkeypatch.setattr(progress, "_bar", lambda: bar)
    with pytest.raises(Exception, match=r"(?i)cancel"):
        classifier().setMaxIter(ENDLESS).setProgress("on").fit(rows)
    assert time.monotonic() - bar.struck < 20
    assert remains(10) == []


def test_an_exception_in_one_worker_reaches_the_driver(rows: DataFrame, scratch: Path, remains: Remains) -> None:
    """A disk loses what one of two workers has written, before it trains."""
    lost = threading.Event()
    moment = [0.0]

    def lose_one() -> None:
        while not lost.wait(0.005):
            for shard in glob(f"{scratch}/*/sparkdl-*/training.arrow"):
                os.unlink(shard)
                moment[0] = time.monotonic()
                lost.set()
                break

    thread = threading.Thread(target=lose_one)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match=r"(?s)Worker [01] on .*: FileNotFoundError: .*training\.arrow"):
            classifier().fit(rows)
    finally:
        lost.set()
        thread.join()
    assert time.monotonic() - moment[0] < 30  # not the minutes in which peers give each other up
    assert remains(10) == []
