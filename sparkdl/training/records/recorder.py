"""Notes what a worker does when, for the timeline of a fit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise, takewhile, zip_longest
from typing import Any

import numpy as np

from sparkdl.training.records.pulse import beat

COMPUTED, EXCHANGED, ENDED = range(3)  # moments of a step, as its program stamps them
SAMPLES = 1000  # of steps in a run, at most
EARLY = 100  # steps of which one in 10 is looked at, for the sake of short runs


def sampling(steps: int) -> int:
    """Every how many steps one is looked at, in a run of `steps`; each look takes about half a step of 30 ms."""
    return max(50, -(-steps // SAMPLES))


def is_sampled(step: Any, every: int) -> Any:
    """Whether a step is looked at: one in `every`, more at the start, and the first, which is slower than others."""
    return (step == 0) | (step % every == every // 2) | ((step < EARLY) & (step % 10 == 5))


def split_exchanges(workers: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The events of all workers with each exchange cut into the wait for the last worker to be ready, and the rest.

    Their clocks must agree; where they are off by more than a wait, that wait is taken for none.
    """
    exchanges: dict[int, dict[int, list[dict[str, Any]]]] = {}  # by step and worker, in their order
    for worker, events in enumerate(workers):
        for event in events:
            if event["phase"] == "exchange":
                exchanges.setdefault(event["step"], {}).setdefault(worker, []).append(event)
    ready: dict[int, float] = {}  # by event
    for of_step in exchanges.values():
        for same in zip_longest(*of_step.values()):  # of a step of several exchanges the first with the first
            own = [event for event in same if event]
            ready |= dict.fromkeys(map(id, own), max(event["start"] for event in own))

    def cut(event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["phase"] != "exchange":
            return [event]
        waited = min(max(0.0, ready[id(event)] - event["start"]), event["seconds"])
        rest = event | {"start": event["start"] + waited, "seconds": event["seconds"] - waited}
        return [event | {"phase": "wait", "seconds": waited}, rest]

    return [[part for event in events for part in cut(event)] for events in workers]


class Recorder:
    """A worker's events, on its own machine's clock.

    An event is a dict of phase, start (seconds since the Unix epoch), seconds, and perhaps epoch, step, steps (how many
    it stands for), rows and bytes.

    Parameters
    ----------
    active : bool
        False notes nothing.
    """

    def __init__(self, active: bool = True) -> None:
        self.active = active
        self._epoch = time.time() - time.perf_counter()  # the system's clock may be set while a fit runs
        self.events: list[dict[str, Any]] = []
        self._stamps: dict[tuple[int, int, int], float] = {}
        self._lock = threading.Lock()
        self._placed: dict[int, tuple[int, float, float]] = {}

    def now(self) -> float:
        """Seconds since the Unix epoch, never going back."""
        return self._epoch + time.perf_counter()

    def add(self, phase: str, start: float, seconds: float, **facts: Any) -> None:
        """Note one event."""
        if self.active:
            self.events.append({"phase": phase, "start": start, "seconds": seconds, **facts})

    @contextmanager
    def span(self, phase: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """Note the time that the block takes; it may add to the event's facts."""
        start = self.now()
        beat()
        try:
            yield facts
        finally:
            beat()
            self.add(phase, start, self.now() - start, **facts)

    def placed(self, epoch: int, step: int, asked: float) -> None:
        """Note that the batch of a sampled step, counted from the run's first, is there, and when it was asked for."""
        self._placed[step] = (epoch, asked, self.now())

    def stamp(self, moment: Any, step: Any, segment: Any = 0) -> np.ndarray[Any, Any]:
        """Called by the step's program, of a step in segments, or of several looks, for each; gives 0.

        Where a process has several devices, the last one's moment counts.
        """
        with self._lock:  # or one that has looked at the clock could write after one that looked later
            self._stamps[int(step), int(moment), int(segment)] = self.now()
        return np.zeros((), np.int32)

    def finish(self, first: int, last: int, rows: int, sent: int) -> list[dict[str, Any]]:
        """All events, those of the sampled steps made from the program's stamps.

        Parameters
        ----------
        first, last : int
            The steps taken were those from `first` up to, not with, `last`.
        rows, sent : int
            Rows of this worker in a step, and bytes that it sent, on average.
        """
        stamps = self._stamps
        sampled = sorted(step for step in self._placed if all((step, moment, 0) in stamps for moment in range(3)))
        middles = [(before + step + 1) // 2 if before else 1 for before, step in pairwise(sampled)]
        begins = [first, *middles]  # the first step of a run stands for itself only
        for step, begin, end in zip(sampled, begins, [*begins[1:], last], strict=False):
            epoch, asked, placed = self._placed[step]
            facts: dict[str, Any] = {"epoch": epoch, "step": step, "steps": end - begin}
            free = max(stamps.get((step - 1, ENDED, 0), asked), asked)  # of the step before, and of other work
            begun = max(free, placed)
            self.add("batch", free, begun - free, **facts)
            segments = list(takewhile(lambda each, step=step: (step, EXCHANGED, each) in stamps, count()))  # type: ignore[misc]
            for segment in segments:
                computed, exchanged = stamps[step, COMPUTED, segment], stamps[step, EXCHANGED, segment]
                own = {} if segment else {"rows": rows}
                self.add("step", begun, max(0.0, computed - begun), **own, **facts)
                if sent:
                    self.add("exchange", computed, exchanged - computed, bytes=sent / len(segments), **facts)
                begun = exchanged
            self.add("step", begun, stamps[step, ENDED, 0] - begun, **facts)
        self._placed.clear()
        return sorted(self.events, key=lambda event: event["start"])
