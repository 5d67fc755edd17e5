"""Loss and metric of a pass over the rows, added up on the host while the device goes on."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.training.records.pulse import beat

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.2  # between two reports of progress


class Meter:
    """Adds up a pass's totals, of one run or of several, read back two steps late so that the device never waits.

    Parameters
    ----------
    epoch, epochs : int
        Number of this epoch from 0, and how many there are.
    rows, steps : int
        Of the pass.
    report : callable or None
    step, sums, seconds : int, array-like (4,) or (runs, 4), float
        What an earlier process has done of this pass.

    Attributes
    ----------
    sums : array (4,) or (runs, 4)
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
        sums: Any = (0.0, 0.0, 0.0, 0.0),
        seconds: float = 0.0,
    ) -> None:
        self._epoch, self._epochs, self._rows, self._steps, self._report = epoch, epochs, rows, steps, report
        self._pending: deque[Any] = deque()
        self.sums = np.array(sums)
        self._step = step
        self._reported = time.perf_counter()
        self._started = self._reported - seconds

    def add(self, totals: Any) -> list[tuple[int, Array]]:
        """Take a step's totals, still on their way from the device; gives the steps that were read, with theirs."""
        self._pending.append(totals)
        self._step += 1
        read = self._read() if len(self._pending) > 2 else []
        if self._report and time.perf_counter() - self._reported > REPORT_SECONDS:
            self._reported = time.perf_counter()
            self._report(self.message())
        return read

    def flush(self) -> list[tuple[int, Array]]:
        """Wait until every step is done; those that were read now, with their totals."""
        read = []
        while self._pending:
            read += self._read()
        return read

    def means(self) -> list[tuple[float, float]]:
        """Mean loss and metric by weight of every run, once every step is done; NaN if all rows so far weigh 0."""
        self.flush()
        return [
            (float(loss / weight), float(metric / weight)) if weight else (math.nan, math.nan)
            for loss, metric, weight, _ in self.sums.reshape(-1, 4)
        ]

    def seconds(self) -> float:
        """Wall time since the pass began."""
        return time.perf_counter() - self._started

    def numbers(self) -> dict[str, float | None]:
        """Means so far, rows a second, and bytes sent; of several runs the first one's."""
        loss, metric, weight, sent = self.sums.reshape(-1, 4)[0]
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

    def _read(self) -> list[tuple[int, Array]]:
        totals = np.asarray(self._pending.popleft().addressable_data(0), np.float64)
        beat()
        self.sums[..., : totals.shape[-1]] += totals
        return [(self._step - len(self._pending), totals)]
