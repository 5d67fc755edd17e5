"""Loss and metric of a pass over the rows, added up on the host while the device goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.2  # between two reports of progress


class Meter:
    """Adds up a pass's totals, read back two steps late so that the device never waits for the host."""

    def __init__(self, epoch: int, epochs: int, rows: int, steps: int, report: Report | None) -> None:
        self._epoch, self._epochs, self._rows, self._steps, self._report = epoch, epochs, rows, steps, report
        self._pending: deque[Any] = deque()
        self._sums = np.zeros(3)
        self._step = 0
        self._started = self._reported = time.perf_counter()

    def add(self, totals: Any) -> None:
        """Take a step's (loss, metric, weight), still on its way from the device."""
        self._pending.append(totals)
        self._step += 1
        if len(self._pending) > 2:
            self._read()
        if self._report and time.perf_counter() - self._reported > REPORT_SECONDS:
            self._reported = time.perf_counter()
            self._report(self.message())

    def means(self) -> tuple[float, float]:
        """Mean loss and metric by weight, once every step is done."""
        while self._pending:
            self._read()
        loss, metric, weight = self._sums
        if not weight > 0:
            raise ValueError("All rows weigh 0; give at least one row a positive weight.")
        return float(loss / weight), float(metric / weight)

    def seconds(self) -> float:
        """Wall time since the pass began."""
        return time.perf_counter() - self._started

    def message(self) -> dict[str, Any]:
        """What is known so far, for a progress bar."""
        loss, metric, weight = self._sums
        return {
            "epoch": self._epoch,
            "epochs": self._epochs,
            "rows": self._rows * self._step // self._steps,
            "total_rows": self._rows,
            "loss": loss / weight if weight > 0 else None,
            "metric": metric / weight if weight > 0 else None,
            "seconds": self.seconds(),
        }

    def _read(self) -> None:
        self._sums += np.asarray(self._pending.popleft().addressable_data(0), np.float64)
