"""A Python that lacks what workers need is named before the first job or, where nobody can look, in its error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_cases import NETWORK, a_model

from sparkdl import DeepClassifier, register_function
from sparkdl.spark.driver import interpreter
from sparkdl.spark.driver.interpreter import check_interpreter, complaint_in


@pytest.fixture
def bare(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python without installed packages, which Spark starts for its workers."""
    command = tmp_path / "python3"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    command.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(command))
    return command


ACTS: list[Callable[[DataFrame], Any]] = [
    lambda rows: DeepClassifier(network=NETWORK).fit(rows),
    lambda rows: a_model().evaluate(rows),
    lambda rows: a_model().transform(rows),
    lambda rows: a_model().score_rows(rows),
    lambda rows: register_function(rows.sparkSession, "refused", a_model()),
]


@pytest.mark.parametrize("act", ACTS)
def test_it_is_named_before_the_first_job(
    spark: SparkSession, rows: DataFrame, bare: Path, act: Callable[[DataFrame], Any]
) -> None:
    spark.sparkContext.setJobGroup("bare", "")
    with pytest.raises(ValueError, match=r"which lacks .*pyarrow, jax; set PYSPARK_PYTHON, or") as refused:
        act(rows)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("bare")
    assert f"Spark would start {bare} for its workers" in str(refused.value)
    assert str(refused.value).endswith(f"{sys.executable}.")


@pytest.mark.parametrize("act", ACTS[:2])
def test_where_the_driver_cannot_look_the_error_of_its_workers_becomes_a_sentence(
    rows: DataFrame, bare: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[DataFrame], Any]
) -> None:
    monkeypatch.setattr(interpreter, "over_connect", lambda session: True)
    with pytest.raises(RuntimeError, match=r"^The Python that Spark starts for its workers lacks \w+; install [^\n]+$"):
        act(rows)


def test_it_is_asked_once_and_the_driver_s_own_never(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, command = tmp_path / "log", tmp_path / "python3"
    command.write_text(f'#!/bin/sh\necho asked >> "{log}"\nexec "{sys.executable}" "$@"\n')
    command.chmod(0o755)
    check_interpreter(spark)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(command))
    for _ in range(2):
        check_interpreter(spark)
    assert log.read_text().splitlines() == ["asked"]
    for silent in ("exit 3", "exec sleep 60"):  # no verdict, of which Spark's own error comes
        command.with_name("silent").write_text(f"#!/bin/sh\n{silent}\n")
        command.with_name("silent").chmod(0o755)
        monkeypatch.setattr(interpreter, "ANSWER_SECONDS", 0.2)
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(command.with_name("silent")))
        check_interpreter(spark)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("ModuleNotFoundError: No module named 'pyarrow'", "workers lacks pyarrow; install sparkdl-jax for it, or set"),
        ("/usr/bin/python3: No module named sparkdl.spark", "lacks sparkdl; install"),
        ("No module named 'mine'\n ... No module named 'jax.numpy'", "lacks jax; install"),
        (
            'java.io.IOException: Cannot run program "python3": error=2, No such file or directory',
            "finds no python3 to",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "is 3.9 where the driver's is 3.11; set PYSPARK_PYTHON",
        ),
    ],
)
def test_the_workers_errors_that_come_of_their_python_are_known(text: str, sentence: str) -> None:
    found = complaint_in(f"Job aborted\n{text}\n at org.apache.spark")
    assert found and sentence in found
    assert "\n" not in found


def test_other_errors_are_left_alone() -> None:
    assert complaint_in("ModuleNotFoundError: No module named 'mine'") is None
    assert complaint_in("ValueError: no rows") is None
