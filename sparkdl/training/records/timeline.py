"""The events of a fit as a pandas frame, a page and a trace: what every worker did when."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sparkdl.training.records import timeline_page

if TYPE_CHECKING:
    from sparkdl.training.results import Epoch

NUMBERS = ("epoch", "step", "steps", "rows", "bytes")
COLUMNS = ("rank", "host", "device", "phase", "start", "seconds", *NUMBERS)
MICROSECONDS = 1e6


class Timeline(pd.DataFrame):
    """A pandas frame of a fit's events, ordered by start, that can also be saved as a page and as a trace.

    Columns: rank, host and device of the worker; phase; start, in seconds since the fit's first event; seconds; and,
    missing where they mean nothing, epoch, step, steps (how many of them a recorded one stands for), rows and bytes.
    A part of the frame, as `timeline[timeline["rank"] == 0]`, is a Timeline too.

    Attributes
    ----------
    history : list of Epoch
    began : float
        Seconds since the Unix epoch of the fit's first event; 0 without any.
    """

    _metadata = ["history", "began"]  # what pandas hands on to frames made of this one
    history: list[Epoch] = []
    began: float = 0.0

    @property
    def _constructor(self) -> Callable[..., Timeline]:
        return Timeline

    @classmethod
    def of(cls, workers: Sequence[Mapping[str, Any]], history: Sequence[Epoch]) -> Timeline:
        """Gather what the workers recorded.

        Parameters
        ----------
        workers : sequence of dict
            For every worker: rank, host, device, and events, dicts of phase, start (seconds since the Unix epoch, on a
            clock that all share), seconds, and perhaps epoch, step, steps, rows and bytes.
        history : sequence of Epoch

        Returns
        -------
        Timeline
        """
        about = ("rank", "host", "device")
        rows = [
            [*(worker[name] for name in about), *(event.get(name) for name in COLUMNS[3:])]
            for worker in workers
            for event in worker["events"]
        ]
        timeline = cls(rows, columns=list(COLUMNS))
        types = {"rank": "int64", "start": "float64", "seconds": "float64", **dict.fromkeys(NUMBERS, "Int64")}
        timeline = timeline.astype(types).sort_values(["start", "rank"], kind="stable", ignore_index=True)
        timeline.began = 0.0 if timeline.empty else float(timeline["start"].iloc[0])
        timeline["start"] -= timeline.began
        timeline.history = list(history)
        return timeline

    def save_html(self, path: str | Path) -> None:
        """Write one page that needs nothing else: lanes to zoom into, shares, histograms, and curves of the loss.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        self._check("save_html")
        Path(path).write_text(timeline_page.page(self, self.history, self.began), encoding="utf-8")

    def save_trace(self, path: str | Path) -> None:
        """Write trace-event JSON, as Perfetto (ui.perfetto.dev) and chrome://tracing open it.

        Every worker is a process, times are in microseconds, and the losses are counters.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        self._check("save_trace")
        events = [*self._processes(), *self._complete(), *self._losses()]
        trace = {"displayTimeUnit": "ms", "traceEvents": events}
        Path(path).write_text(json.dumps(trace, separators=(",", ":"), allow_nan=False), encoding="utf-8")

    def _check(self, method: str) -> None:
        missing = [name for name in COLUMNS if name not in self.columns]
        if missing:
            raise ValueError(
                f"Timeline.{method} expects all columns of a timeline, received a frame without {', '.join(missing)}; "
                "call it on summary.timeline or on rows of it."
            )

    def _processes(self) -> list[dict[str, Any]]:
        workers = self[["rank", "host", "device"]].drop_duplicates("rank").sort_values("rank")
        return [
            {"ph": "M", "pid": rank, "tid": 0, "name": kind, "args": args}
            for rank, host, device in workers.itertuples(index=False)
            for kind, args in (
                ("process_name", {"name": f"worker {rank} on {host}"}),
                ("process_sort_index", {"sort_index": rank}),
                ("thread_name", {"name": device}),
            )
        ]

    def _complete(self) -> list[dict[str, Any]]:
        columns = [self[name].tolist() for name in ("rank", "phase", "start", "seconds", *NUMBERS)]
        return [
            {
                "ph": "X",
                "pid": rank,
                "tid": 0,
                "name": phase,
                "cat": "fit",
                "ts": round(start * MICROSECONDS, 3),
                "dur": round(seconds * MICROSECONDS, 3),
                "args": {name: value for name, value in zip(NUMBERS, facts, strict=True) if value is not pd.NA},
            }
            for rank, phase, start, seconds, *facts in zip(*columns, strict=True)
        ]

    def _losses(self) -> list[dict[str, Any]]:
        """A counter at the end of every epoch that events tell of."""
        ends = (self["start"] + self["seconds"]).groupby(self["epoch"]).max()
        return [
            {"ph": "C", "pid": int(self["rank"].min()), "tid": 0, "name": name, "ts": round(end * MICROSECONDS, 3)}
            | {"args": {"loss": loss}}
            for epoch, end in ends.items()
            if epoch < len(self.history)
            for name, loss in (
                ("training loss", self.history[epoch].loss),
                ("validation loss", self.history[epoch].validation_loss),
            )
            if loss is not None and math.isfinite(loss)
        ]
