"""What a worker takes down of a run: every phase, steps by their program's own stamps, waits by all workers' clocks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from sparkdl import Network, training
from sparkdl.layers import Dense
from sparkdl.training.records.recorder import (
    COMPUTED,
    ENDED,
    EXCHANGED,
    Recorder,
    is_sampled,
    sampling,
    split_exchanges,
)

X = np.random.default_rng(41).normal(size=(240, 3)).astype("float32")
ROWS = (X, (X.sum(axis=1) > 0).astype(int))
NETWORK = Network([Dense(2)], input_shape=(3,))


def test_a_run_tells_its_phases_in_order_and_within_its_time() -> None:
    options = {"batch_size": 10, "epochs": 2, "devices": 3, "validation": ROWS}
    result = training.fit(NETWORK, ROWS, statistics=True, **options)
    events = result.events
    assert {event["phase"] for event in events} == {"compile", "batch", "step", "exchange", "validation"}
    assert [event["start"] for event in events] == sorted(event["start"] for event in events)
    assert all(event["seconds"] >= 0 for event in events)
    sampled = [event for event in events if event["phase"] == "exchange"]
    assert [(event["epoch"], event["step"], event["steps"]) for event in sampled] == [
        (0, 0, 1), (0, 5, 9), (0, 15, 10), (1, 25, 10), (1, 35, 10), (1, 45, 8),
    ]  # fmt: skip
    assert {event["bytes"] for event in sampled} == {round(2 * 2 / 3 * 4 * (3 * 2 + 2 + 3))}  # a ring's, of 3 workers
    assert {event["rows"] for event in events if event["phase"] == "step" and "rows" in event} == {round(80 / 24)}
    last = max(event["start"] + event["seconds"] for event in events)
    trained = sum(epoch.seconds + epoch.validation_seconds for epoch in result.history)
    first = next(event for event in events if event["phase"] == "batch")
    assert last - first["start"] == pytest.approx(trained, rel=0.5)
    assert training.fit(NETWORK, ROWS, **options).events == []


def test_statistics_change_no_weight() -> None:
    plain, told = (training.fit(NETWORK, ROWS, epochs=1, devices=2, statistics=on) for on in (False, True))
    assert np.array_equal(plain.weights["dense_0"]["kernel"], told.weights["dense_0"]["kernel"])


def test_a_step_is_cut_at_its_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([2.0, 5.0, 9.0, 10.0, 3.0])
    monkeypatch.setattr(Recorder, "now", lambda self: next(clock))
    recorder = Recorder()
    recorder.stamp(ENDED, 14)  # at 2
    for moment in (COMPUTED, EXCHANGED, ENDED):  # at 5, 9 and 10
        recorder.stamp(moment, 15)
    recorder.placed(1, 15, 1.5)  # at 3, asked for at 1.5
    events = recorder.finish(10, 20, rows=4, sent=8)
    cut = [(event["phase"], event["start"], event["seconds"]) for event in events]
    assert cut == [("batch", 2.0, 1.0), ("step", 3.0, 2.0), ("exchange", 5.0, 4.0), ("step", 9.0, 1.0)]
    assert {(event["epoch"], event["step"], event["steps"]) for event in events} == {(1, 15, 10)}


def test_a_truncated_step_is_cut_at_the_stamps_of_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([2.0, 5.0, 6.0, 10.0, 12.0, 1.5])
    monkeypatch.setattr(Recorder, "now", lambda self: next(clock))
    recorder = Recorder()
    for moment, segment in ((COMPUTED, 0), (EXCHANGED, 0), (COMPUTED, 1), (EXCHANGED, 1), (ENDED, 0)):
        recorder.stamp(moment, 0, segment)
    recorder.placed(0, 0, 1.0)  # at 1.5
    events = recorder.finish(0, 1, rows=4, sent=8)
    cut = [(event["phase"], event["start"], event["seconds"], event.get("bytes")) for event in events]
    assert cut == [
        ("batch", 1.0, 0.5, None),
        ("step", 1.5, 0.5, None),
        ("exchange", 2.0, 3.0, 4.0),
        ("step", 5.0, 1.0, None),
        ("exchange", 6.0, 4.0, 4.0),
        ("step", 10.0, 2.0, None),
    ]
    assert [event.get("rows") for event in events if event["phase"] == "step"] == [4, None, None]


def test_of_several_devices_in_a_process_the_last_stamp_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stamped = threading.Event(), threading.Event()

    def now(recorder: Recorder) -> float:
        if threading.current_thread() is not early:
            return 11.0
        asked.set()
        stamped.wait(0.5)  # which the other's stamp ends, if it need not wait for this one
        return 10.0

    monkeypatch.setattr(Recorder, "now", now)
    recorder = Recorder()
    early = threading.Thread(target=recorder.stamp, args=(ENDED, 0))
    early.start()
    assert asked.wait(5)
    recorder.stamp(ENDED, 0)
    stamped.set()
    early.join(5)
    recorder.stamp(COMPUTED, 0)
    recorder.stamp(EXCHANGED, 0)
    recorder.placed(0, 0, 1.0)
    *_, end = recorder.finish(0, 1, rows=1, sent=1)
    assert (end["start"], end["seconds"]) == (11.0, 0.0)


def test_an_exchange_begins_when_the_last_worker_is_ready() -> None:
    def exchange(start: float, seconds: float) -> dict[str, object]:
        return {"phase": "exchange", "start": start, "seconds": seconds, "step": 0}

    early, late = split_exchanges([[exchange(1.0, 4.0)], [exchange(3.0, 2.0)]])
    assert [(event["phase"], event["start"], event["seconds"]) for event in early] == [
        ("wait", 1.0, 2.0), ("exchange", 3.0, 2.0),
    ]  # fmt: skip
    assert [(event["phase"], event["seconds"]) for event in late] == [("wait", 0.0), ("exchange", 2.0)]


def test_each_segment_s_exchange_waits_for_the_last_worker_of_that_segment() -> None:
    def exchanges(*spans: tuple[float, float]) -> list[dict[str, object]]:
        return [{"phase": "exchange", "start": start, "seconds": seconds, "step": 7} for start, seconds in spans]

    parts = split_exchanges([exchanges((1.0, 4.0), (6.0, 1.0)), exchanges((3.0, 2.0), (5.5, 1.5))])
    waits = [[event["seconds"] for event in events if event["phase"] == "wait"] for events in parts]
    assert waits == [[2.0, 0.0], [0.0, 0.5]]


def test_no_run_is_looked_at_more_than_a_thousand_times() -> None:
    assert [sampling(steps) for steps in (1, 50_000, 50_001, 5_000_000)] == [50, 50, 51, 5_000]
    looked_at = [step for step in range(300) if is_sampled(step, 50)]
    assert looked_at == [0, *range(5, 100, 10), 125, 175, 225, 275]
