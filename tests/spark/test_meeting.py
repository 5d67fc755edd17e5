"""How the workers of a fit meet: at a socket those of one executor, by Spark's allGather all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from sparkdl.spark.tasks import meeting
from sparkdl.spark.tasks.meeting import Meeting

DEADLINE = 20.0
SOCKETS = pytest.mark.skipif(
    not meeting.IN_ORDER or sys.platform != "linux", reason="workers meet at a socket on Linux, from Spark 4 on"
)


class Spark:
    """Stands in for one attempt of a barrier stage: its tasks' ids, addresses, and allGather."""

    def __init__(self, *addresses: str, first: int = 0) -> None:
        self.addresses, self.first = addresses, first
        self.asked: list[int] = []
        self.seconds = DEADLINE  # until it ends those who wait
        self._barrier = threading.Barrier(len(addresses))
        self._said: dict[int, str] = {}

    def context(self, rank: int) -> Any:
        """The context of one of the tasks."""
        return SimpleNamespace(
            partitionId=lambda: rank,
            taskAttemptId=lambda: self.first + rank,
            getTaskInfos=lambda: [SimpleNamespace(address=address) for address in self.addresses],
            allGather=lambda message: self._gather(rank, message),
        )

    def _gather(self, rank: int, message: str) -> list[str]:
        self.asked.append(rank)
        self._said[rank] = message
        self._barrier.wait(self.seconds)
        return [self._said[number] for number in range(len(self.addresses))]


def together(*workers: Callable[[], Any]) -> list[Any]:
    """What each of them returns, in threads that begin at once."""
    returned: dict[int, Any] = {}

    def work(number: int, worker: Callable[[], Any]) -> None:
        returned[number] = worker()

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    return [returned[number] for number in range(len(workers))]


def meet(spark: Spark, rank: int, message: str | None = None) -> list[str]:
    with Meeting(spark.context(rank), "fit") as own:
        return own.gather(f"of {rank}" if message is None else message)


def by(spark: Spark, *ranks: int) -> list[Callable[[], list[str]]]:
    return [lambda rank=rank: meet(spark, rank) for rank in ranks]  # type: ignore[misc]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PATIENCE_SECONDS", 0.2)


@SOCKETS
@pytest.mark.parametrize("workers", [2, 3, 9])
def test_workers_of_one_executor_tell_each_other_all_without_spark(workers: int) -> None:
    spark = Spark(*["a:1"] * workers)
    assert together(*by(spark, *range(workers))) == [[f"of {rank}" for rank in range(workers)]] * workers
    assert not spark.asked


@SOCKETS
def test_what_they_tell_may_be_long_and_of_several_lines() -> None:
    spark = Spark("a:1", "a:1")
    said = ["é\n" * 1_000_000, "\0"]
    assert together(*(lambda rank=rank: meet(spark, rank, said[rank]) for rank in (0, 1))) == [said, said]
    assert not spark.asked


@SOCKETS
def test_a_worker_may_come_late_to_the_meeting_once_it_has_begun(hurried: None) -> None:
    spark, reading = Spark("a:1", "a:1"), threading.Event()
    with Meeting(spark.context(0), "fit") as first:  # which listens from here on

        def late() -> list[str]:
            with Meeting(spark.context(1), "fit") as second:
                assert reading.wait(DEADLINE)
                return second.gather("late")

        threading.Timer(0.5, reading.set).start()  # longer than anybody waits for others to come
        assert together(late, lambda: first.gather("soon")) == [["soon", "late"]] * 2
    assert not spark.asked


def test_executors_that_are_apart_meet_by_spark() -> None:
    spark = Spark("a:1", "a:2")
    assert together(*by(spark, 0, 1)) == [["of 0", "of 1"]] * 2
    assert sorted(spark.asked) == [0, 1]


def test_a_worker_alone_waits_for_nobody() -> None:
    spark = Spark("a:1")
    assert meet(spark, 0) == ["of 0"]
    assert not spark.asked


@SOCKETS
def test_all_go_to_spark_where_one_cannot_come_to_the_socket(hurried: None) -> None:
    spark = Spark("a:1", "a:1", "a:1")
    lost = spark.context(2)
    lost.taskAttemptId = lambda: 17  # so that it looks for the others elsewhere

    def stray() -> list[str]:
        with Meeting(lost, "fit") as own:
            return own.gather("of 2")

    assert together(*by(spark, 0, 1), stray) == [["of 0", "of 1", "of 2"]] * 3
    assert sorted(spark.asked) == [0, 1, 2]


@SOCKETS
@pytest.mark.parametrize("dead", [0, 1])
def test_who_loses_another_waits_at_spark_which_will_end_it(dead: int, hurried: None) -> None:
    spark = Spark("a:1", "a:1", "a:1")
    met = threading.Barrier(3)

    def die() -> None:
        with Meeting(spark.context(dead), "fit"):
            met.wait(DEADLINE)

    def live(rank: int) -> str:
        with Meeting(spark.context(rank), "fit") as own:
            met.wait(DEADLINE)
            with pytest.raises(threading.BrokenBarrierError):
                own.gather("alive")
            return "ended"

    living, spark.seconds = {0, 1, 2} - {dead}, 0.5
    assert together(die, *(lambda rank=rank: live(rank) for rank in living)) == [None, "ended", "ended"]
    assert sorted(spark.asked) == sorted(living)


@SOCKETS
def test_workers_of_an_attempt_that_is_being_ended_are_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, running = Spark("a:1", "a:1"), Spark("a:1", "a:1", first=2)
    with monkeypatch.context() as patch:
        patch.setattr(meeting, "PATIENCE_SECONDS", 0.2)
        left = Meeting(ended.context(0), "fit")  # whose only peer has died
    with left:
        assert together(*by(running, 1, 0)) == [["of 0", "of 1"]] * 2
        ended.seconds = 0.5
        with pytest.raises(threading.BrokenBarrierError):
            left.gather("of the one before")
    assert not running.asked


@pytest.fixture
def other_user() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can be another user")
    begun: list[subprocess.Popen[str]] = []

    def begin(program: str) -> subprocess.Popen[str]:
        command = ["/usr/bin/env", "python3", "-c", program]  # not ours, which others may be kept from
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user=65534, cwd="/"))
        stream = begun[-1].stdout
        assert stream is not None and stream.readline() == "there\n"
        return begun[-1]

    yield begin
    for process in begun:
        with process:
            process.kill()


@SOCKETS
def test_another_user_who_comes_to_the_socket_is_not_heard(other_user: Any) -> None:
    spark = Spark("a:1", "a:1")
    with Meeting(spark.context(0), "fit") as first:
        other_user(
            "import socket\n"
            "s = socket.socket(socket.AF_UNIX); s.connect('\\0sparkdl-fit-0'); s.sendall(b'[1, \"a lie\"]\\n')\n"
            "print('there', flush=True); s.recv(1)\n"
        )
        assert together(*by(spark, 1), lambda: first.gather("of 0")) == [["of 0", "of 1"]] * 2
    assert not spark.asked


@SOCKETS
def test_another_user_who_has_the_socket_is_told_nothing(other_user: Any, hurried: None) -> None:
    spark = Spark("a:1", "a:1")
    host = other_user(
        "import socket\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('\\0sparkdl-fit-0'); s.listen(9)\n"
        "print('there', flush=True)\n"
        "while True: print('heard', s.accept()[0].recv(100), flush=True)\n"
    )
    assert together(*by(spark, 0, 1)) == [["of 0", "of 1"]] * 2
    assert sorted(spark.asked) == [0, 1]
    host.kill()
    assert host.stdout is not None and set(host.stdout.read().splitlines()) == {"heard b''"}


def test_spark_numbers_the_tasks_of_a_barrier_stage_in_turn(spark: SparkSession) -> None:
    """As a meeting at a socket relies on: were it not so, all would wait for `PATIENCE_SECONDS` and go to Spark."""

    def told(_: Any) -> Any:
        context = BarrierTaskContext.get()
        asked = []
        gather = context.allGather
        context.allGather = lambda message: [asked.append(1), gather(message)][1]  # type: ignore[method-assign]
        with Meeting(context, "numbers") as own:
            heard = own.gather(json.dumps(context.partitionId()))
        yield context.taskAttemptId() - context.partitionId(), heard, bool(asked)

    tasks = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(told).collect()
    assert [heard for _, heard, _ in tasks] == [["0", "1"]] * 2
    assert [asked for _, _, asked in tasks] == [not meeting.IN_ORDER] * 2
    assert not meeting.IN_ORDER or len({number for number, _, _ in tasks}) == 1
