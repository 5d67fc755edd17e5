"""Reads the rows of a fit and places them on its workers, in a job before the one that trains."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from sparkdl.spark.driver.remote import over_connect


def place_rows(rows: DataFrame, workers: int) -> DataFrame:
    """The rows in one partition a worker; in a classic session they have been read and shuffled on return.

    Under adaptive execution Spark looks for the slots of a barrier stage once only, after the stages before it. Where
    it finds too few, as executors were lost meanwhile, it fails at cancelling the job (`handleJobCancellation` of its
    DAGScheduler), which ends its context. Between two jobs, slots can be waited for. Over Spark Connect all is one.

    The rows' own hash decides which worker gets them and in which order, so that the same rows train alike however
    the DataFrame happens to be partitioned, and equal inputs give bit-identical weights.
    """
    placed = rows.repartition(workers, "key")
    if over_connect(placed.sparkSession):
        return placed
    session: Any = placed.sparkSession
    plan: Any = placed._jdf  # type: ignore[operator]
    plan.toLocalIterator()  # runs all but the last stage, and of that what is asked for, which is nothing
    again = session._jsparkSession.internalCreateDataFrame(plan.queryExecution().toRdd(), plan.schema(), False)
    return DataFrame(again, session)
