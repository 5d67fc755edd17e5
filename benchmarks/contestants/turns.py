"""Contestants in processes of their own: starts them, asks them for turns, ends them; every wait has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from contestants.serve import FAREWELL_SECONDS, Spec, Turn

from sparkdl.spark.tasks.environment import TRAINING_MEMORY, TUNABLES

READY_SECONDS = 900.0  # to import, compile and warm up, while all the others do
TURN_SECONDS, STEP_SECONDS = 300.0, 5.0  # the longest that a turn may take: so much, and so much more for every step
LOG_LINES = 20


@dataclass(frozen=True)
class Contestant:
    """What takes part, and where it runs.

    Attributes
    ----------
    name : str
    entry : str
        "module:function", see `Spec`.
    threads : int
        Cores of each of its processes.
    copies : int
        Processes, which take every turn at once; each has cores of its own.
    package : str
        What must be installed for it, by import name.
    settings : dict
        Handed to the entry.
    """

    name: str
    entry: str
    threads: int = 1
    copies: int = 1
    package: str = "sparkdl"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Cores that it runs on."""
        return self.threads * self.copies


class ContestantError(RuntimeError):
    """A contestant's process ended or did not answer."""


class Process:
    """One process of a contestant."""

    def __init__(self, name: str, spec: Spec, log: Path) -> None:
        self._name, self._log = name, log
        threads = str(len(spec.cores))
        environment = {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            # Whatever they leave goes with the folder.
            "TMPDIR": spec.folder,
            "SPARK_LOCAL_DIRS": spec.folder,
            "TORCHINDUCTOR_CACHE_DIR": spec.folder,
            TUNABLES: TRAINING_MEMORY,  # as our workers have it; others gain up to 5 % by its large pages
            # Threads, which most frameworks must know before they start; and no GPU.
            "PJRT_NPROC": threads,
            "OMP_NUM_THREADS": threads,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "contestants.serve", json.dumps(asdict(spec))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=os.environ | environment,
                start_new_session=True,  # so that Ctrl-C ends only the benchmark, which then ends these in order
            )
        self._answers: queue.Queue[Turn | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def ask(self, steps: int) -> None:
        """Have it take a turn."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is dead, which `answer` tells better
            self._process.stdin.write(json.dumps({"steps": steps}) + "\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> Turn:
        """Its next answer; ContestantError if it ends, or does not answer within so many seconds."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise ContestantError(f"{self._name} did not answer by its deadline; {self._last_words()}") from None
        if answer is None:
            raise ContestantError(f"{self._name} ended with exit code {self._process.wait()}; {self._last_words()}")
        return answer

    def dismiss(self) -> None:
        """Tell it to end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self, deadline: float) -> None:
        """See it ended, with all that it started, by a time of the monotonic clock."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "the last it printed:\n" + "\n".join(lines[-LOG_LINES:])

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with contextlib.suppress(json.JSONDecodeError):  # cut short by the process's death
                    self._answers.put(json.loads(line))
        self._answers.put(None)


def available_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def started(contestants: Iterable[Contestant], folder: Path, steps: int) -> Iterator[dict[str, list[Process]]]:
    """The contestants' processes by name, warmed up; they are gone afterwards, whatever happened.

    Parameters
    ----------
    contestants : iterable of Contestant
        Each starts on the first of the available cores.
    folder : Path
        With rows and weights.
    steps : int
        Of a turn.
    """
    cores = available_cores()
    processes: dict[str, list[Process]] = {}
    try:
        for contestant in contestants:
            processes[contestant.name] = []
            for copy in range(contestant.copies):
                own = cores[copy * contestant.threads : (copy + 1) * contestant.threads]
                spec = Spec(contestant.entry, own, str(folder), steps, dict(contestant.settings))
                log = folder / f"{contestant.name}_{copy}.log"
                processes[contestant.name].append(Process(contestant.name, spec, log))
        deadline = time.monotonic() + READY_SECONDS
        for process in _all(processes):
            process.answer(max(0.0, deadline - time.monotonic()))
        yield processes
    finally:
        for process in _all(processes):
            process.dismiss()
        deadline = time.monotonic() + 2 * FAREWELL_SECONDS
        for process in _all(processes):
            process.close(deadline)


def turn(processes: list[Process], steps: int) -> Turn:
    """One turn of a contestant; of several copies the slowest counts, as it does to whoever waits for both."""
    for process in processes:
        process.ask(steps)
    answers = [process.answer(TURN_SECONDS + STEP_SECONDS * steps) for process in processes]
    return max(answers, key=lambda answer: answer["seconds"])


def _all(processes: dict[str, list[Process]]) -> list[Process]:
    return [process for own in processes.values() for process in own]
