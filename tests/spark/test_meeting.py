"""Tasks of one executor meet in a folder: each has the messages of all, whatever earlier attempts have left there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdl.spark.tasks.meeting import gather

SECONDS = 60.0


class Context:
    """Stands in for a barrier task's context."""

    def __init__(self, rank: int, places: list[str]) -> None:
        self._rank, self._places = rank, places

    def partitionId(self) -> int:
        return self._rank

    def stageId(self) -> int:
        return 7

    def getTaskInfos(self) -> list[Any]:
        return [SimpleNamespace(address=place) for place in self._places]

    def allGather(self, message: str) -> list[str]:
        return [f"by Spark: {message}"]


def meet(rank: int, message: str, places: list[str], left: Callable[[], bool] = lambda: False) -> list[str]:
    return gather(Context(rank, places), message, left)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def give_up(rank: int, places: list[str], after: threading.Event) -> None:
    """A task that nobody else of its attempt comes to meet."""
    with pytest.raises(ConnectionError, match="given up"):
        meet(rank, f"old {rank}", places, after.is_set)


def test_each_has_the_messages_of_all_by_rank_and_nothing_is_left(disk: Path) -> None:
    places = ["a:1"] * 5
    messages = [f"message of {rank}, \N{SNOWMAN}" for rank in range(5)]
    with ThreadPoolExecutor(5) as pool:
        met = [pool.submit(meet, rank, messages[rank], places) for rank in reversed(range(5))]
        assert [each.result(SECONDS) for each in met] == [messages] * 5
    assert not list(disk.iterdir())


def test_what_an_earlier_attempt_left_is_not_taken_for_a_task(disk: Path) -> None:
    places, over = ["a:1"] * 3, threading.Event()
    with ThreadPoolExecutor(5) as pool:
        old = [pool.submit(give_up, rank, places, over) for rank in (1, 2)]
        over.set()
        for each in old:
            each.result(SECONDS)
        assert list(disk.iterdir())
        met = [pool.submit(meet, 0, "new 0", places)]
        with pytest.raises(TimeoutError):
            met[0].result(0.3)
        met += [pool.submit(meet, rank, f"new {rank}", places) for rank in (1, 2)]
        assert [each.result(SECONDS) for each in met] == [["new 0", "new 1", "new 2"]] * 3
    assert not list(disk.iterdir())


def test_messages_are_for_nobody_else(disk: Path) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(give_up, 0, ["a:1"] * 2, over)
        while not list(disk.glob("*/0")):
            assert not alone.done()
        over.set()
        alone.result(SECONDS)
    (folder,) = disk.iterdir()
    assert folder.stat().st_mode & 0o077 == 0


def test_tasks_of_several_executors_or_without_a_disk_meet_through_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert meet(0, "here", ["a:1", "a:2"]) == ["by Spark: here"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    assert meet(0, "here", ["a:1", "a:1"]) == ["by Spark: here"]


def test_a_task_alone_waits_for_nobody(disk: Path) -> None:
    assert meet(0, "here", ["a:1"]) == ["here"]
    assert not list(disk.iterdir())
