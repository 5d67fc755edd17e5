"""Runs a fit on the cluster: checks what can be known before, submits one barrier job, assembles its results."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from sparkdl.layers.base import Weights
from sparkdl.spark.driver import progress
from sparkdl.spark.driver.attempts import errors_before
from sparkdl.spark.driver.interpreter import check_interpreter, complaint_in
from sparkdl.spark.driver.old_spark import to_arrow
from sparkdl.spark.driver.placement import place_rows
from sparkdl.spark.driver.preparation import Prepared
from sparkdl.spark.driver.remote import (
    driver_address,
    local_slots,
    registered_slots,
    release,
    runs_in_driver,
    setting,
    shared,
)
from sparkdl.spark.driver.result_bytes import check_returned, excess_in, returning_tasks
from sparkdl.spark.driver.security import asked_to_protect, check_encryption
from sparkdl.spark.driver.shipping import packed_classes
from sparkdl.spark.driver.shortage import await_executors, ended_by_shortage, exhaustion_in, shortage_in
from sparkdl.spark.driver.slots import taken
from sparkdl.spark.tasks.local_disk import full_disk_in
from sparkdl.spark.tasks.task import RESULT_SCHEMA, failure_in, run_task
from sparkdl.spark.tasks.task_plan import TaskPlan
from sparkdl.training.group.addresses import parse_ports
from sparkdl.training.options import Training
from sparkdl.training.records.recorder import split_exchanges
from sparkdl.training.results import Ending, Epoch
from sparkdl.weights import named_arrays, weights_from_bytes, weights_in_parts

SLOT_SECONDS = 30.0  # for executors to register; Spark by itself has a barrier job wait for 10 minutes
WAKE_SECONDS = 0.5
PHASES = ("spark", "read", "start", "compile", "training", "return")


class Fitted(NamedTuple):
    """What a fit on the cluster returns.

    Attributes
    ----------
    weights : nested dict of NumPy arrays
    history : list of Epoch
    workers : list of dict
        For every rank: host, device, rows.
    timings : dict
        Seconds of wall time by phase, in order: spark (scheduling and shuffle), read, start, compile, training, return.
        All but compile and training are those of the job, which may have been that of several fits.
    ending : Ending
        How the run ended.
    events : list of list of dict
        For every rank what it did when, on rank 0's clock (see `records/recorder.py`); empty without statistics.
    skipped : dict of int
        Rows that were left out, by what is wrong with them.
    cut : dict of int
        Rows that lost steps to maxLength, by input.
    """

    weights: Weights
    history: list[Epoch]
    workers: list[dict[str, Any]]
    timings: dict[str, float]
    ending: Ending
    events: list[list[dict[str, Any]]]
    skipped: dict[str, int]
    cut: dict[str, int]


def check_cluster(session: SparkSession, workers: int) -> None:
    """ValueError if the session cannot run that many tasks at once, or by a Python that lacks what they need.

    Waits for executors that are about to register.
    """
    if workers < 1:
        raise ValueError(f"numWorkers must be at least 1, received {workers}.")
    master = setting(session, "spark.master", "")
    slots = local_slots(master, int(setting(session, "spark.task.cpus", "1")))
    if runs_in_driver(master):
        slots = registered_slots(session) or slots  # Java sees fewer processors than Python in some containers
    if slots is not None and workers > slots:
        remedy = f" or use local[{workers}]" if runs_in_driver(master) else ""
        tasks = "1 task" if slots == 1 else f"{slots} tasks"
        raise ValueError(f"numWorkers is {workers} but {master} can run {tasks} at once; lower numWorkers{remedy}.")
    if not runs_in_driver(master) and setting(session, "spark.dynamicAllocation.enabled", "false") == "true":
        raise ValueError(
            "spark.dynamicAllocation.enabled is true, but workers that train together need executors that stay; "
            "set it to false for sessions that train."
        )
    check_interpreter(session)
    if not runs_in_driver(master):
        _await_slots(session, workers, master)


def _await_slots(session: SparkSession, workers: int, master: str) -> None:
    deadline = time.monotonic() + SLOT_SECONDS
    while (slots := registered_slots(session)) is not None and slots < workers:
        if time.monotonic() > deadline:
            raise ValueError(
                f"numWorkers is {workers} but {master} can run {slots} tasks at once after {SLOT_SECONDS:g} seconds of "
                "waiting for executors to register; lower numWorkers, or give the session more executors or cores."
            )
        time.sleep(WAKE_SECONDS)


def fit(
    prepared: Prepared,
    workers: int,
    plans: list[Training],
    device: str,
    shown: bool,
    worker_logs: bool,
    initial: Sequence[Weights | None],
) -> list[Fitted]:
    """Train every plan on the rows of a DataFrame, which are read and placed once.

    Parameters
    ----------
    prepared : Prepared
        The rows (see `preparation.py`).
    workers : int
        Barrier tasks.
    plans : list of Training
        For networks of the same input and output shapes, and of the same loss.
    device : str
        auto, cpu or gpu.
    shown : bool
        Whether to draw a progress bar.
    worker_logs : bool
        Whether to log what workers print.
    initial : sequence of Weights or None
        For every plan weights to start from.

    Raises
    ------
    ValueError
        The rows do not fit the network or the loss, or its weights are more than Spark lets a job bring.
    RuntimeError
        A worker failed; the message names it and gives its reason.
    """
    session = prepared.rows.sparkSession
    ports = parse_ports(setting(session, "sparkdl.ports", ""))
    check_returned(session, plans)
    check_encryption(session, workers, shown or worker_logs)
    began = time.time()
    classes = packed_classes(*plans)
    slots = registered_slots(session)
    if slots is None:
        slots = local_slots(setting(session, "spark.master", ""), int(setting(session, "spark.task.cpus", "1")))
    shown_to = progress.Receiver(*driver_address(session), plans[0].objective.metric, shown, worker_logs, ports)
    sent = _sent(session, initial)
    with taken(session, workers, slots), shown_to as receiver, ended_by_shortage(session, workers) as shortage:
        task = TaskPlan(
            trainings=[plan.to_json() for plan in plans],
            fit=secrets.token_hex(8),
            workers=workers,
            intake=prepared.intake,
            device=device,
            progress=receiver.address,
            worker_logs=worker_logs,
            initial=[sent.get(_key(weights)) for weights in initial],
            ports=ports,
            classes=classes,
            even=not asked_to_protect(session),
        )
        try:
            rows = place_rows(prepared.rows, workers)
            await_executors(session, workers, shortage)
            # Spark aborts a job whose last stage is a failed barrier stage, but tries again one that feeds a shuffle.
            results = rows.mapInArrow(partial(run_task, plan=task), RESULT_SCHEMA, barrier=True)
            results = results.repartition(returning_tasks(plans), "number")
            records, data = _collected(results)
        except Exception as error:
            text = str(error)
            too_few = partial(shortage_in, workers=workers)
            complaints = failure_in, too_few, complaint_in, excess_in, full_disk_in
            texts = text, *errors_before(session, text)
            told = next(filter(None, (complaint(each) for each in texts for complaint in complaints)), None)
            message = shortage() or told or exhaustion_in(text)
            if message is None:
                raise
            raise RuntimeError(message) from None
        finally:
            for given in sent.values():
                release(given)
    return _assembled(records, data, began, ", ".join(repr(part.column) for part in prepared.intake.labels.values()))


def _sent(session: SparkSession, initial: Sequence[Weights | None]) -> dict[Any, Callable[[], bytes]]:
    """What gives the bytes of these weights on a worker, by `_key`; the bytes do not stay here."""
    given = {_key(weights): weights for weights in initial if weights is not None}
    return {key: shared(session, weights_in_parts(weights)) for key, weights in given.items()}


def _key(weights: Weights | None) -> Any:
    """Equal for the same arrays by the same names, as runs of a grid have them."""
    return None if weights is None else tuple((path, id(array)) for path, array in named_arrays(weights))


def _collected(results: DataFrame) -> tuple[list[dict[str, Any]], bytes]:
    """Result rows but those of weights, and the bytes of these, of which Arrow's copy is gone on return."""
    table = to_arrow(results)
    kinds, numbers, payloads = table["kind"].to_pylist(), table["number"].to_pylist(), table["payload"]
    order = sorted((row for row, kind in enumerate(kinds) if kind == "weights"), key=numbers.__getitem__)
    data = b"".join(payloads[row].as_buffer() for row in order)
    return table.filter(pc.not_equal(table["kind"], "weights")).to_pylist(), data


def _assembled(records: list[dict[str, Any]], data: bytes, began: float, label: str) -> list[Fitted]:
    if not records:  # Spark 3.5 runs no task once it has found that there are no rows
        raise ValueError("There are no rows to train on; check the data and its filters.")
    rows = sorted(records, key=lambda row: (row["kind"], row["rank"]))
    failures = [json.loads(row["payload"]) for row in rows if row["kind"] == "failure"]
    if failures:  # the first that is not the consequence of another
        failure = min(failures, key=lambda failure: failure["secondary"])
        raise (ValueError if failure["type"] == "ValueError" else RuntimeError)(failure["message"])
    done = [json.loads(row["payload"]) for row in rows if row["kind"] == "done"]
    weights = weights_from_bytes(data)
    first, runs = done[0], range(len(done[0]["runs"]))
    workers = [
        {"rank": rank} | {key: event[key] for key in ("host", "device", "rows")} for rank, event in enumerate(done)
    ]
    skipped, cut = (dict(sum((Counter(event[what]) for event in done), Counter())) for what in ("skipped", "cut"))
    classes = {bound for event in done for bound in event["classes"] or ()}
    notes = [
        f"labelCol {label} holds class {one} in all rows to train on, so that the model learns to predict nothing "
        "else; check the data and its filters."
        for one in classes
        if len(classes) == 1
    ]
    notes += [
        f"labelCol {label} holds {rounded}; subtract a start from it and scale it, or set computeDtype to float64."
        for rounded in sorted({event["rounded"] for event in done} - {None})[:1]
    ]
    started, read, joined = (max(event[mark] for event in done) for mark in ("began", "read", "joined"))
    began, now = _on_clock_of_workers((began, time.time()), (started, first["ended"]))
    busy = sum(run["training_seconds"] + run["compile_seconds"] for run in first["runs"])
    back = max(0.0, now - joined - busy)
    of_job = {"spark": started - began, "read": read - started, "start": joined - read, "return": back}
    fitted = []
    for number in runs:
        run = first["runs"][number]
        if run["events"]:
            end = {"phase": "return", "start": first["ended"], "seconds": now - first["ended"], "bytes": len(data)}
            run["events"].append(end)
        own = {"compile": run["compile_seconds"], "training": run["training_seconds"]}
        timings = {phase: (of_job | own)[phase] for phase in PHASES}
        events = split_exchanges([event["runs"][number]["events"] for event in done])
        history = [Epoch(**epoch) for epoch in run["history"]]
        ending = Ending(**run["ending"])
        ending = replace(ending, notes=[*notes, *ending.notes])
        fitted.append(Fitted(weights.get(str(number), {}), history, workers, timings, ending, events, skipped, cut))
    return fitted


def _on_clock_of_workers(own: tuple[float, float], theirs: tuple[float, float]) -> tuple[float, float]:
    """The times by the driver's clock when the job began and ended, by the clock of rank 0, whose work lies in between.

    Clocks that let it lie there are taken to agree. Otherwise its host's is as little off as can be.
    """
    least, most = theirs[1] - own[1], theirs[0] - own[0]
    off = max(least, min(most, 0.0))
    return own[0] + off, own[1] + off
