"""Starts a worker process, talks to it, and sees to its end; every wait has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from sparkdl.launch.follower import LogFollower
from sparkdl.launch.fork_server import Forked, fork_worker
from sparkdl.training.worker import HEARTBEAT_SECONDS, Job, job_line

SILENCE_SECONDS = 30 * HEARTBEAT_SECONDS  # a worker that says nothing for so long has been stopped or has hung
STUCK, STUCK_SECONDS = "SPARKDL_STUCK_SECONDS", 1800.0  # without a step done or a phase begun: compiling takes minutes
LOG_LINES, LOG_BYTES = 20, 1 << 14  # of a failed worker's last words


class WorkerError(RuntimeError):
    """A worker process failed.

    Attributes
    ----------
    type : str
        Name of the exception's class in the worker; "" if the process ended without one.
    secondary : bool
        Whether the failure looks like the consequence of another worker's.
    """

    def __init__(self, message: str, type: str = "", secondary: bool = False) -> None:
        super().__init__(message)
        self.type = type
        self.secondary = secondary


class Child:
    """A worker process; as a context manager it is gone afterwards, whatever happened.

    Parameters
    ----------
    log : Path
        File for what the process prints; if this process dies, the other one removes the file's folder.
    environment : dict
        Variables to set for it: threads and visible devices must be known before JAX starts.
    """

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        whole = os.environ | environment
        with log.open("wb") as stream:
            forked = fork_worker(str(log.parent), stream, whole) if whole.get("JAX_PLATFORMS") == "cpu" else None
            self._process: Forked | subprocess.Popen[str] = forked or _started(str(log.parent), stream, whole)
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def run(self, job: Job, on_event: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Have the job done.

        Parameters
        ----------
        job : Job
        on_event : callable
            Called with every event on the way, among them "progress".

        Returns
        -------
        dict
            The event "done", whose "runs" hold history, compile_seconds, training_seconds, ... of each.

        Raises
        ------
        WorkerError
            The process failed, died, said nothing for `SILENCE_SECONDS`, or got on with nothing for `STUCK_SECONDS`.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job_line(job))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead, which its events tell better
        while True:
            try:
                event = self._events.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                message = (
                    f"its process {self.pid} gave no sign of life for {SILENCE_SECONDS:.0f} s and was ended; "
                    "look for a stopped process or a frozen machine."
                )
                raise WorkerError(self._with_last_words(message)) from None
            if event is None:
                raise self._death()
            if event["event"] == "error":
                message = event["message"]
                if event["type"] != "ValueError":  # which tells the user all there is to know
                    message = self._with_last_words(message)
                raise WorkerError(message, event["type"], _is_secondary(event))
            if event.get("idle", 0.0) > (most := _stuck_seconds()):
                message = (
                    f"its process {self.pid} lives, but has got on with nothing for {most:g} s and was ended; look for "
                    f"what waits without end, or set the environment variable {STUCK} to more seconds where a step, or "
                    "compiling it, takes longer."
                )
                raise WorkerError(self._with_last_words(message))
            if event["event"] == "given up":
                raise WorkerError("it was ended because another worker failed.", secondary=True)
            if event["event"] == "done":
                return event
            on_event(event)

    def give_up(self) -> None:
        """Have `run` raise a secondary WorkerError; for another thread to call when another worker has failed."""
        self._events.put({"event": "given up"})

    def close(self) -> None:
        """End the process if it runs still."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent input of a dead process
                    stream.close()

    def log_tail(self) -> str:
        """The last lines the process printed."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES))
                lines = stream.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-LOG_LINES:])

    def follow(self, say: Callable[[str], None]) -> LogFollower:
        """Have `say` called with every line that the process prints, for as long as the result's context lasts."""
        return LogFollower(self._log, say)

    def _with_last_words(self, message: str) -> str:
        tail = self.log_tail()
        return f"{message}\nThe last it printed:\n{tail}" if tail else message

    def _death(self) -> WorkerError:
        code = self._process.wait()
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        hint = "; the machine may be out of memory" if code == -9 else ""
        message = self._with_last_words(f"its process {how}{hint}.")
        return WorkerError(message, secondary=code == -6)  # XLA's runtime aborts when it has lost a peer

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            try:
                self._events.put(json.loads(line))
            except json.JSONDecodeError:
                continue  # cut short by the process's death
        self._events.put(None)


def _started(directory: str, log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "sparkdl.training.worker", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment,
        # Spark's daemon hangs up on its process group when an executor dies, which would forestall cleaning up.
        start_new_session=True,
    )


def _stuck_seconds() -> float:
    text = os.environ.get(STUCK, "")
    try:
        return float(text or STUCK_SECONDS)
    except ValueError:
        raise WorkerError(f"{STUCK} must be a number of seconds, received {text!r}; mend it.", "ValueError") from None


def _is_secondary(event: dict[str, Any]) -> bool:
    """Whether an error came out of the exchange, as it does in every worker when one of them dies."""
    return event["type"] in ("JaxRuntimeError", "XlaRuntimeError") and any(
        sign in event["message"] for sign in ("Gloo", "gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "Connection", "NCCL")
    )
