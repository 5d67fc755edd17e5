"""What Spark's Python workers have loaded, and what that costs their tasks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkdl.spark import daemon
from sparkdl.spark.tasks.connection import Connection

LIGHT = "import sys, {module}; print([name for name in {heavy} if name in sys.modules])"


def test_they_are_forked_by_a_daemon_that_has_loaded_what_tasks_need(spark: SparkSession) -> None:
    def look(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        import gc
        import os

        list(batches)
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
        yield pa.RecordBatch.from_pydict({"told": [command, str("jax" in sys.modules), str(gc.get_freeze_count() > 0)]})

    told = [row.told for row in spark.range(1).coalesce(1).mapInArrow(look, "told string").collect()]
    assert "sparkdl.spark.daemon" in told[0]
    assert told[1:] == ["True", "True"]


def test_rows_that_come_from_lists_and_rdds_take_no_daemon_of_their_own(spark: SparkSession) -> None:
    """Spark has a daemon for each environment, which it makes otherwise for RDDs than for columns."""

    def daemons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        list(batches)
        yield pa.RecordBatch.from_pydict({"daemon": [os.getppid()]})

    def daemon_of(_: Any) -> int:
        import os

        return os.getppid()

    of_columns = {row.daemon for row in spark.range(3).mapInArrow(daemons, "daemon long").collect()}
    assert set(spark.sparkContext.range(3).map(daemon_of).collect()) == of_columns
    assert len(of_columns) == 1


@pytest.mark.parametrize("wanted", [None, True, False, "false"])
def test_tracebacks_are_simplified_unless_the_session_is_told_otherwise(wanted: object) -> None:
    """Of functions on columns and of RDDs alike, by one variable, so that both have one daemon."""
    told = {} if wanted is None else {"spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": wanted}
    code = "import os, sys; from sparkdl.spark import local_session\n"
    code += f"session = local_session('local[1]', **{told!r})\n"
    code += "look = lambda _: 'SPARK_SIMPLIFIED_TRACEBACK' in os.environ\n"
    code += "of_rdds = session.sparkContext.range(1).map(look).first()\n"
    code += "from pyspark.sql.functions import pandas_udf\n"
    code += "of_columns = session.range(1).select(pandas_udf(lambda ids: ids * 0 + look(0), 'long')('id')).first()[0]\n"
    code += "print(of_rdds, bool(of_columns))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(wanted in (None, True))] * 2, done.stderr


def test_the_daemon_starts_no_backend_which_a_fork_would_break() -> None:
    code = "from sparkdl.spark import daemon; daemon.load()\n"
    code += "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


def test_a_worker_on_which_spark_hangs_up_ends_without_a_traceback() -> None:
    """As it does after the rows that `first` asks for."""

    def worker(error: BaseException | None, code: int) -> int:
        if error:
            raise error
        return code

    quiet = daemon._quiet(worker)
    assert [quiet(None, code) for code in (0, 3)] == [0, 3]
    assert quiet(BrokenPipeError(), 0) == 1
    with pytest.raises(RuntimeError, match="other"):
        quiet(RuntimeError("other"), 0)


def test_rows_that_end_since_spark_could_not_read_on_are_told_from_all_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """To the worker both look alike: Arrow takes a closed socket for the end of a stream."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = Connection()
        rows = sum(batch.num_rows for batch in batches)
        (tmp_path / str(rows)).write_text(str(connection.is_closed()))
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    def rows_of(breaking: int) -> Any:
        fragile = f"if(id = {breaking}, cast(raise_error('lost') as bigint), id) id"
        return spark.range(25_000).coalesce(1).selectExpr(fragile).mapInArrow(read, "rows long").collect()

    assert rows_of(breaking=-1)[0].rows == 25_000
    with pytest.raises(Exception, match="lost"):
        rows_of(breaking=23_000)
    deadline = time.monotonic() + 20
    while (told := {path.name: path.read_text() for path in tmp_path.iterdir()}) != {"25000": "False", "20000": "True"}:
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("sparkdl", ["jax", "numpy", "pyspark", "tokenizers"]),
        ("sparkdl.launch.alarm", ["pyspark"]),
        ("sparkdl.spark.tasks.row_bytes", ["jax", "optax", "pandas", "pyspark"]),
        ("sparkdl.spark.tasks.row_scores", ["optax", "pandas", "pyspark.ml"]),
        ("sparkdl.spark.tasks.tokenizing", ["jax", "optax", "pandas", "pyspark", "tokenizers"]),
        ("sparkdl.spark.tasks.measuring", ["optax", "pyspark.ml"]),
        ("sparkdl.spark.tasks.task", ["pandas", "pyspark.ml"]),
        ("sparkdl.spark.tasks.windowing", ["jax", "optax", "pandas", "pyspark"]),
    ],
)
def test_other_daemons_workers_import_no_more_than_their_task_needs(module: str, heavy: list[str]) -> None:
    code = LIGHT.format(module=module, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
