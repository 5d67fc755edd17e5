"""What befalls a fit, and when: a signal to one of its processes at a moment that the task itself can tell."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from sparkdl.spark.driver import cluster


@dataclass(frozen=True)
class Strike:
    """A signal to the process of a rank.

    Attributes
    ----------
    moment : str
        "meet", before all workers tell each other of themselves; "ready", "joined", "progress", "done", events of the
        child process; "checkpoint", when a file has appeared.
    victim : str
        "child", or "task" for the Python worker that Spark started.
    rank : int
    signal : int
    """

    moment: str
    victim: str
    rank: int = 0
    signal: int = signal.SIGKILL


def strike(patch: pytest.MonkeyPatch, *strikes: Strike, notes: Path, checkpoints: Path, silence: float = 60.0) -> None:
    """Have the attempts of the next fits' stages struck, each by the next of the strikes until none is left.

    Notes are files: "struck-0" and so on for the strikes that happened, "failure-0-1" for what rank 1 raised after the
    first. A process is silent for `silence` seconds before it is given up.
    """
    import strikes as module

    cloudpickle.register_pickle_by_value(module)  # Spark's Python workers do not find it
    patch.setattr(
        cluster,
        "run_task",
        partial(_struck_task, strikes=strikes, notes=notes, checkpoints=checkpoints, silence=silence),
    )


def struck(notes: Path) -> int:
    """How many strikes there were."""
    return len(list(notes.glob("struck-*")))


def _struck_task(
    batches: Iterator[pa.RecordBatch],
    plan: Any,
    strikes: tuple[Strike, ...],
    notes: Path,
    checkpoints: Path,
    silence: float,
) -> Iterator[pa.RecordBatch]:
    """In the place of `run_task`, in Spark's Python worker, which serves other tasks afterwards."""
    from pyspark import BarrierTaskContext

    from sparkdl.launch import child
    from sparkdl.spark.tasks import task

    rank, number = BarrierTaskContext.get().partitionId(), struck(notes)
    coming = strikes[number] if number < len(strikes) and strikes[number].rank == rank else None
    run, meet = child.Child.run, task._meet
    process, over = None, threading.Event()

    def hit() -> None:
        assert coming is not None
        (notes / f"struck-{number}").touch()
        os.kill(os.getpid() if coming.victim == "task" else process.pid, coming.signal)

    def run_until(self: child.Child, job: Any, on_event: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        nonlocal coming, process
        process = self

        def heard(event: dict[str, Any]) -> None:
            nonlocal coming
            if coming and event["event"] == coming.moment:
                hit()
                coming = None
            on_event(event)

        if coming and coming.moment == "checkpoint":
            threading.Thread(target=_at_new_file, args=(checkpoints, over, hit), daemon=True).start()
        done = run(self, job, heard)
        if coming and coming.moment == "done":
            hit()
        return done

    def meet_or_not(*arguments: Any) -> Any:
        if coming and coming.moment == "meet":
            hit()
        return meet(*arguments)

    child.Child.run, task._meet, child.SILENCE_SECONDS = run_until, meet_or_not, silence
    try:
        yield from task.run_task(batches, plan)
    except task.TaskFailure as failure:
        (notes / f"failure-{number}-{rank}").write_text(str(failure))
        raise
    finally:
        over.set()
        child.Child.run, task._meet, child.SILENCE_SECONDS = run, meet, 60.0


def _at_new_file(folder: Path, over: threading.Event, hit: Callable[[], None]) -> None:
    before = set(folder.rglob("*.ckpt"))
    while not over.wait(0.002):
        if set(folder.rglob("*.ckpt")) - before:
            hit()
            return
