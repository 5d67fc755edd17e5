"""Progress on the driver: shown where wanted, and never a reason for a fit to fail."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK

from sparkdl import DeepClassifier
from sparkdl.spark import progress
from sparkdl.spark.progress import Receiver, Sender, wanted

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


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda token: b"wrong\n" + json.dumps(MESSAGE).encode() + b"\n", id="wrong token"),
        pytest.param(lambda token: b"\xff" * 100_000, id="bytes without an end"),
        pytest.param(lambda token: b"", id="silence"),
        pytest.param(lambda token: token + b"\nno json\n", id="no JSON"),
        pytest.param(lambda token: token + b"\n{}\n", id="an empty message"),
        pytest.param(lambda token: token + b"\n[1]\n", id="no message"),
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


def test_nothing_listens_when_it_is_off() -> None:
    with Receiver(HERE, HERE, "accuracy", False) as receiver:
        assert receiver.address is None


def test_a_driver_that_cannot_listen_warns() -> None:
    with (
        pytest.warns(UserWarning, match="No progress bar: cannot listen on 192.0.2.1"),
        Receiver(HERE, "192.0.2.1", "accuracy", True),
    ):
        pass


@pytest.mark.parametrize(
    "setting, terminal, shown",
    [("on", False, True), ("off", True, False), ("auto", True, True), ("auto", False, False)],
)
def test_auto_means_in_a_terminal(monkeypatch: pytest.MonkeyPatch, setting: str, terminal: bool, shown: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert wanted(setting) is shown


def test_a_fit_draws_epoch_loss_and_rows_per_second(rows: DataFrame, capfd: pytest.CaptureFixture[str]) -> None:
    DeepClassifier(network=NETWORK, maxIter=3, numWorkers=2, progress="on").fit(rows)
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
