"""Progress and worker logs on the driver: shown where wanted, and never a reason for a fit to fail."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK

from sparkdl import DeepClassifier
from sparkdl.launch.sender import Sender
from sparkdl.spark.driver import progress
from sparkdl.spark.driver.progress import Receiver, wanted

HERE = "127.0.0.1"
MESSAGE = {"epoch": 1, "epochs": 3, "rows": 20, "total_rows": 100, "loss": 0.25, "metric": None, "seconds": 1.0}


class Bar:
    """Remembers what it was told to show."""

    total = n = 0

    def __init__(self) -> None:
        self.text = ""
        self.values: dict[str, str] = {}
        self.moved, self.closed = threading.Event(), False

    def set_description(self, text: str, refresh: bool) -> None:
        self.text = text

    def set_postfix(self, values: dict[str, str], refresh: bool) -> None:
        self.values = values

    def update(self, rows: int) -> None:
        self.n += rows
        self.moved.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> Bar:
    shown = Bar()
    monkeypatch.setattr(progress, "_bar", lambda: shown)
    return shown


@pytest.fixture
def receiver(bar: Bar) -> Iterator[Receiver]:
    with Receiver(HERE, HERE, "accuracy", True) as listening:
        yield listening
    assert bar.closed


def test_the_bar_counts_rows_over_all_epochs(bar: Bar, receiver: Receiver) -> None:
    with Sender(receiver.address) as sender:
        sender.send(MESSAGE | {"history": {"validation_loss": 0.5}})
        assert bar.moved.wait(10)
    assert (bar.text, bar.n, bar.total) == ("epoch 2/3", 120, 300)
    assert bar.values == {"loss": "0.2500", "validation": "0.5000"}


def test_the_bar_counts_rows_over_all_fits_that_share_a_job(bar: Bar, receiver: Receiver) -> None:
    with Sender(receiver.address) as sender:
        sender.send(MESSAGE | {"runs": [2, 3, 6]})  # 2 done, 3 in one go
        assert bar.moved.wait(10)
    assert (bar.text, bar.n, bar.total) == ("fit 3/6, epoch 2/3", 2 * 300 + 3 * 120, 6 * 300)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda token: b"w" * len(token) + json.dumps(MESSAGE).encode() + b"\n", id="wrong token"),
        pytest.param(lambda token: b"\xff" * 100_000, id="bytes without an end"),
        pytest.param(lambda token: b"", id="silence"),
        pytest.param(lambda token: token + b"no json\n", id="no JSON"),
        pytest.param(lambda token: token + b"{}\n", id="an empty message"),
        pytest.param(lambda token: token + b"[1]\n", id="no message"),
    ],
)
def test_strangers_and_nonsense_are_ignored(bar: Bar, receiver: Receiver, said: Callable[[bytes], bytes]) -> None:
    assert receiver.address is not None
    with socket.create_connection((HERE, receiver.address["port"])) as stranger:
        stranger.sendall(said(receiver.address["token"].encode()))
    with Sender(receiver.address) as sender:
        sender.send(MESSAGE)
        assert bar.moved.wait(10)
    assert bar.n == 120


def test_a_sender_without_a_receiver_sends_nothing_and_does_not_mind() -> None:
    with socket.create_server((HERE, 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    for address in (None, {"host": HERE, "port": port, "token": "t"}):
        with Sender(address) as sender:
            sender.send(MESSAGE)


def test_a_receiver_that_leaves_does_not_fail_the_sender(bar: Bar) -> None:
    with Receiver(HERE, HERE, "accuracy", True) as receiver:
        sender = Sender(receiver.address)
        sender.send(MESSAGE)
        assert bar.moved.wait(10)
    with sender:
        for _ in range(1000):
            sender.send(MESSAGE)


def logged_lines(caplog: pytest.LogCaptureFixture, awaited: int = 0) -> list[tuple[str, int, str]]:
    """What has been logged, once there are so many lines or 10 s have passed."""
    deadline = time.monotonic() + 10
    while True:
        lines = [record for record in caplog.record_tuples if record[0] == "sparkdl.worker"]
        if len(lines) >= awaited or time.monotonic() > deadline:
            return lines
        time.sleep(0.01)


def test_lines_of_every_worker_are_logged_with_rank_and_host(caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(HERE, HERE, "accuracy", False, True) as receiver:
        senders = [Sender(receiver.address) for _ in range(2)]  # at the same time
        for rank, sender in enumerate(senders):
            sender.send({"rank": rank, "host": "a", "line": f"hello 100% {rank}"})
        senders[0].send(MESSAGE)  # for a bar that nobody wants
        found = logged_lines(caplog, 2)
        for sender in senders:
            with sender:
                pass
    lines = [("sparkdl.worker", logging.INFO, f"[rank {rank} on a] hello 100% {rank}") for rank in range(2)]
    assert sorted(found) == lines


def test_lines_of_a_stranger_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(HERE, HERE, "accuracy", False, True) as receiver:
        assert receiver.address is not None
        with Sender(receiver.address | {"token": "w" * 32}) as sender:
            sender.send({"rank": 0, "host": "a", "line": "hello"})
        with Sender(receiver.address) as sender:
            sender.send({"rank": 1, "host": "a", "line": "hello"})
        assert [text for _, _, text in logged_lines(caplog, 1)] == ["[rank 1 on a] hello"]
    assert len(logged_lines(caplog)) == 1


def test_lines_go_to_standard_error_where_logging_is_not_set_up_and_leave_the_bar_whole(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = threading.Event()
    info = progress.LOGGER.info
    monkeypatch.setattr(progress.LOGGER, "info", lambda *line: (info(*line), written.set()))
    monkeypatch.setattr(progress.LOGGER, "propagate", False)  # pytest has set up the root logger
    with Receiver(HERE, HERE, "accuracy", True, True) as receiver, Sender(receiver.address) as sender:
        sender.send(MESSAGE)
        sender.send({"rank": 1, "host": "a", "line": "hello"})
        assert written.wait(10)
    assert progress.LOGGER.handlers == []
    pieces = capfd.readouterr().err.replace("\r", "\n").split("\n")
    assert "[rank 1 on a] hello" in [piece.strip() for piece in pieces]
    assert "120/300" in pieces[-2] or "120/300" in pieces[-1]


def test_threads_may_send_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(HERE, HERE, "accuracy", False, True) as receiver, Sender(receiver.address) as sender:

        def send() -> None:
            for _ in range(100):
                sender.send({"rank": 0, "host": "a", "line": "x" * 3000})

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [text for _, _, text in logged_lines(caplog, 300)] == ["[rank 0 on a] " + "x" * 3000] * 300


def test_nothing_listens_when_it_is_off() -> None:
    with Receiver(HERE, HERE, "accuracy", False) as receiver:
        assert receiver.address is None


@pytest.mark.parametrize(
    "shown, logged, lost",
    [(True, False, "progress bar"), (False, True, "worker logs"), (True, True, "progress bar or worker logs")],
)
def test_a_driver_that_cannot_listen_warns(shown: bool, logged: bool, lost: str) -> None:
    with (
        pytest.warns(UserWarning, match=f"No {lost}: cannot listen on 192.0.2.1"),
        Receiver(HERE, "192.0.2.1", "accuracy", shown, logged),
    ):
        pass


@pytest.mark.parametrize(
    "setting, terminal, shown",
    [("on", False, True), ("off", True, False), ("auto", True, True), ("auto", False, False)],
)
def test_auto_means_in_a_terminal(monkeypatch: pytest.MonkeyPatch, setting: str, terminal: bool, shown: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert wanted(setting) is shown


def test_a_fit_draws_epoch_loss_and_rows_per_second_and_logs_what_workers_print(
    rows: DataFrame, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    DeepClassifier(network=NETWORK, maxIter=3, numWorkers=2, progress="on", workerLogs="on").fit(rows)
    texts = [text for _, _, text in logged_lines(caplog)]
    for rank in range(2):  # gloo says so when it has connected them
        assert any(text.startswith(f"[rank {rank} on ") and "Gloo" in text for text in texts), texts
    last = capfd.readouterr().err.replace("\r", "\n").strip().splitlines()[-1]
    assert "epoch 3/3" in last
    assert "72.0/72.0" in last
    assert "rows/s" in last
    assert "loss=" in last
    assert "accuracy=" in last


def test_a_fit_succeeds_where_workers_cannot_reach_the_driver(
    rows: DataFrame, monkeypatch: pytest.MonkeyPatch, bar: Bar
) -> None:
    class Unreachable(Receiver):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            assert self.address is not None
            self.address["host"] = "192.0.2.1"  # an address for examples, where nobody is

    monkeypatch.setattr(progress, "Receiver", Unreachable)
    model = DeepClassifier(network=NETWORK, maxIter=1, progress="on").fit(rows)
    assert model.summary.totalIterations == 1
    assert bar.n == 0
