"""A timeline is a frame, a trace, a page that a browser shows, and a report whose numbers are right."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sparkdl.training.records.scaling import phase_seconds, scaling_report
from sparkdl.training.records.timeline import COLUMNS, Timeline
from sparkdl.training.results import Epoch

BEGAN = 1.7e9  # a moment in 2023
EVIL = "</script><script>window.onerror('evil')</script><img src=x onerror=alert(1)>&\"'"


def epoch(loss: float, validation_loss: float | None = None) -> Epoch:
    return Epoch(loss, 0.5, validation_loss, None, 1000, 2.0, 0.0)


def worker(rank: int, *events: dict[str, Any], host: str = "") -> dict[str, Any]:
    return {"rank": rank, "host": host or f"host-{rank}", "device": "cpu", "events": list(events)}


def event(phase: str, start: float, seconds: float, **facts: Any) -> dict[str, Any]:
    return {"phase": phase, "start": BEGAN + start, "seconds": seconds, **facts}


def two_workers(waits: tuple[float, float] = (1.0, 0.0), exchange: float = 1.0) -> Timeline:
    """Two steps, the second standing for ten: 4 s of compute, the waits, the exchange, and 1 s for batches; 110 s."""
    workers = []
    for rank, wait in enumerate(waits):
        events = [event("start", 0.0, 10.0)]
        for step, begin in ((0, 10.0), (1, 20.0)):
            facts = {"epoch": 0, "step": step, "steps": 1 if step == 0 else 10}
            events += [
                event("batch", begin, 1.0, **facts),
                event("step", begin + 1, 3.0, rows=16, **facts),
                event("wait", begin + 4, wait, **facts),
                event("exchange", begin + 4 + wait, exchange, bytes=800, **facts),
                event("step", begin + 4 + wait + exchange, 1.0, **facts),
            ]
        workers.append(worker(rank, *events, event("return", 109.0, 1.0)))
    return Timeline.of(workers, [epoch(2.0, 2.5)])


def many(workers: int, steps: int) -> Timeline:
    """Four events a step."""
    phases = ("batch", "step", "wait", "exchange")
    return Timeline.of(
        [
            worker(
                rank,
                *(
                    event(phase, 0.04 * step + 0.01 * part, 0.0097, epoch=step // 100, step=step, rows=32)
                    for step in range(steps)
                    for part, phase in enumerate(phases)
                ),
            )
            for rank in range(workers)
        ],
        [epoch(2.0, 2.5), epoch(float("nan")), epoch(1.0, 1.5)],
    )


def test_events_become_a_frame_in_the_order_of_their_starts() -> None:
    timeline = Timeline.of(
        [worker(1, event("compile", 2.0, 3.0), event("read", 0.5, 1.0, rows=7)), worker(0, event("read", 0.0, 1.0))], []
    )
    assert list(timeline.columns) == list(COLUMNS)
    assert timeline[["rank", "host", "phase", "start", "seconds"]].values.tolist() == [
        [0, "host-0", "read", 0.0, 1.0],
        [1, "host-1", "read", 0.5, 1.0],
        [1, "host-1", "compile", 2.0, 3.0],
    ]
    assert timeline["rows"].isna().tolist() == [True, False, True] and timeline["rows"].sum() == 7
    assert timeline.began == BEGAN


def test_a_part_of_a_timeline_is_a_timeline_with_its_history() -> None:
    whole = two_workers()
    part = whole[whole["rank"] == 1]
    assert isinstance(part, Timeline) and isinstance(whole, pd.DataFrame)
    assert (part.history, part.began) == (whole.history, BEGAN)
    assert set(part["rank"]) == {1}


def test_only_a_whole_row_of_columns_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save_html expects all columns .* without start"):
        two_workers().drop(columns="start").save_html(tmp_path / "page.html")


def test_the_trace_has_every_event_in_microseconds(tmp_path: Path) -> None:
    timeline = two_workers()
    timeline.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [one for one in events if one["ph"] == "X"]
    assert len(complete) == len(timeline)
    found = next(one for one in complete if one["name"] == "exchange" and one["pid"] == 1 and one["args"]["step"] == 1)
    assert (found["ts"], found["dur"]) == (24e6, 1e6)
    assert found["args"] == {"epoch": 0, "step": 1, "steps": 10, "bytes": 800}
    names = {(one["name"], one["pid"]): one["args"] for one in events if one["ph"] == "M"}
    assert names["process_name", 1] == {"name": "worker 1 on host-1"} and names["thread_name", 0] == {"name": "cpu"}
    losses = {one["name"]: (one["ts"], one["args"]["loss"]) for one in events if one["ph"] == "C"}
    assert losses == {"training loss": (27e6, 2.0), "validation loss": (27e6, 2.5)}


def test_a_recorded_step_counts_for_all_that_it_stands_for() -> None:
    table = phase_seconds(two_workers())
    assert table.loc[0].to_dict() == {
        "start": 10.0, "batch": 11.0, "step": 44.0, "wait": 11.0, "exchange": 11.0, "return": 1.0, "all else": 22.0,
    }  # fmt: skip
    assert table.loc[1, "all else"] == 110 - 77


def test_the_report_tells_where_the_time_went_and_what_a_worker_more_would_bring() -> None:
    timeline = two_workers()
    report = scaling_report(timeline, timeline.history, {}, 2)
    # The workers' mean, of 110 s: compute 44, exchange 11, batches 11, waiting 5.5; of a step of 6.5 s: 4, 1, 1, 0.5.
    assert "2 workers took 1 min 50 s: compute 40 %" in report and "waiting for peers 5 %" in report
    assert "500 rows a second" in report  # 1,000 rows in the epoch's 2 s
    assert "A step took 6.5 s in the mean of 11: compute 62 %, exchange 15 %, waiting for batches 15 %" in report
    assert "Worker 1 on host-1 was waited for most: it came last in 100 % of the steps" in report
    assert "each of the others 11 s, 10 % of the fit" in report
    # Compute falls by 4/3; the exchange grows by 1/3 as a ring, doubles with the peers: 5.5 s to 6.17 s.
    assert "a step would take 5.5 s to 6.17 s, 1.05 to 1.18 times as fast" in report
    # Of 110 s go 11 steps' gain, 11 s or 3.67 s.
    assert "the fit would be 1.03 to 1.11 times as fast" in report
    assert "would help more" not in report


def test_the_report_says_when_another_worker_does_not_pay() -> None:
    timeline = two_workers(waits=(0.0, 0.0), exchange=8.0)
    report = scaling_report(timeline, [], {}, 2)
    assert "No worker was waited for noticeably." in report
    assert "So another worker does not pay." in report  # 4/3 s of compute for 8/3 s of exchange
    assert "The exchange takes 62 % of a step: larger batches, ParameterAveraging or ThresholdSharing" in report


def test_one_worker_learns_how_fast_an_exchange_must_be() -> None:
    timeline = Timeline.of([worker(0, event("step", 0.0, 0.2, step=0), event("batch", 0.2, 0.1, step=0))], [])
    report = scaling_report(timeline, [], {}, 1)
    assert "1 worker took 300 ms: compute 67 %" in report
    assert "a step would take 200 ms and its exchange, which one worker alone does not measure" in report
    assert "pays where an exchange takes less than 100 ms" in report


def test_without_statistics_the_report_takes_the_timings() -> None:
    report = scaling_report(Timeline.of([], []), [epoch(1.0)], {"start": 2.0, "training": 6.0, "return": 0.0}, 2)
    assert "2 workers took 8 s: training 75 %, start 25 %." in report
    assert "at most 1.33 times as fast" in report  # 6 s of training would be 4 s
    assert "No statistics were collected" in report and "500 rows a second" in report


def test_without_steps_or_waits_the_report_says_so() -> None:
    nothing = Timeline.of([worker(0, event("read", 0.0, 1.0))], [])
    assert "No step was recorded" in scaling_report(nothing, [], {}, 1)
    timeline = two_workers()
    assert "not known who was waited for" in scaling_report(timeline[timeline["phase"] != "wait"], [], {}, 2)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 102,400 events of 64 workers."""
    page = tmp_path_factory.mktemp("timeline") / "page.html"
    many(64, 400).save_html(page)
    return page


def test_the_page_stands_alone_and_is_light(long_run: Path) -> None:
    assert long_run.stat().st_size < 5e6
    assert not re.search(r"https?:|//cdn|src=|@import|url\(|<link", long_run.read_text(encoding="utf-8"))


def test_host_names_cannot_end_the_script(tmp_path: Path) -> None:
    Timeline.of([worker(0, event(EVIL, 0.0, 1.0), host=EVIL)], []).save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2 and "<img" not in page


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        assert not os.environ.get("CI"), "found no chromium; install it, as .ci/run does"
        pytest.skip("found no chromium")
    return found


def shown(chromium: str, page: Path, hash: str = "") -> tuple[dict[str, str], str]:
    """The facts that the page writes about itself, and all of its document once its scripts have run."""
    quiet = "no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update disable-sync"
    command = [chromium, "--headless", *(f"--{option}" for option in quiet.split()), "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=2000", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, "--dump-dom", f"file://{page}{hash}"], capture_output=True, text=True, timeout=120, check=True
    )
    facts = re.search(r'<main id="facts"([^>]*)>', done.stdout)
    assert facts, done.stderr
    return dict(re.findall(r'data-(\w+)="([^"]*)"', facts[1])), done.stdout


def test_a_browser_shows_every_event_of_a_long_run(chromium: str, long_run: Path) -> None:
    facts, document = shown(chromium, long_run)
    assert (facts["errors"], facts["ready"], facts["lanes"], facts["drawn"]) == ("", "yes", "64", "102400")
    assert float(facts["from"]) < 0 and float(facts["to"]) > 16
    assert document.count("<figure>") == 4 and document.count('class="stack"') == 65
    assert document.count("<circle") == 2 + 2  # of three epochs one has a loss that is no number and no validation


def test_address_keys_wheel_and_pointer_move_and_explain(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    steps = [event("step", second, 0.75, epoch=0, step=second, rows=64) for second in range(10)]
    Timeline.of([worker(0, *steps, host=EVIL), worker(1, *steps)], []).save_html(page)
    used = """<script>
        facts.opened = [facts.from, facts.to, facts.drawn];
        const box = canvas.getBoundingClientRect(), clientX = box.left + GUTTER + (box.width - GUTTER) / 2;
        const place = { clientX, clientY: box.top + AXIS + 9 };
        stage.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
        stage.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        canvas.dispatchEvent(new WheelEvent("wheel", { ...place, deltaY: 100, cancelable: true }));
        canvas.dispatchEvent(new PointerEvent("pointermove", place));
        draw();  // now, and not when a busy machine's browser comes to it
        document.title = tooltip.innerText.replaceAll("\\n", "; ");
    </script>"""
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", used + "</body>"), encoding="utf-8")
    facts, document = shown(chromium, page, "#from=2.9&to=6.9")
    assert facts["errors"] == ""
    assert facts["opened"] == "2.900000,6.900000,8"  # the steps that begin at 3, 4, 5 and 6 on both workers
    # Plus halves 4 s to 3.9 to 5.9; the arrow goes on by a quarter, 0.5 s; the wheel widens by 1.0025^100 about 5.4 s.
    half = 1.0025**100
    assert float(facts["from"]) == pytest.approx(5.4 - half, abs=0.01)
    assert float(facts["to"]) == pytest.approx(5.4 + half, abs=0.01)
    title = re.search("<title>(.*?)</title>", document)
    told = f"compute; 750 ms, from 5.000000 s; epoch 1, step 6; 64 rows; worker 0 on {EVIL}, cpu"
    assert title and unescape(title[1]) == told
