"""What each barrier task of a fit does: read its rows, meet the others, have a child train, hand over results."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
import optax
import pyarrow as pa
from pyspark import BarrierTaskContext

import sparkdl
from sparkdl.losses import Loss
from sparkdl.spark import columns
from sparkdl.spark.progress import Sender
from sparkdl.training.alarm import DIED, DONE, RAISED, Alarm
from sparkdl.training.batches import Rows, ShardWriter
from sparkdl.training.child import Child, WorkerError
from sparkdl.training.trainer import Training
from sparkdl.training.worker import TRAINING, VALIDATION, WEIGHTS, Job

CHUNK_BYTES = 4 << 20  # of a result row: Spark Connect's batches hold no more
START_SECONDS = 300.0
PATIENCE_SECONDS = 5.0  # between an exchange's breaking and the news of who broke it
RESULT_SCHEMA = "rank int, kind string, number int, payload binary"


@dataclass(frozen=True)
class TaskPlan:
    """What the driver tells every task; JSON values only.

    Attributes
    ----------
    training : dict
        A `Training` as JSON.
    workers : int
        Tasks of the stage.
    names : dict
        The user's column names, for messages: features, label, and, where they exist, weight and validation.
    features_dtype : str
        Of the features on the way to the device: uint8, float32 or float64.
    label_list : bool
        Whether the label column holds lists.
    device : str
        deviceType: auto, cpu or gpu.
    progress : dict or None
        Where to send progress: host, port, token.
    """

    training: dict[str, Any]
    workers: int
    names: dict[str, str]
    features_dtype: str
    label_list: bool
    device: str
    progress: dict[str, Any] | None


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

    Columns in: features (list or binary), label (double or list), key (int64), and perhaps weight (double) and
    validation (boolean). Out come, by kind: "done" and, of rank 0, "weights"; or "failure", for what would fail again
    however often Spark tried. Only a process that died is a failure to Spark, which then runs the stage again.
    """
    began = time.time()
    context = BarrierTaskContext.get()
    rank = context.partitionId()
    hosts = [info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()]
    if len(hosts) != plan.workers:  # Spark kept the result of a task that ended while another was dying
        raise TaskFailure(f"Only {len(hosts)} of {plan.workers} workers were started again.")
    directory = Path(tempfile.mkdtemp(prefix="sparkdl-", dir=_local_directory()))
    try:
        environment = _environment(context, plan.device, hosts)
        with (
            Child(directory / "log.txt", environment) as child,
            Sender(plan.progress if rank == 0 else None) as sender,
            _reserved_port(hosts[rank]) as reservation,
            Alarm(hosts[rank]) as alarm,
        ):
            try:
                rows, wrong = _read(batches, plan, directory)
                read = time.time()
                own = {"rows": rows, "wrong": wrong, "port": reservation.getsockname()[1], "alarm": alarm.address}
                peers = _meet(context, own, environment["JAX_PLATFORMS"])
                alarm.watch(rank, peers[0]["alarm"], child.give_up)
                done = _train(child, plan, directory, rank, hosts, peers, sender)
                alarm.end(DONE)
            except ValueError as error:
                alarm.end(RAISED)
                yield _failure(rank, "ValueError", str(error), secondary=False)
                return
            except WorkerError as error:
                named = f"Worker {rank} on {hosts[rank]}: {f'{error.type}: ' if error.type else ''}{error}"
                died = alarm.cause(PATIENCE_SECONDS) == DIED if error.secondary else not error.type
                if died:
                    raise TaskFailure(named) from None
                alarm.end(RAISED)
                yield _failure(rank, error.type, str(error) if error.type == "ValueError" else named, error.secondary)
                return
        times = {"began": began, "read": read, "ended": time.time()}
        yield _result(rank, "done", 0, json.dumps(done | times | {"host": hosts[rank], "rows": rows[0]}).encode())
        if rank == 0:
            with (directory / WEIGHTS).open("rb") as stream:
                for number, chunk in enumerate(iter(lambda: stream.read(CHUNK_BYTES), b"")):
                    yield _result(rank, "weights", number, chunk)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _read(batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path) -> tuple[tuple[int, int], str]:
    """Write the task's rows to the two shards; how many there are in each, and what is wrong with them, if anything."""
    try:
        return _written(batches, plan, directory), ""
    except ValueError as error:
        return (0, 0), str(error)


def _written(batches: Iterator[pa.RecordBatch], plan: TaskPlan, directory: Path) -> tuple[int, int]:
    training = Training.from_json(plan.training)
    loss, shape, outputs = Loss.of(training.loss), training.network.input_shape, training.network.output_shape()
    assert shape is not None
    names = plan.names
    no_labels = np.zeros((0, *outputs) if plan.label_list else 0)
    empty = Rows(np.zeros((0, *shape), plan.features_dtype), loss.encode(no_labels, outputs), np.zeros(0))
    writers = [ShardWriter(directory / name, empty) for name in (TRAINING, VALIDATION)]
    for batch in batches:
        rows = Rows(
            columns.decode_features(batch["features"], names["features"], shape),
            loss.encode(columns.decode_labels(batch["label"], names["label"]), outputs),
            columns.decode_weights(batch["weight"], names["weight"]) if "weight" in names else np.ones(len(batch)),
        )
        held_out = np.zeros(len(batch), bool)
        if "validation" in names:
            held_out = columns.decode_flags(batch["validation"], names["validation"])
        keys = batch["key"].to_numpy()
        for writer, chosen in zip(writers, (~held_out, held_out), strict=True):
            whole = chosen.all()
            writer.append(rows if whole else Rows(*(part[chosen] for part in rows)), keys if whole else keys[chosen])
    for writer in writers:
        writer.close()
    return writers[0].rows, writers[1].rows


def _meet(context: BarrierTaskContext, own: dict[str, Any], platform: str) -> list[dict[str, Any]]:
    """Tell every worker about this one; what each of them told. ValueError, in all alike, if they cannot train."""
    versions = {module.__name__: module.__version__ for module in (sparkdl, jax, jaxlib, optax)}
    message = json.dumps(own | {"platform": platform, "versions": versions})
    peers = [json.loads(text) for text in context.allGather(message)]
    for peer in peers:
        if peer["wrong"]:
            raise ValueError(peer["wrong"])
    for key in ("versions", "platform"):
        for rank, peer in enumerate(peers):
            if peer[key] != peers[0][key]:
                raise ValueError(
                    f"All workers must have the same {key}: worker 0 has {peers[0][key]}, "
                    f"worker {rank} has {peer[key]}; set the cluster's machines up alike."
                )
    rows, held_out = (sum(peer["rows"][part] for peer in peers) for part in (0, 1))
    if not rows:
        hint = f"all {held_out} are marked for validation" if held_out else "check the data and its filters"
        raise ValueError(f"There are no rows to train on; {hint}.")
    return peers


def _train(
    child: Child,
    plan: TaskPlan,
    directory: Path,
    rank: int,
    hosts: list[str],
    peers: list[dict[str, Any]],
    sender: Sender,
) -> dict[str, Any]:
    """Have the child train; its "done" event with the time it took to join."""
    host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    job = Job(
        training=plan.training,
        directory=str(directory),
        rank=rank,
        rows=[peer["rows"][0] for peer in peers],
        validation_rows=[peer["rows"][1] for peer in peers],
        coordinator=f"{host}:{peers[0]['port']}",
        start_seconds=START_SECONDS,
    )
    joined: dict[str, Any] = {}

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "joined":
            joined.update(joined=time.time(), device=event["device"])
        if event["event"] == "progress":
            sender.send(event)

    return child.run(job, on_event) | joined


def _environment(context: BarrierTaskContext, device: str, hosts: list[str]) -> dict[str, str]:
    """What the child's environment needs before JAX starts: threads, platform, visible devices."""
    resource = context.resources().get("gpu")
    environment = {
        "PJRT_NPROC": str(context.cpus()),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "JAX_PLATFORMS": "cuda" if device == "gpu" or (device == "auto" and resource) else "cpu",
        # A program takes its memory anew in every step: in pages of 2 MiB a CNN's step in whole batches takes a quarter
        # less time, one in parts a few percent.
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
    }
    folder = _local_directory()
    if folder and "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # compiled programs, for as long as the session lives
        environment["JAX_COMPILATION_CACHE_DIR"] = os.path.join(folder, "jax-compilation-cache")
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    if environment["JAX_PLATFORMS"] == "cuda":
        rank = context.partitionId()
        below = hosts[:rank].count(hosts[rank])  # workers of lower rank on this machine
        address = resource.addresses[0] if resource else str(below)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        # Spark counts the GPUs that its executor sees, which may be some of the machine's.
        narrowed = visible != [""] and address.isdigit() and int(address) < len(visible)
        environment["CUDA_VISIBLE_DEVICES"] = visible[int(address)] if narrowed else address
    return environment


def _reserved_port(host: str) -> socket.socket:
    """A socket that keeps a free port of this host until the coordinator, which shares ports, has taken it."""
    reservation = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind((host, 0))
    return reservation


def _local_directory() -> str | None:
    """A folder of Spark's on this machine's disk, if it says which; else Python's default."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if os.path.isdir(first) else None


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
