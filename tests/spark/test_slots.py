"""Fits that want slots at once get them in the order in which they came, and give them back whatever happens."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

import pytest

from sparkdl.spark.driver.slots import Queue, taken

DEADLINE = 10.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads are about to do."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Crowd:
    """Threads that want slots of one queue, one after another, and leave when they are told to."""

    def __init__(self, total: int) -> None:
        self.queue, self.total = Queue(), total
        self.entered: list[str] = []
        self.threads: dict[str, threading.Thread] = {}
        self.leave: dict[str, threading.Event] = {}

    def come(self, name: str, slots: int) -> None:
        """Let a thread ask; back when it has its slots or stands in the queue."""
        before = len(self.queue._waiting) + len(self.queue._running)
        self.leave[name] = threading.Event()
        self.threads[name] = threading.Thread(target=self._hold, args=(name, slots), daemon=True)
        self.threads[name].start()
        until(lambda: len(self.queue._waiting) + len(self.queue._running) == before + 1)

    def go(self, name: str) -> None:
        """Let a thread give its slots back."""
        self.leave[name].set()
        self.threads[name].join(DEADLINE)
        assert not self.threads[name].is_alive()

    def _hold(self, name: str, slots: int) -> None:
        with self.queue.taken(slots, self.total):
            self.entered.append(name)
            assert self.leave[name].wait(DEADLINE)


def test_slots_are_handed_out_in_order_and_a_small_request_does_not_overtake() -> None:
    crowd = Crowd(total=3)
    for name, slots in [("a", 2), ("b", 2), ("c", 1), ("d", 3), ("e", 1)]:
        crowd.come(name, slots)
    assert crowd.entered == ["a"]  # c would fit beside it, but came after b
    crowd.go("a")
    until(lambda: crowd.entered == ["a", "b", "c"])
    crowd.go("b")
    assert len(crowd.queue._running) == 1  # d needs all
    crowd.go("c")
    until(lambda: crowd.entered == ["a", "b", "c", "d"])
    crowd.go("d")
    until(lambda: crowd.entered == ["a", "b", "c", "d", "e"])
    crowd.go("e")
    assert not crowd.queue._waiting + crowd.queue._running


def test_many_threads_never_hold_more_than_there_is() -> None:
    queue, lock, held, peaks = Queue(), threading.Lock(), [0], []

    def work(slots: int) -> None:
        for _ in range(20):
            with queue.taken(slots, 4):
                with lock:
                    held[0] += slots
                    peaks.append(held[0])
                with lock:
                    held[0] -= slots

    threads = [threading.Thread(target=work, args=(1 + number % 3,), daemon=True) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(peaks) == 180
    assert max(peaks) <= 4


def test_a_fit_that_fails_gives_its_slots_back() -> None:
    queue = Queue()
    with pytest.raises(ValueError, match="bad rows"), queue.taken(1, 1):
        raise ValueError("bad rows")
    with queue.taken(1, 1):
        pass


def test_more_workers_than_slots_take_all() -> None:
    with Queue().taken(5, 2):
        pass


def test_an_interrupted_wait_ends_and_leaves_the_queue() -> None:
    crowd = Crowd(total=1)
    crowd.come("a", 1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest-xdist ignores it in its processes
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])  # received by the timer's thread
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt), crowd.queue.taken(1, 1):
            pass
        timer.join(DEADLINE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not crowd.queue._waiting
    crowd.come("b", 1)
    crowd.go("a")
    until(lambda: crowd.entered == ["a", "b"])
    crowd.go("b")


def test_a_wait_is_logged_and_no_wait_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparkdl.slots")
    crowd = Crowd(total=3)
    crowd.come("a", 2)
    assert caplog.messages == []
    crowd.come("b", 2)
    until(lambda: caplog.messages == ["This fit waits for 2 of 3 slots; before it: 1 running, 0 waiting."])
    crowd.go("a")
    crowd.go("b")


class Session:
    """As much of a Spark session as names its application."""

    def __init__(self, application: str) -> None:
        self.conf = {"spark.app.id": application}


def test_every_application_has_slots_of_its_own_and_unknown_ones_are_not_counted() -> None:
    one, other = Session("one"), Session("other")
    with taken(one, 1, 1), taken(other, 1, 1), taken(one, 1, None):  # type: ignore[arg-type]
        assert True
