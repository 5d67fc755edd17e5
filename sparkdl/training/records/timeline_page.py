"""Fills the timeline's page, which needs no network: events as columns of integers, and what is summed from them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sparkdl.arrays import Array
from sparkdl.training.records.scaling import OTHER, WORDS, from_events, phase_seconds

if TYPE_CHECKING:
    from sparkdl.training.results import Epoch

BINS = 24  # of a histogram

# Colours after Okabe and Ito (2008) for the phases that alternate while training; the others stand at its ends.
COLOURS = {
    "read": "#999933",
    "write": "#cc6677",
    "start": "#7f7f7f",
    "meet": "#b8b8b8",
    "compile": "#aa4499",
    "batch": "#f0e442",
    "step": "#0072b2",
    "wait": "#d55e00",
    "exchange": "#e69f00",
    "validation": "#56b4e9",
    "checkpoint": "#009e73",
    "return": "#ddcc77",
}
UNKNOWN = "#6699cc"
GROUPS = {"compute": ("step",), "exchange": ("exchange",), "waiting": ("wait", "batch", "meet")}


def page(events: pd.DataFrame, history: Sequence[Epoch], began: float) -> str:
    """The page of a timeline, as HTML.

    Parameters
    ----------
    events : DataFrame
        With the columns of a `Timeline`.
    history : sequence of Epoch
    began : float
        Seconds since the Unix epoch at which `start` is 0.
    """
    names = [*WORDS, *sorted(set(events["phase"]) - set(WORDS))]
    names = [name for name in names if (events["phase"] == name).any()]
    workers = events[["rank", "host", "device"]].drop_duplicates("rank").sort_values("rank")
    data = {
        "began": began,
        "phases": [[name, WORDS.get(name, name), COLOURS.get(name, UNKNOWN)] for name in names],
        "workers": [list(worker) for worker in workers.itertuples(index=False)],
        "columns": _columns(events, names, workers["rank"].tolist()),
        "shares": _shares(events),
        "histograms": [_histogram(events[events["phase"] == name]) for name in names],
        "history": [{name: _number(value) for name, value in epoch._asdict().items()} for epoch in history],
        "report": [] if events.empty else from_events(events),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":  # host names are data: nothing in them may end the script element
        text = text.replace(character, f"\\u{ord(character):04x}")
    html, style, *scripts = (
        files("sparkdl.training.records").joinpath(name).read_text(encoding="utf-8")
        for name in ("timeline.html", "timeline.css", "timeline.js", "timeline_panels.js")
    )
    return html.replace("/*style*/", style).replace("/*script*/", "".join(scripts)).replace("__data__", text)


def _columns(events: pd.DataFrame, names: list[str], ranks: list[int]) -> dict[str, list[int]]:
    """Integers, lane after lane; starts as differences within a lane, in microseconds; -1 where there is none."""
    lane = events["rank"].map({rank: number for number, rank in enumerate(ranks)}).to_numpy(np.int64)
    start = np.rint(events["start"].to_numpy(np.float64) * 1e6).astype(np.int64)
    order = np.lexsort((start, lane))
    lane, start = lane[order], start[order]
    same = np.diff(lane, prepend=-1) == 0
    values = {
        "start": np.where(same, np.diff(start, prepend=0), start),
        "duration": np.rint(events["seconds"].to_numpy(np.float64) * 1e6)[order].astype(np.int64),
        "phase": events["phase"].map({name: number for number, name in enumerate(names)}).to_numpy(np.int64)[order],
    }
    for name in ("epoch", "step", "steps", "rows", "bytes"):
        column = events[name].fillna(-1).to_numpy(np.int64)[order]
        values[name] = column if (column >= 0).any() else column[:0]
    counts = np.bincount(lane, minlength=len(ranks))
    return {"counts": counts.tolist()} | {name: column.tolist() for name, column in values.items()}


def _shares(events: pd.DataFrame) -> list[dict[str, Any]]:
    """Of all workers and of each: the share of every phase and group in its time."""
    if events.empty:
        return []
    seconds = phase_seconds(events)
    table = pd.concat([seconds.mean().to_frame().T, seconds])
    table = table.div(table.sum(axis=1).replace(0.0, 1.0), axis=0)
    rows = []
    for share in table.to_dict("records"):
        groups = {name: sum(share.get(phase, 0.0) for phase in phases) for name, phases in GROUPS.items()}
        other = share.pop(OTHER)
        rows.append({"phases": [round(value, 5) for value in share.values()], "other": round(other, 5)} | groups)
    return rows


def _histogram(events: pd.DataFrame) -> dict[str, Any]:
    """Of the durations of one phase, in seconds, each as often as it stands for steps."""
    seconds = events["seconds"].to_numpy(np.float64)
    times = events["steps"].fillna(1).to_numpy(np.float64)
    shortest, longest = float(seconds.min()), float(seconds.max())
    logarithmic = longest > 20 * shortest > 0
    if logarithmic:
        edges = np.geomspace(shortest, longest, BINS + 1)
        edges[[0, -1]] = shortest, longest
    else:
        edges = np.linspace(shortest, longest if longest > shortest else shortest + 1e-6, BINS + 1)
    counts, _ = np.histogram(seconds, edges, weights=times)
    return {
        "counts": counts.tolist(),
        "edges": [float(f"{edge:.4g}") for edge in edges],
        "logarithmic": logarithmic,
        "number": float(times.sum()),
        "total": float((seconds * times).sum()),
        "median": _quantile(seconds, times, 0.5),
        "high": _quantile(seconds, times, 0.95),
    }


def _quantile(values: Array, times: Array, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(times[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])


def _number(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None
