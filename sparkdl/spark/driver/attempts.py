"""What tasks failed by before a stage's last attempt, which is all that Spark's error tells of one run too often."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from sparkdl.spark.driver.remote import over_connect

MOST_TASKS = 10_000  # of one attempt that are looked at


def errors_before(session: SparkSession, text: str) -> list[str]:
    """The errors of all attempts, the latest first, if an exception's text is that of a stage that was run too often.

    Spark ends executors whose barrier tasks it kills while they wait for one another, and the rows that these hold go
    with them: what the last attempt fails by is then that rows are missing, whatever the first one failed by. Nothing
    over Spark Connect, which does not tell.
    """
    found = re.search(r"Stage (\d+) .*has failed the maximum allowable number of times: (\d+)", text)
    if found is None or over_connect(session):
        return []
    stage, attempts = map(int, found.groups())
    try:
        store = session.sparkContext._jsc.sc().statusStore()  # type: ignore[union-attr]
        lists = [store.taskList(stage, attempt, MOST_TASKS) for attempt in reversed(range(attempts))]
        tasks = [tasks.apply(number) for tasks in lists for number in range(tasks.size())]
        return [
            f"({task.host()} executor {task.executorId()}): {task.errorMessage().get()}"
            for task in tasks
            if task.errorMessage().isDefined()
        ]
    except Exception:  # whatever py4j raises where another Spark's own code differs; the last error is told then
        return []
