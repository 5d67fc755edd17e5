"""What a process prints is handed over in whole lines and in time, and a flood of it is cut."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sparkdl.launch import follower
from sparkdl.launch.follower import LINE_BYTES, LINES_A_POLL, LogFollower


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "POLL_SECONDS", 0.02)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.touch()
    return path


def add(log: Path, text: bytes) -> None:
    with log.open("ab") as stream:
        stream.write(text)


def all_said(log: Path) -> list[str]:
    """What is said of a file that is there already."""
    said: list[str] = []
    with LogFollower(log, said.append):
        pass
    return said


def test_lines_arrive_whole_while_they_are_printed(log: Path) -> None:
    said: list[str] = []
    arrived = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        arrived.set()

    with LogFollower(log, say):
        for part, expected in ((b"one\ntw", ["one"]), (b"o\r\n", ["one", "two"])):
            arrived.clear()
            add(log, part)
            assert arrived.wait(10)
            assert said == expected
        add(log, b"without an end")
    assert said == ["one", "two", "without an end"]


def test_a_flood_is_dropped_and_counted(log: Path) -> None:
    add(log, b"".join(b"line %d\n" % number for number in range(50_000)))
    said = all_said(log)
    assert said[:-1] == [f"line {number}" for number in range(LINES_A_POLL)]
    assert said[-1] == f"... {50_000 - LINES_A_POLL} more lines were dropped"


def test_long_lines_are_cut_and_strange_bytes_replaced(log: Path) -> None:
    add(log, b"x" * 10**6 + b"\n\xff\n" + b"y" * LINE_BYTES + b"\n" + b"z" * 10**6)
    assert all_said(log) == ["x" * LINE_BYTES + "...", "\ufffd", "y" * LINE_BYTES, "z" * LINE_BYTES + "..."]


def test_one_who_does_not_listen_holds_nobody_up(log: Path) -> None:
    add(log, b"line\n")
    heard, release = threading.Event(), threading.Event()

    def say(line: str) -> None:
        heard.set()
        release.wait(10)

    started = time.monotonic()
    with LogFollower(log, say):
        assert heard.wait(10)
    assert time.monotonic() - started < 5
    release.set()


def test_a_file_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert all_said(tmp_path / "gone.txt") == []
