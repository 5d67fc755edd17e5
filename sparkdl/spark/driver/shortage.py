"""Too few executors: ends a fit where Spark would wait for ever, and says in a sentence that Spark gave up."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from sparkdl.spark.driver.remote import over_connect, registered_slots, runs_in_driver, setting

POLL_SECONDS = 2.0
WAKE_SECONDS = 0.2
SHORTAGE_SECONDS = 60.0  # for other executors to come, once Spark has noticed which are lost


@contextlib.contextmanager
def ended_by_shortage(session: SparkSession, workers: int) -> Iterator[Callable[[], str | None]]:
    """A context whose Spark jobs are cancelled when for a minute there have been fewer slots than workers.

    What is yielded tells, in a sentence, if that has happened. Over Spark Connect, which does not tell its slots, and
    where the driver is the executor, nothing is watched.
    """
    if over_connect(session) or runs_in_driver(setting(session, "spark.master", "")):
        yield lambda: None
        return
    context: Any = session.sparkContext
    tag, over = f"sparkdl-{uuid.uuid4().hex}", threading.Event()
    told: list[str] = []

    def watch() -> None:
        there, since = _executors(context), time.monotonic()
        while not over.wait(POLL_SECONDS):
            slots, now = registered_slots(session) or 0, time.monotonic()
            if slots >= workers:
                there, since = there | _executors(context), now
            elif now - since > SHORTAGE_SECONDS:
                told.append(_sentence(workers, slots, sorted(there - _executors(context))))
                context.cancelJobsWithTag(tag)
                return

    thread = threading.Thread(target=watch, daemon=True)
    context.addJobTag(tag)
    thread.start()
    try:
        yield lambda: told[0] if told else None
    finally:
        over.set()
        context.removeJobTag(tag)


def await_executors(session: SparkSession, workers: int, shortage: Callable[[], str | None]) -> None:
    """Wait until there are as many slots as workers; RuntimeError once `ended_by_shortage` tells of a shortage.

    Where that watches nothing, nothing is waited for.
    """
    if runs_in_driver(setting(session, "spark.master", "")):
        return
    while (slots := registered_slots(session)) is not None and slots < workers:
        if told := shortage():
            raise RuntimeError(told)
        time.sleep(WAKE_SECONDS)


def shortage_in(text: str, workers: int) -> str | None:
    """A sentence, if an exception's text is that of Spark's having looked in vain for slots for a barrier stage."""
    if "requires more slots than" not in text:
        return None
    return (
        f"numWorkers is {workers} but Spark found fewer slots when they were to start; lower numWorkers, or give the "
        "session more executors or cores."
    )


def exhaustion_in(text: str) -> str | None:
    """A sentence, if an exception's text is that of Spark's having run a stage again too often; None for all else."""
    found = re.search(
        r"has failed the maximum allowable number of times: (\d+)\. Most recent failure reason: (.*?)(?:\n\s*at |$)",
        text,
        re.DOTALL,
    )
    if found is None:
        return None
    times, reason = found[1], " ".join(found[2].split())
    return (
        f"Spark ended the fit after {times} attempts, of which the last failed by: {reason}. See whether the cluster's "
        "machines run and are connected; Spark's setting spark.stage.maxConsecutiveAttempts is how often it tries. "
        "With checkpointDir, another fit goes on where this one stopped."
    )


def _sentence(workers: int, slots: int, lost: list[str]) -> str:
    which = f" since Spark lost its executors on {', '.join(lost)}" if lost else ""
    return (
        f"numWorkers is {workers} but the cluster has {slots} slots{which}, and no others came for "
        f"{SHORTAGE_SECONDS:.0f} seconds; see whether those machines run and are connected, or lower numWorkers. With "
        "checkpointDir, another fit goes on where this one stopped."
    )


def _executors(context: Any) -> set[str]:
    """The hosts of executors, the driver's not among them unless it has one."""
    known = context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",").split(",")
    return {place.rsplit(":", 1)[0] for place in known}
