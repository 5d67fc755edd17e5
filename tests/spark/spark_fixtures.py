"""One Spark session for the whole suite, and a look at what fits leave behind on the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FROZEN, NETWORK, UNOPTIMIZED, Remains, table

from sparkdl import DeepClassifier
from sparkdl.launch.fork_server import WARDEN_NAME
from sparkdl.spark import local_session
from sparkdl.spark.driver.old_spark import OLD, from_arrow, to_arrow
from sparkdl.training.worker import PROCESS_NAME

if OLD:  # the tests are written for Spark 4
    create = SparkSession.createDataFrame

    def create_data_frame(session: SparkSession, data: Any, *arguments: Any, **named: Any) -> DataFrame:
        """Take tables of Arrow, too."""
        if isinstance(data, pa.Table):
            return from_arrow(session, data)
        return create(session, data, *arguments, **named)

    SparkSession.createDataFrame = create_data_frame  # type: ignore[method-assign]
    DataFrame.toArrow = to_arrow  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Spark uses as its local disk."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def remains(scratch: Path) -> Remains:
    """`remains(seconds)`: processes and folders of fits that are still there after at most so many seconds."""

    def remaining(seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        while left := [*_workers(scratch), *glob(f"{scratch}/**/sparkdl-*", recursive=True)]:
            if time.monotonic() > deadline:
                return left
            time.sleep(0.1)
        return []

    return remaining


@pytest.fixture(scope="session")
def spark(scratch: Path, remains: Remains) -> Iterator[SparkSession]:
    """A session with three slots, which no fit has left a process or a folder in when the suite ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(scratch))
        patch.setenv(*UNOPTIMIZED)
        settings = {"spark.sql.shuffle.partitions": 3, "spark.driver.memory": "1g"}
        session = local_session("local[3]", "sparkdl-tests", **settings)
    yield session
    left = remains(10)
    session.stop()
    assert left == []


@pytest.fixture
def workers_as_for_users(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `as_for_users`, of the workers of the session: Python workers of another environment are others."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    users = " ".join(flag for flag in flags if "fusion_emitters" not in flag)
    monkeypatch.setitem(spark.sparkContext.environment, "XLA_FLAGS", users)


@pytest.fixture(scope="session")
def rows(spark: SparkSession) -> DataFrame:
    """`spark_cases.table()`: 24 rows of features (array<double>, whole numbers in 0..255), label (0 or 1) and id."""
    return spark.createDataFrame(table()).cache()


@pytest.fixture(scope="session")
def cross_validated(rows: DataFrame) -> CrossValidatorModel:
    """Two networks compared, of which the first cannot learn."""
    estimator = DeepClassifier(network=NETWORK, optimizer="adam", maxIter=60, batchSize=24)
    grid = ParamGridBuilder().baseOn({estimator.stepSize: 0.05}).addGrid(estimator.network, [FROZEN, NETWORK]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    return CrossValidator(estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1).fit(
        rows
    )


def _workers(scratch: Path) -> list[str]:
    """Processes of this session's fits, which know Spark's local disk from their environment; Linux tells."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, environment = (process / "comm").read_text().strip(), (process / "environ").read_bytes()
        except OSError:  # gone, or somebody else's
            continue
        if name in (PROCESS_NAME, WARDEN_NAME) and str(scratch).encode() in environment:
            found.append(f"{name} {process.name}")
    return found
