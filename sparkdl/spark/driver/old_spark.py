"""All that is otherwise with Spark 3.5 than with Spark 4: Arrow tables, Javas, users' dataclasses, Spark Connect."""

from __future__ import annotations

import copyreg
import dataclasses
from typing import NoReturn

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

OLD = int(pyspark.__version__.split(".")[0]) < 4
JAVAS = range(8, 18) if OLD else range(17, 1000)  # Spark 3.5's Arrow fails on Java 21

if OLD:  # its cloudpickle makes new ones of these, after which a user's dataclass has no fields on the workers
    copyreg.pickle(type(dataclasses._FIELD), lambda kind: kind.name)  # type: ignore[attr-defined]
    copyreg.pickle(type(dataclasses.MISSING), lambda missing: "MISSING")


def to_arrow(frame: DataFrame) -> pa.Table:
    """All rows, as `DataFrame.toArrow` gives them from Spark 4 on."""
    if not OLD:
        return frame.toArrow()
    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(frame.schema))


def from_arrow(session: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of a table, as `SparkSession.createDataFrame` makes it from Spark 4 on."""
    if not OLD:
        return session.createDataFrame(table)
    return session.createDataFrame(table.to_pylist(), from_arrow_schema(table.schema))


def refuse_connect() -> NoReturn:
    """Raise ValueError: pyspark 3.5 has no server of Spark Connect, and with it asks for a NumPy older than JAX's."""
    raise ValueError(
        f"Spark Connect is taken from Spark 4.0 on, received {pyspark.__version__}; use a classic session or Spark 4."
    )
