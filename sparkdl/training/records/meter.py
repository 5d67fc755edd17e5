"""Loss and metric of a pass over the rows, added up on the host while the device goes on."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.objective import FIRST, PENALTY, SENT, Objective
from sparkdl.training.records.pulse import beat

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.2  # between two reports of progress


class Means(NamedTuple):
    """What sums come to.

    Attributes
    ----------
    loss : float
        With regularization; NaN if all rows weigh 0.
    metric : float or None
        None of several outputs.
    outputs : dict of (float, float)
        Loss and metric by output, of several.
    """

    loss: float
    metric: float | None
    outputs: dict[str, tuple[float, float]]


def means_of(sums: Array, objective: Objective) -> Means:
    """The means that sums as of `Objective.totals` come to."""
    if not objective.several:
        loss, metric, weight = map(float, sums[:3])
        return Means(loss / weight, metric / weight, {}) if weight else Means(math.nan, math.nan, {})
    outputs = {}
    total = float(sums[PENALTY] / sums[2]) if sums[2] else math.nan
    for name, (loss, metric, weight) in zip(objective.losses, sums[FIRST:].reshape(-1, 3), strict=True):
        outputs[name] = (float(loss / weight), float(metric / weight)) if weight else (math.nan, math.nan)
        total += objective.weights[name] * outputs[name][0] if weight else 0.0
    return Means(total, None, outputs)


class Meter:
    """Adds up a pass's totals, of one run or of several, read back two steps late so that the device never waits.

    Parameters
    ----------
    epoch, epochs : int
        Number of this epoch from 0, and how many there are.
    rows, steps : int
        Of the pass.
    report : callable or None
    objective : Objective
    step, sums, seconds : int, array-like (size,) or (runs, size), float
        What an earlier process has done of this pass.

    Attributes
    ----------
    sums : array (size,) or (runs, size)
        So far, over rows: weight * loss, weight * metric, weight; and the bytes sent. Of several outputs see
        `Objective.totals`.
    """

    def __init__(
        self,
        epoch: int,
        epochs: int,
        rows: int,
        steps: int,
        report: Report | None,
        objective: Objective,
        step: int = 0,
        sums: Any = None,
        seconds: float = 0.0,
    ) -> None:
        self._epoch, self._epochs, self._rows, self._steps, self._report = epoch, epochs, rows, steps, report
        self._pending: deque[Any] = deque()
        self._objective = objective
        self.sums = np.zeros(objective.size) if sums is None else np.array(sums)
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

    def means(self) -> list[Means]:
        """Those of every run, once every step is done."""
        self.flush()
        return [means_of(sums, self._objective) for sums in self.sums.reshape(-1, self._objective.size)]

    def seconds(self) -> float:
        """Wall time since the pass began."""
        return time.perf_counter() - self._started

    def numbers(self) -> dict[str, float | None]:
        """Means so far, rows a second, and bytes sent; of several runs the first one's."""
        first = self.sums.reshape(-1, self._objective.size)[0]
        means = means_of(first, self._objective) if first[2] > 0 else Means(math.nan, None, {})
        return {
            "loss": means.loss if first[2] > 0 else None,
            "metric": means.metric,
            "rows_per_second": self._rows * self._step / self._steps / self.seconds(),
            "bytes": float(first[SENT]),
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
