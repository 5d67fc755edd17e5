"""Loss and metric of a pass over the rows, added up on the host while the device goes on."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparkdl.training.records.pulse import beat

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.2  # between two reports of progress


class Meter:
    """Adds up a pass's totals, read back two steps late so that the device never waits for the host.

    Parameters
    ----------
    epoch, epochs : int
        Number of this epoch from 0, and how many there are.
    rows, steps : int
        Of the pass.
    report : callable or None
    step, sums, seconds : int, sequence of 4 floats, float
        What an earlier process has done of this pass.

    Attributes
    ----------
    sums : array (4,)
        So far, over rows: weight * loss, weight * metric, weight; and the bytes sent.
    """

    def __init__(
        self,
        epoch: int,
        epochs: int,
        rows: int,
        steps: int,
        report: Report | None,
        step: int = 0,
        sums: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
        seconds: float = 0.0,
    ) -> None:
        self._epoch, self._epochs, self._rows, self._steps, self._report = epoch, epochs, rows, steps, report
        self._pending: deque[Any] = deque()
        self.sums = np.array(sums)
        self._step = step
        self._reported = time.perf_counter()
        self._started = self._reported - seconds

    def add(self, totals: Any) -> list[tuple[int, float]]:
        """Take a step's totals, still on their way from the device; gives the steps that were read, with mean loss."""
        self._pending.append(totals)
        self._step += 1
        read = self._read() if len(self._pending) > 2 else []
        if self._report and time.perf_counter() - self._reported > REPORT_SECONDS:
            self._reported = time.perf_counter()
            self._report(self.message())
        return read

    def flush(self) -> list[tuple[int, float]]:
        """Wait until every step is done; those that were read now, with their mean loss."""
        read = []
        while self._pending:
            read += self._read()
        return read

    def means(self) -> tuple[float, float]:
        """Mean loss and metric by weight, once every step is done; NaN if all rows so far weigh 0."""
        self.flush()
        loss, metric, weight, _ = self.sums
        return (float(loss / weight), float(metric / weight)) if weight else (math.nan, math.nan)

    def seconds(self) -> float:
        """Wall time since the pass began."""
        return time.perf_counter() - self._started

    def numbers(self) -> dict[str, float | None]:
        """Means so far, rows a second, and bytes sent."""
        loss, metric, weight, sent = self.sums
        return {
            "loss": loss / weight if weight > 0 else None,
            "metric": metric / weight if weight > 0 else None,
            "rows_per_second": self._rows * self._step / self._steps / self.seconds(),
            "bytes": sent,
        }

    def message(self) -> dict[str, Any]:
        """What is known so far, for a progress bar."""
        numbers = self.numbers()
        return {
            "epoch": self._epoch,
            "epochs": self._epochs,
            "rows": self._rows * self._step // self._steps,
            "total_rows": self._rows,
            "loss": numbers["loss"],
            "metric": numbers["metric"],
            "seconds": self.seconds(),
        }

    def _read(self) -> list[tuple[int, float]]:
        totals = np.asarray(self._pending.popleft().addressable_data(0), np.float64)
        beat()
        self.sums[: len(totals)] += totals
        # An exchange that holds its totals back gives zeros; NaN is no weight that one could miss.
        return [] if totals[2] == 0 else [(self._step - len(self._pending), float(totals[0] / totals[2]))]
