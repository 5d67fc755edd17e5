"""One worker's failure reaches all of them at once; a worker that is done alarms nobody."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from sparkdl.launch.alarm import DIED, DONE, LOST, RAISED, Alarm

WORLD = 3


@pytest.fixture
def alarms() -> list[Alarm]:
    return [Alarm("127.0.0.1") for _ in range(WORLD)]


def watched(alarms: list[Alarm]) -> list[threading.Event]:
    rung = [threading.Event() for _ in alarms]
    for rank, alarm in enumerate(alarms):
        alarm.watch(rank, WORLD, alarms[0].address, rung[rank].set)
    return rung


@pytest.mark.parametrize("failed", range(WORLD))
@pytest.mark.parametrize("how", [RAISED, DIED])
def test_the_failure_of_any_worker_rings_at_every_other(alarms: list[Alarm], failed: int, how: bytes) -> None:
    with ExitStack() as others:
        rung = watched(alarms)
        for rank, alarm in enumerate(alarms):
            if rank != failed:
                others.enter_context(alarm)
        if how == RAISED:
            alarms[failed].end(RAISED)
        alarms[failed].__exit__(None, None, None)
        for rank in set(range(WORLD)) - {failed}:
            assert rung[rank].wait(5)
            assert alarms[rank].cause(5) == (how, failed)


def test_workers_that_are_done_alarm_nobody(alarms: list[Alarm]) -> None:
    rung = watched(alarms)
    listening = [thread for thread in threading.enumerate() if thread.name.endswith(("(_listen)", "(_greet)"))]
    for alarm in (alarms[1], alarms[0], alarms[2]):
        alarm.end(DONE)
        alarm.__exit__(None, None, None)
    for thread in listening:
        thread.join(5)
        assert not thread.is_alive()
    assert not any(event.is_set() for event in rung)


def test_a_stranger_is_not_heard(alarms: list[Alarm]) -> None:
    with ExitStack() as all_of_them:
        rung = watched([all_of_them.enter_context(alarm) for alarm in alarms])
        address = alarms[0].address
        with socket.create_connection((address["host"], address["port"]), 5) as stranger:
            stranger.sendall(b"x" * len(address["token"]))
            assert stranger.recv(1) == b""
        assert not any(event.is_set() for event in rung)
        for alarm in alarms:
            alarm.end(DONE)


def test_an_unreachable_center_is_an_error(alarms: list[Alarm]) -> None:
    with alarms[0]:
        pass
    with alarms[1], pytest.raises(OSError):
        alarms[1].watch(1, WORLD, alarms[0].address, lambda: None)
    alarms[2].__exit__(None, None, None)


def test_a_worker_that_never_comes_is_lost(alarms: list[Alarm], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkdl.launch.alarm.ADMIT_SECONDS", 0.5)
    with alarms[0], alarms[1], alarms[2]:
        rung = [threading.Event() for _ in alarms]
        for rank in (0, 1):
            alarms[rank].watch(rank, WORLD, alarms[0].address, rung[rank].set)
        for rank in (0, 1):
            assert rung[rank].wait(5)
            assert alarms[rank].cause(0) == (LOST, 2)


def test_workers_learn_how_far_their_clock_is_from_the_first_ones(
    alarms: list[Alarm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker's clock, which answers in a thread of its own, is 100 seconds ahead."""
    here, real = threading.current_thread(), time.time
    monkeypatch.setattr("sparkdl.launch.alarm.time.time", lambda: real() + 100 * (threading.current_thread() != here))
    with ExitStack() as all_of_them:
        rung = watched([all_of_them.enter_context(alarm) for alarm in alarms])
        assert alarms[0].offset == 0
        assert [alarm.offset for alarm in alarms[1:]] == pytest.approx([100, 100], abs=0.5)
        alarms[1].end(RAISED)  # which is heard as before
        assert rung[2].wait(5)
