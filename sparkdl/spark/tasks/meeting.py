"""How the tasks of a fit tell each other where they are and what they have: through Spark, or in a shared folder."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext

from sparkdl.spark.tasks.local_disk import local_directory

WAKE_SECONDS = 0.01


def gather(context: BarrierTaskContext, message: str, left: Callable[[], bool]) -> list[str]:
    """The message of every task, by rank, once all have one.

    Spark's `allGather` looks once a second whether all have come. Tasks of one executor share its local disk, and meet
    there.

    Parameters
    ----------
    context : BarrierTaskContext
    message : str
    left : callable
        Whether Spark has left this task, and nobody waits for it.

    Raises
    ------
    ConnectionError
        `left` says so.
    """
    places = [info.address for info in context.getTaskInfos()]
    disk = local_directory()
    if len(places) == 1:
        return [message]
    if disk is None or len(set(places)) > 1:
        return context.allGather(message)  # type: ignore[no-any-return]
    return _gather_in(
        Path(disk, f"sparkdl-meeting-{context.stageId()}"), context.partitionId(), len(places), message, left
    )


def _gather_in(folder: Path, rank: int, number: int, message: str, left: Callable[[], bool]) -> list[str]:
    """The same for tasks that share a folder, in which each has a file.

    Python is not told which attempt of a stage it runs in, and an earlier one may have left files. So a task's file
    says which others it has seen, and a task waits until all that it sees have seen it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)  # for nobody else, as allGather's messages are
    own: dict[str, Any] = {"task": uuid.uuid4().hex, "message": message, "seen": None, "done": False}
    while True:
        found = [own if other == rank else _read(folder / str(other)) for other in range(number)]
        seen = [other["task"] for other in found]
        if seen != own["seen"]:
            own["seen"] = seen
            _write(folder / str(rank), own)
        if all(other["seen"] and other["seen"][rank] == own["task"] for other in found):
            break
        if left():
            raise ConnectionError("Spark has given up this task")
        time.sleep(WAKE_SECONDS)
    own["done"] = True
    _write(folder / str(rank), own)
    if all(_read(folder / str(other))["done"] for other in range(number)):
        shutil.rmtree(folder, ignore_errors=True)
    return [other["message"] for other in found]


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {"task": None, "seen": None, "done": False}


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is whole as soon as it is there."""
    part = path.with_suffix(f".{content['task']}")
    part.write_text(json.dumps(content))
    os.replace(part, path)
