"""Says in plain words where a fit's time went, and what another worker would bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from sparkdl.training.results import Epoch

STEP = ("step", "exchange", "wait", "batch")  # what a step consists of
WORDS = {
    "read": "reading rows",
    "write": "writing rows to disk",
    "start": "starting workers",
    "meet": "meeting the peers and sharing rows evenly",
    "compile": "compiling",
    "batch": "waiting for batches",
    "step": "compute",
    "wait": "waiting for peers",
    "exchange": "exchange",
    "validation": "validation",
    "checkpoint": "checkpoints",
    "return": "returning the result",
}
OTHER = "all else"


def phase_seconds(events: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every worker (rows) in every phase (columns), in the order of a fit.

    An event that stands for several steps counts as often. What no event covers, of the time between the fit's first
    event and its last, is `OTHER`.
    """
    weighted = events["seconds"] * events["steps"].fillna(1).astype(float)
    table = weighted.groupby([events["rank"], events["phase"]]).sum().unstack(fill_value=0.0)
    known = [phase for phase in WORDS if phase in table]
    table = table[known + [phase for phase in table if phase not in WORDS]]
    return table.assign(**{OTHER: (wall_seconds(events) - table.sum(axis=1)).clip(lower=0.0)})


def wall_seconds(events: pd.DataFrame) -> float:
    """Seconds from the fit's first event to the end of its last."""
    return float((events["start"] + events["seconds"]).max() - events["start"].min())


def scaling_report(events: pd.DataFrame, history: Sequence[Epoch], timings: Mapping[str, float], workers: int) -> str:
    """Where the time of a fit went and what another worker would bring, in plain words.

    Parameters
    ----------
    events : DataFrame
        A `Timeline`; empty if no statistics were collected.
    history : sequence of Epoch
    timings : mapping of str to float
        Seconds of the fit by phase, as in `TrainingSummary.timings`; told where there are no events.
    workers : int
        How many took part.

    Returns
    -------
    str
        Sentences, one a line.

    Notes
    -----
    With W workers a step takes compute + exchange + rest. Of W + 1 workers each has W / (W + 1) of the rows and of the
    compute. The exchange takes W^2 / (W^2 - 1) times as long if it follows the bytes of a ring all-reduce,
    2 (W - 1) / W of the gradient, and W / (W - 1) times if it follows the number of peers, as gathering and latencies
    do.
    """
    lines = from_timings(timings, workers) if events.empty else from_events(events)
    seconds = sum(epoch.seconds for epoch in history)
    if seconds:
        lines.insert(1, f"Training saw {sum(epoch.rows for epoch in history) / seconds:,.0f} rows a second.")
    return "\n".join(lines)


def from_timings(timings: Mapping[str, float], workers: int) -> list[str]:
    """What can be said without events."""
    total = sum(timings.values())
    if not total:
        return ["Nothing was timed."]
    least = total - timings.get("training", 0.0) / (workers + 1)
    return [
        f"{_count(workers, 'worker')} took {_time(total)}: {_shares(timings, total)}.",
        f"A worker more would make the fit at most {total / least:.2f} times as fast, had the training no exchange and "
        "no waiting.",
        "No statistics were collected, so compute, exchange and waiting cannot be told apart.",
    ]


def from_events(events: pd.DataFrame) -> list[str]:
    """What the events of a fit say."""
    by_phase = phase_seconds(events)
    workers, wall, mean = len(by_phase), wall_seconds(events), by_phase.mean().to_dict()
    named = {WORDS.get(phase, phase): seconds for phase, seconds in mean.items()}
    lines = [f"{_count(workers, 'worker')} took {_time(wall)}: {_shares(named, sum(mean.values()))}."]
    steps = _steps(events) / workers
    if not steps:
        return [*lines, "No step was recorded, so there is nothing to say of another worker."]
    parts = {phase: mean.get(phase, 0.0) / steps for phase in STEP}
    step = sum(parts.values())
    named = {WORDS[phase]: seconds for phase, seconds in parts.items()}
    lines.append(f"A step took {_time(step)} in the mean of {steps:,.0f}: {_shares(named, step)}.")
    if workers > 1:
        lines.append(_straggler(events, workers, wall))
    validation = mean.get("validation", 0.0)
    return lines + (_second(parts, step) if workers == 1 else _another(parts, steps, validation, workers, wall))


def _steps(events: pd.DataFrame) -> float:
    """Steps that the events stand for, over all workers; the compute of one step may come as several events."""
    computed = events[events["phase"] == "step"]
    again = computed["step"].notna() & computed.duplicated(["rank", "epoch", "step"])
    return float(computed.loc[~again, "steps"].fillna(1).astype(float).sum())


def _straggler(events: pd.DataFrame, workers: int, wall: float) -> str:
    """Whoever waits least in a step's exchange was last to come to it."""
    waits = events[(events["phase"] == "wait") & events["step"].notna()]
    waits = waits.assign(epoch=waits["epoch"].fillna(0))
    table = waits.pivot_table(index=["epoch", "step"], columns="rank", values="seconds", aggfunc="sum").dropna()
    if table.empty or table.shape[1] < workers:
        return "No step's waiting was recorded on all workers, so it is not known who was waited for."
    times = waits.groupby(["epoch", "step"])["steps"].max().reindex(table.index).fillna(1).astype(float)
    last = table.idxmin(axis=1)
    lost = (table.sub(table.min(axis=1), axis=0).sum(axis=1) / (workers - 1) * times).groupby(last).sum()
    rank, seconds = lost.idxmax(), lost.max()
    if seconds < 0.01 * wall:
        return "No worker was waited for noticeably."
    host = events.loc[events["rank"] == rank, "host"].iloc[0]
    share = times[last == rank].sum() / times.sum()
    return (
        f"Worker {rank} on {host} was waited for most: it came last in {_percent(share)} of the steps, which cost each "
        f"of the others {_time(seconds)}, {_percent(seconds / wall)} of the fit."
    )


def _second(parts: Mapping[str, float], step: float) -> list[str]:
    saved = parts["step"] / 2
    return [
        f"A second worker would halve the compute: a step would take {_time(step - saved)} and its exchange, which one "
        "worker alone does not measure.",
        f"It pays where an exchange takes less than {_time(saved)}, if the batch stays as large and the worker has "
        "cores of its own that are as fast.",
    ]


def _another(parts: Mapping[str, float], steps: float, validation: float, workers: int, wall: float) -> list[str]:
    step = sum(parts.values())
    growths = workers**2 / (workers**2 - 1), workers / (workers - 1)
    saved = [parts["step"] / (workers + 1) - parts["exchange"] * (growth - 1) for growth in growths]
    steps_faster = [step / (step - seconds) for seconds in saved]
    fit_faster = [wall / (wall - seconds * steps - validation / (workers + 1)) for seconds in saved]
    lines = [
        f"With a worker more, a step would take {_between([step - seconds for seconds in saved], _time)}, "
        f"{_between(steps_faster, _ratio)} times as fast, and the fit would be {_between(fit_faster, _ratio)} times as "
        "fast.",
        "This takes for granted that the size of a batch and the waiting stay, that the new worker is as fast as the "
        "others on cores of its own, and that the exchange grows at best as a ring's bytes do, at worst with the count "
        "of peers.",
    ]
    if saved[0] <= 0:
        lines.append("So another worker does not pay.")
    for phase, gained, advice in (
        ("exchange", parts["exchange"] / 2, "larger batches, ParameterAveraging or ThresholdSharing"),
        ("wait", parts["wait"], "workers that are equally fast"),
        ("batch", parts["batch"], "rows that are read faster, as images in binary columns or a faster local disk,"),
    ):
        if gained > max(saved[0], 0.01 * step):
            words = WORDS[phase].capitalize() if phase != "exchange" else "The exchange"
            lines.append(
                f"{words} takes {_percent(parts[phase] / step)} of a step: {advice} would help more than a worker."
            )
    return lines


def _shares(seconds: Mapping[str, float], total: float) -> str:
    """Percentages, largest first, without what rounds to nothing."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {_percent(value / total)}" for name, value in ordered if value / total >= 0.005)


def _between(values: Sequence[float], written: Callable[[float], str]) -> str:
    low, high = (written(value) for value in sorted(values))
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' if number != 1 else ''}"


def _time(seconds: float) -> str:
    """ "8.20 ms", "12.3 s", "4 min 10 s"."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
