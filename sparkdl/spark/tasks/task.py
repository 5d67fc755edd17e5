"""What each barrier task of a fit does: read its rows, meet the others, have a child train, hand over results."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib
import optax
import pyarrow as pa
from pyspark import BarrierTaskContext

import sparkdl
from sparkdl.classes import CLASSES
from sparkdl.decoding.ragged_rows import common_steps
from sparkdl.launch.alarm import DONE, LOST, RAISED, Alarm
from sparkdl.launch.child import Child, WorkerError
from sparkdl.launch.sender import Sender
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.connection import Connection
from sparkdl.spark.tasks.environment import worker_environment
from sparkdl.spark.tasks.intake import read_rows
from sparkdl.spark.tasks.local_disk import check_free, local_directory
from sparkdl.spark.tasks.meeting import Meeting
from sparkdl.spark.tasks.task_plan import TaskPlan
from sparkdl.training.data.batches import check_weights, even_shares
from sparkdl.training.group.addresses import own_address, reserve_port, split_host
from sparkdl.training.records.recorder import Recorder
from sparkdl.training.worker import INITIAL, WEIGHTS, Job

CHUNK_BYTES = 4 << 20  # of a result row: Spark Connect's batches hold no more
START_SECONDS = 300.0
PATIENCE_SECONDS = 15.0  # between an exchange's breaking and the news of who broke it, perhaps by falling silent
PRECEDENCE_SECONDS = 1.0  # for Spark to hear of the worker that died before it hears of those that lost it
RESULT_SCHEMA = "rank int, kind string, number int, payload binary"


class TaskFailure(Exception):
    """The death of a worker, for Spark to try the stage again; `failure_in` finds its message in Spark's exception."""

    def __init__(self, message: str) -> None:
        super().__init__(f"[sparkdl] {message} [end]")


def failure_in(text: str) -> str | None:
    """The message of the TaskFailure that an exception's text contains, if it does."""
    found = re.search(r"\[sparkdl\] (.*?) \[end\]", text, re.DOTALL)
    return found[1] if found else None


def run_task(batches: Iterator[pa.RecordBatch], plan: TaskPlan) -> Iterator[pa.RecordBatch]:
    """The body of a task: rows come in, result rows (`RESULT_SCHEMA`) go out.

    Columns in: those of `row_bytes.SCHEMA`. Out come, by kind: "done" and, of rank 0, "weights"; or "failure", for
    what would fail again however often Spark tried. Only a process that died is a failure to Spark, which then runs the
    stage again.
    """
    began, connection = time.time(), Connection()
    context = BarrierTaskContext.get()
    rank = context.partitionId()
    hosts = [split_host(info.address) for info in context.getTaskInfos()]
    if len(hosts) != plan.workers:  # Spark kept the result of a task that ended while another was dying
        raise TaskFailure(f"Only {len(hosts)} of {plan.workers} workers were started again.")
    worker = f"Worker {rank} on {hosts[rank]}"
    recorder = Recorder(any(training.get("statistics") for training in plan.trainings))
    environment = worker_environment(context, plan.device, hosts)
    meeting = Meeting(context, plan.fit)  # before anything that takes time, as the others look for it
    directory = _new_directory(worker)
    try:
        with (
            meeting,
            Child(directory / "log.txt", environment) as child,
            _removed(directory),  # as long as the child lives, who does it if this process is killed
            Sender(plan.progress if rank == 0 or plan.worker_logs else None) as sender,
            _followed(child, plan, rank, hosts[rank], sender),
            _meeting_place(hosts, rank, plan.ports, worker) as (place, alarm),
        ):
            try:
                taken = read_rows(batches, plan, directory, worker, recorder)
                rows, weighing, wrong, skipped, classes, rounded, longest, cut = taken
                if connection.is_closed():
                    raise TaskFailure(f"{worker} was not given all of its rows.")
                read = time.time()
                own = {"rows": rows, "weighing": weighing, "wrong": wrong, "skipped": skipped, "longest": dict(longest)}
                own |= place | {"alarm": alarm.address}
                peers = _meet(meeting, own, environment["JAX_PLATFORMS"])
                alarm.watch(rank, plan.workers, peers[0]["alarm"], child.give_up)
                done = _train(child, plan, directory, rank, peers, sender)
                weights = (directory / WEIGHTS).open("rb") if rank == 0 else io.BytesIO()
                alarm.end(DONE)
            except _Refused as error:
                alarm.end(RAISED)
                yield _failure(rank, error.type, str(error), secondary=False)
                return
            except WorkerError as error:
                named = f"{worker}: {f'{error.type}: ' if error.type else ''}{error}"
                cause = alarm.cause(PATIENCE_SECONDS) if error.secondary else None
                if cause and cause.how == LOST and cause.rank is not None:
                    named = f"Worker {cause.rank} on {hosts[cause.rank]} cannot be reached any more: its machine has "
                    named += f"not answered worker {cause.witness(rank)}; see whether it runs and is connected."
                if cause.how != RAISED if cause else not error.type:
                    time.sleep(PRECEDENCE_SECONDS if error.secondary else 0)
                    raise TaskFailure(named) from None
                alarm.end(RAISED)
                yield _failure(rank, error.type, str(error) if error.type == "ValueError" else named, error.secondary)
                return
            except OSError as error:  # a peer that died between its meeting and the alarm, or a disk
                time.sleep(PRECEDENCE_SECONDS)
                raise TaskFailure(f"{worker}: {type(error).__name__}: {error}.") from None
        _record_start(recorder, read, done)
        for run in done["runs"]:
            if run["events"]:
                events = [*recorder.events, *run["events"]]
                run["events"] = [event | {"start": event["start"] + alarm.offset} for event in events]
        times = {"began": began, "read": read, "joined": done["joined"], "ended": time.time()}
        times = {name: at + alarm.offset for name, at in times.items()}  # of rank 0's clock
        held = [peer["rows"][0] for peer in peers]
        share = even_shares(held)[rank] if plan.even else held[rank]
        told = {"host": hosts[rank], "rows": share, "skipped": skipped, "classes": classes, "rounded": rounded}
        told |= {"cut": dict(cut)}
        yield _result(rank, "done", 0, json.dumps(done | times | told).encode())
        with weights:  # whose file is open still and gone already, so that nothing is left if Spark ends this process
            for number, chunk in enumerate(iter(lambda: weights.read(CHUNK_BYTES), b"")):
                yield _result(rank, "weights", number, chunk)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        spare_modules()


def _new_directory(worker: str) -> Path:
    parent = local_directory()
    try:
        check_free(parent or tempfile.gettempdir())
        return Path(tempfile.mkdtemp(prefix="sparkdl-", dir=parent))
    except OSError as error:
        raise TaskFailure(
            f"{worker} cannot write to {parent or tempfile.gettempdir()}: {error}; free or add disk there."
        ) from None


@contextlib.contextmanager
def _meeting_place(hosts: list[str], rank: int, ports: range, worker: str) -> Iterator[tuple[dict[str, Any], Alarm]]:
    """Where the others reach this worker: its `address`, and the first's `port` for JAX's coordinator; its alarm."""
    place: dict[str, Any] = {}
    try:
        place["address"] = own_address(hosts[rank], hosts)
        with contextlib.ExitStack() as opened:
            if rank == 0 and len(hosts) > 1:
                place["port"] = opened.enter_context(reserve_port(place["address"], ports)).getsockname()[1]
            alarm = Alarm(place["address"], ports)
            closing = opened.pop_all()
    except OSError as error:
        raise TaskFailure(f"{worker}: {error.strerror or error}.") from None
    with closing, alarm:
        yield place, alarm


@contextlib.contextmanager
def _removed(directory: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Refused(Exception):
    """What every worker raises alike before training, of the `type` of exception that the user is to see."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type = type


def _record_start(recorder: Recorder, read: float, done: dict[str, Any]) -> None:
    """Note how long the child's start held up the worker once its rows were there, and the waiting for the others."""
    ready = max(read, done["ready"])
    recorder.add("start", read, ready - read)
    recorder.add("meet", ready, max(0.0, done["joined"] - ready))


def _meet(meeting: Meeting, own: dict[str, Any], platform: str) -> list[dict[str, Any]]:
    """Tell every worker about this one; what each of them told. _Refused, in all alike, if they cannot train."""
    versions = {module.__name__: module.__version__ for module in (sparkdl, jax, jaxlib, optax)}
    message = json.dumps(own | {"platform": platform, "versions": versions})
    peers = [json.loads(text) for text in meeting.gather(message)]
    for peer in peers:
        if peer["wrong"]:
            raise _Refused(*peer["wrong"])
    for key in ("versions", "platform"):
        for rank, peer in enumerate(peers):
            if peer[key] != peers[0][key]:
                raise _Refused(
                    "ValueError",
                    f"All workers must have the same {key}: worker 0 has {peers[0][key]}, "
                    f"worker {rank} has {peer[key]}; set the cluster's machines up alike.",
                )
    rows, held_out, *weighing = (
        sum(peer[what][part] for peer in peers) for what in ("rows", "weighing") for part in (0, 1)
    )
    if not rows:
        bad = sum(count for peer in peers for count in peer["skipped"].values())
        hint = f"all {held_out} are marked for validation" if held_out else "check the data and its filters"
        hint += f"; {bad} were skipped, as handleInvalid says" if bad else ""
        raise _Refused("ValueError", f"There are no rows to train on; {hint}.")
    try:
        check_weights(weighing[0], rows)
        check_weights(weighing[1], held_out, "rows marked for validation")
    except ValueError as error:
        raise _Refused("ValueError", str(error)) from None
    return peers


def _train(
    child: Child,
    plan: TaskPlan,
    directory: Path,
    rank: int,
    peers: list[dict[str, Any]],
    sender: Sender,
) -> dict[str, Any]:
    """Have the child train; its "done" event with the time it took to join."""
    job = Job(
        trainings=plan.trainings,
        directory=str(directory),
        rank=rank,
        rows=[peer["rows"][0] for peer in peers],
        validation_rows=[peer["rows"][1] for peer in peers],
        even=plan.even,
        addresses=[peer["address"] for peer in peers],
        port=peers[0].get("port", 0),
        start_seconds=START_SECONDS,
        steps=common_steps(peer["longest"] for peer in peers),
    )
    for number, initial in enumerate(plan.initial):
        if initial is not None:
            (directory / INITIAL.format(number)).write_bytes(initial())
    if plan.classes:
        (directory / CLASSES).write_bytes(plan.classes)
    joined: dict[str, Any] = {}

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            joined["ready"] = event["at"]
        if event["event"] == "joined":
            joined.update(joined=time.time(), device=event["device"])
        if event["event"] == "progress":
            sender.send(event)

    return child.run(job, on_event) | joined


def _followed(
    child: Child, plan: TaskPlan, rank: int, host: str, sender: Sender
) -> contextlib.AbstractContextManager[Any]:
    """A context in which the driver is sent what the child prints, if that is wanted."""
    if not plan.worker_logs:
        return contextlib.nullcontext()
    return child.follow(lambda line: sender.send({"rank": rank, "host": host, "line": line}))


def _failure(rank: int, type: str, message: str, secondary: bool) -> pa.RecordBatch:
    payload = {"type": type, "message": message, "secondary": secondary}
    return _result(rank, "failure", 0, json.dumps(payload).encode())


def _result(rank: int, kind: str, number: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "rank": pa.array([rank], pa.int32()),
            "kind": [kind],
            "number": pa.array([number], pa.int32()),
            "payload": [payload],
        }
    )
